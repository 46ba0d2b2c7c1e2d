// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/metrics"
	"github.com/stillpoint-operator/stillpoint/internal/naming"
	"github.com/stillpoint-operator/stillpoint/internal/retention"
	"github.com/stillpoint-operator/stillpoint/internal/snapshots"
)

const (
	// maxSkew between the operator's clock and the API server's beyond which nothing is deleted.
	maxSkew = 5 * time.Minute
	// skewCheck is when to look again while the clocks differ.
	skewCheck = time.Minute
	// gatherReady is how long after the beginning of a run retention waits for its end.
	gatherReady = 10 * time.Second
	// parallelDeletes bounds how many snapshots of one schedule are deleted at a time.
	parallelDeletes = 8
	// maxExpiredEvents is how many snapshots of one schedule that go at a time get an event each.
	maxExpiredEvents = 3
)

// retain deletes the snapshots whose time is over.
func (p *pass) retain(ctx context.Context) error {
	var list snapshotv1.VolumeSnapshotList
	if err := p.List(ctx, &list, client.InNamespace(p.s.Namespace), client.MatchingFields{indexSchedule: naming.ScheduleLabel(p.s.Name)}); err != nil {
		return fmt.Errorf("listing the snapshots of schedule %s/%s: %w", p.s.Namespace, p.s.Name, err)
	}
	p.markDeleted(list.Items)
	found := snapshots.ForRetention(p.s.Name, list.Items, p.runs)
	p.count(list.Items, found)
	rules, err := p.rules()
	if err != nil {
		if p.invalidReason == "" {
			p.invalidReason, p.invalidMessage = v1.ReasonInvalidRetention, err.Error()
		}
		return nil // a bad rule deletes nothing; the condition says so
	}
	// Whether claims exist is only asked if some snapshot would go either way: an idle schedule makes no request.
	verdicts := retention.Decide(p.now, rules, nil, found)
	ifAll := retention.Decide(p.now, rules, claimsOf(found), found)
	if deletes(verdicts) || deletes(ifAll) {
		if until := p.moreToCome(); p.now.Before(until) {
			p.wakeAt(until)
			return nil
		}
		if skew, known := p.Skew(); known && (skew > maxSkew || skew < -maxSkew) {
			p.retentionPaused = true
			p.event(warning, v1.EventRetentionPaused, "Retention", "nothing is deleted: the operator's clock and the API server's differ by %s", skew.Round(time.Second))
			p.wakeAt(p.now.Add(skewCheck))
			return nil
		}
		claims, err := p.existingClaims(ctx)
		if err != nil {
			return err
		}
		verdicts = retention.Decide(p.now, rules, claims, found)
	} else {
		verdicts = append(verdicts, ifAll...)
	}
	p.wakeAt(retention.NextDue(verdicts))
	return p.deleteSnapshots(ctx, verdicts, list.Items)
}

// moreToCome until then: a run has just begun, and each of its snapshots that becomes ready replaces an old one. They go together when it is over, for
// one look at the claims.
func (p *pass) moreToCome() time.Time {
	var until time.Time
	for i := range p.runs {
		if o := &p.runs[i]; o.Status.Phase != v1.PhaseCompleted && until.Before(o.CreationTimestamp.Add(gatherReady)) {
			until = o.CreationTimestamp.Add(gatherReady)
		}
	}
	return until
}

// markDeleted shows what this process has deleted as it will be in the cache in a moment: terminating.
func (p *pass) markDeleted(items []snapshotv1.VolumeSnapshot) {
	shown := make(map[types.UID]bool, len(items)+len(p.runs))
	for i := range p.runs {
		shown[p.runs[i].UID] = true
	}
	key := client.ObjectKeyFromObject(p.s)
	for i := range items {
		shown[items[i].UID] = true
		if items[i].DeletionTimestamp == nil && p.deleted.has(key, items[i].UID) {
			items[i].DeletionTimestamp = ptr.To(metav1.NewTime(p.now))
		}
	}
	p.deleted.keep(key, func(uid types.UID) bool { return shown[uid] })
}

func deletes(verdicts []retention.Verdict) bool {
	for i := range verdicts {
		if verdicts[i].Delete {
			return true
		}
	}
	return false
}

// claimsOf the snapshots, as if the newest claim of every name existed.
func claimsOf(found []retention.Snapshot) []retention.Claim {
	newest := map[string]retention.Snapshot{}
	for _, s := range found {
		// One without a recorded UID belongs to whichever claim has its name.
		if n, ok := newest[s.ClaimName]; !ok || (s.ClaimUID != "" && (n.ClaimUID == "" || n.Created.Before(s.Created))) {
			newest[s.ClaimName] = s
		}
	}
	out := make([]retention.Claim, 0, len(newest))
	for _, s := range newest {
		out = append(out, retention.Claim{Name: s.ClaimName, UID: s.ClaimUID})
	}
	return out
}

func (p *pass) existingClaims(ctx context.Context) ([]retention.Claim, error) {
	list := metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaimList"))
	if err := p.Live.List(ctx, &list, client.InNamespace(p.s.Namespace)); err != nil {
		return nil, fmt.Errorf("listing the claims of namespace %s: %w", p.s.Namespace, err)
	}
	var out []retention.Claim
	for i := range list.Items {
		c := &list.Items[i]
		out = append(out, retention.Claim{Name: c.Name, UID: string(c.UID), Created: c.CreationTimestamp.Time})
	}
	return out, nil
}

func (p *pass) rules() (retention.Rules, error) {
	var zone *time.Location
	if p.calOK {
		zone = p.cal.Location()
	}
	return snapshots.Rules(&p.s.Spec.Retention, zone, p.Options.ReadyTimeout)
}

// deleteSnapshots side by side. One that fails does not stop the rest; one that is gone, or has changed since it was judged, is no failure.
func (p *pass) deleteSnapshots(ctx context.Context, verdicts []retention.Verdict, items []snapshotv1.VolumeSnapshot) error {
	versions := make(map[string]string, len(items))
	for i := range items {
		versions[items[i].Name] = items[i].ResourceVersion
	}
	things := doomedThings(verdicts)
	errs, gone := make([]error, len(things)), make([]bool, len(things))
	parallel(parallelDeletes, len(things), func(i int) {
		if things[i][0].Snapshot.Group != "" {
			gone[i], errs[i] = p.deleteGroup(ctx, things[i], versions)
		} else {
			gone[i], errs[i] = p.deleteSnapshot(ctx, things[i][0], versions)
		}
		if !gone[i] {
			return
		}
		for _, v := range things[i] {
			p.deleted.add(client.ObjectKeyFromObject(p.s), types.UID(v.Snapshot.UID))
			log.FromContext(ctx).Info("Retention deleted a snapshot", "volumeSnapshot", v.Snapshot.Name, "volumeGroupSnapshot", v.Snapshot.Group, "rule", v.Rule, "reason", v.Reason)
			metrics.SnapshotExpired(metricsName(p.s, p.s.Name), string(v.Rule))
		}
	})
	var told []retention.Verdict
	for i := range things {
		if gone[i] {
			told = append(told, things[i]...)
		}
	}
	p.tellExpired(told)
	return errors.Join(errs...)
}

func (p *pass) deleteSnapshot(ctx context.Context, v retention.Verdict, versions map[string]string) (bool, error) {
	s := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: p.s.Namespace, Name: v.Snapshot.Name}}
	err := p.Delete(ctx, s, client.Preconditions{UID: ptr.To(types.UID(v.Snapshot.UID)), ResourceVersion: ptr.To(versions[v.Snapshot.Name])})
	if apierrors.IsNotFound(err) {
		p.deleted.add(client.ObjectKeyFromObject(p.s), types.UID(v.Snapshot.UID))
	}
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("deleting VolumeSnapshot %s/%s (%s): %w", p.s.Namespace, v.Snapshot.Name, v.Rule, err)
	}
	return true, nil
}

// tellExpired sends an event for each snapshot that was deleted, or one for all if they are many.
func (p *pass) tellExpired(one []retention.Verdict) {
	if len(one) == 0 {
		return
	}
	var names []string
	byRule := map[string]int{}
	for _, v := range one {
		names = append(names, v.Snapshot.Name)
		byRule[string(v.Rule)]++
	}
	tell := func(name, uid, format string, args ...any) {
		s := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: p.s.Namespace, Name: name, UID: types.UID(uid)}}
		p.Recorder.Eventf(p.s, s, normal, v1.EventSnapshotExpired, "Retention", "%s", note(format, args...))
	}
	if len(one) <= maxExpiredEvents {
		for _, v := range one {
			tell(v.Snapshot.Name, v.Snapshot.UID, "VolumeSnapshot %s was deleted: %s", v.Snapshot.Name, v.Reason)
		}
		return
	}
	var rules []string
	for _, rule := range slices.Sorted(maps.Keys(byRule)) {
		rules = append(rules, fmt.Sprintf("%d %s", byRule[rule], rule))
	}
	tell(one[0].Snapshot.Name, one[0].Snapshot.UID, "%d VolumeSnapshots were deleted (%s): %s", len(one), strings.Join(rules, ", "), strings.Join(names, ", "))
}
