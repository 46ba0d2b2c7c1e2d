// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// snapscheduler#229, #395: its definition refuses these, or (the last ones) takes them and works.
func TestSchedulesThatWereWronglyRefusedHaveSlots(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	schedules := map[string]func(next time.Time) bool{
		"0 5 * * MON":                    func(n time.Time) bool { return n.Weekday() == time.Monday && n.Hour() == 5 },
		"0 5 1 JAN *":                    func(n time.Time) bool { return n.Month() == time.January && n.Day() == 1 },
		"15 ? * * *":                     func(n time.Time) bool { return n.Minute() == 15 },
		"@midnight":                      func(n time.Time) bool { return n.Hour() == 0 && n.Minute() == 0 },
		"@every 1h":                      func(n time.Time) bool { return n.Equal(o.base) },
		"0  5  *  *  *":                  func(n time.Time) bool { return n.Hour() == 5 && n.Minute() == 0 },
		"0 1-3,7 * * *":                  func(n time.Time) bool { return slices.Contains([]int{1, 2, 3, 7}, n.Hour()) },
		"0 0 * * 7":                      func(n time.Time) bool { return n.Weekday() == time.Sunday && n.Hour() == 0 },
		"CRON_TZ=Asia/Kolkata 0 5 * * *": func(n time.Time) bool { return n.Hour() == 23 && n.Minute() == 30 },
		"TZ=Asia/Kolkata 0 5 * * *":      func(n time.Time) bool { return n.Hour() == 23 && n.Minute() == 30 },
	}
	names := map[string]string{}
	for text := range schedules {
		names[text] = fmt.Sprintf("s-%d", len(names))
		o.schedule(names[text], fmt.Sprintf("{schedule: %q}", text))
	}
	o.start()
	o.settle()
	for text, right := range schedules {
		s := o.read(names[text])
		o.Expect(s.Status.NextSnapshotTime).NotTo(BeNil(), text)
		o.Expect(right(s.Status.NextSnapshotTime.UTC())).To(BeTrue(), "%s: %s", text, s.Status.NextSnapshotTime)
		o.Expect(o.condition(s.Name, v1.ConditionReady).Status).To(Equal(metav1.ConditionTrue), text)
	}
}

// snapscheduler#688: a day of failures costs every good snapshot.
func TestADayOfFailuresCostsNoGoodSnapshot(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	o.schedule("often", `{schedule: "0 */3 * * *", retention: {maxCount: 3}}`)
	slot := func() time.Time { return o.read("often").Status.NextSnapshotTime.Time }
	good := []string{}
	for range 3 {
		good = append(good, "data-often-"+when(slot()))
		o.tick(slot())
	}
	o.stores(o.broken)
	var last string
	for range 8 {
		last = "data-often-" + when(slot())
		o.tick(slot())
	}
	o.keeps(append(slices.Clone(good), last)...) // and the newest that failed, to see why
	o.stores(o.ready)
	first := "data-often-" + when(slot())
	o.tick(slot())
	o.keeps(good[1], good[2], first, last)
}

// snapscheduler: expires and creation are one loop, so a failure of the one stops the other.
func TestRetentionGoesOnWhileRunsCannotBeCreated(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	uid := string(o.claim("data").UID)
	o.made("a", "hourly", "data", uid, 4*hours)
	o.made("b", "hourly", "data", uid, 3*hours)
	o.refuseRun = errors.New("the API server is overloaded")
	o.schedule("hourly", `{schedule: "0 * * * *", retention: {expires: 5h}}`)
	o.start()
	o.settle()
	o.at(o.hour(1)) // a is more than 5 hours old
	o.keeps("b")
	o.will(func() metav1.Condition { return o.condition("hourly", v1.ConditionReconciled) }).Should(And(
		HaveField("Status", metav1.ConditionFalse), HaveField("Reason", v1.ReasonReconcileError), HaveField("Message", ContainSubstring("overloaded"))))
	o.Expect(o.read("hourly").Status.NextSnapshotTime.Time).To(BeTemporally("==", o.hour(0))) // nothing is lost

	o.mu.Lock()
	o.refuseRun = nil
	o.mu.Unlock()
	o.tick(o.hour(1).Add(time.Minute))
	o.Expect(o.runNames("hourly")).To(ConsistOf("hourly-" + when(o.hour(1))))
	o.Expect(o.condition("hourly", v1.ConditionReconciled).Status).To(Equal(metav1.ConditionTrue))
	o.expectMissed("hourly", o.hour(0), v1.MissedDowntime, 1)
}

func TestARunOfSomebodyElseUnderTheNameOfASlotIsReported(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	name := "hourly-" + when(o.hour(0))
	restored := &v1.SnapshotRun{ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: name},
		Spec: v1.SnapshotRunSpec{ScheduleName: "hourly", Slot: ptr.To(metav1.NewTime(o.hour(0)))}}
	o.Expect(api.Create(t.Context(), restored)).To(Succeed())
	o.schedule("hourly", hourlyOfAll)
	o.at(o.hour(0))
	o.will(func() string { return o.condition("hourly", v1.ConditionReconciled).Message }).Should(And(ContainSubstring(name), ContainSubstring("delete it")))
	o.Expect(o.snapshots()).To(BeEmpty())
	o.Expect(api.Delete(t.Context(), restored)).To(Succeed())
	o.tick(o.hour(0).Add(time.Minute))
	o.Expect(o.snapshotNames()).To(ConsistOf("data-" + name))
	o.Expect(o.condition("hourly", v1.ConditionReconciled).Status).To(Equal(metav1.ConditionTrue))
}

func TestARunOfSomebodyElseBlocksOneSlotOnly(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	o.Expect(api.Create(t.Context(), &v1.SnapshotRun{ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: "hourly-" + when(o.hour(0))},
		Spec: v1.SnapshotRunSpec{ScheduleName: "hourly", Slot: ptr.To(metav1.NewTime(o.hour(0)))}})).To(Succeed())
	o.schedule("hourly", hourlyOfAll)
	o.at(o.hour(0))
	o.tick(o.hour(1))
	o.Expect(o.snapshotNames()).To(ConsistOf("data-hourly-" + when(o.hour(1))))
	o.Expect(o.condition("hourly", v1.ConditionReconciled).Status).To(Equal(metav1.ConditionTrue))
}

func TestAScheduleThatIsResumedWhileTheOperatorIsDownTakesNoMissedSlot(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	o.claim("data")
	o.schedule("hourly", `{schedule: "0 * * * *", disabled: true}`)
	first := o.start()
	o.settle()
	o.halt(first)
	o.clock.SetTime(o.hour(5).Add(time.Minute))
	o.edit("hourly", `{"disabled":false}`)
	o.start()
	o.settle()
	o.idle()
	o.Expect(o.runNames("")).To(BeEmpty())
	o.Expect(o.read("hourly").Status.LastMissed).To(BeNil())
	o.tick(o.hour(6))
	o.Expect(o.snapshotNames()).To(ConsistOf("data-hourly-" + when(o.hour(6))))
}

func TestAnInvalidSelectorSelectsNothingAndIsReported(t *testing.T) {
	t.Parallel()
	o := operate(t)
	claim := o.claim("data")
	o.made("a", "hourly", "data", string(claim.UID), 3*hours)
	o.made("b", "hourly", "data", string(claim.UID), 2*hours)
	o.schedule("hourly", `{schedule: "0 * * * *", retention: {maxCount: 1}, claimSelector: {matchExpressions: [{key: app, operator: Like, values: [db]}]}}`)
	o.tick(o.hour(0))
	o.keeps("b")
	o.Expect(o.condition("hourly", v1.ConditionReady)).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", v1.ReasonInvalidSelector),
		HaveField("Message", ContainSubstring("spec.claimSelector"))))
	for _, r := range o.runs("") {
		o.Expect(r.Status.Result).To(Equal(v1.ResultSkipped))
		o.Expect(strings.ToLower(r.Status.Message)).To(ContainSubstring("spec.claimselector"))
	}
}
