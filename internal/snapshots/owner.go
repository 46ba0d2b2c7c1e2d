// SPDX-License-Identifier: Apache-2.0

package snapshots

import (
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/naming"
)

// MadeBy reports whether a snapshot that carries a schedule's label was made on its behalf, by this operator or by snapscheduler. Its name and its
// source say so, which nobody can change; whoever may label a snapshot must not have it deleted by that. A member of a group is named by the snapshot
// controller, which also writes into its status which group it belongs to; the group's name says the rest.
func MadeBy(schedule string, s *snapshotv1.VolumeSnapshot) bool {
	claim := s.Spec.Source.PersistentVolumeClaimName
	if claim == nil {
		return false
	}
	if _, member := GroupUID(s); member {
		return naming.MadeGroup(Group(s), schedule, s.Annotations[v1.AnnotationRunUID])
	}
	return naming.Made(s.Name, *claim, schedule, s.Annotations[v1.AnnotationRunUID])
}

// Of reports whether a snapshot is one of a claim.
func Of(claim string, s *snapshotv1.VolumeSnapshot) bool {
	source := s.Spec.Source.PersistentVolumeClaimName
	return source != nil && *source == claim
}

// Group that a snapshot is a member of, as its status says; empty: none.
func Group(s *snapshotv1.VolumeSnapshot) string {
	if s.Status == nil || s.Status.VolumeGroupSnapshotName == nil {
		return ""
	}
	return *s.Status.VolumeGroupSnapshotName
}

// GroupUID of the group that owns a snapshot.
func GroupUID(s *snapshotv1.VolumeSnapshot) (uid types.UID, member bool) {
	for _, o := range s.OwnerReferences {
		if o.Kind == "VolumeGroupSnapshot" && o.APIVersion == groupv1.SchemeGroupVersion.String() {
			return o.UID, true
		}
	}
	return "", false
}
