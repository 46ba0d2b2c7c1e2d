// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

func TestAFreshScheduleIsReadyBeforeItsFirstRun(t *testing.T) {
	t.Parallel()
	o := operate(t)
	s := o.schedule("hourly", hourlyOfAll) // without a claim, even
	o.Expect(s.Status.Conditions).To(ConsistOf(
		And(HaveField("Type", v1.ConditionReady), HaveField("Status", metav1.ConditionTrue), HaveField("Reason", v1.ReasonScheduled), HaveField("ObservedGeneration", s.Generation)),
		And(HaveField("Type", v1.ConditionReconciled), HaveField("Status", metav1.ConditionTrue), HaveField("Reason", v1.ReasonReconcileComplete))))
	o.Expect(s.Status.ObservedGeneration).To(Equal(s.Generation))
	o.Expect(s.Status.NextSnapshotTime.Time).To(BeTemporally("==", o.hour(0)))
	o.Expect(s.Status.LastSnapshotTime).To(BeNil())
	o.Expect(s.Status.LastSuccessTime).To(BeNil())
	o.Expect(s.Status.ActiveRun).To(BeEmpty())
}

func TestTheStatusTellsOfTheLastRunAndTheLastSuccess(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	o.schedule("hourly", hourlyOfAll)
	o.tick(o.hour(0).Add(7 * time.Second))
	st := o.read("hourly").Status
	o.Expect(st.LastSnapshotTime.Time).To(BeTemporally("==", o.hour(0).Add(7*time.Second)))
	o.Expect(st.LastSuccessTime.Time).To(BeTemporally("==", o.hour(0).Add(7*time.Second)))
	o.Expect(o.condition("hourly", v1.ConditionLastRunSucceeded)).To(And(HaveField("Status", metav1.ConditionTrue), HaveField("Reason", "Succeeded")))
	o.Expect(o.metric("stillpoint_last_success_timestamp_seconds", nil)).To(BeEquivalentTo(st.LastSuccessTime.Unix()))

	o.stores(o.broken)
	o.tick(o.hour(1).Add(9 * time.Second))
	st = o.read("hourly").Status
	o.Expect(st.LastSnapshotTime.Time).To(BeTemporally("==", o.hour(1).Add(9*time.Second)))
	o.Expect(st.LastSuccessTime.Time).To(BeTemporally("==", o.hour(0).Add(7*time.Second)))
	o.Expect(o.condition("hourly", v1.ConditionLastRunSucceeded)).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", "Failed"),
		HaveField("Message", And(ContainSubstring("hourly-"+when(o.hour(1))), ContainSubstring("the array is full")))))
	o.Expect(o.condition("hourly", v1.ConditionReady).Status).To(Equal(metav1.ConditionTrue))
	o.settle()
	o.Expect(o.eventsOf("RunFailed")).To(HaveLen(1))
}

func TestTheOperatorNeverWritesTheSpecOfASchedule(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	created := o.schedule("hourly", `{schedule: " 0  *  * * * ", retention: {maxCount: 1}, runRetryLimit: 1}`)
	for n := range 3 {
		o.tick(o.hour(n))
	}
	o.edit("hourly", `{"disabled":true}`)
	s := o.read("hourly")
	o.Expect(s.Generation).To(Equal(created.Generation + 1)) // the edit
	o.Expect(s.Status.ObservedGeneration).To(Equal(s.Generation))
	s.Spec.Disabled = false
	o.Expect(s.Spec).To(Equal(created.Spec))
	operators := 0
	for _, m := range s.ManagedFields {
		if m.Manager == "stillpoint" {
			operators++
			o.Expect(m.Subresource).To(Equal("status"))
		}
	}
	o.Expect(operators).To(Equal(1))
}

func TestASettledScheduleIsNotWrittenAgain(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	o.schedule("hourly", `{schedule: "0 * * * *", retention: {maxCount: 3}}`)
	o.tick(o.hour(0))
	written := func() string {
		for _, m := range o.read("hourly").ManagedFields {
			if m.Manager == "stillpoint" {
				return fmt.Sprint(m.Time.Time, o.read("hourly").Status)
			}
		}
		return ""
	}
	before, runs := written(), o.runs("")
	o.at(o.hour(0).Add(10 * time.Minute))
	o.at(o.hour(0).Add(50 * time.Minute))
	o.Expect(written()).To(Equal(before))
	o.Expect(o.runs("")).To(Equal(runs))
}

func TestOldRunsGoBeyondTheirLimits(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	o.schedule("hourly", `{schedule: "0 * * * *", successfulRunsHistoryLimit: 1, failedRunsHistoryLimit: 2}`)
	for n := range 6 {
		o.stores(o.ready)
		if n < 3 {
			o.stores(o.broken)
		}
		o.tick(o.hour(n))
	}
	o.will(func() []string { return o.runNames("hourly") }).Should(ConsistOf("hourly-"+when(o.hour(1)), "hourly-"+when(o.hour(2)), "hourly-"+when(o.hour(5))))
	o.Expect(o.snapshots()).To(HaveLen(6)) // runs go, snapshots stay
}

func TestWhatTheLastRunSaidStaysWhenTheRunIsNotKept(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	o.schedule("no-good", `{schedule: "0 * * * *", successfulRunsHistoryLimit: 0}`)
	o.schedule("no-bad", `{schedule: "0 * * * *", failedRunsHistoryLimit: 0}`)
	o.stores(o.broken)
	o.tick(o.hour(0))
	for _, name := range []string{"no-good", "no-bad"} {
		o.Expect(o.condition(name, v1.ConditionLastRunSucceeded).Status).To(Equal(metav1.ConditionFalse), name)
	}
	o.stores(o.ready)
	o.tick(o.hour(1))
	for _, name := range []string{"no-good", "no-bad"} {
		o.Expect(o.condition(name, v1.ConditionLastRunSucceeded).Status).To(Equal(metav1.ConditionTrue), name)
	}
	o.stores(o.broken)
	o.tick(o.hour(2))
	o.settle()
	for _, name := range []string{"no-good", "no-bad"} {
		o.Expect(o.condition(name, v1.ConditionLastRunSucceeded).Status).To(Equal(metav1.ConditionFalse), name)
	}
	o.Expect(o.eventsOf("RunFailed")).To(HaveLen(4))
	o.Expect(o.runNames("no-good")).To(ConsistOf("no-good-"+when(o.hour(0)), "no-good-"+when(o.hour(2))))
	o.Expect(o.runNames("no-bad")).To(ConsistOf("no-bad-" + when(o.hour(1))))
}

func TestADeletedScheduleLeavesItsSnapshots(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	s := o.schedule("hourly", `{schedule: "0 * * * *", retention: {maxCount: 1}}`)
	o.tick(o.hour(0))
	o.Expect(api.Delete(t.Context(), s)).To(Succeed())
	o.will(func() float64 { return o.metric("stillpoint_last_success_timestamp_seconds", nil) }).Should(BeZero()) // the operator knows
	o.at(o.hour(1))
	o.Expect(o.snapshotNames()).To(HaveLen(1))
	o.Expect(o.runNames("")).To(HaveLen(1)) // left to the garbage collector, which does not run here
}
