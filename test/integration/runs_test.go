// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"sync"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// retried steps the clock to when the nth repetition of the slot's run is due, and a second before.
func (o *operator) retried(schedule string, after time.Duration, name string) {
	o.t.Helper()
	completed := o.clock.Now()
	o.at(completed.Add(after - 2*time.Second))
	o.Expect(o.runNames(schedule)).NotTo(ContainElement(name))
	o.tick(completed.Add(after + time.Second))
	o.Expect(o.runNames(schedule)).To(ContainElement(name))
}

func TestAFailedRunIsRepeatedWithBackoffAsOftenAsItsLimitSays(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	o.stores(o.broken)
	o.schedule("hourly", `{schedule: "0 * * * *", runRetryLimit: 2, failedRunsHistoryLimit: 10}`)
	first := "hourly-" + when(o.hour(0))
	o.tick(o.hour(0))
	o.Expect(o.run(first).Status.Result).To(Equal(v1.ResultFailed))
	o.retried("hourly", 10*time.Second, first+"-r1")
	o.retried("hourly", 20*time.Second, first+"-r2")
	o.tick(o.hour(0).Add(50 * time.Minute))
	o.Expect(o.runNames("hourly")).To(ConsistOf(first, first+"-r1", first+"-r2"))
	o.Expect(o.run(first + "-r2").Annotations).To(HaveKeyWithValue(v1.AnnotationRetry, "2"))
	o.Expect(o.run(first + "-r2").Spec.Slot.Time).To(BeTemporally("==", o.hour(0)))

	// The next slot starts anew, and a repetition that succeeds is the last.
	o.tick(o.hour(1))
	o.stores(o.ready)
	o.retried("hourly", 10*time.Second, "hourly-"+when(o.hour(1))+"-r1")
	o.Expect(o.run("hourly-" + when(o.hour(1)) + "-r1").Status.Result).To(Equal(v1.ResultSucceeded))
	o.tick(o.hour(1).Add(50 * time.Minute))
	o.Expect(o.runs("hourly")).To(HaveLen(5))
	o.Expect(o.condition("hourly", v1.ConditionLastRunSucceeded).Status).To(Equal(metav1.ConditionTrue))
}

func TestAFailedRunIsNotRepeatedBeyondTheNextSlot(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	o.stores(o.broken)
	o.clock.SetTime(o.hour(0).Add(-time.Second))
	o.schedule("often", `{schedule: "* * * * *", runRetryLimit: 5}`)
	o.tick(o.hour(0).Add(55 * time.Second)) // 10 s later is the next minute
	o.tick(o.hour(0).Add(65 * time.Second))
	o.Expect(o.runNames("often")).To(ConsistOf("often-"+when(o.hour(0)), "often-"+when(o.hour(0).Add(time.Minute))))
}

func TestAFailedRunIsRepeatedAlsoIfNoFailedRunIsToBeKept(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	o.stores(o.broken)
	o.schedule("hourly", `{schedule: "0 * * * *", runRetryLimit: 1, failedRunsHistoryLimit: 0}`)
	o.tick(o.hour(0))
	o.stores(o.ready)
	o.tick(o.hour(0).Add(15 * time.Second))
	o.Expect(o.runNames("hourly")).To(ContainElement("hourly-" + when(o.hour(0)) + "-r1"))
}

func TestASlotThatComesBeforeARunHasReleasedItsApplicationIsSkippedAndCountedOnce(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	o.claim("data")
	o.pod("db-0")
	gate := make(chan struct{})
	o.hook = func(ctx context.Context) {
		select {
		case <-gate:
		case <-ctx.Done():
		}
	}
	o.clock.SetTime(o.hour(0).Add(-time.Second))
	o.start()
	o.schedule("often", `{schedule: "* * * * *", preHooks: [{podSelector: {matchLabels: {app: db}}, command: [flush]}]}`)
	o.at(o.hour(0))
	name := "often-" + when(o.hour(0))
	o.will(func() v1.RunPhase { return o.run(name).Status.Phase }).Should(Equal(v1.PhasePreHooks))

	o.at(o.hour(0).Add(time.Minute + time.Second))
	o.settle()
	o.Expect(o.runNames("often")).To(ConsistOf(name))
	o.expectMissed("often", o.hour(0).Add(time.Minute), v1.MissedOverlap, 1)
	o.Expect(o.read("often").Status.ActiveRun).To(Equal(name))

	close(gate)
	o.idle()
	o.tick(o.hour(0).Add(2 * time.Minute))
	o.Expect(o.snapshotNames()).To(ConsistOf("data-"+name, "data-often-"+when(o.hour(0).Add(2*time.Minute))))
	for _, s := range o.snapshots() {
		o.Expect(s.Labels).To(HaveKeyWithValue(v1.LabelConsistency, v1.ConsistencyApplication))
	}
	o.Expect(o.read("often").Status.LastMissed.Count).To(BeEquivalentTo(1))
}

func TestASlotWaitsForARunThatIsNotYetLookedAt(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	gate := make(chan struct{})
	o.refuses(func(*snapshotv1.VolumeSnapshot) error { // the API server takes its time
		<-gate
		return nil
	})
	open := sync.OnceFunc(func() { close(gate) })
	defer open()
	o.clock.SetTime(o.hour(0).Add(-time.Second))
	o.schedule("often", `{schedule: "* * * * *"}`)
	minute := o.hour(0).Add(time.Minute)
	o.at(o.hour(0))
	o.at(minute.Add(time.Second))
	o.Expect(o.runNames("often")).To(ConsistOf("often-" + when(o.hour(0))))
	open()
	o.will(func() []string { return o.runNames("often") }).Should(ConsistOf("often-"+when(o.hour(0)), "often-"+when(minute)))
	o.idle()
	o.Expect(o.snapshots()).To(HaveLen(2))
	o.Expect(o.read("often").Status.LastMissed).To(BeNil())
}

func TestASlotDoesNotWaitForSnapshotsThatAreSlowToBecomeReady(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	o.stores(o.cutOnly)
	o.schedule("hourly", hourlyOfAll)
	for n := range 3 {
		o.at(o.hour(n))
		o.will(func() v1.RunPhase { return o.run("hourly-" + when(o.hour(n))).Status.Phase }).Should(Equal(v1.PhaseAwaitingReady))
		o.settle()
	}
	o.Expect(o.snapshots()).To(HaveLen(3))
	o.Expect(o.read("hourly").Status.LastMissed).To(BeNil())
	o.Expect(o.read("hourly").Status.ActiveRun).To(Equal("hourly-" + when(o.hour(2))))
	o.finish()
	o.idle()
	for _, r := range o.runs("hourly") {
		o.Expect(r.Status.Result).To(Equal(v1.ResultSucceeded))
	}
}

func TestTheActiveRunOfTheStatusExists(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	o.stores(nil)
	o.schedule("hourly", hourlyOfAll)
	o.at(o.hour(0))
	name := "hourly-" + when(o.hour(0))
	o.will(func() v1.RunPhase { return o.run(name).Status.Phase }).Should(Equal(v1.PhaseAwaitingReady))
	o.Expect(o.read("hourly").Status.ActiveRun).To(Equal(name))
	o.Expect(api.Delete(t.Context(), o.run(name))).To(Succeed())
	o.at(o.hour(0).Add(time.Minute)) // nobody waits for it any more
	o.Expect(o.read("hourly").Status.ActiveRun).To(BeEmpty())
}

func TestARunByHandInTheMinuteOfASlotLosesAndDoublesNoSnapshot(t *testing.T) {
	t.Parallel()
	o := operate(t)
	claim := o.claim("data")
	o.clock.SetTime(time.Now().Add(-time.Minute)) // the next slot is the API server's minute
	o.schedule("often", `{schedule: "* * * * *"}`)
	byHand := o.manual("often", "by-hand")
	o.idle()
	minute := byHand.CreationTimestamp.Truncate(time.Minute)
	o.Expect(o.snapshotNames()).To(ConsistOf("data-often-" + when(minute)))

	o.tick(minute.Add(30 * time.Second))
	o.Expect(o.runNames("often")).To(ConsistOf("by-hand", "often-"+when(minute)))
	o.Expect(o.snapshots()).To(HaveLen(2))
	for _, r := range o.runs("often") {
		o.Expect(r.Status.Result).To(Equal(v1.ResultSucceeded))
		o.Expect(r.Status.Snapshots).To(HaveLen(1))
	}
	for _, s := range o.snapshots() {
		o.Expect(s.Labels).To(HaveKeyWithValue(v1.LabelWhen, when(minute)))
		o.Expect(s.Annotations).To(HaveKeyWithValue(v1.AnnotationClaimUID, string(claim.UID)))
		o.Expect(s.Name).To(MatchRegexp(`^data-often-([a-z0-9]{10}-)?` + when(minute) + `$`))
	}
}

func TestTwoRunsByHandInOneMinuteTakeOneSnapshotEach(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	o.schedule("yearly", `{`+never+`, disabled: true}`) // a run by hand is meant, disabled or not
	if left := time.Until(time.Now().Truncate(time.Minute).Add(time.Minute)); left < 3*time.Second {
		time.Sleep(left) // so that both are created in one minute
	}
	o.manual("yearly", "one")
	o.manual("yearly", "two")
	o.idle()
	o.Expect(o.snapshots()).To(HaveLen(2))
	one, two := o.run("one").Status, o.run("two").Status
	o.Expect(one.Result).To(Equal(v1.ResultSucceeded))
	o.Expect(two.Result).To(Equal(v1.ResultSucceeded))
	o.Expect(one.Snapshots[0].Name).NotTo(Equal(two.Snapshots[0].Name))
}

func TestARunByHandBesideAnActiveOneTakesItsOwnSnapshots(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	o.stores(o.cutOnly)
	o.schedule("hourly", hourlyOfAll)
	o.at(o.hour(0))
	o.will(o.snapshots).Should(HaveLen(1))
	byHand := o.manual("hourly", "by-hand")
	o.will(o.snapshotNames).Should(ConsistOf("data-hourly-"+when(o.hour(0)), "data-hourly-"+when(byHand.CreationTimestamp.Time)))
	o.Expect(o.read("hourly").Status.ActiveRun).To(Equal("hourly-" + when(o.hour(0))))
	o.finish()
	o.idle()
	o.Expect(o.run("by-hand").Status.Result).To(Equal(v1.ResultSucceeded))
	o.Expect(o.run("hourly-" + when(o.hour(0))).Status.Result).To(Equal(v1.ResultSucceeded))
}

func TestRestoredAndCopiedRunsWithAnOldSlotStartNothing(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	s := o.schedule("hourly", hourlyOfAll)
	o.tick(o.hour(0))
	o.tick(o.hour(1))
	original := o.run("hourly-" + when(o.hour(0)))
	copied := func(name string, owner types.UID, slot time.Time) {
		r := &v1.SnapshotRun{ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: name, Labels: original.Labels, OwnerReferences: original.OwnerReferences},
			Spec: v1.SnapshotRunSpec{ScheduleName: "hourly", Slot: ptr.To(metav1.NewTime(slot))}}
		r.OwnerReferences[0].UID = owner
		o.Expect(api.Create(t.Context(), r)).To(Succeed())
	}
	copied("copied", s.UID, o.hour(0))
	copied("copied-older", s.UID, o.hour(-30))
	copied("restored", "11111111-2222-3333-4444-555555555555", o.hour(0))
	copied("restored-future", "11111111-2222-3333-4444-555555555555", o.hour(9))
	o.idle()
	for _, name := range []string{"copied", "copied-older", "restored", "restored-future"} {
		if r := o.runs("hourly"); len(r) > 0 { // those beyond the history limit may be gone
			for i := range r {
				if r[i].Name == name {
					o.Expect(r[i].Status.Result).To(Equal(v1.ResultSkipped), name)
				}
			}
		}
	}
	o.Expect(o.snapshots()).To(HaveLen(2))
	o.tick(o.hour(2))
	o.Expect(o.snapshots()).To(HaveLen(3))
}

func TestARunOfAScheduleThatDoesNotExistFails(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	o.manual("nobody", "lonely")
	o.idle()
	o.Expect(o.run("lonely").Status.Result).To(Equal(v1.ResultFailed))
	o.Expect(o.run("lonely").Status.Message).To(ContainSubstring("nobody does not exist"))
	o.Expect(o.snapshots()).To(BeEmpty())
}
