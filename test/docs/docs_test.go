// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"maps"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
)

func load(t *testing.T) (*WithT, *Project) {
	t.Helper()
	g := NewWithT(t)
	p, err := Load("../..")
	g.Expect(err).NotTo(HaveOccurred())
	return g, p
}

func TestThePagesSayNothingThatIsNotTrue(t *testing.T) {
	g, p := load(t)
	pages, err := Read(p.Root)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(len(pages)).To(BeNumerically(">", 15))
	for _, wrong := range Check(pages, p) {
		t.Error(wrong)
	}
}

func TestEveryFlagOfTheOperatorIsExplained(t *testing.T) {
	g, p := load(t)
	pages, err := Read(p.Root)
	g.Expect(err).NotTo(HaveOccurred())
	i := slices.IndexFunc(pages, func(p *Page) bool { return p.Path == "docs/operations.md" })
	for _, flag := range slices.Sorted(maps.Keys(p.Flags)) {
		if !strings.HasPrefix(flag, "zap-") {
			g.Expect(pages[i].Spans).To(ContainElement(HaveField("Text", "--"+flag)), "docs/operations.md")
		}
	}
}

func TestWhatIsWrongInAPageIsFound(t *testing.T) {
	_, p := load(t)
	for name, c := range map[string]struct{ page, says string }{
		"a link to no page":                    {"[x](nowhere.md)", "docs/page.md:1: link nowhere.md: there is no docs/nowhere.md"},
		"a link to no heading":                 {"# One\n\n[x](#two)", "link #two: docs/page.md has no such heading"},
		"a picture that is not there":          {"![x](no.svg)", "there is no docs/no.svg"},
		"a block without a language":           {"```\nx\n```", "a block needs a language"},
		"YAML that is no object":               {"```yaml\na: 1\n```", "must be marked"},
		"YAML that cannot be read":             {"<!-- fragment -->\n```yaml\na: 1\na: 2\n```", `key "a" already set`},
		"an unknown mark":                      {"<!-- fragmnt -->\n```yaml\na: 1\n```", "fragmnt"},
		"a value that the chart does not have": {"<!-- fragment: values -->\n```yaml\nhooks: {enable: true}\n```", "the chart has no value hooks.enable"},
		"the same on a command line":           {"```sh\nhelm install x helm/stillpoint --set hooks.enable=true\n```", "docs/page.md:2: the chart has no value hooks.enable"},
		"a chart that is not there":            {"    helm install x helm/stillpont", "there is no chart helm/stillpont"},
		"a command of helm":                    {"    helm instal x", "helm has no command instal"},
		"a make target":                        {"`make tset`", "make has no target tset"},
		"a command of the plugin":              {"    kubectl stillpoint restor x", `unknown command "restor"`},
		"a flag of the plugin":                 {"    kubectl stillpoint restore x --form y", "unknown flag: --form"},
		"an argument that is missing":          {"    kubectl stillpoint restore", "kubectl stillpoint restore needs"},
		"a flag of the operator":               {"    kubectl exec deploy/stillpoint -- /stillpoint --preflght", "the operator has no flag --preflght"},
		"a flag in the text":                   {"see `--watch-namespace`", "has a flag --watch-namespace"},
		"a command that nothing knows":         {"```console\n$ frobnicate\noutput\n```", "nothing is known about the command frobnicate"},
		"a command within a command":           {"    kubectl get $(make tset)", "make has no target tset"},
		"no shell":                             {"    if then", "this is no shell"},
		"a package":                            {"    go test ./nowhere/...", "there is no ./nowhere"},
		"a file":                               {"`test/e2e/nothing_test.go`", "there is no test/e2e/nothing_test.go"},
		"a test":                               {"`TestNothing`, `TestNo*`", "there is no test TestNothing"},
		"a field":                              {"`spec.preHooks[].nme`", "neither kind has a field spec.preHooks[].nme"},
		"a value in the text":                  {"`hooks.enable`", "the chart has no value hooks.enable"},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(Check([]*Page{Parse("docs/page.md", []byte(c.page))}, p)).To(ContainElement(ContainSubstring(c.says)))
		})
	}
}

func TestWhatIsRightInAPageIsAccepted(t *testing.T) {
	g, p := load(t)
	page := "# One: `two`\n\n[x](#one-two) [y](../README.md) [z](https://example.com/)\n\n" +
		"<!-- fragment: spec -->\n```yaml\nschedule: '@daily'\n```\n\n- in a list\n\n  <!-- not run: there is no registry -->\n  ```sh\n  docker push x\n  ```\n\n" +
		"```console\n$ kubectl stillpoint -n shop restore hourly --at \"$(date)\" --wait\nit said this\n$ make unit GO_TEST_FLAGS=-v\n```\n\n" +
		"`spec.preHooks[].name`, `status.hooks[].targets[].notStarted`, `hooks.enabled`, `--enable-hooks=false`, `TestWhatIs*`, `kubectl stillpoint restore`\n"
	g.Expect(Check([]*Page{Parse("docs/page.md", []byte(page))}, p)).To(BeEmpty())
}
