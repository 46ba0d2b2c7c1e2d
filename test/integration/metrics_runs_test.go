// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

var errUnanswered = errors.New("the connection broke")

func TestMetricsOfARunWithHooks(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	o.claim("logs")
	o.pod("db-0")
	o.pod("db-1")
	o.schedule("shop", hourlyWithHooks)
	// Everything that a rate may be taken of begins at 0.
	o.Expect(o.series()).To(haveSeries(map[string]float64{
		`stillpoint_runs_total{result="Succeeded",schedule_name="shop"}`: 0, `stillpoint_runs_total{result="PartiallyFailed",schedule_name="shop"}`: 0,
		`stillpoint_runs_total{result="Failed",schedule_name="shop"}`: 0, `stillpoint_runs_total{result="Skipped",schedule_name="shop"}`: 0,
		`stillpoint_missed_slots_total{reason="Downtime",schedule_name="shop"}`: 0, `stillpoint_missed_slots_total{reason="Overlap",schedule_name="shop"}`: 0,
		`stillpoint_missed_slots_total{reason="TooLate",schedule_name="shop"}`: 0}))

	o.tick(o.hour(0).Add(7 * time.Second))
	o.Expect(o.series()).To(haveSeries(map[string]float64{
		`stillpoint_runs_total{result="Succeeded",schedule_name="shop"}`:                   1,
		`stillpoint_start_delay_seconds{schedule_name="shop"}`:                             1,
		`stillpoint_quiesce_seconds{schedule_name="shop"}`:                                 1,
		`stillpoint_hook_runs_total{reason="Completed",schedule_name="shop",stage="Pre"}`:  2,
		`stillpoint_hook_runs_total{reason="Completed",schedule_name="shop",stage="Post"}`: 2,
		`stillpoint_hook_seconds{reason="Completed",schedule_name="shop",stage="Pre"}`:     2,
		`stillpoint_hook_seconds{reason="Completed",schedule_name="shop",stage="Post"}`:    2,
		`stillpoint_snapshot_cut_seconds{schedule_name="shop"}`:                            2,
		`stillpoint_snapshot_ready_seconds{schedule_name="shop"}`:                          2,
		`snapscheduler_snapshot_create_total{pvc_name="data",schedule_name="shop"}`:        1,
		`snapscheduler_snapshot_ready_total{pvc_name="data",schedule_name="shop"}`:         1,
		`snapscheduler_snapshot_create_error_total{pvc_name="data",schedule_name="shop"}`:  0,
		`snapscheduler_snapshot_current_count{pvc_name="logs",schedule_name="shop"}`:       1,
		`snapscheduler_snapshot_current_ready_count{pvc_name="logs",schedule_name="shop"}`: 1,
		`stillpoint_snapshots{schedule_name="shop",state="Ready"}`:                         2,
		`stillpoint_snapshots{schedule_name="shop",state="Failed"}`:                        0,
		`stillpoint_last_run_info{result="Succeeded",schedule_name="shop"}`:                1,
		`stillpoint_failed_hooks{schedule_name="shop",stage="Pre"}`:                        0,
		`stillpoint_may_be_quiesced{schedule_name="shop"}`:                                 0,
		`stillpoint_quiesced{schedule_name="shop"}`:                                        0,
	}))
	o.Expect(o.series()).NotTo(HaveKey(`stillpoint_quiesce_deadline_timestamp_seconds{schedule_name="shop"}`))
	o.Expect(o.sum("stillpoint_start_delay_seconds", "shop")).To(BeNumerically("~", 7, 0.01))
}

func TestMetricsOfARunWithoutHooks(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	o.stores(o.cutOnly)
	o.schedule("plain", hourlyOfAll)
	o.at(o.hour(0).Add(3 * time.Second))
	o.will(o.snapshotNames).Should(HaveLen(1))
	o.will(func() float64 { return o.series()[`stillpoint_snapshots{schedule_name="plain",state="Cut"}`] }).Should(BeEquivalentTo(1))
	// It becomes ready, and its record written, 50 minutes later.
	o.clock.Step(50 * time.Minute)
	o.finish()
	o.idle()
	got := o.series()
	o.Expect(got).To(haveSeries(map[string]float64{
		`stillpoint_runs_total{result="Succeeded",schedule_name="plain"}`: 1, `stillpoint_start_delay_seconds{schedule_name="plain"}`: 1,
		`stillpoint_snapshot_cut_seconds{schedule_name="plain"}`: 1, `stillpoint_snapshot_ready_seconds{schedule_name="plain"}`: 1,
		`snapscheduler_snapshot_ready_total{pvc_name="data",schedule_name="plain"}`: 1}))
	o.Expect(o.sum("stillpoint_start_delay_seconds", "plain")).To(BeNumerically("~", 3, 0.01))
	o.Expect(o.sum("stillpoint_snapshot_cut_seconds", "plain")).To(BeNumerically("~", 0, 0.01))
	o.Expect(o.sum("stillpoint_snapshot_ready_seconds", "plain")).To(BeNumerically("~", 50*60, 0.01))
	o.Expect(got).NotTo(HaveKey(`stillpoint_quiesce_seconds{schedule_name="plain"}`))
}

func TestMetricsOfAnApplicationThatIsQuiescedNow(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	o.pod("db-0")
	gate := make(chan struct{})
	o.setting(func() {
		o.hook = func(ctx context.Context) {
			select {
			case <-gate:
			case <-ctx.Done():
			}
		}
	})
	o.schedule("shop", hourlyWithHooks)
	o.at(o.hour(0))
	o.will(func() map[string]float64 { return o.gauges() }).Should(haveSeries(map[string]float64{
		`stillpoint_quiesced{schedule_name="shop"}`: 1, `stillpoint_may_be_quiesced{schedule_name="shop"}`: 1,
		`stillpoint_quiesce_deadline_timestamp_seconds{schedule_name="shop"}`: 90}))
	close(gate)
	o.idle()
	o.Expect(o.gauges()).To(And(haveSeries(map[string]float64{`stillpoint_quiesced{schedule_name="shop"}`: 0, `stillpoint_may_be_quiesced{schedule_name="shop"}`: 0}),
		Not(HaveKey(`stillpoint_quiesce_deadline_timestamp_seconds{schedule_name="shop"}`))))
}

func TestMetricsOfHooksThatFail(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	o.pod("db-0")
	o.schedule("shop", hourlyWithHooks)
	o.fails("flush")
	o.tick(o.hour(0))
	o.Expect(o.series()).To(haveSeries(map[string]float64{
		`stillpoint_hook_runs_total{reason="NonZeroExit",schedule_name="shop",stage="Pre"}`: 1, `stillpoint_failed_hooks{schedule_name="shop",stage="Pre"}`: 1,
		`stillpoint_failed_hooks{schedule_name="shop",stage="Post"}`: 0, `stillpoint_last_run_info{result="Failed",schedule_name="shop"}`: 1}))

	// A release that is given up: the application may be quiesced until a later one succeeds.
	o.fails("resume")
	o.tick(o.hour(1).Add(time.Second))
	o.Expect(o.gauges()).To(haveSeries(map[string]float64{
		`stillpoint_failed_hooks{schedule_name="shop",stage="Pre"}`: 0, `stillpoint_failed_hooks{schedule_name="shop",stage="Post"}`: 1,
		`stillpoint_may_be_quiesced{schedule_name="shop"}`: 1, `stillpoint_quiesced{schedule_name="shop"}`: 0,
		`stillpoint_quiesce_deadline_timestamp_seconds{schedule_name="shop"}`: 3601, `stillpoint_last_run_info{result="PartiallyFailed",schedule_name="shop"}`: 1}))
	o.Expect(o.series()).To(haveSeries(map[string]float64{`stillpoint_hook_runs_total{reason="NonZeroExit",schedule_name="shop",stage="Post"}`: 1}))

	// While the next run quiesces, the release before it is still owed: the deadline stays.
	reached, gate := make(chan struct{}), make(chan struct{})
	o.setting(func() {
		o.outcome = nil
		o.hook = func(context.Context) {
			select {
			case reached <- struct{}{}:
				<-gate
			case <-gate:
			}
		}
	})
	o.at(o.hour(2))
	<-reached
	o.will(func() map[string]float64 { return o.gauges() }).Should(haveSeries(map[string]float64{
		`stillpoint_quiesced{schedule_name="shop"}`: 1, `stillpoint_quiesce_deadline_timestamp_seconds{schedule_name="shop"}`: 3601}))
	close(gate)
	o.idle()
	o.Expect(o.gauges()).To(And(haveSeries(map[string]float64{`stillpoint_may_be_quiesced{schedule_name="shop"}`: 0, `stillpoint_failed_hooks{schedule_name="shop",stage="Post"}`: 0}),
		Not(HaveKey(`stillpoint_quiesce_deadline_timestamp_seconds{schedule_name="shop"}`))))
}

func TestAPostHookThatIsRepeatedShowsAsFailed(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	o.pod("db-0")
	o.fails("resume")
	o.schedule("shop", `{schedule: "0 * * * *", preHooks: [{podSelector: {matchLabels: {app: db}}, command: [flush]}], postHooks: [{podSelector: {matchLabels: {app: db}}, command: [resume]}]}`)
	o.at(o.hour(0))
	o.will(func() map[string]float64 { return o.gauges() }).Should(haveSeries(map[string]float64{`stillpoint_failed_hooks{schedule_name="shop",stage="Post"}`: 1}))
	o.setting(func() { o.outcome = nil })
	o.clock.Step(2 * time.Second)
	o.idle()
	o.Expect(o.gauges()).To(haveSeries(map[string]float64{`stillpoint_failed_hooks{schedule_name="shop",stage="Post"}`: 0}))
	o.Expect(o.series()).To(haveSeries(map[string]float64{
		`stillpoint_hook_runs_total{reason="NonZeroExit",schedule_name="shop",stage="Post"}`: 1, `stillpoint_hook_runs_total{reason="Completed",schedule_name="shop",stage="Post"}`: 1}))
}

// However a write of a status ends, what it says is counted and told once.
func TestARepeatedWriteOfAStatusIsCountedOnce(t *testing.T) {
	t.Parallel()
	conflict := apierrors.NewConflict(v1.GroupVersion.WithResource("snapshotruns").GroupResource(), "x", errors.New("somebody wrote"))
	noticesMissed := func(c client.Object) bool {
		s, ok := c.(*v1.SnapshotSchedule)
		return ok && s.Status.LastMissed != nil
	}
	hookEnds := func(c client.Object) bool {
		r, ok := c.(*v1.SnapshotRun)
		return ok && len(r.Status.Hooks) > 0 && len(r.Status.Hooks[0].Targets) > 0 && r.Status.Hooks[0].Targets[0].Reason != ""
	}
	for name, fault := range map[string]func(o *operator){
		"none":                                  func(*operator) {},
		"a completion is refused":               func(o *operator) { o.beforeWrite = once(conflict, completes) },
		"a completion fails":                    func(o *operator) { o.beforeWrite = once(errUnanswered, completes) },
		"a completion's answer is lost":         func(o *operator) { o.afterWrite = once(errUnanswered, completes) },
		"a completion was done by a try before": func(o *operator) { o.afterWrite = once(conflict, completes) },
		"a hook's end is refused":               func(o *operator) { o.beforeWrite = once(conflict, hookEnds) },
		"a hook's end's answer is lost":         func(o *operator) { o.afterWrite = once(errUnanswered, hookEnds) },
		"a missed slot is refused":              func(o *operator) { o.beforeWrite = once(conflict, noticesMissed) },
		"a missed slot fails":                   func(o *operator) { o.beforeWrite = once(errUnanswered, noticesMissed) },
		"a missed slot's answer is lost":        func(o *operator) { o.afterWrite = once(errUnanswered, noticesMissed) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := operate(t)
			o.claim("data")
			o.pod("db-0")
			o.schedule("shop", hourlyWithHooks)
			o.setting(func() { fault(o) })
			o.at(o.hour(2).Add(7 * time.Second)) // two slots are missed, the third runs
			// What was answered with an error is looked at again in real time; the fake clock must move for what waits for a time.
			o.will(func() map[string]float64 {
				o.clock.Step(10 * time.Millisecond)
				return o.series()
			}).Should(haveSeries(map[string]float64{`stillpoint_runs_total{result="Succeeded",schedule_name="shop"}`: 1,
				`stillpoint_missed_slots_total{reason="Downtime",schedule_name="shop"}`: 2}))
			o.idle()
			o.Expect(o.series("COUNTER", "HISTOGRAM")).To(haveSeries(map[string]float64{
				`stillpoint_runs_total{result="Succeeded",schedule_name="shop"}`:                   1,
				`stillpoint_missed_slots_total{reason="Downtime",schedule_name="shop"}`:            2,
				`stillpoint_hook_runs_total{reason="Completed",schedule_name="shop",stage="Pre"}`:  1,
				`stillpoint_hook_runs_total{reason="Completed",schedule_name="shop",stage="Post"}`: 1,
				`stillpoint_quiesce_seconds{schedule_name="shop"}`:                                 1,
				`stillpoint_start_delay_seconds{schedule_name="shop"}`:                             1,
				`snapscheduler_snapshot_create_total{pvc_name="data",schedule_name="shop"}`:        1,
				`snapscheduler_snapshot_ready_total{pvc_name="data",schedule_name="shop"}`:         1,
			}))
			for _, reason := range []string{v1.EventSlotMissed, v1.EventRunStarted, v1.EventRunSucceeded, v1.EventSucceeded} {
				o.Expect(o.eventsOf(reason)).To(HaveLen(1), reason)
			}
		})
	}
}

func TestASnapshotWhoseCreationWasAnsweredWithAnErrorIsCountedOnce(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	lost := false
	o.setting(func() {
		o.loseAnswer = func(*snapshotv1.VolumeSnapshot) error {
			if lost {
				return nil
			}
			lost = true
			return errUnanswered
		}
	})
	o.schedule("plain", hourlyOfAll)
	o.at(o.hour(0))
	o.will(func() int { // the attempt is repeated after half a second
		o.clock.Step(100 * time.Millisecond)
		return len(o.eventsOf(v1.EventRunSucceeded))
	}).Should(Equal(1))
	o.Expect(o.series()).To(haveSeries(map[string]float64{
		`snapscheduler_snapshot_create_total{pvc_name="data",schedule_name="plain"}`: 1, `snapscheduler_snapshot_create_error_total{pvc_name="data",schedule_name="plain"}`: 1,
		`snapscheduler_snapshot_ready_total{pvc_name="data",schedule_name="plain"}`: 1, `stillpoint_snapshot_cut_seconds{schedule_name="plain"}`: 1}))
}

// What an earlier process created was counted there.
func TestASnapshotThatAnEarlierProcessCreatedIsNotCountedAgain(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	o.claim("data")
	o.stores(nil)
	first := o.start()
	o.schedule("plain", hourlyOfAll)
	o.at(o.hour(0))
	o.will(o.snapshotNames).Should(HaveLen(1))
	o.halt(first)
	o.restarted()
	o.start()
	o.finish()
	o.clock.Step(time.Minute)
	o.idle()
	got := o.series()
	o.Expect(got).To(haveSeries(map[string]float64{`stillpoint_runs_total{result="Succeeded",schedule_name="plain"}`: 1,
		`snapscheduler_snapshot_create_total{pvc_name="data",schedule_name="plain"}`: 0, `snapscheduler_snapshot_ready_total{pvc_name="data",schedule_name="plain"}`: 1}))
	o.Expect(got).NotTo(HaveKey(`stillpoint_snapshot_ready_seconds{schedule_name="plain"}`)) // nobody saw it all
}

func TestRunsByHandAndOfOtherModesAreCounted(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	o.pod("db-0")
	o.schedule("shop", `{`+never+`, `+oneHookEach+`}`)
	for name, mode := range map[string]v1.RunMode{"by-hand": "", "try": v1.RunTestHooks, "exit": v1.RunRelease} {
		o.Expect(api.Create(t.Context(), &v1.SnapshotRun{ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: name}, Spec: v1.SnapshotRunSpec{ScheduleName: "shop", Mode: mode}})).To(Succeed())
	}
	o.idle()
	got := o.series()
	o.Expect(got).To(haveSeries(map[string]float64{`stillpoint_runs_total{result="Succeeded",schedule_name="shop"}`: 3,
		`stillpoint_hook_runs_total{reason="Completed",schedule_name="shop",stage="Pre"}`: 2, `stillpoint_hook_runs_total{reason="Completed",schedule_name="shop",stage="Post"}`: 3,
		`stillpoint_quiesce_seconds{schedule_name="shop"}`: 2}))
	o.Expect(got).NotTo(HaveKey(`stillpoint_start_delay_seconds{schedule_name="shop"}`)) // they are of no slot
}
