// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/naming"
)

// Who may label a VolumeSnapshot and may not delete it, must not have it deleted by retention.
func TestALabelMakesNoSnapshotASchedules(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	claim := o.claim("data")
	o.claim("precious")
	uid := string(claim.UID)
	s := o.schedule("hourly", `{`+never+`, retention: {maxCount: 1, expires: 1h, expireLast: true}}`)
	o.schedule("other", `{`+never+`}`)
	own := o.made("data-hourly-202601010000", "hourly", "data", uid, 50*time.Hour)
	ownOfSnapscheduler := o.made("data-hourly-202601010100", "hourly", "data", "", 50*time.Hour)
	stolen := map[string]func(*snapshotv1.VolumeSnapshot){
		"by-hand":                     nil,
		"precious":                    nil,
		"data-other-202601010000":     nil,
		"data-hourly":                 nil,
		"data-hourly-2026":            nil,
		"data-hourly-202613010000":    nil,
		"precious-hourly-20260101000": nil,
		"precious-hourly-202601010000": func(s *snapshotv1.VolumeSnapshot) { // of another claim than it says
			s.Spec.Source.PersistentVolumeClaimName = ptr.To("data")
		},
		"data-hourly-202601010200": func(s *snapshotv1.VolumeSnapshot) { // of no claim
			s.Spec.Source = snapshotv1.VolumeSnapshotSource{VolumeSnapshotContentName: ptr.To("content")}
		},
		"data-hourly-aaaaaaaaaa-202601010000": func(s *snapshotv1.VolumeSnapshot) { // as one whose name was taken
			s.Annotations[v1.AnnotationRunUID] = "some-run"
		},
		"failed-by-hand": func(s *snapshotv1.VolumeSnapshot) {
			s.Status = &snapshotv1.VolumeSnapshotStatus{Error: &snapshotv1.VolumeSnapshotError{Message: ptr.To("x")}}
		},
	}
	for name, change := range stolen {
		o.nicknames[name] = name // as it is
		snap := &snapshotv1.VolumeSnapshot{
			ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: name, Labels: map[string]string{v1.LabelSchedule: "hourly", v1.LabelWhen: "202601010000",
				v1.LabelConsistency: v1.ConsistencyApplication},
				Annotations: map[string]string{v1.AnnotationRun: "hourly-202601010000", v1.AnnotationRunUID: string(s.UID), v1.AnnotationClaimUID: uid}},
			Spec:   snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: ptr.To("data")}},
			Status: readySince(name, o.clock.Now().Add(-50*time.Hour)),
		}
		if strings.HasPrefix(name, "precious") {
			snap.Spec.Source.PersistentVolumeClaimName = ptr.To("precious")
		}
		if change != nil {
			change(snap)
		}
		status := snap.Status
		o.Expect(api.Create(t.Context(), snap)).To(Succeed())
		o.writeStatus(snap, status)
	}
	o.start()
	o.settle()
	o.will(o.snapshotNames).ShouldNot(Or(ContainElement(own.Name), ContainElement(ownOfSnapscheduler.Name)), "its own go")
	for name := range stolen {
		o.Expect(o.snapshotNames()).To(ContainElement(name))
	}
	for _, e := range o.eventsOf(v1.EventSnapshotExpired) {
		o.Expect(e.Note).To(Or(ContainSubstring(own.Name), ContainSubstring(ownOfSnapscheduler.Name)))
	}
}

// Under hooks, what an earlier run left uncut is deleted, lest the storage cuts it now. Somebody else's is not.
func TestALabelHasNoUncutSnapshotDeletedBeforeARun(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	claim := o.claim("data")
	o.pod("db")
	marks := func(name string) *snapshotv1.VolumeSnapshot {
		s := &snapshotv1.VolumeSnapshot{
			ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: name, Labels: map[string]string{v1.LabelSchedule: "hourly"},
				Annotations: map[string]string{v1.AnnotationRun: "gone", v1.AnnotationRunUID: "gone", v1.AnnotationClaimUID: string(claim.UID)}},
			Spec: snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: ptr.To("data")}}}
		o.Expect(api.Create(t.Context(), s)).To(Succeed())
		o.writeStatus(s, &snapshotv1.VolumeSnapshotStatus{BoundVolumeSnapshotContentName: ptr.To("content-" + name)})
		return s
	}
	foreign, own := marks("being-taken"), marks("data-hourly-202601010000")
	o.start()
	o.schedule("hourly", hookedHourly)
	o.tick(o.hour(0))
	o.Expect(o.snapshotNames()).To(ContainElement(foreign.Name))
	o.Expect(o.snapshotNames()).NotTo(ContainElement(own.Name))
	o.Expect(o.runs("hourly")[0].Status.Result).To(Equal(v1.ResultSucceeded))
}

// The names of a run's snapshots are known beforehand, and so is its UID once it exists. What was taken from another claim is not the run's for that.
func TestASnapshotOfAnotherClaimDoesNotPassForTheRuns(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	o.claim("data")
	o.claim("other", func(c *corev1.PersistentVolumeClaim) { c.Labels = nil })
	o.pod("db")
	name, run := "data-hourly-"+when(o.hour(0)), naming.Run("hourly", o.hour(0))
	forge := sync.OnceFunc(func() {
		var r v1.SnapshotRun
		if err := api.Get(t.Context(), client.ObjectKey{Namespace: o.namespace, Name: run}, &r); err != nil {
			t.Error(err)
		}
		s := &snapshotv1.VolumeSnapshot{
			ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: name, Labels: map[string]string{v1.LabelSchedule: "hourly", v1.LabelConsistency: v1.ConsistencyCrash},
				Annotations: map[string]string{v1.AnnotationRun: run, v1.AnnotationRunUID: string(r.UID)}},
			Spec: snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: ptr.To("other")}}}
		if err := api.Create(t.Context(), s); err != nil {
			t.Error(err)
		}
	})
	o.hook = func(context.Context) { forge() } // while the application is being quiesced
	o.start()
	o.schedule("hourly", hookedHourly)
	o.tick(o.hour(0))
	r := o.run(run)
	o.Expect(r.Status.Result).To(Equal(v1.ResultSucceeded), r.Status.Message)
	o.Expect(r.Status.Snapshots).To(HaveLen(1))
	taken := o.snapshot(r.Status.Snapshots[0].Name)
	o.Expect(taken.Name).NotTo(Equal(name))
	o.Expect(taken.Spec.Source.PersistentVolumeClaimName).To(HaveValue(Equal("data")))
	o.Expect(taken.Labels).To(HaveKeyWithValue(v1.LabelConsistency, v1.ConsistencyApplication))
	o.Expect(o.snapshot(name).Labels).To(HaveKeyWithValue(v1.LabelConsistency, v1.ConsistencyCrash), "the forged one is left alone")
}
