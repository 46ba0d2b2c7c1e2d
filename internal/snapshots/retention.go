// SPDX-License-Identifier: Apache-2.0

package snapshots

import (
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/retention"
)

// Rules of a schedule's spec.retention. zone is the schedule's, nil for UTC; readyTimeout is the operator's. The error is a mistake in the
// object: no rule may be applied then.
func Rules(spec *v1.SnapshotRetentionSpec, zone *time.Location, readyTimeout time.Duration) (retention.Rules, error) {
	rules := retention.Rules{MaxCount: spec.MaxCount, KeepLast: spec.KeepLast, KeepHourly: spec.KeepHourly, KeepDaily: spec.KeepDaily, KeepWeekly: spec.KeepWeekly,
		KeepMonthly: spec.KeepMonthly, KeepYearly: spec.KeepYearly, ExpireLast: spec.ExpireLast, Location: zone, ReadyTimeout: readyTimeout}
	if spec.Expires != "" {
		d, err := retention.ParseExpires(spec.Expires)
		if err != nil {
			return rules, err
		}
		rules.Expires = &d
	}
	return rules, nil
}

// ForRetention is what retention needs to know of the snapshots that carry a schedule's label. runs are those of the schedule that exist.
func ForRetention(schedule string, items []snapshotv1.VolumeSnapshot, runs []v1.SnapshotRun) []retention.Snapshot {
	active := map[types.UID]bool{}
	for i := range runs {
		if runs[i].Status.Phase != v1.PhaseCompleted {
			active[runs[i].UID] = true
		}
	}
	out := make([]retention.Snapshot, 0, len(items))
	for i := range items {
		s := &items[i]
		seen := Observe("", s)
		o := retention.Snapshot{
			Name: s.Name, UID: string(s.UID), ClaimUID: s.Annotations[v1.AnnotationClaimUID], Created: s.CreationTimestamp.Time, CutAt: seen.CreationTime,
			State: retention.Unfinished, Consistency: seen.Consistency,
			Keep:           s.Labels[v1.LabelRetention] == v1.RetentionKeep,
			RunActive:      active[types.UID(s.Annotations[v1.AnnotationRunUID])],
			Foreign:        !MadeBy(schedule, s),
			Group:          Group(s),
			ContentSourced: s.Spec.Source.PersistentVolumeClaimName == nil,
		}
		if s.Spec.Source.PersistentVolumeClaimName != nil {
			o.ClaimName = *s.Spec.Source.PersistentVolumeClaimName
		}
		switch {
		case seen.Terminating:
			o.State = retention.Terminating
		case seen.Ready:
			o.State = retention.Ready
		case seen.Error != "" && !seen.Bound:
			o.State = retention.Failed
		}
		out = append(out, o)
	}
	return out
}
