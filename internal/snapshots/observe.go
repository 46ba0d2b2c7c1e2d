// SPDX-License-Identifier: Apache-2.0

package snapshots

import (
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/run"
)

// ObserveGroup is Observe for a group snapshot.
func ObserveGroup(runUID types.UID, g *groupv1.VolumeGroupSnapshot) run.Snapshot {
	s := &snapshotv1.VolumeSnapshot{ObjectMeta: g.ObjectMeta}
	if st := g.Status; st != nil {
		s.Status = &snapshotv1.VolumeSnapshotStatus{BoundVolumeSnapshotContentName: st.BoundVolumeGroupSnapshotContentName, CreationTime: st.CreationTime,
			ReadyToUse: st.ReadyToUse, Error: st.Error}
	}
	return Observe(runUID, s)
}

// Observe a snapshot on behalf of a run; to any other run it is foreign.
func Observe(runUID types.UID, s *snapshotv1.VolumeSnapshot) run.Snapshot {
	seen := run.Snapshot{
		UID:         s.UID,
		Foreign:     s.Annotations[v1.AnnotationRunUID] != string(runUID),
		Terminating: s.DeletionTimestamp != nil,
		Consistency: s.Labels[v1.LabelConsistency],
	}
	st := s.Status
	if st == nil {
		return seen
	}
	seen.Bound = st.BoundVolumeSnapshotContentName != nil && *st.BoundVolumeSnapshotContentName != ""
	seen.Ready = st.ReadyToUse != nil && *st.ReadyToUse
	// Some drivers tell no creation time; a snapshot that is ready is cut.
	seen.Cut = st.CreationTime != nil || seen.Ready
	if st.CreationTime != nil {
		seen.CreationTime = &st.CreationTime.Time
	}
	if st.Error != nil {
		seen.Error = "the storage reports an error"
		if st.Error.Message != nil {
			seen.Error = *st.Error.Message
		}
	}
	return seen
}
