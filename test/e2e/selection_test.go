// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

func TestOnlyClaimsThatCanBeTakenAreTaken(t *testing.T) {
	w := begin(t)
	db := w.app("db")

	t.Run("no claim matches: the run is skipped and no hook runs", func(t *testing.T) {
		w := w.within(t)
		db := db.in(w)
		s := w.schedule("nothing", freezing(db), func(s *v1.SnapshotScheduleSpec) { s.ClaimSelector = labelled("nobody") })
		o := w.ends(w.start(s), v1.ResultSkipped)
		w.Expect(o.Status.Message).To(ContainSubstring("no bound PersistentVolumeClaim matches spec.claimSelector"))
		w.expectLabels(o, map[string]string{})
		w.expectEvent(o, "Skipped", "no claim to take")
		w.Expect([]int{db.noted("pre"), db.noted("post")}).To(Equal([]int{0, 0}))
	})
	t.Run("excluded, unbound and doomed claims are left out", func(t *testing.T) {
		w := w.within(t)
		db := db.in(w)
		everything := func(s *v1.SnapshotScheduleSpec) { s.ClaimSelector = metav1.LabelSelector{} }
		excluded := w.claim("excluded", nil)
		await(w, excluded, "bound", func(c *corev1.PersistentVolumeClaim) bool { return c.Status.Phase == corev1.ClaimBound })
		change(w, excluded, func(c *corev1.PersistentVolumeClaim) { c.Annotations[v1.AnnotationExclude] = "true" })
		unbound := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "unbound"}, Spec: db.claimSpec()}
		unbound.Spec.StorageClassName = ptr.To("no-such-class")
		w.create(unbound)
		doomed := w.claim("doomed", nil)
		w.create(w.pod("user", "doomed", idle)) // keeps the claim there while it is being deleted
		(&app{world: w, name: "user"}).ready()
		w.remove(doomed)

		s := w.schedule("everything", freezing(db), everything)
		o := w.ends(w.start(s), v1.ResultSucceeded)
		w.expectLabels(o, map[string]string{"db": application})

		t.Log("and when only such are left, the run says which")
		change(w, s, func(s *v1.SnapshotSchedule) {
			s.Spec.ClaimSelector = metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
				{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"db"}},
			}}
		})
		o = w.ends(w.start(s), v1.ResultSkipped)
		w.Expect(o.Status.Message).To(And(ContainSubstring("claim unbound is not bound"), ContainSubstring("claim doomed is being deleted"), Not(ContainSubstring("excluded"))))
	})
}

func TestRetentionKeepsTheNewestAndWhatIsLabelled(t *testing.T) {
	w := begin(t)
	db := w.app("db")
	s := w.schedule("hourly", taking(db))
	var names []string
	take := func() string {
		w.Helper()
		o := w.ends(w.start(s), v1.ResultSucceeded)
		w.expectLabels(o, map[string]string{"db": ""})
		name := o.Status.Snapshots[0].Name
		names = append(names, name)
		return name
	}
	kept := w.snapshot(take())
	change(w, kept, func(o *snapshotObject) { o.Labels[v1.LabelRetention] = v1.RetentionKeep })
	gone := w.snapshot(take())
	// The storage tells the time of a cut in whole seconds, and retention goes by it.
	w.nextSecond()
	take()
	w.nextSecond()
	change(w, s, func(s *v1.SnapshotSchedule) { s.Spec.Retention.MaxCount = ptr.To[int32](2) })
	take()

	awaitGone(w, gone)
	w.Expect(w.snapshotNames()).To(ConsistOf(names[0], names[2], names[3]))

	change(w, s, func(s *v1.SnapshotSchedule) { s.Spec.Retention = v1.SnapshotRetentionSpec{Expires: "1s"} })
	awaitGone(w, w.snapshotNamed(names[2]))
	w.Expect(w.snapshotNames()).To(ConsistOf(names[0], names[3]), "the newest ready one is never deleted")
}
