// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"errors"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// youngerThan waits for the API server's next second: creation times have no finer grain.
func (o *operator) youngerThan(c client.Object) {
	time.Sleep(time.Until(c.GetCreationTimestamp().Add(time.Second)))
}

func TestSnapshotsThatSnapschedulerMadeAreAdopted(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	claim := o.claim("data")
	o.youngerThan(claim)
	o.made("data-hourly-1", "hourly", "data", "", 5*hours)
	o.made("data-hourly-2", "hourly", "data", "", 4*hours)
	o.made("data-hourly-3", "hourly", "data", "", 3*hours)
	o.schedule("hourly", `{schedule: "0 * * * *", retention: {maxCount: 3}}`)
	o.start()
	o.settle()
	o.keeps("data-hourly-1", "data-hourly-2", "data-hourly-3")

	// New ones and old ones are those of one claim.
	o.tick(o.hour(0))
	o.keeps("data-hourly-2", "data-hourly-3", "data-hourly-"+when(o.hour(0)))
	o.tick(o.hour(1))
	o.keeps("data-hourly-3", "data-hourly-"+when(o.hour(0)), "data-hourly-"+when(o.hour(1)))
	o.edit("hourly", `{"retention":{"maxCount":null,"expires":"3h"}}`)
	o.keeps("data-hourly-"+when(o.hour(0)), "data-hourly-"+when(o.hour(1)))
}

func TestKeepRulesCountOldAndNewSnapshotsOfAClaimTogether(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	claim := o.claim("data")
	o.youngerThan(claim)
	o.made("old-1", "kept", "data", "", 6*hours)
	o.made("old-2", "kept", "data", "", 5*hours)
	o.made("new-1", "kept", "data", string(claim.UID), 4*hours)
	o.made("new-2", "kept", "data", string(claim.UID), 3*hours)
	o.schedule("kept", `{`+never+`, retention: {keepLast: 3}}`)
	o.start()
	o.settle()
	o.keeps("old-2", "new-1", "new-2")
}

// snapscheduler deletes the last usable one by expires, and counts by the claim's name only.
func TestTheLastSnapshotOfAVanishedClaimGoesByExpiresOnly(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	claim := o.claim("data")
	uid := string(claim.UID)
	o.made("a", "kept", "data", uid, 4*hours)
	o.made("b", "kept", "data", uid, 3*hours)
	o.made("bad", "kept", "data", uid, 2*hours, failed)
	o.schedule("kept", `{`+never+`, retention: {maxCount: 1, expires: 10h}}`)
	o.removeClaim(claim)
	o.start()
	o.settle()
	o.keeps("b", "bad")
	o.at(o.clock.Now().Add(6 * time.Hour))
	o.keeps("b", "bad")
	o.at(o.clock.Now().Add(6 * time.Hour)) // b is 15 hours old
	o.keeps()
}

func TestAClaimThatIsCreatedAgainUnderItsNameDoesNotCostTheOldOnesLast(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	claim := o.claim("data")
	o.youngerThan(claim)
	o.made("adopted", "hourly", "data", "", 6*hours)
	o.made("first", "hourly", "data", string(claim.UID), 5*hours)
	o.youngerThan(o.snapshot("adopted"))
	o.removeClaim(claim)
	again := o.claim("data")
	o.schedule("hourly", `{schedule: "0 * * * *", retention: {maxCount: 2}}`)
	o.start()
	o.settle()
	for n := range 3 {
		o.tick(o.hour(n))
	}
	o.Expect(o.snapshot("data-hourly-" + when(o.hour(2))).Annotations).To(HaveKeyWithValue(v1.AnnotationClaimUID, string(again.UID)))
	o.keeps("adopted", "first", "data-hourly-"+when(o.hour(1)), "data-hourly-"+when(o.hour(2)))
}

// snapscheduler: NotFound on delete is an error.
func TestASnapshotThatIsGoneOrChangedWhenItIsToBeDeletedIsNoError(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	uid := string(o.claim("data").UID)
	for i, name := range []string{"gone", "pinned", "plain", "newest"} {
		o.made(name, "kept", "data", uid, time.Duration(9-i)*hours)
	}
	o.schedule("kept", `{`+never+`, retention: {maxCount: 1}}`)
	o.beforeDelete = func(doomed client.Object) { // a moment before the operator
		switch o.nickname(doomed.GetName()) {
		case "gone":
			if err := client.IgnoreNotFound(api.Delete(t.Context(), &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: doomed.GetName()}})); err != nil {
				t.Errorf("deleting: %v", err)
			}
		case "pinned":
			o.patch(&snapshotv1.VolumeSnapshot{}, "pinned", `{"metadata":{"labels":{"`+v1.LabelRetention+`":"keep"}}}`)
		}
	}
	o.start()
	o.settle()
	o.keeps("pinned", "newest")
	o.Expect(o.condition("kept", v1.ConditionReconciled).Reason).To(Equal(v1.ReasonReconcileComplete))
	o.Expect(o.eventsOf("SnapshotExpired")).To(ConsistOf(HaveField("Note", ContainSubstring("VolumeSnapshot "+o.called("plain")+" "))))
	o.Expect(o.loggedErrors()).To(BeEmpty())
}

func TestNothingIsDeletedWhileTheClocksDiffer(t *testing.T) {
	t.Parallel()
	for _, skew := range []time.Duration{5*time.Minute + time.Second, -5*time.Minute - time.Second} {
		o := prepare(t)
		uid := string(o.claim("data").UID)
		o.made("a", "kept", "data", uid, 4*hours)
		o.made("b", "kept", "data", uid, 3*hours)
		o.schedule("kept", `{`+never+`, retention: {maxCount: 1}}`)
		o.skewed(skew)
		o.start()
		o.settle()
		o.Expect(o.snapshotNames()).To(ConsistOf("a", "b"))
		o.Expect(o.eventsOf("RetentionPaused")).NotTo(BeEmpty())
		o.Expect(o.eventsOf("RetentionPaused")[0].Note).To(ContainSubstring("differ by"))
		o.skewed(5 * time.Minute)
		o.at(o.clock.Now().Add(2 * time.Minute))
		o.keeps("b")
	}
}

func TestSnapshotsThatCannotBeDeletedAreReportedAndDoNotHoldTheOthers(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	uid := string(o.claim("data").UID)
	for i, name := range []string{"stuck", "a", "newest"} {
		o.made(name, "kept", "data", uid, time.Duration(9-i)*hours)
	}
	o.refuseDelete = func(doomed client.Object) error {
		if o.nickname(doomed.GetName()) == "stuck" {
			return errors.New("a webhook says no")
		}
		return nil
	}
	o.schedule("kept", `{`+never+`, retention: {maxCount: 1}}`)
	o.start()
	o.will(o.snapshotNames).Should(ConsistOf("stuck", "newest"))
	o.will(func() metav1.Condition { return o.condition("kept", v1.ConditionReconciled) }).Should(And(
		HaveField("Status", metav1.ConditionFalse), HaveField("Message", ContainSubstring("a webhook says no"))))
	o.Expect(o.condition("kept", v1.ConditionReady).Status).To(Equal(metav1.ConditionTrue))
	o.mu.Lock()
	o.refuseDelete = nil
	o.mu.Unlock()
	o.keeps("newest")
	o.will(func() metav1.Condition { return o.condition("kept", v1.ConditionReconciled) }).Should(HaveField("Status", metav1.ConditionTrue))
}

// skewed sets how far the operator's clock is ahead of the API server's.
func (o *operator) skewed(d time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.skew = func() (time.Duration, bool) { return d, true }
}
