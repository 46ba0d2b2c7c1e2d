// SPDX-License-Identifier: Apache-2.0

package run

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// forgedOnce changes the record of a run once, when it is in a phase.
func forgedOnce(phase v1.RunPhase, forge func(*v1.SnapshotRun)) func(*world) {
	done := false
	return func(w *world) {
		if !done && phaseOf(w.run) == phase {
			done = true
			forge(w.run)
		}
	}
}

// Whoever may write the status of a run reaches with it what a schedule of that namespace reaches, and nothing else.
func TestAForgedPlanRunsNothingInAnotherNamespace(t *testing.T) {
	elsewhere := func(hooks []v1.PlannedHook, entries []v1.HookStatus) {
		for i := range hooks {
			hooks[i].Namespace = "kube-system"
		}
		for i := range entries {
			for j := range entries[i].Targets {
				entries[i].Targets[j].Namespace = "kube-system"
			}
		}
	}
	forgeries := map[string]func(*v1.SnapshotRun){
		"plan and targets": func(r *v1.SnapshotRun) {
			elsewhere(r.Status.Plan.PreHooks, r.Status.Hooks)
			elsewhere(r.Status.Plan.PostHooks, nil)
		},
		"the targets only": func(r *v1.SnapshotRun) { elsewhere(nil, r.Status.Hooks) },
		"with a claim of this process": func(r *v1.SnapshotRun) {
			elsewhere(r.Status.Plan.PreHooks, r.Status.Hooks)
			elsewhere(r.Status.Plan.PostHooks, nil)
			for i := range r.Status.Hooks {
				for j := range r.Status.Hooks[i].Targets {
					r.Status.Hooks[i].Targets[j].Attempts = 1
					r.Status.Hooks[i].Targets[j].Claim = &v1.AttemptClaim{Process: "p1", Time: metav1.NewMicroTime(begin)}
				}
			}
		},
	}
	for name, forge := range forgeries {
		for _, phase := range []v1.RunPhase{v1.PhasePlanned, v1.PhasePreHooks, v1.PhaseSnapshotting, v1.PhasePostHooks} {
			t.Run(name+", in phase "+string(phase), func(t *testing.T) {
				g := NewWithT(t)
				w := newWorld(t)
				w.schedule.Status.Conditions = []metav1.Condition{{Type: v1.ConditionMayBeQuiesced, Status: "True", Reason: v1.ReasonGivenUp}}
				w.onStart = func(_ *world, e StartExec) *Outcome {
					g.Expect(e.Target.Namespace).To(Equal("shop"))
					return completed()
				}
				w.onStep = forgedOnce(phase, forge)
				w.finish()
			})
		}
	}
}

// With an account the hooks of a plan may be anywhere: the rights of that account of the run's own namespace decide.
func TestAPlanReachesOtherNamespacesAsAnAccountOnly(t *testing.T) {
	for name, tt := range map[string]struct {
		rules   HookRules
		account string
		reaches bool
	}{
		"as the operator itself":                     {},
		"as the operator itself, which is allowed":   {rules: HookRules{CrossNamespace: true}, reaches: true},
		"as an account":                              {account: "snapshots", reaches: true},
		"as the account of schedules that name none": {rules: HookRules{DefaultAccount: "snapshots"}, reaches: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := newWorld(t)
			w.config.Hooks = tt.rules
			w.pods = []Target{{Namespace: "other", Pod: "db-0", UID: "u0", Container: "c", ContainerID: "c0"}}
			w.onStep = forgedOnce(v1.PhasePlanned, func(r *v1.SnapshotRun) {
				r.Status.Plan.ServiceAccountName = tt.account
				r.Status.Plan.PreHooks[0].Namespace, r.Status.Plan.PostHooks[0].Namespace = "other", "other"
			})
			w.schedule.Status.Conditions = []metav1.Condition{{Type: v1.ConditionMayBeQuiesced, Status: "True", Reason: v1.ReasonGivenUp}}
			w.onStart = func(_ *world, e StartExec) *Outcome {
				g.Expect(e.ServiceAccountName).To(Equal(tt.rules.Account(tt.account)))
				return completed()
			}
			w.finish()
			if tt.reaches {
				g.Expect(w.run.Status.Result).To(Equal(v1.ResultSucceeded))
				return
			}
			g.Expect(w.started).To(BeEmpty())
			g.Expect(w.run.Status.Result).To(Equal(v1.ResultFailed))
			g.Expect(w.run.Status.Message).To(ContainSubstring("a hook in namespace other needs spec.serviceAccountName"))
			g.Expect(w.now.Sub(begin)).To(BeNumerically("<", time.Hour))
		})
	}
}

// Pods that cannot be looked up until the release deadline, as with a selector that nobody can read: the run ends, and claims nothing.
func TestALookThatNeverSucceedsDoesNotKeepTheRunForEver(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.lookFails = true
	w.finish()
	g.Expect(w.now.Sub(begin)).To(BeNumerically("~", time.Hour, time.Minute))
	g.Expect(w.started).To(HaveLen(4), "the planned pods are released all the same")
	g.Expect(w.labelled).To(BeEmpty())
	g.Expect(w.run.Status.Consistency.Reason).To(Equal("the pods could not be looked up after the release"))
	g.Expect(w.run.Status.Result).To(Equal(v1.ResultPartiallyFailed))
}
