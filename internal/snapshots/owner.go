// SPDX-License-Identifier: Apache-2.0

package snapshots

import (
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/naming"
)

// MadeBy reports whether a snapshot that carries a schedule's label was made on its behalf, by this operator or by snapscheduler. Its name and its
// source say so, which nobody can change; whoever may label a snapshot must not have it deleted by that.
func MadeBy(schedule string, s *snapshotv1.VolumeSnapshot) bool {
	claim := s.Spec.Source.PersistentVolumeClaimName
	return claim != nil && naming.Made(s.Name, *claim, schedule, s.Annotations[v1.AnnotationRunUID])
}

// Of reports whether a snapshot is one of a claim.
func Of(claim string, s *snapshotv1.VolumeSnapshot) bool {
	source := s.Spec.Source.PersistentVolumeClaimName
	return source != nil && *source == claim
}
