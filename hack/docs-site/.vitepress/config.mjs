// The site of docs/. hack/docs.sh puts the pages beside this directory and builds them.
import {readFileSync} from 'node:fs'
import {posix} from 'node:path'

const repository = 'https://github.com/stillpoint-operator/stillpoint'

// The sidebar is the index, docs/README.md: bold lines are groups, the links below them are their pages.
const sidebar = []
for (const line of readFileSync('README.md', 'utf8').split('\n')) {
  const group = line.match(/^\*\*(.+)\*\*$/)
  if (group) sidebar.push({text: group[1], items: []})
  for (const [, text, link] of sidebar.length ? line.matchAll(/\[([^\]]+)\]\(([^)]+)\.md\)/g) : [])
    sidebar.at(-1).items.push({text, link: '/' + link})
}

// What pages link to outside docs/ is in the repository.
function linksToRepository(md) {
  md.core.ruler.push('links-to-repository', state => {
    for (const token of state.tokens.flatMap(t => t.children ?? [])) {
      const href = token.type === 'link_open' && token.attrGet('href')
      if (!href || /^([a-z]+:|#|\/)/.test(href)) continue
      const target = posix.join('docs', posix.dirname(state.env.relativePath ?? ''), href)
      if (!target.startsWith('docs/')) token.attrSet('href', `${repository}/blob/main/${target}`)
    }
  })
}

export default {
  title: 'Stillpoint',
  description: 'Application-consistent CSI snapshots on a schedule',
  base: process.env.DOCS_BASE ?? '/',
  outDir: 'site',
  cleanUrls: true,
  rewrites: {'README.md': 'index.md'},
  markdown: {config: linksToRepository},
  themeConfig: {
    sidebar,
    outline: [2, 3],
    search: {provider: 'local'},
    socialLinks: [{icon: 'github', link: repository}],
  },
}
