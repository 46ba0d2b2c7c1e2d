// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

const hours = time.Hour

// retaining is an operator that has started, beside a claim and a schedule that never fires with these rules.
func retaining(t *testing.T, rules string, before func(o *operator, uid string)) *operator {
	t.Helper()
	o := prepare(t)
	claim := o.claim("data")
	before(o, string(claim.UID))
	o.schedule("kept", `{`+never+`, retention: `+rules+`}`)
	o.start()
	o.settle()
	return o
}

// keeps waits until these snapshots are left, and sees to it that they stay.
func (o *operator) keeps(names ...string) {
	o.t.Helper()
	o.will(o.snapshotNames).Should(ConsistOf(names))
	o.settle()
	o.Expect(o.snapshotNames()).To(ConsistOf(names))
}

func labelled(key, value string) func(*snapshotv1.VolumeSnapshot) {
	return func(s *snapshotv1.VolumeSnapshot) { s.Labels[key] = value }
}

// failed: the driver refused it.
func failed(s *snapshotv1.VolumeSnapshot) { s.Status = (&operator{}).broken(s) }

// unfinished: neither cut nor refused.
func unfinished(s *snapshotv1.VolumeSnapshot) { s.Status = nil }

func TestSnapshotsOlderThanExpiresGoWhenTheirTimeComes(t *testing.T) {
	t.Parallel()
	o := retaining(t, `{expires: 10h}`, func(o *operator, uid string) {
		o.made("a", "kept", "data", uid, 11*hours)
		o.made("b", "kept", "data", uid, 9*hours)
		o.made("c", "kept", "data", uid, 8*hours)
		o.made("other", "other", "data", uid, 50*hours)
	})
	o.keeps("b", "c", "other")
	start := o.clock.Now()
	o.at(start.Add(59 * time.Minute))
	o.keeps("b", "c", "other")
	o.at(start.Add(time.Hour))
	o.keeps("c", "other")
	// snapscheduler deletes the last usable one. Here it stays, however old.
	o.at(start.Add(1000 * time.Hour))
	o.keeps("c", "other")

	o.Expect(o.eventsOf("SnapshotExpired")).To(HaveLen(2))
	o.Expect(o.eventsOf("SnapshotExpired")[0]).To(Equal(occurrence{"kept", "Normal", "SnapshotExpired", "VolumeSnapshot " + o.called("a") + " was deleted: it is older than 10h (expires)"}))
	o.will(func() []eventsv1.Event { // and the API server took it
		var list eventsv1.EventList
		o.Expect(api.List(t.Context(), &list, client.InNamespace(o.namespace))).To(Succeed())
		return list.Items
	}).Should(ContainElement(And(HaveField("Reason", "SnapshotExpired"), HaveField("Note", ContainSubstring("VolumeSnapshot "+o.called("a")+" was deleted: it is older than 10h")))))
}

func TestExpireLastLetsTheLastOneExpire(t *testing.T) {
	t.Parallel()
	o := retaining(t, `{expires: 10h, expireLast: true}`, func(o *operator, uid string) {
		o.made("a", "kept", "data", uid, 11*hours)
	})
	o.keeps()
}

func TestMaxCountCountsEachClaimOnItsOwn(t *testing.T) {
	t.Parallel()
	o := retaining(t, `{maxCount: 2}`, func(o *operator, uid string) {
		for i, name := range []string{"d1", "d2", "d3", "d4"} {
			o.made(name, "kept", "data", uid, time.Duration(10-i)*hours)
		}
		other := string(o.claim("logs").UID)
		o.made("l1", "kept", "logs", other, 20*hours)
		o.made("l2", "kept", "logs", other, 19*hours)
	})
	o.keeps("d3", "d4", "l1", "l2")
	o.Expect(o.metric("snapscheduler_snapshot_current_count", map[string]string{"pvc_name": "data"})).To(BeEquivalentTo(2))
}

func TestKeepRulesKeepTheNewestOfEachDayInTheSchedulesZone(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	uid := string(o.claim("data").UID)
	noon := o.clock.Now().Truncate(24 * time.Hour).Add(-36 * time.Hour) // UTC
	for name, at := range map[string]time.Duration{"1-early": 0, "1-late": 4 * hours, "1-night": 7 * hours, "2-early": 12*hours + time.Minute, "2-late": 20 * hours} {
		o.made(name, "kept", "data", uid, o.clock.Since(noon.Add(at))) // Kolkata is 5:30 ahead: its day ends at 18:30 UTC
	}
	o.schedule("kept", `{`+never+`, timeZone: Asia/Kolkata, retention: {keepDaily: 2}}`)
	o.start()
	// 12:00 and 16:00 are one day there, 19:00, 00:01 and 08:00 the next.
	o.keeps("1-late", "2-late")
	o.Expect(o.eventsOf("SnapshotExpired")).To(HaveEach(HaveField("Note", ContainSubstring("no keep rule selects it"))))
}

func TestAKeepRuleHoldsWhatMaxCountAndExpiresWouldDelete(t *testing.T) {
	t.Parallel()
	o := retaining(t, `{maxCount: 1, expires: 5h, keepLast: 3}`, func(o *operator, uid string) {
		for i, name := range []string{"a", "b", "c", "d"} {
			o.made(name, "kept", "data", uid, time.Duration(20-i)*hours)
		}
	})
	o.keeps("b", "c", "d")
}

// snapscheduler#667
func TestTheKeepLabelProtectsASnapshot(t *testing.T) {
	t.Parallel()
	o := retaining(t, `{maxCount: 1, expires: 5h}`, func(o *operator, uid string) {
		o.made("pinned", "kept", "data", uid, 50*hours, labelled(v1.LabelRetention, v1.RetentionKeep))
		o.made("pinned-failed", "kept", "data", uid, 50*hours, labelled(v1.LabelRetention, v1.RetentionKeep), failed)
		o.made("a", "kept", "data", uid, 3*hours)
		o.made("b", "kept", "data", uid, 2*hours)
	})
	o.keeps("pinned", "pinned-failed", "b")
	o.patch(&snapshotv1.VolumeSnapshot{}, "pinned", `{"metadata":{"labels":{"`+v1.LabelRetention+`":null}}}`)
	o.keeps("pinned-failed", "b")
}

// snapscheduler#688, #346: bad ones evict the last good one, slow ones are evicted before they complete.
func TestFailedAndUnfinishedSnapshotsDoNotEvictGoodOnes(t *testing.T) {
	t.Parallel()
	o := retaining(t, `{maxCount: 2, expires: 100h}`, func(o *operator, uid string) {
		for i, name := range []string{"good-1", "good-2", "good-3"} {
			o.made(name, "kept", "data", uid, time.Duration(60-i)*hours)
		}
		for _, name := range []string{"bad-1", "bad-2", "bad-3"} {
			o.made(name, "kept", "data", uid, 0, failed)
		}
		for _, name := range []string{"slow-1", "slow-2", "slow-3"} {
			o.made(name, "kept", "data", uid, 0, unfinished)
		}
	})
	o.keeps("good-2", "good-3", "bad-3", "slow-1", "slow-2", "slow-3")
	// Once they are ready they count.
	o.writeStatus(o.snapshot("slow-2"), readySince("slow-2", o.clock.Now().Add(-time.Minute)))
	o.keeps("good-3", "bad-3", "slow-1", "slow-2", "slow-3")
	// After the ready timeout those that are left are failed ones.
	o.at(o.clock.Now().Add(25 * time.Hour))
	o.keeps("good-3", "slow-2", "slow-3")
}

// snapscheduler: a terminating one takes a slot.
func TestATerminatingSnapshotTakesNoSlot(t *testing.T) {
	t.Parallel()
	o := retaining(t, `{maxCount: 2}`, func(o *operator, uid string) {
		o.made("a", "kept", "data", uid, 4*hours)
		o.made("b", "kept", "data", uid, 3*hours)
		o.Expect(api.Delete(o.t.Context(), o.made("leaving", "kept", "data", uid, 2*hours,
			func(s *snapshotv1.VolumeSnapshot) { s.Finalizers = []string{"example.com/restore"} }))).To(Succeed())
	})
	o.keeps("a", "b", "leaving")
	uid := string(o.read("kept").UID) // not the claim's: another one's snapshot does not count either
	o.made("stranger", "kept", "gone", uid, time.Hour)
	o.keeps("a", "b", "leaving", "stranger")
}

// snapscheduler: while creation fails, expiry does not run, so the quota never frees.
func TestExpiryFreesAQuotaThatIsFull(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	uid := string(o.claim("data").UID)
	o.made("a", "hourly", "data", uid, 10*hours)
	o.made("b", "hourly", "data", uid, 2*hours)
	const counted = corev1.ResourceName("count/volumesnapshots.snapshot.storage.k8s.io")
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: "snapshots"},
		Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{counted: resource.MustParse("2")}}}
	o.Expect(api.Create(t.Context(), quota)).To(Succeed())
	use := func(n string) { // as the quota controller would
		quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: corev1.ResourceList{counted: resource.MustParse(n)}}
		o.Expect(api.Status().Update(t.Context(), quota)).To(Succeed())
	}
	use("2")
	o.schedule("hourly", `{schedule: "0 * * * *", retention: {expires: 11h}}`)
	o.start()
	o.settle()
	o.Expect(o.snapshots()).To(HaveLen(2))
	o.at(o.hour(0))
	o.will(func() []occurrence { return o.eventsOf("SnapshotNotCreated") }).Should(ContainElement(HaveField("Note", ContainSubstring("exceeded quota"))))
	// From now on the run's record says since when it tries: the clock may not move before.
	o.will(func() v1.RunPhase { return o.runs("")[0].Status.Phase }).Should(Equal(v1.PhaseAwaitingReady))
	o.at(o.hour(0).Add(time.Minute)) // still refused
	o.Expect(o.snapshotNames()).To(ConsistOf("a", "b"))
	o.clock.SetTime(o.hour(0).Add(6 * time.Minute))
	o.idle()
	o.Expect(o.runs("")[0].Status.Result).To(Equal(v1.ResultFailed))

	o.at(o.hour(0).Add(31 * time.Minute)) // a is 11 hours old now
	o.keeps("b")
	o.Expect(api.Get(t.Context(), client.ObjectKeyFromObject(quota), quota)).To(Succeed())
	use("1")
	o.tick(o.hour(1))
	o.keeps("b", "data-hourly-"+when(o.hour(1)))
	o.Expect(o.condition("hourly", v1.ConditionLastRunSucceeded).Status).To(Equal(metav1.ConditionTrue))
}

func TestSnapshotsMadeFromAnExistingContentAreLeftAlone(t *testing.T) {
	t.Parallel()
	o := retaining(t, `{maxCount: 1, expires: 1h, expireLast: true}`, func(o *operator, uid string) {
		o.made("imported", "kept", "data", uid, 50*hours, func(s *snapshotv1.VolumeSnapshot) {
			s.Spec.Source = snapshotv1.VolumeSnapshotSource{VolumeSnapshotContentName: ptr.To("content")}
		})
		o.made("a", "kept", "data", uid, 3*hours)
	})
	o.keeps("imported")
}

func TestASnapshotOfARunThatIsNotCompletedStays(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	o.claim("slow")
	o.stores(func(s *snapshotv1.VolumeSnapshot) *snapshotv1.VolumeSnapshotStatus {
		if *s.Spec.Source.PersistentVolumeClaimName == "slow" {
			return nil
		}
		return o.ready(s)
	})
	o.schedule("hourly", `{schedule: "0 * * * *", retention: {maxCount: 1}}`)
	for n := range 3 {
		o.at(o.hour(n))
		o.will(func() v1.RunPhase { return o.run("hourly-" + when(o.hour(n))).Status.Phase }).Should(Equal(v1.PhaseAwaitingReady))
		o.settle()
	}
	o.Expect(o.snapshots()).To(HaveLen(6))
	o.finish()
	o.idle()
	o.keeps("data-hourly-"+when(o.hour(2)), "slow-hourly-"+when(o.hour(2)))
}
