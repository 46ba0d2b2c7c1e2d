// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"slices"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/hooks"
	"github.com/stillpoint-operator/stillpoint/internal/claims"
	"github.com/stillpoint-operator/stillpoint/internal/run"
)

// surveyOnce surveys, but a run without hooks only once: its claims are listed at its beginning and not at every snapshot that changes.
// A schedule that gets hooks meanwhile is surveyed again.
func (r *RunReconciler) surveyOnce(ctx context.Context, o *v1.SnapshotRun, s *v1.SnapshotSchedule, mem *runMemory) (*run.Survey, error) {
	if mem.survey != nil && !run.HasHooks(s) {
		return mem.survey, nil
	}
	survey, err := r.survey(ctx, o, s)
	if err != nil {
		return nil, err
	}
	if !run.HasHooks(s) {
		mem.survey = survey
	}
	return survey, nil
}

// survey lists live what a run could take and where its hooks would run, and asks for the rights to run them.
func (r *RunReconciler) survey(ctx context.Context, o *v1.SnapshotRun, s *v1.SnapshotSchedule) (*run.Survey, error) {
	out := &run.Survey{}
	pre, post, err := run.PlanHooks(s, r.Options.Hooks)
	if err != nil {
		return out, nil //nolint:nilerr // Decide finds the same error and ends the run with it
	}
	mode := run.ModeOf(o)
	if mode == v1.RunSnapshot {
		if err = r.claims(ctx, s, out); err != nil {
			return nil, err
		}
		if len(out.Claims) == 0 {
			// Nothing to take: no hook will run. Decide only counts them.
			out.Pre, out.Post = make([]run.HookTargets, len(pre)), make([]run.HookTargets, len(post))
			return out, nil
		}
	}
	if mode == v1.RunRelease {
		pre = nil
	}
	all := slices.Concat(pre, post)
	refused, err := r.refusals(ctx, s.Namespace, s.Spec.ServiceAccountName, all)
	if err != nil {
		return nil, err
	}
	targets, err := r.resolveAllowed(ctx, all, refused, nil)
	if err != nil {
		return nil, err
	}
	for i := range targets {
		// A terminating pod is none to quiesce; the look at the release finds those that are left.
		targets[i].Targets = slices.DeleteFunc(targets[i].Targets, func(t run.Target) bool { return t.Terminating })
	}
	out.Pre, out.Post = targets[:len(pre)], targets[len(pre):]
	return out, nil
}

// resolve the targets of hooks with live lists. prefer names, by namespace, the pod that targetPolicy One takes if it matches.
func (r *RunReconciler) resolve(ctx context.Context, planned []v1.PlannedHook, prefer map[string]types.UID) ([]run.HookTargets, error) {
	if len(planned) == 0 {
		return nil, nil
	}
	selections := make([]hooks.Selection, len(planned))
	for i := range planned {
		h := &planned[i]
		selections[i] = hooks.Selection{Namespace: h.Namespace, Selector: &h.PodSelector, Container: h.Container,
			Policy: hooks.Policy(h.TargetPolicy), Prefer: prefer[h.Namespace]}
	}
	resolved, err := r.Hooks.Resolver.ResolveAll(ctx, selections)
	if err != nil {
		return nil, fmt.Errorf("looking up the pods of hooks: %w", err)
	}
	out := make([]run.HookTargets, len(resolved))
	for i := range resolved {
		for _, t := range resolved[i].Targets {
			out[i].Targets = append(out[i].Targets, run.Target(t))
		}
		for _, p := range resolved[i].Problems {
			out[i].Problems = append(out[i].Problems, run.Problem{Reason: string(p.Reason), Message: p.Message})
		}
	}
	return out, nil
}

// refusals of the hooks' namespaces, in words: where hooks of namespace own may not run as the account that is named. One question per namespace.
func (r *RunReconciler) refusals(ctx context.Context, own, named string, planned []v1.PlannedHook) (map[string]string, error) {
	asked, refused := map[string]bool{}, map[string]string{}
	for i := range planned {
		ns := planned[i].Namespace
		if asked[ns] {
			continue
		}
		asked[ns] = true
		if !r.Options.Hooks.Reach(own, ns, named) {
			refused[ns] = fmt.Sprintf("a hook in namespace %s needs spec.serviceAccountName", ns)
			continue
		}
		allowed, reason, err := r.Hooks.Rights.Check(ctx, ns, account(own, r.Options.Hooks.Account(named)))
		if apierrors.IsForbidden(err) {
			refused[ns] = fmt.Sprintf("no hook can run in namespace %s: the operator itself has no rights there", ns)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("asking for the right to run hooks in namespace %s: %w", ns, err)
		}
		if !allowed {
			refused[ns] = reason
		}
	}
	return refused, nil
}

// resolveAllowed resolves the hooks that may run. Of a namespace where the schedule may run nothing it must learn nothing either: the
// pods there are not looked up. One where the operator may not look them up is a problem of the hooks there.
func (r *RunReconciler) resolveAllowed(ctx context.Context, planned []v1.PlannedHook, refused map[string]string, prefer map[string]types.UID) ([]run.HookTargets, error) {
	out := make([]run.HookTargets, len(planned))
	places := map[string][]int{}
	for i := range planned {
		if why, ok := refused[planned[i].Namespace]; ok {
			out[i].Problems = []run.Problem{{Reason: v1.ReasonForbidden, Message: why}}
			continue
		}
		places[planned[i].Namespace] = append(places[planned[i].Namespace], i)
	}
	for _, at := range places {
		var together []v1.PlannedHook
		for _, i := range at {
			together = append(together, planned[i])
		}
		resolved, err := r.resolve(ctx, together, prefer)
		if err != nil && !apierrors.IsForbidden(err) {
			return nil, err
		}
		for j, i := range at {
			if err != nil {
				out[i].Problems = []run.Problem{{Reason: v1.ReasonForbidden, Message: err.Error()}}
				continue
			}
			out[i] = resolved[j]
		}
	}
	return out, nil
}

func account(namespace, name string) hooks.Account {
	if name == "" {
		return hooks.Account{}
	}
	return hooks.Account{Namespace: namespace, Name: name}
}

// claims of the schedule that can be taken, and in words those that match and cannot.
func (r *RunReconciler) claims(ctx context.Context, s *v1.SnapshotSchedule, out *run.Survey) (err error) {
	selector, err := metav1.LabelSelectorAsSelector(&s.Spec.ClaimSelector)
	if err != nil {
		out.LeftOut = []string{"spec.claimSelector is not valid: " + err.Error()}
		return nil //nolint:nilerr // a mistake of the user, reported as such; trying again does not help
	}
	var list corev1.PersistentVolumeClaimList
	if err := r.Live.List(ctx, &list, client.InNamespace(s.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return fmt.Errorf("listing the claims of schedule %s/%s: %w", s.Namespace, s.Name, err)
	}
	if run.GroupClass(s) != "" {
		return r.groupClaims(ctx, s, list.Items, out)
	}
	if r.Options.Namespaced {
		out.Claims, out.LeftOut, err = claims.Choose(s, list.Items, nil, nil)
		return err
	}
	var classes snapshotv1.VolumeSnapshotClassList
	if err := r.List(ctx, &classes); err != nil {
		return fmt.Errorf("listing VolumeSnapshotClasses: %w", err)
	}
	out.Claims, out.LeftOut, err = claims.Choose(s, list.Items, classes.Items, func(c *corev1.PersistentVolumeClaim) (string, error) { return claims.Driver(ctx, r.Live, c) })
	return err
}
