// SPDX-License-Identifier: Apache-2.0

package run

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

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

// None of these records makes the machine crash, wait for ever, or take a hook for done that never ran: the application is released with the
// schedule's own post hooks, and the run ends.
func TestARecordThatNobodyCanHaveWrittenIsReleasedAndNotCarriedOn(t *testing.T) {
	active := []v1.RunPhase{v1.PhasePlanned, v1.PhasePreHooks, v1.PhaseSnapshotting, v1.PhasePostHooks}
	all := slices.Concat(active, []v1.RunPhase{v1.PhaseAwaitingReady})
	hooksFrom := func(r *v1.SnapshotRun) []*v1.PlannedHook {
		return []*v1.PlannedHook{&r.Status.Plan.PreHooks[0], &r.Status.Plan.PostHooks[0]}
	}
	eachTarget := func(r *v1.SnapshotRun, do func(*v1.TargetStatus)) {
		for i := range r.Status.Hooks {
			for j := range r.Status.Hooks[i].Targets {
				do(&r.Status.Hooks[i].Targets[j])
			}
		}
	}
	farAhead := ptr.To(metav1.NewMicroTime(begin.AddDate(1000, 0, 0)))
	tests := map[string]struct {
		phases []v1.RunPhase
		forge  func(*v1.SnapshotRun)
	}{
		"no plan":                   {all, func(r *v1.SnapshotRun) { r.Status.Plan = nil }},
		"nothing but a phase":       {all, func(r *v1.SnapshotRun) { r.Status = v1.SnapshotRunStatus{Phase: r.Status.Phase} }},
		"no hooks in the record":    {all, func(r *v1.SnapshotRun) { r.Status.Hooks = nil }},
		"no hooks in the plan":      {active, func(r *v1.SnapshotRun) { r.Status.Plan.PreHooks, r.Status.Plan.PostHooks = nil, nil }},
		"no post hooks in the plan": {active, func(r *v1.SnapshotRun) { r.Status.Plan.PostHooks = nil }},
		"a hook more than planned": {active, func(r *v1.SnapshotRun) {
			r.Status.Hooks = append(r.Status.Hooks, v1.HookStatus{Stage: v1.StagePre, Name: "unheard-of"})
		}},
		"other names": {active, func(r *v1.SnapshotRun) { r.Status.Hooks[0].Name = "other" }},
		"no command":  {active, func(r *v1.SnapshotRun) { hooksFrom(r)[0].Command, hooksFrom(r)[1].Command = nil, []string{""} }},
		"no timeout":  {active, func(r *v1.SnapshotRun) { hooksFrom(r)[0].TimeoutSeconds, hooksFrom(r)[1].TimeoutSeconds = 0, -1 }},
		"endless attempts": {active, func(r *v1.SnapshotRun) {
			hooksFrom(r)[0].BackoffLimit, hooksFrom(r)[1].BackoffLimit = ptr.To(int32(1<<30)), ptr.To(int32(-1))
		}},
		"an endless one": {active, func(r *v1.SnapshotRun) { hooksFrom(r)[0].TimeoutSeconds = 1 << 30 }},
		"an invalid selector": {active, func(r *v1.SnapshotRun) {
			hooksFrom(r)[1].PodSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Resembles"}}
		}},
		"a held hook that expects nothing": {active, func(r *v1.SnapshotRun) { hooksFrom(r)[0].Mode = v1.ModeHold }},
		"a namespace that is none": {active, func(r *v1.SnapshotRun) {
			hooksFrom(r)[1].Namespace = "../../apis"
			r.Status.Plan.ServiceAccountName = "snapshots"
		}},
		"a pod that is none": {active, func(r *v1.SnapshotRun) {
			eachTarget(r, func(t *v1.TargetStatus) { t.Pod = "db-0/../../kube-system/pods/etcd" })
		}},
		"negative attempts": {active, func(r *v1.SnapshotRun) { eachTarget(r, func(t *v1.TargetStatus) { t.Attempts = -1 << 31 }) }},
		"a claim of no attempt": {active, func(r *v1.SnapshotRun) {
			eachTarget(r, func(t *v1.TargetStatus) { t.Attempts, t.Claim = 0, &v1.AttemptClaim{Process: "p1"} })
		}},
		"an attempt in a thousand years": {active, func(r *v1.SnapshotRun) { eachTarget(r, func(t *v1.TargetStatus) { t.NextAttemptTime = farAhead }) }},
		"a claim of a thousand years hence": {active, func(r *v1.SnapshotRun) {
			eachTarget(r, func(t *v1.TargetStatus) { t.Attempts, t.Claim = 1, &v1.AttemptClaim{Process: "p1", Time: *farAhead} })
		}},
		"an end unknown for a thousand years": {active, func(r *v1.SnapshotRun) { eachTarget(r, func(t *v1.TargetStatus) { t.UnknownUntil = farAhead }) }},
		"more than can be stored": {active, func(r *v1.SnapshotRun) {
			eachTarget(r, func(t *v1.TargetStatus) { t.Output = strings.Repeat("x", 1<<20) })
		}},
		"a snapshot that cannot be named": {all, func(r *v1.SnapshotRun) { r.Status.Snapshots[0].Name = "a/b" }},
		"no snapshot timeout":             {active, func(r *v1.SnapshotRun) { r.Status.Plan.SnapshotTimeoutSeconds = 0 }},
		"an endless release deadline":     {active, func(r *v1.SnapshotRun) { r.Status.Plan.ReleaseDeadlineSeconds = 1 << 30 }},
		"no snapshotting time":            {[]v1.RunPhase{v1.PhaseSnapshotting}, func(r *v1.SnapshotRun) { r.Status.SnapshottingTime = nil }},
		"no release":                      {[]v1.RunPhase{v1.PhasePostHooks, v1.PhaseAwaitingReady}, func(r *v1.SnapshotRun) { r.Status.Release = nil }},
		"a pass that was none":            {[]v1.RunPhase{v1.PhasePostHooks}, func(r *v1.SnapshotRun) { r.Status.Release.Pass = 0 }},
		"a pass in a thousand years":      {[]v1.RunPhase{v1.PhasePostHooks}, func(r *v1.SnapshotRun) { r.Status.Release.NextPassTime = farAhead }},
		"a release in a thousand years":   {[]v1.RunPhase{v1.PhasePostHooks}, func(r *v1.SnapshotRun) { r.Status.Release.PassTime = *farAhead }},
		"another phase without its release": {[]v1.RunPhase{v1.PhasePreHooks, v1.PhaseSnapshotting, v1.PhasePostHooks},
			func(r *v1.SnapshotRun) { r.Status.Phase = v1.PhaseAwaitingReady }},
		"completed without its release": {[]v1.RunPhase{v1.PhasePreHooks, v1.PhaseSnapshotting, v1.PhasePostHooks},
			func(r *v1.SnapshotRun) { r.Status.Phase, r.Status.Result = v1.PhaseCompleted, v1.ResultSucceeded }},
	}
	for name, tt := range tests {
		for _, phase := range tt.phases {
			t.Run(name+", in phase "+string(phase), func(t *testing.T) {
				g := NewWithT(t)
				w := newWorld(t)
				w.forged = true
				w.onCreated = func(_ *world, s *Snapshot) { s.Bound, s.Cut = true, true }
				var before int
				w.onStep = forgedOnce(phase, func(r *v1.SnapshotRun) {
					tt.forge(r)
					before = len(w.started)
				})
				w.finish()
				g.Expect(w.started[before:]).To(ContainElements("Post/release/db-0#1", "Post/release/db-1#1"))
				g.Expect(w.started[before:]).To(HaveLen(2))
				g.Expect(w.run.Status.Result).To(Equal(v1.ResultFailed))
				g.Expect(w.run.Status.Message).To(ContainSubstring("was not written by the operator"))
				g.Expect(w.cond(v1.ConditionMayBeQuiesced).Reason).To(Equal(v1.ReasonReleased))
				g.Expect(w.now.Sub(begin)).To(BeNumerically("<", time.Minute))
				g.Expect(w.labelled).To(BeEmpty())
			})
		}
	}
}

// Nothing is known that could release the application: somebody has to look.
func TestARecordThatNobodyCanHaveWrittenRaisesTheAlarmWhereThereIsNoSchedule(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.forged = true
	w.onStep = forgedOnce(v1.PhaseSnapshotting, func(r *v1.SnapshotRun) {
		r.Status.Plan = nil
		w.schedule = nil
	})
	w.finish()
	g.Expect(w.run.Status.Result).To(Equal(v1.ResultFailed))
	g.Expect(w.cond(v1.ConditionMayBeQuiesced).Reason).To(Equal(v1.ReasonGivenUp))
	g.Expect(w.cond(v1.ConditionMayBeQuiesced).Message).To(ContainSubstring("look whether the application is quiesced"))
}

func TestWordsOfOthersAreShortAndHarmless(t *testing.T) {
	g := NewWithT(t)
	g.Expect(clean("a\x1b[31mb\r\nc\x00", 100)).To(Equal("a\uFFFD[31mb  c\uFFFD"))
	g.Expect(clean("Grüße, 世界", 100)).To(Equal("Grüße, 世界"))
	g.Expect(clean("a\xffb", 100)).To(Equal("a\uFFFDb"))
	for _, s := range []string{"x", "ü", "世", "\x1b", "\xff", "\U000F0000", "\u200b"} {
		for limit := 8; limit < 20; limit++ {
			for n := range 30 {
				got := clean(strings.Repeat(s, n), limit)
				g.Expect(utf8.ValidString(got)).To(BeTrue())
				g.Expect(len(got)).To(BeNumerically("<=", limit))
				g.Expect(n*len(s) <= limit || strings.HasSuffix(got, "...")).To(BeTrue(), "%q %d %d: %q", s, n, limit, got)
			}
		}
	}
}
