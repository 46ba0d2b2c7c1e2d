// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/stillpoint-operator/stillpoint/test/docs"
)

// shownObject is one that a page shows, in a block of YAML or in a here-document that a command reads.
type shownObject struct {
	where, text string
	spec        bool // a part of a schedule's spec
}

// placeholder is how pages write what the reader must fill in.
var placeholder = regexp.MustCompile(`\b[A-Z][A-Z0-9-]+\b`)

func shownObjects(pages []*docs.Page) ([]shownObject, error) {
	var out []shownObject
	for _, p := range pages {
		for _, b := range p.Blocks {
			if b.Lang != "yaml" || (b.Mark != "" && b.Mark != "fragment: spec") {
				continue
			}
			for _, text := range docs.Documents(b.Text) {
				out = append(out, shownObject{where: fmt.Sprintf("%s:%d", p.Path, b.Line), text: text, spec: b.Mark != ""})
			}
		}
		commands, err := p.Commands()
		if err != nil {
			return nil, err
		}
		for _, c := range commands {
			if c.Words[0] == "kubectl" && c.Input != "" {
				for _, text := range docs.Documents(c.Input) {
					out = append(out, shownObject{where: fmt.Sprintf("%s:%d", p.Path, c.Line), text: placeholder.ReplaceAllStringFunc(text, strings.ToLower)})
				}
			}
		}
	}
	return out, nil
}

// applyShown has the API server judge an object, without making it.
func applyShown(t *testing.T, namespace string, s shownObject) error {
	fields := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(s.text), &fields); err != nil {
		return err
	}
	if s.spec {
		if fields["schedule"] == nil {
			fields["schedule"] = "@daily"
		}
		fields = map[string]any{"apiVersion": "snapscheduler.backube/v1", "kind": scheduleKind, "metadata": map[string]any{"name": "shown"}, "spec": fields}
	}
	o := &unstructured.Unstructured{Object: fields}
	namespaced, err := api.IsObjectNamespaced(o)
	if err != nil {
		return err
	}
	if namespaced {
		o.SetNamespace(namespace)
	}
	if o.GetName() == "" {
		o.SetName(o.GetGenerateName() + "1")
		o.SetGenerateName("")
	}
	return api.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.DryRunAll, client.FieldOwner("docs"), client.ForceOwnership)
}

func TestEveryObjectInTheDocumentationIsAcceptedByTheAPIServer(t *testing.T) {
	g := NewWithT(t)
	pages, err := docs.Read("../..")
	g.Expect(err).NotTo(HaveOccurred())
	shown, err := shownObjects(pages)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(len(shown)).To(BeNumerically(">", 15))
	namespace := Namespace(t)
	for _, s := range shown {
		if err := applyShown(t, namespace, s); err != nil {
			t.Errorf("%s: %v", s.where, err)
		}
	}

	for text, says := range map[string]string{
		"schedule: '60 * * * *'":               "minute, the first field of schedule",
		"preHooks: [{podSelector: {}}]":        "command is missing",
		"retention: {maxCont: 3}":              "maxCont",
		"serviceAcountName: me":                "serviceAcountName",
		"claimSelector: {matchLabels: {a: 1}}": "matchLabels",
	} {
		g.Expect(applyShown(t, namespace, shownObject{text: text, spec: true})).To(MatchError(ContainSubstring(says)), "what is wrong is found")
	}
	g.Expect(applyShown(t, namespace, shownObject{text: "{apiVersion: v1, kind: Pot, metadata: {name: x}}"})).To(MatchError(ContainSubstring("Pot")))
	found, err := shownObjects([]*docs.Page{docs.Parse("page.md", []byte("    kubectl create -f - <<EOF\n    {kind: RUN}\n    EOF\n"))})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(found).To(ConsistOf(shownObject{where: "page.md:1", text: "{kind: run}\n"}))
}

// kubectlAccepts has the real kubectl read a command line up to the point where it would be carried out: its help is asked for.
func kubectlAccepts(t *testing.T, words []string) error {
	args := slices.Clone(words[1:])
	if i := slices.Index(args, "--"); i >= 0 {
		args = args[:i]
	}
	args = slices.DeleteFunc(args, func(a string) bool { return a == "..." })
	if last := args[len(args)-1]; last == "-f" || last == "-n" {
		args = append(args, "X") // a part of a command line, in the text
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(env.BinaryAssetsDirectory, "kubectl"), append(args, "--help")...) // #nosec G204 -- the pages' own words
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(out.String()))
	}
	if strings.Contains(out.String(), "kubectl controls the Kubernetes cluster manager") {
		return fmt.Errorf("kubectl has no such command: %s", strings.Join(args, " "))
	}
	return nil
}

// readsKind are kubectl's commands whose first argument is a kind, or kinds with commas, or kind/name.
var readsKind = []string{"get", "describe", "annotate", "label", "delete", "patch", "edit"}

// kindsOf the objects that a command line names; empty: none that can be told.
func kindsOf(words []string) []string {
	var verb string
	for i := 1; i < len(words); i++ {
		switch {
		case words[i] == "-f" || words[i] == "-k":
			return nil
		case words[i] == "-n" || words[i] == "--namespace":
			i++
		case strings.HasPrefix(words[i], "-"):
		case verb == "":
			if verb = words[i]; !slices.Contains(readsKind, verb) {
				return nil
			}
		default:
			kinds, _, _ := strings.Cut(words[i], "/")
			return strings.Split(kinds, ",")
		}
	}
	return nil
}

// resourceNames are all names by which kubectl knows what the API server serves. The kinds of addons are those that the pages speak of.
func resourceNames(g *WithT) map[string]bool {
	lists, err := discovery.NewDiscoveryClientForConfigOrDie(Env()).ServerPreferredResources()
	g.Expect(err).NotTo(HaveOccurred())
	known := map[string]bool{"servicemonitor": true, "prometheusrule": true}
	for _, list := range lists {
		for _, r := range list.APIResources {
			for _, name := range append([]string{r.Name, r.SingularName, strings.ToLower(r.Kind)}, r.ShortNames...) {
				known[name] = true
			}
		}
	}
	return known
}

func TestEveryKubectlCommandInTheDocumentationExists(t *testing.T) {
	g := NewWithT(t)
	pages, err := docs.Read("../..")
	g.Expect(err).NotTo(HaveOccurred())
	resources := resourceNames(g)
	seen := 0
	for _, p := range pages {
		commands, err := p.Commands()
		g.Expect(err).NotTo(HaveOccurred())
		for _, c := range append(commands, p.SpanCommands()...) {
			if c.Words[0] != "kubectl" || len(c.Words) < 2 || c.Words[1] == "stillpoint" {
				continue
			}
			seen++
			if err := kubectlAccepts(t, c.Words); err != nil {
				t.Errorf("%s:%d: %v", p.Path, c.Line, err)
			}
			for _, kind := range kindsOf(c.Words) {
				if !resources[kind] {
					t.Errorf("%s:%d: the API server has no kind %s", p.Path, c.Line, kind)
				}
			}
		}
	}
	g.Expect(seen).To(BeNumerically(">", 20))
	g.Expect(kubectlAccepts(t, []string{"kubectl", "gett", "pods"})).NotTo(Succeed())
	g.Expect(kubectlAccepts(t, []string{"kubectl", "get", "pods", "--outputt", "yaml"})).NotTo(Succeed())
	g.Expect(kindsOf([]string{"kubectl", "-n", "shop", "get", "pods,leases", "-A"})).To(Equal([]string{"pods", "leases"}))
}
