// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// A whole Prometheus scrapes the operator as it is scraped in a cluster: over TLS, with the token of an account that may. Then every alert can be
// asked, those that should fire do, and every query of the dashboards has something to show.
func TestPrometheusReadsTheOperator(t *testing.T) {
	w := settle(t)
	metrics := freeAddress(t)
	o := startOperator(t, "--metrics-bind-address="+metrics)
	p := w.prometheus(metrics)
	db := w.app("db")

	// One that is fine, at every full minute, and keeps one snapshot; one whose pre hook fails; one whose release is given up.
	once := func(s *v1.SnapshotScheduleSpec) { s.PostHooks[0].BackoffLimit = ptr.To(int32(0)) }
	w.schedule("good", hooked(db, "true", "true"), func(s *v1.SnapshotScheduleSpec) {
		s.Schedule, s.RunOnCreate, s.Retention.MaxCount = "* * * * *", true, ptr.To(int32(1))
	})
	w.ends(w.start(w.schedule("fails", hooked(db, "exit 3", "true"))), v1.ResultFailed)
	w.Expect(w.completes(patience, w.start(w.schedule("stuck", hooked(db, "true", "exit 4"), once))).Status.Result).To(Equal(v1.ResultPartiallyFailed))

	t.Run("alerts fire", func(t *testing.T) {
		w := w.within(t)
		w.Eventually(func() []string { return p.firing(w) }, patience, "200ms").Should(ContainElements(
			"StillpointMayBeQuiesced stuck critical", "StillpointRunFailed fails warning", "StillpointRunFailed stuck warning", "StillpointPostHookFailed stuck warning"))
		w.Expect(p.firing(w)).NotTo(ContainElement(ContainSubstring(" good ")))
	})
	t.Run("every alert can be asked", func(t *testing.T) { p.expectHealthyRules(w.within(t), 9) })
	t.Run("every query of the dashboards has an answer", func(t *testing.T) {
		w := w.within(t)
		silent := p.dashboardQueries(w)
		w.Expect(len(silent)).To(BeNumerically(">", 50))
		// A rate needs two slots after the first scrape, so at least the second full minute from now.
		w.Eventually(func() []dashboardQuery {
			silent = p.unanswered(silent)
			return silent
		}, 150*time.Second, time.Second).Should(BeEmpty())
	})
	if file := os.Getenv("STILLPOINT_DASHBOARD_PICTURE"); file != "" {
		w.Eventually(func() ([]measured, error) { // a few runs make a better picture
			return p.query(`stillpoint_runs_total{schedule_namespace="` + w.ns + `", schedule_name="good", result="Succeeded"} > 4`)
		}, "6m", "1s").ShouldNot(BeEmpty())
		w.Expect(p.drawOverview(p.dashboardQueries(w), file)).To(Succeed())
	}
	t.Run("the alerts outlive the operator", func(t *testing.T) {
		w := w.within(t)
		o.kill()
		w.Eventually(func() []string { return p.firing(w) }, patience, "200ms").Should(ContainElement("StillpointOperatorDown  critical"))
		w.Expect(p.firing(w)).To(And(ContainElement("StillpointMayBeQuiesced stuck critical"), Not(ContainElement("StillpointRunFailed fails warning"))))
	})
}

// firing alerts of the test's namespace, as "name schedule severity".
func (p *prometheus) firing(w *world) []string {
	w.Helper()
	var data struct {
		Alerts []struct {
			State  string            `json:"state"`
			Labels map[string]string `json:"labels"`
		} `json:"alerts"`
	}
	w.Expect(p.get("/api/v1/alerts", nil, &data)).To(Succeed())
	var out []string
	for _, a := range data.Alerts {
		if ns := a.Labels["schedule_namespace"]; a.State == "firing" && (ns == w.ns || ns == "") {
			out = append(out, strings.Join([]string{a.Labels["alertname"], a.Labels["schedule_name"], a.Labels["severity"]}, " "))
		}
	}
	return out
}

func (p *prometheus) expectHealthyRules(w *world, n int) {
	w.Helper()
	var data struct {
		Groups []struct {
			Rules []struct {
				Name, Health, LastError string
			} `json:"rules"`
		} `json:"groups"`
	}
	w.Expect(p.get("/api/v1/rules", nil, &data)).To(Succeed())
	w.Expect(data.Groups).To(HaveLen(1))
	w.Expect(data.Groups[0].Rules).To(HaveLen(n))
	w.Expect(data.Groups[0].Rules).To(HaveEach(And(HaveField("Health", "ok"), HaveField("LastError", ""))))
}

// dashboardQuery is one of a panel.
type dashboardQuery struct {
	Dashboard, Panel, Title, RefID, Legend, Expr string
}

type dashboardPanel struct {
	Title   string `json:"title"`
	Type    string `json:"type"`
	Targets []struct {
		RefID        string `json:"refId"`
		Expr         string `json:"expr"`
		LegendFormat string `json:"legendFormat"`
	} `json:"targets"`
}

// dashboardQueries are all of them, with the dashboards' variables filled in: all schedules of the test's namespace.
func (p *prometheus) dashboardQueries(w *world) []dashboardQuery {
	w.Helper()
	files, err := filepath.Glob("../../helm/stillpoint/files/dashboards/*.json")
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(files).To(HaveLen(3))
	fill := strings.NewReplacer("$__rate_interval", "1m", "$__range", "1h", "$namespace", w.ns, "$schedule", ".*")
	var out []dashboardQuery
	for _, file := range files {
		text, err := os.ReadFile(file)
		w.Expect(err).NotTo(HaveOccurred())
		var board struct {
			Title  string           `json:"title"`
			Panels []dashboardPanel `json:"panels"`
		}
		w.Expect(json.Unmarshal(text, &board)).To(Succeed())
		for _, panel := range board.Panels {
			for _, t := range panel.Targets {
				out = append(out, dashboardQuery{board.Title, panel.Type, panel.Title, t.RefID, t.LegendFormat, fill.Replace(t.Expr)})
			}
		}
	}
	return out
}

// unanswered are the queries without a number.
func (p *prometheus) unanswered(queries []dashboardQuery) []dashboardQuery {
	var out []dashboardQuery
	for _, q := range queries {
		answer, err := p.query(q.Expr)
		if err != nil {
			q.Legend = err.Error()
		}
		found := false
		for _, s := range answer {
			found = found || !math.IsNaN(s.value)
		}
		if !found {
			out = append(out, q)
		}
	}
	return out
}

// measured is one series' value now.
type measured struct {
	labels map[string]string
	value  float64
}

func (p *prometheus) query(expr string) ([]measured, error) {
	var data struct {
		Result []struct {
			Metric map[string]string `json:"metric"`
			Value  []any             `json:"value"`
		} `json:"result"`
	}
	if err := p.get("/api/v1/query", map[string]string{"query": expr}, &data); err != nil {
		return nil, err
	}
	var out []measured
	for _, r := range data.Result {
		v, err := number(r.Value)
		if err != nil {
			return nil, err
		}
		out = append(out, measured{r.Metric, v})
	}
	return out, nil
}

// number of a pair of time and value.
func number(pair []any) (float64, error) {
	if len(pair) != 2 {
		return 0, fmt.Errorf("not a sample: %v", pair)
	}
	return strconv.ParseFloat(fmt.Sprint(pair[1]), 64)
}
