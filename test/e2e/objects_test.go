// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// Scripts of hooks. Each notes in /state that it ran: what notes itself can be counted.
const (
	freeze = `echo x >>/state/pre; fsfreeze --freeze /data && if [ -e /data/log ]; then wc -l </data/log; fi`
	// thaw is idempotent, as post hooks must be: what is not frozen cannot be thawed and is as it should be.
	thaw = `echo x >>/state/post; said=$(fsfreeze --unfreeze /data 2>&1) || case "$said" in *Invalid*) ;; *) echo "$said"; exit 1;; esac`
)

type shape func(*v1.SnapshotScheduleSpec)

// schedule makes one whose slots are far away.
func (w *world) schedule(name string, shapes ...shape) *v1.SnapshotSchedule {
	w.Helper()
	s := &v1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.SnapshotScheduleSpec{Schedule: "@yearly"}}
	for _, f := range shapes {
		f(&s.Spec)
	}
	w.create(s)
	return s
}

// freezing quiesces apps with fsfreeze, and takes their claims.
func freezing(a *app) shape {
	return all(taking(a), before(hook(a, "freeze", freeze)), after(hook(a, "thaw", thaw)))
}

// hooked runs two scripts around the snapshot of an app's claim.
func hooked(a *app, pre, post string) shape {
	return all(taking(a), before(hook(a, "quiesce", pre)), after(hook(a, "release", post)))
}

func all(shapes ...shape) shape {
	return func(s *v1.SnapshotScheduleSpec) {
		for _, f := range shapes {
			f(s)
		}
	}
}

func taking(a *app) shape {
	return func(s *v1.SnapshotScheduleSpec) { s.ClaimSelector = labelled(a.name) }
}

func before(h v1.Hook) shape {
	return func(s *v1.SnapshotScheduleSpec) { s.PreHooks = append(s.PreHooks, v1.PreHook{Hook: h}) }
}

func after(h v1.Hook) shape {
	return func(s *v1.SnapshotScheduleSpec) { s.PostHooks = append(s.PostHooks, v1.PostHook{Hook: h}) }
}

func snapshotTimeout(seconds int32) shape {
	return func(s *v1.SnapshotScheduleSpec) { s.SnapshotTimeoutSeconds = ptr.To(seconds) }
}

// releaseTimeout limits the last post hook so far, in seconds.
func releaseTimeout(timeout int32) shape {
	return func(s *v1.SnapshotScheduleSpec) { s.PostHooks[len(s.PostHooks)-1].TimeoutSeconds = ptr.To(timeout) }
}

// bounded limits the time and the retries of the last pre hook so far.
func bounded(timeout, backoff int32) shape {
	return func(s *v1.SnapshotScheduleSpec) {
		h := &s.PreHooks[len(s.PreHooks)-1]
		h.TimeoutSeconds, h.BackoffLimit = ptr.To(timeout), ptr.To(backoff)
	}
}

func hook(a *app, name, script string) v1.Hook {
	return v1.Hook{Name: name, PodSelector: ptr.To(labelled(a.name)), Command: []string{"sh", "-c", script}}
}

func labelled(app string) metav1.LabelSelector {
	return metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

// start a run by hand.
func (w *world) start(s *v1.SnapshotSchedule, mode ...v1.RunMode) *v1.SnapshotRun {
	w.Helper()
	o := &v1.SnapshotRun{ObjectMeta: metav1.ObjectMeta{GenerateName: s.Name + "-"}, Spec: v1.SnapshotRunSpec{ScheduleName: s.Name}}
	if len(mode) > 0 {
		o.Spec.Mode = mode[0]
	}
	w.create(o)
	return o
}

// reaches waits until a run is in a phase, and fails if the run passes it by.
func (w *world) reaches(o *v1.SnapshotRun, phase v1.RunPhase) *v1.SnapshotRun {
	w.Helper()
	return await(w, o, "in phase "+string(phase), func(o *v1.SnapshotRun) bool { return o.Status.Phase == phase })
}

func hookOf(o *v1.SnapshotRun, name string) *v1.HookStatus {
	var last *v1.HookStatus
	for i := range o.Status.Hooks {
		if o.Status.Hooks[i].Name == name {
			last = &o.Status.Hooks[i]
		}
	}
	return last
}

func passes(o *v1.SnapshotRun, name string) []*v1.HookStatus {
	var out []*v1.HookStatus
	for i := range o.Status.Hooks {
		if h := &o.Status.Hooks[i]; h.Name == name {
			out = append(out, h)
		}
	}
	return out
}

// target is the first of a hook.
func target(h *v1.HookStatus) v1.TargetStatus {
	if h == nil || len(h.Targets) == 0 {
		return v1.TargetStatus{}
	}
	return h.Targets[0]
}
