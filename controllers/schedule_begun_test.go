// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/naming"
	"github.com/stillpoint-operator/stillpoint/internal/run"
)

// The books of a slot are kept later than its run begins: after every other schedule that is due has begun, or by the next process. However late
// that is, the slot is not missed.
func TestASlotThatHasItsRunIsNotMissedHoweverLateTheBooksAreKept(t *testing.T) {
	for name, late := range map[string]time.Duration{
		"at once":                           0,
		"after startingDeadlineSeconds":     30 * time.Second,
		"after the next slot":               time.Minute,
		"after the next slot and its limit": 80 * time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := minutely(noon)
			s.Spec.StartingDeadlineSeconds = ptr.To(int64(15))
			c := schedules(t).WithObjects(s).Build()
			key := client.ObjectKeyFromObject(s)
			now := clocktesting.NewFakeClock(noon.Add(time.Second))
			r := reconcilerOf(c, now)
			first := naming.RetryRun(s.Name, noon, 0)

			result, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(namesOfRuns(t, c)).To(ConsistOf(first))
			g.Expect(c.Get(t.Context(), key, s)).To(Succeed())
			g.Expect(s.Status.NextSnapshotTime.Time).To(BeTemporally("==", noon), "the books are not kept yet")
			g.Expect(result.RequeueAfter).To(Equal(run.DirectGrace))
			var o v1.SnapshotRun
			g.Expect(c.Get(t.Context(), client.ObjectKey{Namespace: s.Namespace, Name: first}, &o)).To(Succeed())
			o.CreationTimestamp = metav1.NewTime(now.Now())
			g.Expect(c.Update(t.Context(), &o)).To(Succeed())
			now.Step(time.Second)
			result, err = r.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(result.RequeueAfter).To(Equal(run.DirectGrace - time.Second))
			g.Expect(c.Get(t.Context(), key, s)).To(Succeed())
			g.Expect(s.Status.NextSnapshotTime.Time).To(BeTemporally("==", noon), "the run has no record yet")

			o.Status.Phase, o.Status.Result, o.Status.CompletionTime = v1.PhaseCompleted, v1.ResultSucceeded, ptr.To(metav1.NewMicroTime(now.Now()))
			g.Expect(c.Status().Update(t.Context(), &o)).To(Succeed())

			now.SetTime(noon.Add(2*time.Second + late))
			for range 2 { // a slot that is due by now has its run, and then its books
				_, err = reconcilerOf(c, now).Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
				g.Expect(err).NotTo(HaveOccurred())
			}
			g.Expect(c.Get(t.Context(), key, s)).To(Succeed())
			next := noon.Add(time.Minute)
			switch {
			case late < time.Minute:
				g.Expect(namesOfRuns(t, c)).To(ConsistOf(first))
				g.Expect(s.Status.LastMissed).To(BeNil())
			case late == time.Minute:
				g.Expect(namesOfRuns(t, c)).To(ConsistOf(first, naming.RetryRun(s.Name, next, 0)))
				g.Expect(s.Status.LastMissed).To(BeNil())
				next = next.Add(time.Minute)
			default: // this one was missed, and only this one
				g.Expect(namesOfRuns(t, c)).To(ConsistOf(first))
				g.Expect(s.Status.LastMissed.Count).To(BeEquivalentTo(1))
				g.Expect(s.Status.LastMissed.Slot.Time).To(BeTemporally("==", next))
				next = next.Add(time.Minute)
			}
			g.Expect(s.Status.NextSnapshotTime.Time).To(BeTemporally("==", next))
			g.Expect(s.Status.LastCompletionTime).NotTo(BeNil())
		})
	}
}
