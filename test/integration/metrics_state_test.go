// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/metrics"
)

// restarted forgets the metrics of the namespace, as the end of a process does.
func (o *operator) restarted() {
	o.t.Helper()
	var list v1.SnapshotScheduleList
	o.Expect(api.List(o.t.Context(), &list, client.InNamespace(o.namespace))).To(Succeed())
	for i := range list.Items {
		metrics.Forget(metrics.Schedule{Namespace: o.namespace, Name: list.Items[i].Name})
	}
	o.Expect(o.series()).To(BeEmpty())
}

func TestAfterARestartTheGaugesSayTheSame(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	o.claim("data")
	o.claim("unbound", func(c *corev1.PersistentVolumeClaim) {
		c.Labels, c.Status.Phase = map[string]string{"app": "new"}, corev1.ClaimPending
	})
	o.pod("db-0")
	first := o.start()
	o.schedule("good", hourlyOfAll)
	o.schedule("stuck", `{schedule: "0 * * * *", claimSelector: {matchLabels: {app: db}}, failedRunsHistoryLimit: 1, maxQuiesceSeconds: 90, `+oneHookEach+`}`)
	o.schedule("broken", `{schedule: "0 * * * *", claimSelector: {matchLabels: {app: db}}, spreadSeconds: 600, preHooks: [{podSelector: {matchLabels: {app: db}}, command: [flush]}]}`)
	o.schedule("paused", `{schedule: "0 * * * *", disabled: true}`)
	o.schedule("wrong", `{`+never+`, timeZone: Nowhere/Land}`)
	o.fails("resume")
	o.tick(o.hour(0).Add(15 * time.Minute))
	o.fails("flush", "resume")
	o.tick(o.hour(2).Add(15 * time.Minute)) // and a slot is missed
	before := o.gauges()
	o.Expect(before).To(haveSeries(map[string]float64{
		`stillpoint_last_run_info{result="Succeeded",schedule_name="good"}`: 1, `stillpoint_claims_left_out{schedule_name="good"}`: 1,
		`stillpoint_last_success_timestamp_seconds{schedule_name="good"}`: 2*3600 + 900, `stillpoint_next_run_timestamp_seconds{schedule_name="good"}`: 3 * 3600,
		`stillpoint_success_due_timestamp_seconds{schedule_name="good"}`:                        4*3600 + 900,
		`stillpoint_last_missed_slot_timestamp_seconds{reason="Downtime",schedule_name="good"}`: 2*3600 + 900,
		`stillpoint_last_run_info{result="Failed",schedule_name="stuck"}`:                       1,
		`stillpoint_may_be_quiesced{schedule_name="stuck"}`:                                     1,
		`stillpoint_quiesce_deadline_timestamp_seconds{schedule_name="stuck"}`:                  2*3600 + 900,
		`stillpoint_schedule_ready{reason="InvalidTimeZone",schedule_name="wrong"}`:             0,
		`stillpoint_schedule_ready{reason="Disabled",schedule_name="paused"}`:                   1,
		`stillpoint_failed_hooks{schedule_name="broken",stage="Pre"}`:                           1,
		`snapscheduler_snapshot_current_ready_count{pvc_name="data",schedule_name="good"}`:      2,
	}))
	o.halt(first)
	o.restarted()
	o.start()
	o.settle()
	o.will(func() map[string]float64 { return o.gauges() }).Should(Equal(before))
	// Counters begin anew: what was counted is not counted again.
	for name, v := range o.series("COUNTER", "HISTOGRAM") {
		o.Expect(v).To(BeZero(), name)
	}
}

func TestTheSeriesOfADeletedScheduleGoAway(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	o.pod("db-0")
	s := o.schedule("shop", hourlyWithHooks)
	o.schedule("stays", `{`+never+`}`)
	o.fails("flush")
	o.tick(o.hour(0).Add(time.Second))
	stays := func() map[string]float64 {
		out := o.series()
		for k := range out {
			if !strings.Contains(k, `schedule_name="shop"`) {
				delete(out, k)
			}
		}
		return out
	}
	o.Expect(stays()).NotTo(BeEmpty())
	o.Expect(api.Delete(t.Context(), s)).To(Succeed())
	o.will(stays).Should(BeEmpty())
	// A run by hand of what is gone brings none back.
	o.manual("shop", "late")
	o.will(func() v1.RunPhase { return o.run("late").Status.Phase }).Should(Equal(v1.PhaseCompleted))
	o.settle()
	o.Expect(stays()).To(BeEmpty())
	o.Expect(o.series()).To(HaveKey(`stillpoint_schedule_ready{reason="Scheduled",schedule_name="stays"}`))
}

// Deleting a schedule does not hide that its application is quiesced.
func TestADeletedScheduleShowsThatItsApplicationIsQuiesced(t *testing.T) {
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
	s := o.schedule("shop", hourlyWithHooks)
	o.at(o.hour(0))
	o.will(func() map[string]float64 { return o.gauges() }).Should(haveSeries(map[string]float64{`stillpoint_quiesced{schedule_name="shop"}`: 1}))
	o.Expect(api.Delete(t.Context(), s)).To(Succeed())
	o.will(func() map[string]float64 { return o.gauges() }).Should(Equal(map[string]float64{`stillpoint_quiesced{schedule_name="shop"}`: 1,
		`stillpoint_may_be_quiesced{schedule_name="shop"}`: 1, `stillpoint_quiesce_deadline_timestamp_seconds{schedule_name="shop"}`: 90}))
	close(gate)
	o.will(func() map[string]float64 { return o.series() }).Should(BeEmpty())
}

func TestTheGaugesOfAClaimGoWithItsLastSnapshot(t *testing.T) {
	t.Parallel()
	o := operate(t)
	claim := o.claim("data")
	o.claim("logs")
	o.schedule("kept", `{schedule: "0 * * * *", retention: {expires: 1h}}`)
	o.tick(o.hour(0))
	count := `snapscheduler_snapshot_current_count{pvc_name="data",schedule_name="kept"}`
	o.Expect(o.gauges()).To(HaveKeyWithValue(count, 1.0))
	o.removeClaim(claim)
	o.Expect(o.gauges()).To(HaveKeyWithValue(count, 1.0)) // it exists
	o.at(o.hour(1).Add(time.Minute))
	o.will(func() map[string]float64 { return o.gauges() }).ShouldNot(HaveKey(count))
	o.Expect(o.gauges()).To(haveSeries(map[string]float64{`snapscheduler_snapshot_current_count{pvc_name="logs",schedule_name="kept"}`: 1}))
	o.Expect(o.series()).To(haveSeries(map[string]float64{`stillpoint_retention_deletions_total{rule="Expired",schedule_name="kept"}`: 2}))
}

func TestRetentionThatFailsShows(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	o.setting(func() {
		o.refuseDelete = func(c client.Object) error {
			if _, ok := c.(*snapshotv1.VolumeSnapshot); ok {
				return errors.New("the webhook says no")
			}
			return nil
		}
	})
	o.schedule("kept", `{schedule: "0 * * * *", retention: {maxCount: 1}}`)
	failing := func() float64 { return o.gauges()[`stillpoint_retention_failing{schedule_name="kept"}`] }
	o.tick(o.hour(0))
	o.Expect(failing()).To(BeZero())
	o.at(o.hour(1))
	o.will(failing).Should(BeEquivalentTo(1))
	o.setting(func() { o.refuseDelete = nil })
	o.will(failing).Should(BeZero())
	o.idle()

	// A clock that is wrong keeps everything, which is no better.
	o.setting(func() { o.skew = func() (time.Duration, bool) { return time.Hour, true } })
	o.at(o.hour(2))
	o.will(failing).Should(BeEquivalentTo(1))
}

func TestSnapshotsAreCountedByState(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	o.stores(nil)
	o.schedule("kept", `{`+never+`}`)
	pending := func(s *snapshotv1.VolumeSnapshot) { s.Status = nil }
	o.made("a", "kept", "data", "", 3*time.Hour)
	o.made("b", "kept", "data", "", 2*time.Hour, pending)
	o.made("c", "kept", "data", "", 2*time.Hour, func(s *snapshotv1.VolumeSnapshot) { s.Status = o.cutOnly(s) })
	o.made("d", "kept", "data", "", 2*time.Hour, func(s *snapshotv1.VolumeSnapshot) { s.Status = o.broken(s) })
	o.made("e", "kept", "data", "", 2*time.Hour, func(s *snapshotv1.VolumeSnapshot) { s.Finalizers = []string{"test.example.com/slow"} })
	deleting := o.snapshot("e")
	t.Cleanup(func() {
		deleting.SetGroupVersionKind(snapshotv1.SchemeGroupVersion.WithKind("VolumeSnapshot"))
		free(t, deleting)
	})
	o.Expect(api.Delete(t.Context(), deleting)).To(Succeed())
	want := map[string]float64{}
	for _, state := range []string{"Pending", "Cut", "Ready", "Failed", "Deleting"} {
		want[fmt.Sprintf(`stillpoint_snapshots{schedule_name="kept",state=%q}`, state)] = 1
	}
	o.will(func() map[string]float64 { return o.gauges() }).Should(haveSeries(want))
	o.Expect(o.gauges()).To(haveSeries(map[string]float64{
		`stillpoint_oldest_snapshot_timestamp_seconds{schedule_name="kept",state="Cut"}`:      float64(o.snapshot("c").CreationTimestamp.Unix() - o.base.Unix()),
		`stillpoint_oldest_snapshot_timestamp_seconds{schedule_name="kept",state="Deleting"}`: float64(o.snapshot("e").DeletionTimestamp.Unix() - o.base.Unix())}))
}

// By when a run must have succeeded: never before the schedule had two slots to do so.
func TestWhenASuccessIsDue(t *testing.T) {
	t.Parallel()
	o := operate(t)
	due := func() float64 {
		v, ok := o.gauges()[`stillpoint_success_due_timestamp_seconds{schedule_name="s"}`]
		if !ok {
			return -1
		}
		return v
	}
	const hour, half = 3600.0, 1800.0
	o.stores(o.broken)
	o.schedule("s", `{schedule: "0 * * * *"}`) // half an hour before base
	o.Expect(due()).To(Equal(hour + half))
	o.Expect(o.read("s").Status.ScheduledSince.Time).To(BeTemporally("==", o.clock.Now()))

	o.tick(o.hour(0)) // there is no claim: nothing to take is as good as a success
	o.Expect(due()).To(Equal(2 * hour))
	o.claim("data")
	o.tick(o.hour(1)) // it fails
	o.tick(o.hour(2))
	o.Expect(due()).To(Equal(2 * hour))
	o.stores(o.ready)
	o.tick(o.hour(3).Add(10 * time.Minute))
	o.Expect(due()).To(Equal(5*hour + 600))

	o.edit("s", `{"retention":{"maxCount":100}}`) // is no edit of the calendar
	o.Expect(due()).To(Equal(5*hour + 600))
	o.stores(o.broken)
	o.clock.SetTime(o.hour(4).Add(20 * time.Minute))
	o.edit("s", `{"schedule":"0 */6 * * *"}`)
	o.will(due).Should(BeNumerically(">", 10*hour)) // two slots from now on
	o.edit("s", `{"disabled":true}`)
	o.Expect(due()).To(Equal(-1.0))
	o.Expect(o.gauges()).NotTo(HaveKey(`stillpoint_next_run_timestamp_seconds{schedule_name="s"}`))
	o.at(o.hour(100))
	o.edit("s", `{"disabled":false,"schedule":"0 * * * *"}`)
	o.Expect(due()).To(Equal(102 * hour)) // not long ago
}
