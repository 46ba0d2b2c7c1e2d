// SPDX-License-Identifier: Apache-2.0

package restore

import (
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/naming"
)

var day = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)

func hour(n int) time.Time { return day.Add(time.Duration(n) * time.Hour) }

// snap is a ready snapshot of a claim at an hour, cut three seconds after it, as a run made it: r7 is the run of hour 7. "": snapscheduler made it.
func snap(claim string, h int, run string, changes ...func(*snapshotv1.VolumeSnapshot)) snapshotv1.VolumeSnapshot {
	s := snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: naming.Snapshot(claim, "s", hour(h)), CreationTimestamp: metav1.NewTime(hour(h).Add(time.Second)),
			Labels: map[string]string{v1.LabelSchedule: "s", v1.LabelWhen: naming.When(hour(h))}},
		Spec: snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: ptr.To(claim)}},
		Status: &snapshotv1.VolumeSnapshotStatus{ReadyToUse: ptr.To(true), CreationTime: ptr.To(metav1.NewTime(hour(h).Add(3 * time.Second))),
			RestoreSize: ptr.To(resource.MustParse("5Gi"))},
	}
	if run != "" {
		s.Annotations = map[string]string{v1.AnnotationRun: run, v1.AnnotationRunUID: "uid-" + run, v1.AnnotationClaimUID: "uid-" + claim}
	}
	for _, change := range changes {
		change(&s)
	}
	return s
}

func unready(s *snapshotv1.VolumeSnapshot) { s.Status.ReadyToUse = ptr.To(false) }

func consistent(s *snapshotv1.VolumeSnapshot) {
	s.Labels[v1.LabelConsistency] = v1.ConsistencyApplication
}

// record of a run of an hour with these claims, completed.
func record(h int, name string, claims ...string) v1.SnapshotRun {
	r := v1.SnapshotRun{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(hour(h))},
		Spec: v1.SnapshotRunSpec{ScheduleName: "s", Slot: ptr.To(metav1.NewTime(hour(h)))}, Status: v1.SnapshotRunStatus{Phase: v1.PhaseCompleted, Result: v1.ResultSucceeded}}
	for _, c := range claims {
		r.Status.Snapshots = append(r.Status.Snapshots, v1.SnapshotStatus{Claim: c, ClaimUID: types.UID("uid-" + c), Name: naming.Snapshot(c, "s", hour(h)), State: v1.SnapshotReady, CutBeforeRelease: true})
	}
	return r
}

// claim that exists since an hour.
func claim(name string, since int, changes ...func(*corev1.PersistentVolumeClaim)) corev1.PersistentVolumeClaim {
	c := corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(hour(since)), Labels: map[string]string{"app": "db", "other": "x"}},
		Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("fast"), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("8Gi")}}}}
	for _, change := range changes {
		change(&c)
	}
	return c
}
