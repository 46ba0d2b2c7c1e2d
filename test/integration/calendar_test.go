// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

func TestASlotCreatesOneRunAndOneSnapshotUnderSnapschedulersNames(t *testing.T) {
	t.Parallel()
	o := operate(t)
	claim := o.claim("data")
	s := o.schedule("hourly", hourlyOfAll)
	o.Expect(o.runs("")).To(BeEmpty())

	o.tick(o.hour(0).Add(time.Second))
	o.settle()
	o.Expect(o.runNames("hourly")).To(ConsistOf("hourly-" + when(o.hour(0))))
	run := o.runs("hourly")[0]
	o.Expect(run.Spec.Slot.Time).To(BeTemporally("==", o.hour(0)))
	o.Expect(metav1.IsControlledBy(&run, s)).To(BeTrue())
	o.Expect(run.Labels).To(HaveKeyWithValue(v1.LabelVeleroExclude, "true"))
	o.Expect(run.Status.Result).To(Equal(v1.ResultSucceeded))

	o.Expect(o.snapshotNames()).To(ConsistOf("data-hourly-" + when(o.hour(0))))
	snapshot := o.snapshots()[0]
	o.Expect(snapshot.Labels).To(Equal(map[string]string{v1.LabelSchedule: "hourly", v1.LabelWhen: when(o.hour(0))}))
	o.Expect(snapshot.Annotations).To(HaveKeyWithValue(v1.AnnotationClaimUID, string(claim.UID)))
	o.Expect(snapshot.OwnerReferences).To(BeEmpty())
	o.Expect(snapshot.Spec.Source.PersistentVolumeClaimName).To(HaveValue(Equal("data")))

	o.tick(o.hour(1))
	o.Expect(o.snapshotNames()).To(ConsistOf("data-hourly-"+when(o.hour(0)), "data-hourly-"+when(o.hour(1))))
	o.Expect(o.read("hourly").Status.LastMissed).To(BeNil())
}

func TestAfterADowntimeOneRunCatchesUpTheNewestMissedSlot(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	o.schedule("hourly", hourlyOfAll)
	o.tick(o.hour(0))

	o.tick(o.hour(5).Add(40 * time.Minute))
	o.settle()
	o.Expect(o.snapshotNames()).To(ConsistOf("data-hourly-"+when(o.hour(0)), "data-hourly-"+when(o.hour(5))))
	o.expectMissed("hourly", o.hour(4), v1.MissedDowntime, 4)
	o.Expect(o.read("hourly").Status.NextSnapshotTime.Time).To(BeTemporally("==", o.hour(6)))
}

// expectMissed checks status, metric and events: once each.
func (o *operator) expectMissed(schedule string, slot time.Time, reason string, count int) {
	o.t.Helper()
	missed := o.read(schedule).Status.LastMissed
	o.Expect(missed).NotTo(BeNil())
	o.Expect(missed.Slot.Time).To(BeTemporally("==", slot))
	o.Expect(missed.Reason).To(Equal(reason))
	o.Expect(missed.Count).To(BeEquivalentTo(count))
	o.Expect(o.eventsOf("SlotMissed")).To(HaveLen(1))
	o.Expect(o.metric("stillpoint_missed_slots_total", map[string]string{"schedule_name": schedule, "reason": reason})).To(BeEquivalentTo(count))
}

func TestASlotLaterThanItsStartingDeadlineIsSkipped(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	o.schedule("hourly", `{schedule: "0 * * * *", startingDeadlineSeconds: 600}`)
	o.tick(o.hour(0).Add(10 * time.Minute)) // in time
	o.tick(o.hour(3).Add(10*time.Minute + time.Second))
	o.settle()
	o.Expect(o.snapshotNames()).To(ConsistOf("data-hourly-" + when(o.hour(0))))
	o.expectMissed("hourly", o.hour(3), v1.MissedTooLate, 3)

	o.tick(o.hour(4))
	o.Expect(o.snapshotNames()).To(ConsistOf("data-hourly-"+when(o.hour(0)), "data-hourly-"+when(o.hour(4))))
}

func TestADisabledScheduleStartsNothingButItsCalendarAndRetentionGoOn(t *testing.T) {
	t.Parallel()
	o := operate(t)
	claim := o.claim("data")
	o.made("old-1", "hourly", "data", string(claim.UID), 3*time.Hour)
	o.made("old-2", "hourly", "data", string(claim.UID), 2*time.Hour)
	o.schedule("hourly", `{schedule: "0 * * * *", disabled: true, runOnCreate: true, retention: {expires: 3h}}`)
	o.will(o.snapshotNames).Should(ConsistOf("old-2"))
	o.Expect(o.condition("hourly", v1.ConditionReady)).To(And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", v1.ReasonDisabled)))

	o.at(o.hour(0).Add(5 * time.Minute))
	o.Expect(o.read("hourly").Status.NextSnapshotTime.Time).To(BeTemporally("==", o.hour(1)))
	o.made("old-3", "hourly", "data", string(claim.UID), time.Hour)
	o.at(o.hour(2).Add(5 * time.Minute))
	o.will(o.snapshotNames).Should(ConsistOf("old-3"))
	o.Expect(o.read("hourly").Status.NextSnapshotTime.Time).To(BeTemporally("==", o.hour(3)))
	o.Expect(o.runs("")).To(BeEmpty())

	o.edit("hourly", `{"disabled":false}`)
	o.Expect(o.runs("")).To(BeEmpty())
	o.Expect(o.read("hourly").Status.LastMissed).To(BeNil())
	o.tick(o.hour(3))
	o.Expect(o.runNames("hourly")).To(ConsistOf("hourly-" + when(o.hour(3))))
}

func TestTheNextSlotThatSnapschedulerWroteIsHonoured(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	o.claim("data")
	status := func(next time.Time) string {
		return `{"status":{"conditions":[{"type":"Reconciled","status":"True","reason":"ReconcileComplete","message":"Reconcile complete","lastTransitionTime":"2025-12-01T10:00:00Z"}],` +
			`"lastSnapshotTime":"` + next.Add(-time.Hour).Format(time.RFC3339) + `","nextSnapshotTime":"` + next.Format(time.RFC3339) + `"}}`
	}
	o.schedule("ahead", hourlyOfAll)
	o.schedule("missed", hourlyOfAll)
	o.patchStatus("ahead", status(o.base.Add(17*time.Minute))) // the slot of a calendar that was edited just before
	o.patchStatus("missed", status(o.hour(-3)))
	o.start()
	o.settle()
	o.idle()
	o.Expect(o.runNames("")).To(ConsistOf("missed-" + when(o.hour(-1))))
	o.Expect(o.read("ahead").Status.NextSnapshotTime.Time).To(BeTemporally("==", o.base.Add(17*time.Minute)))
	o.Expect(o.read("ahead").Status.LastSnapshotTime.Time).To(BeTemporally("==", o.base.Add(-43*time.Minute)))

	o.tick(o.base.Add(17 * time.Minute))
	o.Expect(o.runNames("ahead")).To(ConsistOf("ahead-" + when(o.base.Add(17*time.Minute))))
	o.Expect(o.read("ahead").Status.NextSnapshotTime.Time).To(BeTemporally("==", o.hour(1)))
}

func TestAClockThatMovesTakesNoSlotTwice(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	o.schedule("hourly", hourlyOfAll)
	o.tick(o.hour(0).Add(time.Minute))
	o.tick(o.hour(0).Add(-5 * time.Minute)) // back over the slot
	o.tick(o.hour(0).Add(2 * time.Minute))
	o.tick(o.hour(1).Add(time.Minute)) // and again
	o.tick(o.hour(0).Add(30 * time.Minute))
	o.tick(o.hour(1))
	o.Expect(o.snapshotNames()).To(ConsistOf("data-hourly-"+when(o.hour(0)), "data-hourly-"+when(o.hour(1))))
	o.Expect(o.runNames("hourly")).To(HaveLen(2))
	o.Expect(o.read("hourly").Status.LastMissed).To(BeNil())
}

func TestAClockThatWasFarAheadForAWhileDoesNotStopTheSchedule(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	o.schedule("hourly", hourlyOfAll)
	o.tick(o.hour(0))
	o.tick(o.hour(720))
	o.Expect(o.read("hourly").Status.NextSnapshotTime.Time).To(BeTemporally("==", o.hour(721)))

	o.tick(o.hour(0).Add(2 * time.Minute))
	o.Expect(o.read("hourly").Status.NextSnapshotTime.Time).To(BeTemporally("==", o.hour(1)))
	o.tick(o.hour(1))
	o.Expect(o.snapshotNames()).To(ConsistOf("data-hourly-"+when(o.hour(0)), "data-hourly-"+when(o.hour(1)), "data-hourly-"+when(o.hour(720))))
}

func TestAnEditedScheduleCountsFromNow(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	o.schedule("hourly", hourlyOfAll)
	o.edit("hourly", `{"schedule":"45 * * * *"}`)
	o.Expect(o.read("hourly").Status.NextSnapshotTime.Time).To(BeTemporally("==", o.base.Add(-15*time.Minute)))
	o.tick(o.base.Add(-15 * time.Minute))
	o.edit("hourly", `{"schedule":"30 0 * * *","timeZone":"Asia/Kolkata"}`) // 19:00 UTC
	next := o.read("hourly").Status.NextSnapshotTime
	o.Expect(next.UTC().Format("15:04")).To(Equal("19:00"))
	o.edit("hourly", `{"schedule":"0 * * * *","timeZone":null,"retention":{"maxCount":5}}`)
	o.tick(o.hour(0))
	o.Expect(o.runNames("hourly")).To(ConsistOf("hourly-"+when(o.base.Add(-15*time.Minute)), "hourly-"+when(o.hour(0))))
	o.Expect(o.read("hourly").Status.LastMissed).To(BeNil())
}

func TestRunOnCreateRunsOnceAtOnce(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	s := o.schedule("first", `{`+never+`, runOnCreate: true}`)
	o.idle()
	o.edit("first", `{"retention":{"maxCount":5}}`)
	o.at(o.hour(2))
	o.Expect(o.runNames("first")).To(ConsistOf("first-" + when(s.CreationTimestamp.Time)))
	o.Expect(o.snapshotNames()).To(ConsistOf("data-first-" + when(s.CreationTimestamp.Time)))
	o.Expect(o.runs("first")[0].Status.Result).To(Equal(v1.ResultSucceeded))

	o.schedule("later", `{`+never+`}`)
	o.edit("later", `{"runOnCreate":true}`)
	o.Expect(o.runs("later")).To(BeEmpty())
}

func TestSpreadShiftsStartsAndNotNames(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	// The delay is a fixed hash; over a day it is almost surely neither 0 nor all of it.
	o.schedule("weekly", `{schedule: "@weekly", spreadSeconds: 86400}`)
	slot := o.read("weekly").Status.NextSnapshotTime.Time
	o.at(slot)
	o.Expect(o.runs("weekly")).To(BeEmpty())
	o.Expect(o.read("weekly").Status.NextSnapshotTime.Time).To(BeTemporally("==", slot))
	o.tick(slot.Add(24 * time.Hour))
	o.Expect(o.runNames("weekly")).To(ConsistOf("weekly-" + when(slot)))
	o.Expect(o.snapshotNames()).To(ConsistOf("data-weekly-" + when(slot)))
	o.Expect(o.read("weekly").Status.NextSnapshotTime.Time).To(BeTemporally("==", slot.Add(7*24*time.Hour)))
	o.Expect(o.read("weekly").Status.LastMissed).To(BeNil())
}
