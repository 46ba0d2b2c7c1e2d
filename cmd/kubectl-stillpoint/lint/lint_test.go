// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

var now = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

func judge(t *testing.T, texts ...string) *Report {
	t.Helper()
	var files []File
	for i, text := range texts {
		files = append(files, File{Name: fmt.Sprintf("%c.yaml", 'a'+i), Data: []byte(text)})
	}
	r, err := Lint(t.Context(), files, Options{Now: now})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return r
}

// lines are the findings as "file:line:column level rule path".
func lines(r *Report) []string {
	out := []string{}
	for _, f := range r.Findings {
		out = append(out, strings.TrimSpace(fmt.Sprintf("%s:%d:%d %s %s %s", f.File, f.Line, f.Column, f.Level, f.Rule, f.Path)))
	}
	return out
}

// schedule with a spec that is indented by two.
func schedule(spec string) string {
	return "apiVersion: snapscheduler.backube/v1\nkind: SnapshotSchedule\nmetadata:\n  name: s\nspec:\n" + spec
}

func TestFindings(t *testing.T) {
	const hooked = `  schedule: "0 * * * *"
  preHooks:
  - podSelector: {matchLabels: {app: db}}
    command: %s
`
	freeze := fmt.Sprintf(hooked, `[fsfreeze, --freeze, /data]`)
	thaw := func(more string) string {
		return "  postHooks:\n  - podSelector: {matchLabels: {app: db}}\n    command: [sh, -c, \"fsfreeze --unfreeze /data || true\"]\n" + more
	}
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"a good schedule":                              {schedule("  schedule: \"0 * * * *\"\n"), []string{}},
		"another kind is not looked at":                {"kind: ConfigMap\napiVersion: v1\nspek: 1\n", []string{}},
		"text that is not YAML and not about us":       {"a: [\n", []string{}},
		"text that is not YAML and about us":           {"apiVersion: snapscheduler.backube/v1\nkind: SnapshotSchedule\nspec: [\n", []string{"a.yaml:3:1 error yaml"}},
		"no schedule is found at the spec":             {schedule("  disabled: true\n"), []string{"a.yaml:5:1 error admission spec.schedule"}},
		"a field that does not exist has its own line": {schedule("  schedule: \"0 * * * *\"\n  retention:\n    maxCuont: 3\n"), []string{"a.yaml:8:5 error unknown-field spec.retention.maxCuont"}},
		"a key twice":                                  {schedule("  schedule: \"0 * * * *\"\n  disabled: true\n  disabled: false\n"), []string{"a.yaml:8:3 error duplicate-key spec.disabled"}},
		"a wrong type":                                 {schedule("  schedule: \"0 * * * *\"\n  disabled: \"yes\"\n"), []string{"a.yaml:7:3 error admission spec.disabled"}},
		"an OpenAPI bound":                             {schedule("  schedule: \"0 * * * *\"\n  retention: {maxCount: 0}\n"), []string{"a.yaml:7:15 error admission spec.retention.maxCount"}},
		"a CEL rule":                                   {schedule("  schedule: \"61 * * * *\"\n"), []string{"a.yaml:6:3 error admission spec.schedule"}},
		"a CEL rule deep in a list":                    {schedule(fmt.Sprintf(hooked, "[]")), []string{"a.yaml:9:5 error admission spec.preHooks[0].command"}},
		"a name that is none":                          {strings.Replace(schedule("  schedule: \"0 * * * *\"\n"), "name: s", "name: S_1", 1), []string{"a.yaml:4:3 error admission metadata.name"}},
		"no name":                                      {strings.Replace(schedule("  schedule: \"0 * * * *\"\n"), "name: s", "labels: {a: b}", 1), []string{"a.yaml:3:1 error admission metadata.name"}},
		"a version that does not exist":                {"apiVersion: snapscheduler.backube/v2\nkind: SnapshotSchedule\n", []string{"a.yaml:1:1 error unknown-kind apiVersion"}},
		"a kind that does not exist":                   {"apiVersion: snapscheduler.backube/v1\nkind: Snapshotschedule\n", []string{"a.yaml:1:1 error unknown-kind apiVersion"}},
		"no version":                                   {"kind: SnapshotSchedule\nmetadata: {name: s}\n", []string{"a.yaml:1:1 error unknown-kind apiVersion"}},
		"a zone that only the calendar knows not":      {schedule("  schedule: \"0 * * * *\"\n  timeZone: Europe/Wien\n"), []string{"a.yaml:7:3 error calendar spec.timeZone"}},
		"a day that never comes, beyond what CEL sees": {schedule("  schedule: \"0 0 30 2-2 *\"\n"), []string{"a.yaml:6:3 error calendar spec.schedule"}},
		"every minute of an hour":                      {schedule("  schedule: \"* 2 * * *\"\n"), []string{"a.yaml:6:3 warning calendar-meaning spec.schedule"}},
		"a step that does not divide the hour":         {schedule("  schedule: \"*/45 * * * *\"\n"), []string{"a.yaml:6:3 warning calendar-meaning spec.schedule"}},
		"day of month or day of week":                  {schedule("  schedule: \"0 0 13 * 5\"\n"), []string{"a.yaml:6:3 warning calendar-meaning spec.schedule"}},
		"day 31":                                       {schedule("  schedule: \"0 0 31 * *\"\n"), []string{"a.yaml:6:3 warning calendar-meaning spec.schedule"}},
		"an expiry that nobody lives to see":           {schedule("  schedule: \"0 * * * *\"\n  retention: {expires: 999999999999999h}\n"), []string{"a.yaml:7:15 error retention spec.retention.expires"}},
		"a selector that CEL does not see":             {schedule("  schedule: \"0 * * * *\"\n  claimSelector:\n    matchExpressions: [{key: a, operator: In}]\n"), []string{"a.yaml:7:3 error selector spec.claimSelector"}},
		"a hook in another namespace without account":  {schedule(fmt.Sprintf(hooked, "[pg_dump]") + "    namespace: other\n"), []string{"a.yaml:10:5 error hooks spec.preHooks[0].namespace"}},
		"a group of what labels cannot express": {schedule("  schedule: \"0 * * * *\"\n  snapshotTemplate: {groupSnapshotClassName: g}\n  claimSelector:\n    matchExpressions: [{key: a, operator: Exists}]\n"),
			[]string{"a.yaml:9:5 error group spec.claimSelector.matchExpressions"}},
		"a hook whose pod selector is none":            {schedule("  schedule: \"0 * * * *\"\n  preHooks:\n  - command: [save]\n    podSelector: {matchExpressions: [{key: a, operator: Is}]}\n"), []string{"a.yaml:9:5 error hooks spec.preHooks[0].podSelector"}},
		"a command of which nobody knows":              {schedule(fmt.Sprintf(hooked, "[/prepare.sh]")), []string{"a.yaml:8:5 note no-release spec.preHooks[0]"}},
		"a checkpoint needs no release":                {schedule(fmt.Sprintf(hooked, "[psql, -c, CHECKPOINT]")), []string{}},
		"freeze without thaw":                          {schedule(freeze), []string{"a.yaml:9:5 error freeze-without-thaw spec.preHooks[0].command"}},
		"freeze and thaw":                              {schedule(freeze + thaw("")), []string{}},
		"the thaw is of another path":                  {schedule(freeze + strings.Replace(thaw(""), "/data", "/other", 1)), []string{"a.yaml:9:5 error freeze-without-thaw spec.preHooks[0].command"}},
		"the thaw does not always run":                 {schedule(freeze + thaw("    executionPolicy: OnSuccess\n")), []string{"a.yaml:13:5 warning release-not-always spec.postHooks[0].executionPolicy"}},
		"no post hook always runs":                     {schedule(fmt.Sprintf(hooked, "[/prepare.sh]") + strings.Replace(thaw("    executionPolicy: OnFailure\n"), "fsfreeze", "x", 1)), []string{"a.yaml:10:3 warning release-not-always spec.postHooks"}},
		"the thaw is for other pods":                   {schedule(freeze + strings.Replace(thaw(""), "app: db", "app: web", 1)), []string{"a.yaml:11:5 warning thaw-elsewhere spec.postHooks[0]"}},
		"the thaw is for one of the pods":              {schedule(freeze + thaw("    targetPolicy: One\n")), []string{"a.yaml:11:5 warning thaw-elsewhere spec.postHooks[0]"}},
		"a thaw that fails when nothing is frozen":     {schedule(freeze + "  postHooks:\n  - podSelector: {matchLabels: {app: db}}\n    command: [fsfreeze, -u, /data]\n"), []string{"a.yaml:12:5 warning thaw-not-idempotent spec.postHooks[0].command"}},
		"a lock without its session":                   {schedule(fmt.Sprintf(hooked, "[mysql, -e, FLUSH TABLES WITH READ LOCK]")), []string{"a.yaml:9:5 warning lock-needs-hold spec.preHooks[0].command"}},
		"a held freeze that never thaws":               {schedule(freeze + "    mode: Hold\n    expectOutput: a\n    expectReleaseOutput: b\n"), []string{"a.yaml:9:5 error freeze-without-thaw spec.preHooks[0].command"}},
		"a run with a slot":                            {"apiVersion: snapscheduler.backube/v1\nkind: SnapshotRun\nmetadata: {generateName: s-}\nspec:\n  scheduleName: s\n  slot: \"2026-03-01T00:00:00Z\"\n", []string{"a.yaml:6:3 warning run-slot spec.slot"}},
		"a status is dropped, whatever it says":        {schedule("  schedule: \"0 * * * *\"\nstatus:\n  nonsense: 1\n"), []string{}},
		"the second document has its own lines":        {"# nothing\n---\n" + schedule("  schedule: \"0 * * * *\"\n") + "--- # next\n" + strings.Replace(schedule("  schedule: x\n"), "name: s", "name: t", 1), []string{"a.yaml:15:3 error admission spec.schedule"}},
		"objects of a list":                            {"apiVersion: v1\nkind: List\nitems:\n- apiVersion: snapscheduler.backube/v1\n  kind: SnapshotSchedule\n  metadata: {name: s}\n  spec:\n    schedule: x\n", []string{"a.yaml:8:5 error admission spec.schedule"}},
		"JSON":                                         {"{\"apiVersion\": \"snapscheduler.backube/v1\", \"kind\": \"SnapshotSchedule\",\n \"metadata\": {\"name\": \"s\"},\n \"spec\": {\"schedule\": \"x\"}}", []string{"a.yaml:3:11 error admission spec.schedule"}},
		"an anchor has the line of what it stands for": {schedule("  schedule: \"0 * * * *\"\n  preHooks:\n  - &h\n    podSelector: {}\n    command: []\n"), []string{"a.yaml:10:5 error admission spec.preHooks[0].command"}},
		"an object twice in one file":                  {schedule("  schedule: \"0 * * * *\"\n") + "---\n" + schedule("  schedule: \"0 * * * *\"\n"), []string{"a.yaml:11:3 error duplicate-name metadata.name"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := judge(t, c.text)
			NewWithT(t).Expect(lines(r)).To(Equal(c.want), "%+v", r.Findings)
		})
	}
}

func TestATypoIsNamed(t *testing.T) {
	r := judge(t, schedule("  schedule: \"0 * * * *\"\n  retention: {maxCuont: 3}\n  preHooks:\n  - {podselector: {}, podSelector: {}, command: [save]}\n"))
	g := NewWithT(t)
	g.Expect(r.Findings).To(HaveLen(2))
	g.Expect(r.Findings[0].Message).To(Equal("there is no such field; did you mean maxCount?"))
	g.Expect(r.Findings[1].Message).To(Equal("there is no such field; did you mean podSelector?"))
}

func TestTemplatesAreTold(t *testing.T) {
	r := judge(t, schedule("  schedule: {{ .Values.schedule }}\n"))
	g := NewWithT(t)
	g.Expect(r.Findings).To(HaveLen(1))
	g.Expect(r.Findings[0].Message).To(ContainSubstring("helm template"))
}

func TestCollisions(t *testing.T) {
	named := func(name, cron, app, more string) string {
		return strings.Replace(schedule("  schedule: \""+cron+"\"\n  claimSelector: {matchLabels: {app: "+app+"}}\n  preHooks: [{podSelector: {matchLabels: {app: "+app+"}}, command: [save]}]\n"+more), "name: s", "name: "+name, 1)
	}
	for name, c := range map[string]struct {
		a, b string
		want string
	}{
		"hourly and daily meet at midnight":         {named("a", "0 * * * *", "db", ""), named("b", "0 0 * * *", "db", ""), "2026-03-02T00:00Z"},
		"zones are looked at":                       {named("a", "0 3 * * *", "db", ""), named("b", "0 4 * * *", "db", "  timeZone: Europe/Vienna\n"), "2026-03-01T03:00Z"},
		"rare meetings are found":                   {named("a", "30 3 29 * *", "db", ""), named("b", "*/30 * * 10 *", "db", ""), "2026-10-29T03:30Z"},
		"other minutes":                             {named("a", "0 * * * *", "db", ""), named("b", "30 0 * * *", "db", ""), ""},
		"other pods and claims":                     {named("a", "0 * * * *", "db", ""), named("b", "0 * * * *", "web", ""), ""},
		"a spread takes them apart":                 {named("a", "0 * * * *", "db", "  spreadSeconds: 600\n"), named("b", "0 * * * *", "db", ""), ""},
		"one that is disabled does not fire":        {named("a", "0 * * * *", "db", "  disabled: true\n"), named("b", "0 * * * *", "db", ""), ""},
		"one without hooks does not wait":           {schedule("  schedule: \"0 * * * *\"\n"), named("b", "0 * * * *", "db", ""), ""},
		"in other namespaces, and the same in each": {named("a", "0 * * * *", "db", ""), strings.Replace(named("b", "0 * * * *", "db", ""), "metadata:\n", "metadata:\n  namespace: other\n", 1), ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := judge(t, c.a, c.b)
			g := NewWithT(t)
			if c.want == "" {
				g.Expect(lines(r)).To(BeEmpty())
				return
			}
			g.Expect(lines(r)).To(Equal([]string{"b.yaml:6:3 warning collision spec.schedule"}))
			g.Expect(r.Findings[0].Message).To(ContainSubstring("SnapshotSchedule a (a.yaml:6), next at " + c.want))
		})
	}
}

func TestWhatTheProjectShowsIsClean(t *testing.T) {
	g := NewWithT(t)
	for _, pattern := range []string{"config/samples/*.yaml", "hack/demo/schedule.yaml"} {
		names, err := filepath.Glob(filepath.Join("../../..", pattern))
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(names).NotTo(BeEmpty())
		for _, name := range names {
			data, err := os.ReadFile(name)
			g.Expect(err).NotTo(HaveOccurred())
			r, err := Lint(t.Context(), []File{{Name: name, Data: data, Named: true}}, Options{Now: now})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(r.Findings).To(BeEmpty())
		}
	}
}

// Recipes of the cookbook, which the operator's own tests run, raise neither errors nor warnings.
func TestTheCookbookIsClean(t *testing.T) {
	g := NewWithT(t)
	data, err := os.ReadFile("../../../docs/hooks.md")
	g.Expect(err).NotTo(HaveOccurred())
	recipes := 0
	for _, block := range strings.Split(string(data), "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		if !strings.Contains(block, "preHooks:") {
			continue
		}
		recipes++
		r := judge(t, schedule("  schedule: \"0 * * * *\"\n  "+strings.ReplaceAll(strings.TrimSuffix(block, "\n"), "\n", "\n  ")+"\n"))
		g.Expect(r.Findings).To(BeEmpty(), block)
	}
	g.Expect(recipes).To(BeNumerically(">=", 8))
}

func TestSARIF(t *testing.T) {
	g := NewWithT(t)
	r := judge(t, schedule("  schedule: \"61 * * * *\"\n"))
	var out bytes.Buffer
	g.Expect(r.SARIF(&out, "v1")).To(Succeed())
	var log struct {
		Version string
		Runs    []struct {
			Tool struct {
				Driver struct{ Rules []struct{ ID string } }
			}
			Results []struct {
				RuleID    string
				RuleIndex int
				Level     string
				Message   struct{ Text string }
				Locations []struct {
					PhysicalLocation struct {
						ArtifactLocation struct{ URI string }
						Region           struct{ StartLine, StartColumn int }
					}
				}
			}
		}
	}
	g.Expect(json.Unmarshal(out.Bytes(), &log)).To(Succeed())
	g.Expect(log.Version).To(Equal("2.1.0"))
	g.Expect(log.Runs).To(HaveLen(1))
	result := log.Runs[0].Results
	g.Expect(result).To(HaveLen(1))
	g.Expect(result[0].RuleID).To(Equal("admission"))
	g.Expect(log.Runs[0].Tool.Driver.Rules[result[0].RuleIndex].ID).To(Equal("admission"))
	g.Expect(result[0].Level).To(Equal("error"))
	at := result[0].Locations[0].PhysicalLocation
	g.Expect(at.ArtifactLocation.URI).To(Equal("a.yaml"))
	g.Expect(at.Region.StartLine).To(Equal(6))
	g.Expect(result[0].Message.Text).To(HavePrefix("spec.schedule: Invalid value: \"61 * * * *\": minute, the first field of schedule"))
}

func TestJUnit(t *testing.T) {
	g := NewWithT(t)
	r := judge(t, schedule("  schedule: \"* 2 * * *\"\n"), strings.Replace(schedule("  schedule: x\n"), "name: s", "name: t", 1), "spec: [\n# snapscheduler.backube\n")
	for _, c := range []struct {
		strict   bool
		failures int
	}{{false, 2}, {true, 3}} {
		var out bytes.Buffer
		g.Expect(r.JUnit(&out, c.strict)).To(Succeed())
		var all junitSuites
		g.Expect(xml.Unmarshal(out.Bytes(), &all)).To(Succeed())
		g.Expect([]int{len(all.Suites), all.Tests, all.Failures}).To(Equal([]int{3, 3, c.failures}), out.String())
		g.Expect(all.Suites[1].Cases[0].Failure.Type).To(Equal("admission"))
		g.Expect(all.Suites[1].Cases[0].Failure.Text).To(ContainSubstring("b.yaml:6:3"))
	}
}

func TestText(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	r := judge(t, schedule("  schedule: \"* 2 * * *\"\n  spreadSecond: 3\n"))
	r.Text(&out, func(l Level, s string) string { return s })
	g.Expect(out.String()).To(Equal(`a.yaml:6:3: warning: SnapshotSchedule s: spec.schedule: "* 2 * * *" fires every minute of those hours; for once an hour write 0 in place of the first * [calendar-meaning]
a.yaml:7:3: error: SnapshotSchedule s: spec.spreadSecond: there is no such field; did you mean spreadSeconds? [unknown-field]
1 error, 1 warning in 1 object of 1 file
`))
	out.Reset()
	judge(t, schedule("  schedule: \"0 2 * * *\"\n")).Text(&out, nil)
	g.Expect(out.String()).To(Equal("nothing to find fault with in 1 object of 1 file\n"))
}

func TestSchedule(t *testing.T) {
	g := NewWithT(t)
	s, _, err := Schedule(t.Context(), File{Name: "f", Data: []byte(schedule("  schedule: \"0 2 * * *\"\n"))}, Options{Namespace: "n"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(s.Name).To(Equal("s"))
	g.Expect(s.Namespace).To(Equal("n"))

	s, r, err := Schedule(t.Context(), File{Name: "f", Data: []byte(schedule("  schedule: x\n"))}, Options{})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(s).To(BeNil())
	g.Expect(r.Count(Error)).To(Equal(1))

	_, _, err = Schedule(t.Context(), File{Name: "f", Data: []byte("kind: ConfigMap")}, Options{})
	g.Expect(err).To(MatchError("f holds 0 SnapshotSchedules, and one is needed"))
}
