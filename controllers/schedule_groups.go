// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"time"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/retention"
	"github.com/stillpoint-operator/stillpoint/internal/run"
	"github.com/stillpoint-operator/stillpoint/internal/snapshots"
)

// groupsCheck is when to look again whether a cluster has come to serve group snapshots.
const groupsCheck = 5 * time.Minute

// checkGroups says so if the schedule asks for a group snapshot and cannot have one.
func (p *pass) checkGroups() error {
	if p.invalidReason != "" || run.GroupClass(p.s) == "" {
		return nil
	}
	if why := run.GroupProblem(p.s); why != "" {
		p.invalidReason, p.invalidMessage = v1.ReasonInvalidGroup, why
		return nil
	}
	why, err := groupsServed(p.RESTMapper())
	if err != nil {
		return err
	}
	if why != "" {
		p.invalidReason, p.invalidMessage = v1.ReasonGroupsUnavailable, why
		p.wakeAt(p.now.Add(groupsCheck))
	}
	return nil
}

// doomedThings are what is deleted for the verdicts: a snapshot each, or a group for all of its members.
func doomedThings(verdicts []retention.Verdict) [][]retention.Verdict {
	var out [][]retention.Verdict
	places := map[string]int{}
	for _, v := range verdicts {
		if !v.Delete {
			continue
		}
		if i, found := places[v.Snapshot.Group]; found && v.Snapshot.Group != "" {
			out[i] = append(out[i], v)
			continue
		}
		places[v.Snapshot.Group] = len(out)
		out = append(out, []retention.Verdict{v})
	}
	return out
}

// deleteGroup with all its members, if none of them has changed since it was judged. It reports whether it did.
func (p *pass) deleteGroup(ctx context.Context, members []retention.Verdict, versions map[string]string) (bool, error) {
	name := members[0].Snapshot.Group
	var uid types.UID
	for _, v := range members {
		var s snapshotv1.VolumeSnapshot
		err := p.Live.Get(ctx, client.ObjectKey{Namespace: p.s.Namespace, Name: v.Snapshot.Name}, &s)
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("reading VolumeSnapshot %s/%s before its group is deleted: %w", p.s.Namespace, v.Snapshot.Name, err)
		}
		if s.ResourceVersion != versions[v.Snapshot.Name] {
			return false, nil // gone or changed: the next look judges it as it is then
		}
		uid, _ = snapshots.GroupUID(&s)
	}
	var g groupv1.VolumeGroupSnapshot
	err := p.Live.Get(ctx, client.ObjectKey{Namespace: p.s.Namespace, Name: name}, &g)
	if apierrors.IsNotFound(err) || (err == nil && (g.UID != uid || g.DeletionTimestamp != nil)) {
		return false, nil // on its way already: the members go with it
	}
	if err != nil {
		return false, fmt.Errorf("reading VolumeGroupSnapshot %s/%s before it is deleted: %w", p.s.Namespace, name, err)
	}
	err = p.Delete(ctx, &g, client.Preconditions{UID: ptr.To(uid)})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("deleting VolumeGroupSnapshot %s/%s (%s): %w", p.s.Namespace, name, members[0].Rule, err)
	}
	return true, nil
}
