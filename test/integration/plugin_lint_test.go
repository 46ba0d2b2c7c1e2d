// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/stillpoint-operator/stillpoint/cmd/kubectl-stillpoint/lint"
)

// Offline and the API server say the same about every spec of which a rule's test knows, and about the fields that do not exist.
func TestPluginLintAgreesWithTheAPIServer(t *testing.T) {
	namespace := Namespace(t)
	agree := func(t *testing.T, kind, spec string) {
		t.Helper()
		o := object(t, kind, namespace, "spec: "+spec)
		err := api.Create(t.Context(), o.DeepCopy(), client.DryRunAll)
		if err != nil && !apierrors.IsInvalid(err) && !apierrors.IsBadRequest(err) {
			t.Fatalf("%s: %v", short(spec), err)
		}
		text, marshalErr := yaml.Marshal(o.Object)
		if marshalErr != nil {
			t.Fatal(marshalErr)
		}
		r, lintErr := lint.Lint(t.Context(), []lint.File{{Name: "f", Data: text, Named: true}}, lint.Options{Now: time.Now()})
		if lintErr != nil {
			t.Fatal(lintErr)
		}
		refused := false
		for _, f := range r.Findings {
			if f.Rule != "admission" && f.Rule != "unknown-field" {
				continue
			}
			refused = true
			if err != nil && f.Rule == "admission" && !strings.Contains(err.Error(), f.Message) {
				t.Errorf("%s: lint says\n  %s\nand the API server\n  %v", short(spec), f.Message, err)
			}
		}
		if refused != (err != nil) {
			t.Errorf("%s: lint refuses: %t; the API server: %v\n%+v", short(spec), refused, err, r.Findings)
		}
	}
	n := 0
	for kind, tables := range map[string][]map[string]rule{scheduleKind: {calendarRules(), scheduleRules(), preHookRules(), postHookRules()}, runKind: {runRules()}} {
		for _, table := range tables {
			for name, r := range table {
				t.Run(name, func(t *testing.T) {
					for _, spec := range append(append([]string(nil), r.accepts...), r.refuses...) {
						agree(t, kind, spec)
						n++
					}
				})
			}
		}
	}
	for _, spec := range []string{`{schedule: "@daily", retention: {maxCuont: 1}}`, `{schedule: "@daily", nonsense: {a: 1}}`, `{schedule: "@daily", preHooks: [{podSelector: {}, command: [sync], x: 1}]}`, `[]`, `null`, `{schedule: 5}`} {
		agree(t, scheduleKind, spec)
	}
	if n < 300 {
		t.Errorf("only %d specs were compared", n)
	}
}

func TestPluginLint(t *testing.T) {
	o := prepare(t)
	p := o.plugin()
	samples := filepath.Join("..", "..", "config", "samples")
	p.Expect(p.ok("lint", "-f", samples)).To(Equal("nothing to find fault with in 5 objects of 6 files\n"))

	bad := p.text("schedule.yaml", `apiVersion: snapscheduler.backube/v1
kind: SnapshotSchedule
metadata:
  name: shop
spec:
  schedule: "61 * * * *"
  retention:
    maxCuont: 3
  preHooks:
  - name: freeze
    podSelector: {matchLabels: {app: db}}
    command: ["fsfreeze", "--freeze", "/data"]
`)
	r := p.do("lint", "-f", bad)
	p.Expect(r.code).To(Equal(2))
	p.Expect(r.err).To(BeEmpty())
	p.Expect(strings.Split(strings.TrimSpace(strings.ReplaceAll(r.out, bad, "F")), "\n")).To(HaveExactElements(
		HavePrefix("F:6:3: error: SnapshotSchedule shop: spec.schedule: "),
		Equal("F:8:5: error: SnapshotSchedule shop: spec.retention.maxCuont: there is no such field; did you mean maxCount? [unknown-field]"),
		HavePrefix("F:12:5: error: SnapshotSchedule shop: spec.preHooks[0].command: this hook quiesces"),
		Equal("3 errors in 1 object of 1 file"),
	))

	doubtful := p.text("doubtful.yml", strings.Replace(strings.Split(must(os.ReadFile(bad)), "  retention")[0], "61 * * * *", "* 2 * * *", 1))
	p.fails(0, "warning: SnapshotSchedule shop: spec.schedule", "lint", "-f", doubtful)
	p.fails(2, "1 warning", "lint", "-f", doubtful, "--strict")

	var log struct {
		Runs []struct{ Results []struct{ RuleID string } }
	}
	r = p.do("lint", "-f", bad, "-o", "sarif")
	p.Expect(r.code).To(Equal(2))
	p.Expect(json.Unmarshal([]byte(r.out), &log)).To(Succeed())
	p.Expect(log.Runs[0].Results).To(HaveLen(3))
	r = p.do("lint", "-f", bad, "-o", "junit")
	var suites struct {
		Failures int `xml:"failures,attr"`
	}
	p.Expect(xml.Unmarshal([]byte(r.out), &suites)).To(Succeed())
	p.Expect(suites.Failures).To(Equal(1))

	p.stdin = must(os.ReadFile(bad))
	p.fails(2, "<stdin>:8:5: error", "lint", "-f", "-")
	p.fails(1, "nothing to judge: name files", "lint")
	p.fails(1, "no such file", "lint", "-f", "/no/such/file")
	p.fails(1, "no SnapshotSchedule and no SnapshotRun was found in "+t.TempDir()[:4], "lint", "-f", t.TempDir())

	dir := filepath.Dir(p.text("d/a/one.yaml", "a: [\n"))
	p.Expect(os.MkdirAll(filepath.Join(dir, ".git"), 0o755)).To(Succeed())
	p.Expect(os.WriteFile(filepath.Join(dir, ".git", "x.yaml"), []byte("apiVersion: snapscheduler.backube/v1\nkind: ["), 0o644)).To(Succeed())
	p.Expect(os.WriteFile(filepath.Join(dir, "good.json"), []byte(`{"apiVersion":"snapscheduler.backube/v1","kind":"SnapshotRun","metadata":{"name":"x"},"spec":{"scheduleName":"s"}}`), 0o644)).To(Succeed())
	p.Expect(p.ok("lint", "-f", filepath.Dir(dir))).To(Equal("nothing to find fault with in 1 object of 2 files\n"), "what is somebody else's, and hidden, is passed over")
}

func must(data []byte, err error) string {
	if err != nil {
		panic(err)
	}
	return string(data)
}
