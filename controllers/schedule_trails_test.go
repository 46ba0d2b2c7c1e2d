// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// minutely is a schedule whose next slot is that one.
func minutely(next time.Time) *v1.SnapshotSchedule {
	s := &v1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "minutely", UID: "s", CreationTimestamp: metav1.NewTime(next.Add(-time.Hour))}}
	s.Spec.Schedule = "* * * * *"
	s.Status.NextSnapshotTime = ptr.To(metav1.NewTime(next))
	return s
}

// schedules builds clients for a reconciler of schedules.
func schedules(t *testing.T) *fake.ClientBuilder {
	t.Helper()
	g := NewWithT(t)
	scheme := runtime.NewScheme()
	g.Expect(v1.AddToScheme(scheme)).To(Succeed())
	g.Expect(snapshotv1.AddToScheme(scheme)).To(Succeed())
	byName := func(o client.Object) []string { return []string{o.(*v1.SnapshotRun).Spec.ScheduleName} }
	byLabel := func(o client.Object) []string { return []string{o.GetLabels()[v1.LabelSchedule]} }
	return fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1.SnapshotSchedule{}, &v1.SnapshotRun{}).
		WithIndex(&v1.SnapshotRun{}, indexSchedule, byName).WithIndex(&snapshotv1.VolumeSnapshot{}, indexSchedule, byLabel)
}

func reconcilerOf(c client.Client, now clock.Clock) *ScheduleReconciler {
	return &ScheduleReconciler{Client: c, Live: c, Recorder: events.NewFakeRecorder(100), Clock: now,
		Skew: func() (time.Duration, bool) { return 0, true }, Draining: func() bool { return false }, Options: ScheduleOptions{ReadyTimeout: time.Hour}}
}

func namesOfRuns(t *testing.T, c client.Client) []string {
	t.Helper()
	var list v1.SnapshotRunList
	NewWithT(t).Expect(c.List(t.Context(), &list)).To(Succeed())
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// A slot comes while the run before is not released, and is noted as missed. The next look sees that the run is released by now, in a cache that
// does not have the note yet: the slot is not taken after all.
func TestASlotThatWasNotedAsMissedIsNotTakenFromACacheThatTrails(t *testing.T) {
	g := NewWithT(t)
	s := minutely(noon)
	before := &v1.SnapshotRun{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "minutely-before", UID: "r"}, Spec: v1.SnapshotRunSpec{ScheduleName: "minutely"}}
	before.Status.Phase = v1.PhasePostHooks
	stale := s.DeepCopy()
	trailing := false
	c := schedules(t).WithObjects(s, before).
		WithInterceptorFuncs(interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if known, ok := o.(*v1.SnapshotSchedule); ok && trailing {
				stale.DeepCopyInto(known)
				return nil
			}
			return c.Get(ctx, key, o, opts...)
		}}).Build()
	key := client.ObjectKeyFromObject(s)
	g.Expect(c.Get(t.Context(), key, stale)).To(Succeed())
	r := reconcilerOf(c, clocktesting.NewFakeClock(noon.Add(time.Second)))
	runs := func() []string { return namesOfRuns(t, c) }

	_, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(c.Get(t.Context(), key, s)).To(Succeed())
	g.Expect(s.Status.LastMissed).NotTo(BeNil())
	g.Expect(s.Status.LastMissed.Reason).To(Equal(v1.MissedOverlap))
	g.Expect(runs()).To(ConsistOf("minutely-before"))

	before.Status.Phase = v1.PhaseAwaitingReady
	g.Expect(c.Status().Update(t.Context(), before)).To(Succeed())
	trailing = true
	result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(result.RequeueAfter).To(BeNumerically(">", 0), "it looks again soon")
	g.Expect(runs()).To(ConsistOf("minutely-before"))

	trailing = false
	_, err = r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(runs()).To(ConsistOf("minutely-before"))
	g.Expect(c.Get(t.Context(), key, s)).To(Succeed())
	g.Expect(s.Status.LastMissed.Count).To(BeEquivalentTo(1))
}
