// SPDX-License-Identifier: Apache-2.0

package snapshots

import (
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/retention"
	"github.com/stillpoint-operator/stillpoint/internal/run"
)

var cut = metav1.NewTime(time.Date(2026, 3, 1, 7, 0, 3, 0, time.UTC))

func TestObserve(t *testing.T) {
	storageError := &snapshotv1.VolumeSnapshotError{Message: ptr.To("the array is full")}
	for name, c := range map[string]struct {
		status *snapshotv1.VolumeSnapshotStatus
		want   run.Snapshot
	}{
		"a snapshot that nobody has looked at":      {nil, run.Snapshot{}},
		"a cut one is not ready":                    {&snapshotv1.VolumeSnapshotStatus{CreationTime: &cut}, run.Snapshot{Cut: true, CreationTime: &cut.Time}},
		"a ready one is cut, whatever it tells not": {&snapshotv1.VolumeSnapshotStatus{ReadyToUse: ptr.To(true)}, run.Snapshot{Cut: true, Ready: true}},
		"an error without a content":                {&snapshotv1.VolumeSnapshotStatus{Error: storageError}, run.Snapshot{Error: "the array is full"}},
		"an error without words": {&snapshotv1.VolumeSnapshotStatus{Error: &snapshotv1.VolumeSnapshotError{}, BoundVolumeSnapshotContentName: ptr.To("c")},
			run.Snapshot{Error: "the storage reports an error", Bound: true}},
		"an empty name of a content is none": {&snapshotv1.VolumeSnapshotStatus{BoundVolumeSnapshotContentName: ptr.To("")}, run.Snapshot{}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{UID: "s", Annotations: map[string]string{v1.AnnotationRunUID: "r"}}, Status: c.status}
			c.want.UID = "s"
			g := NewWithT(t)
			g.Expect(Observe("r", s)).To(Equal(c.want))
			c.want.Foreign = true
			g.Expect(Observe("another", s)).To(Equal(c.want))
		})
	}
}

func TestForRetention(t *testing.T) {
	g := NewWithT(t)
	s := snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Name: "data-hourly-202603011200", UID: "s", Labels: map[string]string{v1.LabelRetention: v1.RetentionKeep, v1.LabelConsistency: "crash"},
			Annotations: map[string]string{v1.AnnotationRunUID: "r", v1.AnnotationClaimUID: "u"}},
		Spec:   snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: ptr.To("data")}},
		Status: &snapshotv1.VolumeSnapshotStatus{ReadyToUse: ptr.To(true), CreationTime: &cut},
	}
	runs := []v1.SnapshotRun{{ObjectMeta: metav1.ObjectMeta{UID: "r"}, Status: v1.SnapshotRunStatus{Phase: v1.PhaseAwaitingReady}}}
	want := retention.Snapshot{Name: "data-hourly-202603011200", UID: "s", ClaimName: "data", ClaimUID: "u", CutAt: &cut.Time, State: retention.Ready, Consistency: "crash", Keep: true, RunActive: true}
	g.Expect(ForRetention("hourly", []snapshotv1.VolumeSnapshot{s}, runs)).To(Equal([]retention.Snapshot{want}))

	runs[0].Status.Phase = v1.PhaseCompleted
	want.RunActive = false
	g.Expect(ForRetention("hourly", []snapshotv1.VolumeSnapshot{s}, runs)).To(Equal([]retention.Snapshot{want}))

	s.DeletionTimestamp = &cut
	want.State = retention.Terminating
	g.Expect(ForRetention("hourly", []snapshotv1.VolumeSnapshot{s}, runs)).To(Equal([]retention.Snapshot{want}))

	s.DeletionTimestamp, s.Status = nil, &snapshotv1.VolumeSnapshotStatus{Error: &snapshotv1.VolumeSnapshotError{}}
	want.State, want.CutAt = retention.Failed, nil
	g.Expect(ForRetention("hourly", []snapshotv1.VolumeSnapshot{s}, runs)).To(Equal([]retention.Snapshot{want}))

	s.Spec.Source = snapshotv1.VolumeSnapshotSource{VolumeSnapshotContentName: ptr.To("c")}
	want.ContentSourced, want.ClaimName, want.Foreign = true, "", true
	g.Expect(ForRetention("hourly", []snapshotv1.VolumeSnapshot{s}, runs)).To(Equal([]retention.Snapshot{want}))
}

// Whoever may label a snapshot must not have it deleted by that.
func TestASnapshotIsTheSchedulesByItsNameAndSource(t *testing.T) {
	g := NewWithT(t)
	s := snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Name: "data-hourly-202603011200", Labels: map[string]string{v1.LabelSchedule: "hourly"}},
		Spec: snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: ptr.To("data")}}}
	g.Expect(MadeBy("hourly", &s)).To(BeTrue())
	g.Expect(Of("data", &s)).To(BeTrue())
	g.Expect(MadeBy("daily", &s)).To(BeFalse())
	g.Expect(Of("wal", &s)).To(BeFalse())
	s.Spec.Source.PersistentVolumeClaimName = ptr.To("wal")
	g.Expect(MadeBy("hourly", &s)).To(BeFalse())
	s.Spec.Source = snapshotv1.VolumeSnapshotSource{VolumeSnapshotContentName: ptr.To("data")}
	g.Expect(MadeBy("hourly", &s)).To(BeFalse())
	g.Expect(Of("data", &s)).To(BeFalse())
}

func TestRules(t *testing.T) {
	g := NewWithT(t)
	rules, err := Rules(&v1.SnapshotRetentionSpec{Expires: "2h", MaxCount: ptr.To(int32(3))}, time.UTC, time.Hour)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(rules).To(Equal(retention.Rules{Expires: ptr.To(2 * time.Hour), MaxCount: ptr.To(int32(3)), Location: time.UTC, ReadyTimeout: time.Hour}))
	_, err = Rules(&v1.SnapshotRetentionSpec{Expires: "2d"}, nil, 0)
	g.Expect(err).To(MatchError(ContainSubstring("2d")))
}
