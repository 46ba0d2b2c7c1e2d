// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"time"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/claims"
	"github.com/stillpoint-operator/stillpoint/internal/metrics"
	"github.com/stillpoint-operator/stillpoint/internal/naming"
	"github.com/stillpoint-operator/stillpoint/internal/run"
	"github.com/stillpoint-operator/stillpoint/internal/snapshots"
)

// Group snapshots are read live and never watched: a cluster need not have their kind, and a watch of a missing kind would hold up everything.

// groupReadTimeout bounds one look at a group while an application may wait for it.
const groupReadTimeout = 10 * time.Second

const groupsMissing = "the cluster does not serve groupsnapshot.storage.k8s.io/v1, which groupSnapshotClassName needs: install the CRDs and the snapshot controller of " +
	"external-snapshotter 8.6 or newer with the feature gate CSIVolumeGroupSnapshot, or remove the field to take one snapshot per claim"

// groupsServed says why a cluster cannot take group snapshots; empty: it may.
func groupsServed(mapper meta.RESTMapper) (why string, err error) {
	_, err = mapper.RESTMapping(groupv1.SchemeGroupVersion.WithKind("VolumeGroupSnapshot").GroupKind(), groupv1.SchemeGroupVersion.Version)
	if meta.IsNoMatchError(err) {
		return groupsMissing, nil
	}
	if err != nil {
		return "", fmt.Errorf("asking whether the cluster serves group snapshots: %w", err)
	}
	return "", nil
}

// groupClaims of a schedule that takes a group, or why they cannot be taken as one.
func (r *RunReconciler) groupClaims(ctx context.Context, s *v1.SnapshotSchedule, matching []corev1.PersistentVolumeClaim, out *run.Survey) error {
	unavailable := func(message string) { out.NoGroup = &run.Problem{Reason: v1.ReasonGroupsUnavailable, Message: message} }
	why, err := groupsServed(r.RESTMapper())
	if err != nil {
		return err
	}
	if why != "" {
		unavailable(why)
		return nil
	}
	var class groupv1.VolumeGroupSnapshotClass
	driver := func(c *corev1.PersistentVolumeClaim) (string, error) { return claims.Driver(ctx, r.Live, c) }
	if r.Options.Namespaced {
		driver = nil
	} else {
		err := r.Live.Get(ctx, client.ObjectKey{Name: run.GroupClass(s)}, &class)
		if apierrors.IsNotFound(err) {
			unavailable(fmt.Sprintf("VolumeGroupSnapshotClass %s of spec.snapshotTemplate.groupSnapshotClassName does not exist", run.GroupClass(s)))
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading VolumeGroupSnapshotClass %s: %w", run.GroupClass(s), err)
		}
	}
	var refused string
	if out.Claims, out.LeftOut, refused, err = claims.ChooseGroup(s, matching, class.Driver, driver); err != nil {
		return err
	}
	if refused != "" {
		out.NoGroup = &run.Problem{Reason: v1.ReasonInvalidGroup, Message: refused}
	}
	return nil
}

// gatherGroup of a run, with the members that have appeared.
func (r *RunReconciler) gatherGroup(ctx context.Context, o *v1.SnapshotRun, w *run.World) error {
	bounded, cancel := context.WithTimeout(ctx, groupReadTimeout)
	defer cancel()
	g, err := r.group(bounded, o)
	if err != nil && run.Active(o) {
		// An application may wait: what is not known now is not waited for beyond the time that the snapshots have.
		log.FromContext(ctx).Error(err, "Reading a group snapshot failed; it is tried again", "volumeGroupSnapshot", o.Status.GroupSnapshot.Name)
		w.Group = &run.Group{Unknown: true}
		return nil
	}
	w.Group = g
	if g == nil || err != nil {
		return err
	}
	w.Snapshots = map[string]run.Snapshot{} // for the metrics: each member by its claim, and until it has appeared its group
	for i := range o.Status.Snapshots {
		claim := o.Status.Snapshots[i].Claim
		seen := g.Snapshot
		seen.Ready = g.Ready && g.Members[claim].Ready && g.Members[claim].Marked
		w.Snapshots[memberKey(claim)] = seen
	}
	return nil
}

// memberKey is how the member of a claim is known before it has a name.
func memberKey(claim string) string { return "member of " + claim }

func (r *RunReconciler) group(ctx context.Context, o *v1.SnapshotRun) (*run.Group, error) {
	var found groupv1.VolumeGroupSnapshot
	key := types.NamespacedName{Namespace: o.Namespace, Name: o.Status.GroupSnapshot.Name}
	err := r.Live.Get(ctx, key, &found)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // nil says that it does not exist, which is an observation and no failure
	}
	if err != nil {
		return nil, fmt.Errorf("reading VolumeGroupSnapshot %s: %w", key, err)
	}
	g := &run.Group{Snapshot: snapshots.ObserveGroup(o.UID, &found)}
	// The annotation can be written by others; which claims it takes cannot.
	selector := found.Spec.Source.Selector
	g.Foreign = g.Foreign || selector == nil || len(selector.MatchExpressions) > 0 || !maps.Equal(selector.MatchLabels, o.Status.GroupSnapshot.ClaimLabels)
	if g.Foreign || !g.Cut || o.Status.Phase != v1.PhaseAwaitingReady {
		return g, nil // its members matter once the application is free
	}
	g.Members, err = r.members(ctx, o, found.UID)
	return g, err
}

// members of a group, by claim. Those that the run has marked are in the cache; the others carry no label yet, and all of the namespace are looked through.
func (r *RunReconciler) members(ctx context.Context, o *v1.SnapshotRun, group types.UID) (map[string]run.Member, error) {
	var list snapshotv1.VolumeSnapshotList
	if err := r.List(ctx, &list, client.InNamespace(o.Namespace), client.MatchingFields{indexSchedule: naming.ScheduleLabel(o.Spec.ScheduleName)}); err != nil {
		return nil, fmt.Errorf("listing the snapshots of schedule %s/%s: %w", o.Namespace, o.Spec.ScheduleName, err)
	}
	known := membersOf(o, group, list.Items)
	all := true
	for i := range o.Status.Snapshots {
		all = all && known[o.Status.Snapshots[i].Claim].Marked
	}
	if all {
		return known, nil
	}
	if err := r.Live.List(ctx, &list, client.InNamespace(o.Namespace)); err != nil {
		return nil, fmt.Errorf("listing the snapshots of namespace %s: %w", o.Namespace, err)
	}
	return membersOf(o, group, list.Items), nil
}

func membersOf(o *v1.SnapshotRun, group types.UID, items []snapshotv1.VolumeSnapshot) map[string]run.Member {
	out := map[string]run.Member{}
	for i := range items {
		s := &items[i]
		claim := ptr.Deref(s.Spec.Source.PersistentVolumeClaimName, "")
		if uid, owned := snapshots.GroupUID(s); !owned || uid != group || claim == "" {
			continue
		}
		m := run.Member{Snapshot: snapshots.Observe(o.UID, s), Marked: run.Marked(o, claim, s.Labels, s.Annotations)}
		m.Name = s.Name
		out[claim] = m
	}
	return out
}

// createGroup creates the VolumeGroupSnapshot of a run. One that exists is left: the next look finds out whose it is.
func (r *RunReconciler) createGroup(ctx context.Context, o *v1.SnapshotRun, mem *runMemory, e run.CreateGroup) {
	g := &groupv1.VolumeGroupSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: e.Name, Labels: e.Labels, Annotations: e.Annotations},
		Spec: groupv1.VolumeGroupSnapshotSpec{Source: groupv1.VolumeGroupSnapshotSource{Selector: &metav1.LabelSelector{MatchLabels: e.ClaimLabels}},
			VolumeGroupSnapshotClassName: ptr.To(e.ClassName)},
	}
	if e.Owned {
		g.OwnerReferences = []metav1.OwnerReference{{APIVersion: v1.GroupVersion.String(), Kind: "SnapshotSchedule", Name: e.ScheduleName, UID: e.ScheduleUID}}
	}
	for i := range o.Status.Snapshots {
		claim := o.Status.Snapshots[i].Claim
		mem.making[memberKey(claim)] = &making{claim: claim, at: r.Clock.Now()}
	}
	err := r.Create(ctx, g)
	if apierrors.IsAlreadyExists(err) && mem.tries[e.Name] == 0 { // somebody else's, or that of a process before this one
		clear(mem.making)
	}
	if err == nil || apierrors.IsAlreadyExists(err) {
		delete(mem.creates, e.Name)
		return
	}
	_, known := mem.creates[e.Name]
	mem.creates[e.Name] = mem.failure(e.Name, err, refused(err) || meta.IsNoMatchError(err), r.Clock.Now())
	for i := range o.Status.Snapshots {
		metrics.SnapshotCreateFailed(metricsName(o, o.Spec.ScheduleName), o.Status.Snapshots[i].Claim, r.Clock.Now())
	}
	if !known {
		log.FromContext(ctx).Error(err, "Creating a VolumeGroupSnapshot failed", "volumeGroupSnapshot", e.Name)
		r.Recorder.Eventf(o, g, warning, v1.EventGroupSnapshotNotCreated, "Create", "%s", note("VolumeGroupSnapshot %s was not created: %v", e.Name, err))
	}
}

// labelMember of a group with what the run's own snapshots carry.
func (r *RunReconciler) labelMember(ctx context.Context, o *v1.SnapshotRun, e run.LabelMember) error {
	s := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: e.Name}}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": e.UID, "labels": e.Labels, "annotations": e.Annotations}})
	if err != nil {
		return fmt.Errorf("writing the labels of VolumeSnapshot %s/%s: %w", o.Namespace, e.Name, err)
	}
	err = r.Patch(ctx, s, client.RawPatch(types.MergePatchType, patch))
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // gone, or replaced: the next look finds out
		return fmt.Errorf("labelling VolumeSnapshot %s/%s, a member of group snapshot %s: %w", o.Namespace, e.Name, o.Status.GroupSnapshot.Name, err)
	}
	return nil
}

// deleteGroup of a run that failed, with all its members.
func (r *RunReconciler) deleteGroup(ctx context.Context, o *v1.SnapshotRun, e run.DeleteGroup) error {
	g := &groupv1.VolumeGroupSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: o.Namespace, Name: e.Name}}
	err := r.Delete(ctx, g, client.Preconditions{UID: ptr.To(e.UID)})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("deleting VolumeGroupSnapshot %s/%s, of which nothing can be restored: %w", o.Namespace, e.Name, err)
	}
	r.Recorder.Eventf(o, g, warning, v1.EventGroupSnapshotDeleted, "Delete", "%s", note("VolumeGroupSnapshot %s was deleted: nothing of it can be restored", e.Name))
	return nil
}
