// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"slices"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/hooks"
	"github.com/stillpoint-operator/stillpoint/internal/naming"
	"github.com/stillpoint-operator/stillpoint/internal/run"
	"github.com/stillpoint-operator/stillpoint/internal/snapshots"
)

// overlayAge is how long our own write is believed over a cache that does not show the object.
const overlayAge = 30 * time.Second

// gather does every read that the next decision about a run depends on.
func (r *RunReconciler) gather(ctx context.Context, o *v1.SnapshotRun, mem *runMemory) (run.Input, error) {
	in := run.Input{
		Process: r.Options.Process,
		Config: run.Config{ReleaseDeadline: r.Options.ReleaseDeadline, ReadyTimeout: r.Options.ReadyTimeout,
			OwnerReferences: r.Options.OwnerReferences, Hooks: r.Options.Hooks},
		Run:   o,
		World: run.World{Draining: r.draining.Load(), Creates: mem.creates},
	}
	needs := run.NeedsOf(o)
	if needs.Schedule {
		s, err := r.schedule(ctx, o)
		if err != nil {
			return in, err
		}
		in.Schedule = s
	}
	if needs.Survey && in.Schedule != nil && !in.World.Draining {
		survey, err := r.surveyOnce(ctx, o, in.Schedule, mem)
		if err != nil {
			return in, err
		}
		in.World.Survey = survey
	}
	if needs.Lock {
		in.World.Lock = r.lock(o, in.World.Survey)
	}
	if needs.Snapshots {
		if err := r.gatherSnapshots(ctx, o, mem, &in.World); err != nil {
			return in, err
		}
	}
	if needs.Exec {
		in.World.Exec = r.execStates(o)
	}
	// A claimed release is started first and the look taken beside it: the application waits.
	if needs.Look && !run.Unstarted(o, in.World.Exec) {
		look, err := r.look(ctx, o)
		if err != nil {
			// The planned targets are released all the same; the look is tried again.
			log.FromContext(ctx).Error(err, "Looking up the pods of a release failed; the planned ones are released meanwhile")
		}
		in.World.Look = look
	}
	in.Now = r.Clock.Now()
	return in, nil
}

func (r *RunReconciler) schedule(ctx context.Context, o *v1.SnapshotRun) (*v1.SnapshotSchedule, error) {
	var s v1.SnapshotSchedule
	key := types.NamespacedName{Namespace: o.Namespace, Name: o.Spec.ScheduleName}
	err := r.Get(ctx, key, &s)
	if apierrors.IsNotFound(err) {
		// A person may have created both a moment ago: the cache is not believed about what it lacks.
		err = r.Live.Get(ctx, key, &s)
	}
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // nil says that it does not exist, which is an observation and no failure
	}
	if err != nil {
		return nil, fmt.Errorf("reading SnapshotSchedule %s: %w", key, err)
	}
	return &s, nil
}

// lock of a run: before its plan it is asked for, afterwards it is held because the plan says so.
func (r *RunReconciler) lock(o *v1.SnapshotRun, survey *run.Survey) run.Lock {
	name := client.ObjectKeyFromObject(o)
	switch {
	case run.Active(o) || run.Lingers(o, r.Clock.Now()):
		r.locks.hold(o.UID, name, lockLabel(o), r.lockedByPlan(o))
	case survey != nil && len(survey.Pre)+len(survey.Post) > 0 && run.ModeOf(o) != v1.RunRelease && slices.Contains(o.Finalizers, v1.FinalizerRelease):
		held, waitingFor := r.locks.take(o.UID, name, lockLabel(o), lockedBySurvey(o, survey))
		return run.Lock{Held: held, WaitingFor: waitingFor}
	}
	return run.Lock{Held: r.locks.holds(o.UID)}
}

func lockedBySurvey(o *v1.SnapshotRun, s *run.Survey) map[resource]bool {
	resources := map[resource]bool{}
	for _, c := range s.Claims {
		resources[resource{o.Namespace, c.UID}] = true
	}
	for _, list := range [][]run.HookTargets{s.Pre, s.Post} {
		for _, h := range list {
			for _, t := range h.Targets {
				resources[resource{t.Namespace, t.UID}] = true
			}
		}
	}
	return resources
}

// gatherSnapshots under the run's names, and what earlier runs left uncut.
func (r *RunReconciler) gatherSnapshots(ctx context.Context, o *v1.SnapshotRun, mem *runMemory, w *run.World) error {
	if o.Status.GroupSnapshot != nil && o.Status.Phase != "" && o.Status.Phase != v1.PhasePending {
		if err := r.gatherGroup(ctx, o, w); err != nil {
			return err
		}
		return r.gatherLeftovers(ctx, o, mem, w)
	}
	claims := snapshotNames(o, w.Survey)
	w.Snapshots = make(map[string]run.Snapshot, len(claims))
	for name, claim := range claims {
		live := o.Status.Phase == v1.PhaseAwaitingReady
		s, err := r.snapshot(ctx, types.NamespacedName{Namespace: o.Namespace, Name: name}, mem, live)
		if err != nil {
			return err
		}
		if s != nil {
			seen := snapshots.Observe(o.UID, s)
			// The annotation can be written by others; what it was taken from cannot.
			seen.Foreign = seen.Foreign || !snapshots.Of(claim, s)
			w.Snapshots[name] = seen
		}
	}
	return r.gatherLeftovers(ctx, o, mem, w)
}

// gatherLeftovers of earlier runs, while an application waits.
func (r *RunReconciler) gatherLeftovers(ctx context.Context, o *v1.SnapshotRun, mem *runMemory, w *run.World) error {
	if o.Status.Phase == v1.PhaseSnapshotting && o.Status.Plan != nil && len(o.Status.Plan.PreHooks)+len(o.Status.Plan.PostHooks) > 0 {
		leftovers, err := r.leftovers(ctx, o, mem)
		if err != nil {
			return err
		}
		w.Leftovers = leftovers
	}
	return nil
}

// snapshotNames of a run, with the claim of each: as recorded, or as it would record them.
func snapshotNames(o *v1.SnapshotRun, survey *run.Survey) map[string]string {
	claims := map[string]string{}
	if o.Status.Phase != "" && o.Status.Phase != v1.PhasePending {
		for i := range o.Status.Snapshots {
			claims[o.Status.Snapshots[i].Name] = o.Status.Snapshots[i].Claim
		}
		return claims
	}
	if survey != nil && run.ModeOf(o) == v1.RunSnapshot {
		var names []string
		for _, c := range survey.Claims {
			names = append(names, c.Name)
		}
		for claim, name := range naming.PlanSnapshots(o.Spec.ScheduleName, names, run.NamedAt(o)) {
			claims[name] = claim
		}
	}
	return claims
}

// snapshot from the cache, or as our own create returned it while the cache trails, or live where absence matters. nil: it does not exist.
func (r *RunReconciler) snapshot(ctx context.Context, key types.NamespacedName, mem *runMemory, live bool) (*snapshotv1.VolumeSnapshot, error) {
	var s snapshotv1.VolumeSnapshot
	err := r.Get(ctx, key, &s)
	own, seen := mem.snapshots[key.Name]
	switch {
	case err == nil:
		if seen {
			if c, err := resourceversion.CompareResourceVersion(s.ResourceVersion, own.object.ResourceVersion); err == nil && c < 0 {
				return own.object, nil
			}
			delete(mem.snapshots, key.Name)
		}
		return &s, nil
	case !apierrors.IsNotFound(err):
		return nil, fmt.Errorf("reading VolumeSnapshot %s: %w", key, err)
	case seen && r.Clock.Since(own.at) < overlayAge:
		return own.object, nil
	case !seen && !live:
		return nil, nil //nolint:nilnil // nil says that it does not exist, as far as is known; creating it finds out
	}
	delete(mem.snapshots, key.Name)
	err = r.Live.Get(ctx, key, &s)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // see above
	}
	if err != nil {
		return nil, fmt.Errorf("reading VolumeSnapshot %s: %w", key, err)
	}
	mem.snapshots[key.Name] = seenSnapshot{object: &s, at: r.Clock.Now()}
	return &s, nil
}

// leftovers are snapshots of the same claims that earlier runs of this schedule left uncut. The storage would cut them now, too.
func (r *RunReconciler) leftovers(ctx context.Context, o *v1.SnapshotRun, mem *runMemory) ([]run.Leftover, error) {
	var list snapshotv1.VolumeSnapshotList
	if err := r.List(ctx, &list, client.InNamespace(o.Namespace), client.MatchingFields{indexSchedule: naming.ScheduleLabel(o.Spec.ScheduleName)}); err != nil {
		return nil, fmt.Errorf("listing the snapshots of schedule %s/%s: %w", o.Namespace, o.Spec.ScheduleName, err)
	}
	claims := map[string]bool{}
	for i := range o.Status.Snapshots {
		claims[string(o.Status.Snapshots[i].ClaimUID)] = true
	}
	var out []run.Leftover
	for i := range list.Items {
		s := &list.Items[i]
		seen := snapshots.Observe(o.UID, s)
		owner := s.Annotations[v1.AnnotationRun]
		final := seen.Error != "" && !seen.Bound
		if owner == "" || !seen.Foreign || seen.Cut || seen.Terminating || final || mem.leftovers[s.UID] || !claims[s.Annotations[v1.AnnotationClaimUID]] {
			continue
		}
		if _, member := snapshots.GroupUID(s); member || s.Labels[v1.LabelRetention] == v1.RetentionKeep || !snapshots.MadeBy(o.Spec.ScheduleName, s) {
			continue
		}
		var earlier v1.SnapshotRun
		err := r.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: owner}, &earlier)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading SnapshotRun %s/%s: %w", o.Namespace, owner, err)
		}
		if err == nil && run.BeforeAwaitingReady(&earlier) {
			continue
		}
		out = append(out, run.Leftover{Name: s.Name, UID: s.UID})
	}
	return out, nil
}

// execStates of all attempts that the run's record can name.
func (r *RunReconciler) execStates(o *v1.SnapshotRun) map[run.ExecKey]run.Exec {
	out := map[run.ExecKey]run.Exec{}
	for _, key := range run.ExecKeys(o) {
		state, outcome, held := r.Hooks.Pool.Status(poolKey(o, key))
		if state == hooks.Unknown {
			continue
		}
		out[key] = run.Exec{State: execState(state), HeldAt: held, Outcome: run.Outcome{
			Reason: string(outcome.Reason), Message: outcome.Message, ExitCode: outcome.ExitCode, Output: r.recorded(outcome.Output),
			Started: outcome.Started, Ended: outcome.Ended, EndUnknown: outcome.EndUnknown(), NeverStarted: outcome.NeverStarted(),
		}}
	}
	return out
}

// recorded is what the run's record may keep of a command's output.
func (r *RunReconciler) recorded(output string) string {
	if r.Options.ForgetOutput {
		return ""
	}
	return output
}

func poolKey(o *v1.SnapshotRun, k run.ExecKey) hooks.Key {
	return hooks.Key{Run: o.UID, Stage: string(k.Stage), Pass: k.Pass, Hook: k.Hook, Target: k.Target, Attempt: k.Attempt}
}

func execState(s hooks.State) run.ExecState {
	switch s {
	case hooks.Queued:
		return run.ExecQueued
	case hooks.Reserved:
		return run.ExecReserved
	case hooks.Running:
		return run.ExecRunning
	case hooks.Held:
		return run.ExecHeld
	case hooks.Releasing:
		return run.ExecReleasing
	case hooks.Done:
		return run.ExecDone
	case hooks.Unknown:
	}
	return run.ExecUnknown
}

// look at the pods that match the run's hooks now, and at the planned ones.
func (r *RunReconciler) look(ctx context.Context, o *v1.SnapshotRun) (*run.Look, error) {
	pre, post := o.Status.Plan.PreHooks, o.Status.Plan.PostHooks
	planned := slices.Concat(pre, post)
	// The rights to other namespaces may have gone, or the record may have been written by somebody who never had them.
	elsewhere := slices.DeleteFunc(slices.Clone(planned), func(h v1.PlannedHook) bool { return h.Namespace == o.Namespace })
	refused, err := r.refusals(ctx, o.Namespace, o.Status.Plan.ServiceAccountName, elsewhere)
	if err != nil {
		return nil, err
	}
	all, err := r.resolveAllowed(ctx, planned, refused, preferred(o))
	if err != nil {
		return nil, err
	}
	l := &run.Look{Pre: all[:len(pre)], Post: all[len(pre):], Existing: map[types.UID]bool{}}
	for _, h := range all {
		for _, t := range h.Targets {
			l.Existing[t.UID] = true
		}
	}
	// A planned pod may have lost its label and is released all the same.
	asked := map[types.UID]bool{}
	for i := range o.Status.Hooks {
		for _, t := range o.Status.Hooks[i].Targets {
			if l.Existing[t.PodUID] || asked[t.PodUID] {
				continue
			}
			asked[t.PodUID] = true
			var pod corev1.Pod
			err := r.Live.Get(ctx, types.NamespacedName{Namespace: t.Namespace, Name: t.Pod}, &pod)
			if client.IgnoreNotFound(err) != nil {
				return nil, fmt.Errorf("reading pod %s/%s: %w", t.Namespace, t.Pod, err)
			}
			if err == nil && pod.UID == t.PodUID && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
				l.Existing[t.PodUID] = true
			}
		}
	}
	return l, nil
}

// preferred is the pod that a post hook with targetPolicy One takes: one that a pre hook used.
func preferred(o *v1.SnapshotRun) map[string]types.UID {
	out := map[string]types.UID{}
	for i := range o.Status.Hooks {
		if h := &o.Status.Hooks[i]; h.Stage == v1.StagePre && len(h.Targets) > 0 {
			if _, ok := out[h.Targets[0].Namespace]; !ok {
				out[h.Targets[0].Namespace] = h.Targets[0].PodUID
			}
		}
	}
	return out
}
