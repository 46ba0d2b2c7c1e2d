// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	. "github.com/onsi/gomega"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/hooks"
)

// hourlyWithHooks has one hook of each stage in the pods of app db.
const hourlyWithHooks = `{schedule: "0 * * * *", maxQuiesceSeconds: 90, ` + oneHookEach + `}`

const oneHookEach = `preHooks: [{name: flush, podSelector: {matchLabels: {app: db}}, command: [flush]}], ` +
	`postHooks: [{name: resume, podSelector: {matchLabels: {app: db}}, command: [resume], backoffLimit: 0}]`

// series of the operator's namespace, as name{label="value",...}, without the label of the namespace. A histogram is how often it was
// observed. of, if not empty, are the kinds that are wanted, as Prometheus calls them.
func (o *operator) series(of ...string) map[string]float64 {
	o.t.Helper()
	families, err := metrics.Registry.Gather()
	o.Expect(err).NotTo(HaveOccurred())
	out := map[string]float64{}
	for _, f := range families {
		if len(of) > 0 && !slices.Contains(of, f.GetType().String()) {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			ours := false
			for _, l := range m.GetLabel() {
				if l.GetName() == "schedule_namespace" {
					ours = l.GetValue() == o.namespace
					continue
				}
				labels = append(labels, l.GetName()+`="`+l.GetValue()+`"`)
			}
			if ours {
				out[f.GetName()+"{"+strings.Join(labels, ",")+"}"] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return out
}

// sum of the observations of a schedule's histogram.
func (o *operator) sum(name, schedule string) float64 {
	o.t.Helper()
	families, err := metrics.Registry.Gather()
	o.Expect(err).NotTo(HaveOccurred())
	sum := 0.0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if f.GetName() == name && labels["schedule_namespace"] == o.namespace && labels["schedule_name"] == schedule {
				sum += m.GetHistogram().GetSampleSum()
			}
		}
	}
	return sum
}

// gauges that say how a schedule stands, by name: the times in them as seconds since base.
func (o *operator) gauges() map[string]float64 {
	out := o.series("GAUGE")
	for k := range out {
		if strings.Contains(k, "_timestamp_seconds{") {
			out[k] -= float64(o.base.Unix())
		}
	}
	return out
}

// haveSeries matches a map of series that holds at least these.
func haveSeries(want map[string]float64) OmegaMatcher {
	var all []OmegaMatcher
	for _, k := range slices.Sorted(maps.Keys(want)) {
		all = append(all, HaveKeyWithValue(k, BeNumerically("~", want[k], 0.001)))
	}
	return And(all...)
}

// fails ends the hook commands of these names with exit code 1.
func (o *operator) fails(commands ...string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.outcome = func(call hooks.Call) hooks.Result {
		if slices.Contains(commands, call.Command[0]) {
			return hooks.Result{Reason: hooks.NonZeroExit, ExitCode: ptr.To(int32(1)), Message: "the command exited with code 1"}
		}
		return hooks.Result{Reason: hooks.Completed, ExitCode: ptr.To(int32(0))}
	}
}

// setting changes what the operator's world does.
func (o *operator) setting(change func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	change()
}

// once makes a write fail the first time that it is of this kind and passes the test.
func once(err error, is func(client.Object) bool) func(client.Object) error {
	var done atomic.Bool
	return func(c client.Object) error {
		if !is(c) || done.Swap(true) {
			return nil
		}
		return err
	}
}

func completes(c client.Object) bool {
	r, ok := c.(*v1.SnapshotRun)
	return ok && r.Status.Phase == v1.PhaseCompleted
}
