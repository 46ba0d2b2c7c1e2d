#!/bin/bash
# docs.sh: the pages of docs/ as a site in dist/site. Needs npm; what it fetches is pinned in hack/docs-site/package-lock.json.
set -eu
if ! command -v npm >/dev/null; then
  echo "error: npm is missing. Install Node.js 20 or newer with npm (Debian: apt-get install npm)" >&2
  exit 1
fi
work=dist/docs-site
mkdir -p "$work"
# The packages stay for the next time, unless the lock has changed; the pages are always the present ones.
if ! cmp -s hack/docs-site/package-lock.json "$work/installed"; then
  cp hack/docs-site/package.json hack/docs-site/package-lock.json "$work/"
  npm --prefix "$work" ci --ignore-scripts --no-audit --no-fund
  cp hack/docs-site/package-lock.json "$work/installed"
fi
find "$work" -mindepth 1 -maxdepth 1 -not -name node_modules -not -name 'package*.json' -not -name installed -exec rm -rf {} +
cp -r docs/. hack/docs-site/.vitepress "$work/"
(cd "$work" && node_modules/.bin/vitepress build)
rm -rf dist/site
mv "$work/site" dist/site
echo "the site is in dist/site"
