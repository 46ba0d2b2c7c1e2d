// SPDX-License-Identifier: Apache-2.0

package prometheus

import (
	"bytes"
	"maps"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	ctrlmetrics "sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/yaml"

	"github.com/stillpoint-operator/stillpoint/internal/metrics"
)

const (
	alertsFile = "../../helm/stillpoint/files/alerts.yaml"
	dashboards = "../../helm/stillpoint/files/dashboards/*.json"
)

// promtool runs it and returns what it says.
func promtool(t *testing.T, input []byte, args ...string) (string, error) {
	t.Helper()
	program, err := exec.LookPath("promtool")
	if err != nil {
		t.Fatalf("promtool is missing: install it (Debian: apt-get install prometheus), or run make unit as root")
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Stdin = bytes.NewReader(input)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestAlerts(t *testing.T) {
	for _, args := range [][]string{{"check", "rules", alertsFile}, {"test", "rules", "alerts_test.yaml"}} {
		if out, err := promtool(t, nil, args...); err != nil {
			t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
}

type alert struct {
	Alert       string            `json:"alert"`
	Expr        string            `json:"expr"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
}

func alerts(t *testing.T) []alert {
	t.Helper()
	text, err := os.ReadFile(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []alert `json:"rules"`
		} `json:"groups"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	return file.Groups[0].Rules
}

// Who is woken finds what is wrong, what to look at and what to type.
func TestEveryAlertHasARunbook(t *testing.T) {
	g := NewWithT(t)
	pages, err := filepath.Glob("../../docs/runbooks/Stillpoint*.md")
	g.Expect(err).NotTo(HaveOccurred())
	tests, err := os.ReadFile("alerts_test.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	var named []string
	for _, a := range alerts(t) {
		named = append(named, "../../docs/runbooks/"+a.Alert+".md")
		g.Expect(a.Labels["severity"]).To(BeElementOf("warning", "critical"), a.Alert)
		g.Expect(a.Annotations).To(And(HaveKey("summary"), HaveKey("description"),
			HaveKeyWithValue("runbook_url", "https://github.com/stillpoint-operator/stillpoint/blob/main/docs/runbooks/"+a.Alert+".md")), a.Alert)
		page, err := os.ReadFile("../../docs/runbooks/" + a.Alert + ".md")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(string(page)).To(And(HavePrefix("# "+a.Alert+"\n"), ContainSubstring("\n## What it means\n"), ContainSubstring("\n## What to look at\n"), ContainSubstring("\n## What to do\n"), ContainSubstring("kubectl ")), a.Alert)
		g.Expect(string(tests)).To(ContainSubstring(a.Alert))
	}
	g.Expect(pages).To(ConsistOf(named))
}

// everything that can be exported, once.
func exposition(t *testing.T) []byte {
	t.Helper()
	s, now := metrics.Schedule{Namespace: "shop", Name: "db"}, time.Now()
	metrics.SetState(s, metrics.State{Ready: true, ReadyReason: "Scheduled", NextRun: now, LastSuccess: now, SuccessDue: now, LastResult: "Failed", LastMissed: now, LastMissedReason: "Overlap",
		QuiesceDeadline: now, Snapshots: map[metrics.SnapshotState]metrics.Snapshots{metrics.Ready: {Count: 1, Since: now}}, Claims: map[string]metrics.Claim{"data": {All: 1}}}, now)
	metrics.SnapshotCreated(s, "data", now)
	metrics.RunCompleted(s, "Failed")
	metrics.RunStarted(s, time.Second)
	metrics.HookEnded(s, "Pre", "Timeout", time.Second)
	metrics.Released(s, time.Second)
	metrics.SnapshotCut(s, time.Second)
	metrics.SnapshotRestorable(s, time.Second)
	metrics.SnapshotExpired(s, "Expired")
	t.Cleanup(func() { metrics.Forget(s) })
	w := httptest.NewRecorder()
	promhttp.HandlerFor(ctrlmetrics.Registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	return w.Body.Bytes()
}

// snapscheduler's names are what its users have in their dashboards; two of them are not as Prometheus would like them.
func TestPromtoolLikesTheMetrics(t *testing.T) {
	out, _ := promtool(t, exposition(t), "check", "metrics")
	var complaints []string
	for line := range strings.Lines(out) {
		complaints = append(complaints, strings.Fields(line)[0])
	}
	NewWithT(t).Expect(complaints).To(ConsistOf("snapscheduler_snapshot_current_count", "snapscheduler_snapshot_current_ready_count"), out)
}

var ours = regexp.MustCompile(`\b(?:stillpoint|snapscheduler)_[a-z_]+`)

// exported are the metrics' types and labels, without those of the schedule, as "gauge reason".
func exported(t *testing.T) map[string]string {
	t.Helper()
	exposition(t)
	families, err := ctrlmetrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, f := range families {
		if !ours.MatchString(f.GetName()) {
			continue
		}
		words := []string{strings.ToLower(f.GetType().String())}
		for _, l := range f.GetMetric()[0].GetLabel() {
			if l.GetName() != "schedule_name" && l.GetName() != "schedule_namespace" {
				words = append(words, l.GetName())
			}
		}
		out[f.GetName()] = strings.Join(words, " ")
	}
	return out
}

func TestEveryMetricIsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (\\w+) \\|([^|]*)\\|").FindAllStringSubmatch(string(doc), -1) {
		words := []string{m[2]}
		for _, label := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(m[3], -1) {
			words = append(words, label[1])
		}
		documented[m[1]] = strings.Join(words, " ")
	}
	NewWithT(t).Expect(documented).To(Equal(exported(t)))
}

// A query about what nobody exports is silent for ever.
func TestAlertsAndDashboardsAskForWhatExists(t *testing.T) {
	known := slices.Collect(maps.Keys(exported(t)))
	files, err := filepath.Glob(dashboards)
	if err != nil || len(files) == 0 {
		t.Fatalf("no dashboards: %v", err)
	}
	for _, file := range append(files, alertsFile) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range ours.FindAllString(string(text), -1) {
			base := name
			for _, suffix := range []string{"_bucket", "_sum", "_count"} {
				if b := strings.TrimSuffix(name, suffix); slices.Contains(known, b) {
					base = b
				}
			}
			if !slices.Contains(known, base) {
				t.Errorf("%s asks for %s, which is not exported", filepath.Base(file), name)
			}
		}
	}
}
