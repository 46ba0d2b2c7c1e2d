// SPDX-License-Identifier: Apache-2.0

package run

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// Rules about phases, the release and its end.
var brokenPhases = map[string]broken{
	"the run is completed before its release": {skipTo(v1.PhaseCompleted, func(*v1.SnapshotRunStatus) bool { return true }), "I2", plain},
	"the release is skipped after a failed snapshot": {skipTo(v1.PhaseAwaitingReady, func(st *v1.SnapshotRunStatus) bool {
		return slices.ContainsFunc(st.Snapshots, func(s v1.SnapshotStatus) bool { return s.State == v1.SnapshotFailed })
	}), "I2", plain},
	"the release is skipped after a failed pre hook": {skipTo(v1.PhaseCompleted, func(st *v1.SnapshotRunStatus) bool {
		return st.Release.Reason == v1.ReasonHookFailed
	}), "I2", plain},
	"the release is skipped when the run is deleted": {skipTo(v1.PhaseCompleted, func(st *v1.SnapshotRunStatus) bool {
		return st.Release.Reason == v1.ReasonCancelled
	}), "I2", with(0, 1, 0, 0, nil)},
	"the release is over when every post hook was tried": {onPersist(func(in Input, st *v1.SnapshotRunStatus) {
		eachTarget(st, v1.StagePost, func(_ *v1.HookStatus, t *v1.TargetStatus) {
			if t.NextAttemptTime != nil && st.Release.Looked {
				st.Phase, st.ReleasedTime = v1.PhaseAwaitingReady, ptr.To(metav1.NewMicroTime(in.Now))
			}
		})
	}), "has not ended (I2)", plain},
	"no second release follows a pre hook whose end is unknown": {onCopy(func(in *Input) {
		eachTarget(&in.Run.Status, v1.StagePre, func(_ *v1.HookStatus, t *v1.TargetStatus) { t.UnknownUntil = nil })
	}), "I2", plain},
	"a pod that is gone counts as released": {onCopy(func(in *Input) {
		eachTarget(&in.Run.Status, v1.StagePost, func(_ *v1.HookStatus, t *v1.TargetStatus) {
			if t.Gone {
				t.Gone, t.Reason = false, v1.ReasonHookCompleted
			}
		})
		if l := in.World.Look; l != nil {
			in.World.Look = &Look{Pre: l.Pre, Post: make([]HookTargets, len(l.Post)), Existing: l.Existing}
		}
	}), "I2", with(0, 1, 0, 0, nil)},
	"a second release forgets the pods that went away": {onPersist(func(_ Input, st *v1.SnapshotRunStatus) {
		for i := range st.Hooks {
			if h := &st.Hooks[i]; h.Pass == 2 && !st.Release.Looked {
				h.Targets = slices.DeleteFunc(h.Targets, func(t v1.TargetStatus) bool { return t.Gone })
			}
		}
	}), "I2", func() *node {
		n := startNode(1, 2).budget(1, 1, 0, 0, 0)
		n.Persons = []string{"a pod goes away"}
		return n
	}},
	"the annotation replaces the post hooks by none": {onPlan(func(p *v1.RunPlan, in *Input) {
		if in.Run.Annotations[v1.AnnotationRelease] != "" && in.Schedule != nil && len(in.Schedule.Spec.PostHooks) == 0 {
			withoutPostHooks(p, in)
		}
	}), "I2", with(0, 2, 0, 0, only("the schedule loses its hooks", "the release is asked for"))},
	"the hooks are those that the schedule has now": {onPlan(func(p *v1.RunPlan, in *Input) {
		if in.Schedule != nil && len(in.Schedule.Spec.PostHooks) == 0 {
			withoutPostHooks(p, in)
		}
	}), "nobody says so (I2, I8)", with(0, 1, 0, 0, only("the schedule loses its hooks"))},
	"a post hook that failed sends the run back to its pre hooks": {onPersist(func(_ Input, st *v1.SnapshotRunStatus) {
		eachTarget(st, v1.StagePost, func(_ *v1.HookStatus, t *v1.TargetStatus) {
			if t.Reason == v1.ReasonNonZeroExit {
				st.Phase = v1.PhasePreHooks
			}
		})
	}), "I3", plain},
	"it is forgotten since when the application is quiesced": {onPersist(func(_ Input, st *v1.SnapshotRunStatus) {
		if st.Phase == v1.PhaseSnapshotting {
			st.QuiescedTime = nil
		}
	}), "I3", plain},
	"the finalizer goes early": {also(v1.PhasePostHooks, func(Input) Effect { return RemoveFinalizer{} }), "I2", plain},
	"the finalizer goes before the schedule shows the alarm": {also(v1.PhaseCompleted, func(in Input) Effect {
		if len(in.Run.Finalizers) > 0 {
			return RemoveFinalizer{}
		}
		return nil
	}), "before the schedule showed the alarm (I2)", with(1, 0, 0, 0, func(n *node) { n.Schedule.Spec.PostHooks[0].BackoffLimit = ptr.To[int32](0) })},
	"nobody says that the release was given up": {onPersist(func(_ Input, st *v1.SnapshotRunStatus) {
		if c := meta.FindStatusCondition(st.Conditions, v1.ConditionMayBeQuiesced); c != nil && c.Reason == v1.ReasonGivenUp {
			c.Status = metav1.ConditionFalse
		}
	}), "nobody says so", with(1, 0, 0, 0, func(n *node) { n.Schedule.Spec.PostHooks[0].BackoffLimit = ptr.To[int32](0) })},
	"a held command that was lost is no alarm": {onPersist(func(_ Input, st *v1.SnapshotRunStatus) {
		if st.Phase == v1.PhaseAwaitingReady || st.Phase == v1.PhaseCompleted {
			meta.RemoveStatusCondition(&st.Conditions, v1.ConditionMayBeQuiesced)
		}
	}), "nobody says so", with(1, 0, 0, 0, func(n *node) {
		hold(&n.Schedule.Spec.PreHooks[0])
		n.Schedule.Spec.PostHooks = nil
	})},
	"the plan is changed": {onPersist(func(_ Input, st *v1.SnapshotRunStatus) {
		if st.Phase == v1.PhaseSnapshotting {
			st.Plan.SnapshotTimeoutSeconds++
		}
	}), "the plan was changed (I3)", plain},
	"the lock is given back while the application is quiesced": {also(v1.PhasePostHooks, func(in Input) Effect {
		if in.World.Lock.Held {
			return DropLock{}
		}
		return nil
	}), "the lock was given back in phase PostHooks (I1)", plain},
	"the lock is given back while a lost post hook may be running": {also(v1.PhaseAwaitingReady, func(in Input) Effect {
		if in.World.Lock.Held {
			return DropLock{}
		}
		return nil
	}), "a post hook of unknown end may be running", plain},
	"it is forgotten that a post hook was lost": {onPersist(func(_ Input, st *v1.SnapshotRunStatus) {
		eachTarget(st, v1.StagePost, func(_ *v1.HookStatus, t *v1.TargetStatus) { t.UnknownUntil = nil })
	}), "a post hook of unknown end may be running", plain},
	"a run of another version is continued": {onPlan(func(p *v1.RunPlan, _ *Input) {
		p.Version = JournalVersion
	}), "of another version was continued", with(0, 1, 0, 0, only("the record is another version's"))},
}

// Rules about commands: claims, attempts and their order.
var brokenCommands = map[string]broken{
	"a claim of another process is taken for one's own": {func() func(Input) Decision {
		return func(in Input) Decision {
			in.Run = in.Run.DeepCopy()
			eachTarget(&in.Run.Status, v1.StagePre, func(_ *v1.HookStatus, t *v1.TargetStatus) {
				if t.Claim != nil {
					t.Claim.Process = in.Process
				}
			})
			d := Decide(in)
			for _, e := range d.Act {
				if s, ok := e.(StartExec); ok {
					return Decision{Act: []Effect{ReserveExec{Key: s.Key}, s}}
				}
			}
			return d
		}
	}, "I1", plain},
	"an attempt that a crash interrupted is taken back": {onPersist(func(_ Input, st *v1.SnapshotRunStatus) {
		eachTarget(st, v1.StagePre, func(h *v1.HookStatus, t *v1.TargetStatus) {
			if t.Reason == v1.ReasonInterrupted && st.Release != nil {
				st.Phase, st.Release, h.Conditions = v1.PhasePreHooks, nil, nil
				t.Attempts, t.Reason = t.Attempts-1, ""
			}
		})
	}), "was started twice (I4)", plain},
	"a command is started without a claim": {onDecision(func(_ Input, d *Decision) {
		for _, e := range d.Act {
			if r, ok := e.(ReserveExec); ok {
				d.Act = append(d.Act, StartExec{Key: r.Key})
			}
		}
	}), "without a recorded claim (I1)", plain},
	"an old claim is as good as a new one": {onCopy(func(in *Input) {
		for _, stage := range []v1.HookStage{v1.StagePre, v1.StagePost} {
			eachTarget(&in.Run.Status, stage, func(_ *v1.HookStatus, t *v1.TargetStatus) {
				if t.Claim != nil && t.Claim.Process == in.Process {
					t.Claim.Time = metav1.NewMicroTime(in.Now)
				}
			})
		}
	}), "after its claim's window (I4)", with(0, 0, 0, 1, nil)},
	"an attempt whose end was lost is repeated": {onCopy(func(in *Input) {
		for k, e := range in.World.Exec {
			if e.Outcome.Reason == v1.ReasonConnectionLost {
				e.Outcome.Reason = v1.ReasonTimeout
				in.World.Exec[k] = e
			}
		}
	}), "repeats an attempt whose end was lost (I4)", with(1, 0, 0, 0, func(n *node) { n.Schedule.Spec.PreHooks[0].BackoffLimit = ptr.To[int32](1) })},
	"a pre hook is repeated more often than it may be": {onPlan(func(p *v1.RunPlan, _ *Input) {
		p.PreHooks[0].BackoffLimit = ptr.To[int32](9)
	}), "one attempt too many", plain},
	"a post hook is repeated more often than it may be": {onPlan(func(p *v1.RunPlan, _ *Input) {
		p.PostHooks[0].BackoffLimit = nil
	}), "one attempt too many", with(1, 0, 0, 0, func(n *node) { n.Schedule.Spec.PostHooks[0].BackoffLimit = ptr.To[int32](0) })},
	"post hooks are repeated although nothing was quiesced": {func() func(Input) Decision {
		return func(in Input) Decision {
			r := in.Run.Status.Release
			if r == nil || !r.BestEffort {
				return Decide(in)
			}
			in.Run = in.Run.DeepCopy()
			in.Run.Status.Release.BestEffort = false
			d := Decide(in)
			if d.Persist != nil {
				d.Persist.Release.BestEffort = true
			}
			return d
		}
	}, "one attempt too many", func() *node {
		n := exploredWorlds["a preflight that fails"]()
		n.Crashes = 0
		return n
	}},
	"the second pre hook does not wait for the first": {onCopy(func(in *Input) {
		eachTarget(&in.Run.Status, v1.StagePre, func(h *v1.HookStatus, t *v1.TargetStatus) {
			key := ExecKey{Stage: v1.StagePre, Target: targetID(t), Attempt: t.Attempts}
			if h.Name == "quiesce" && in.World.Exec[key].State == ExecRunning {
				h.Conditions = []metav1.Condition{{Type: v1.ConditionSucceeded, Status: metav1.ConditionTrue, Reason: v1.ReasonHookCompleted}}
			}
		})
	}), "(order)", with(0, 0, 0, 0, func(n *node) {
		n.Schedule.Spec.PreHooks = append(n.Schedule.Spec.PreHooks, pre("second", "db"))
	})},
	"the second post hook does not wait for the first": {onDecision(func(in Input, d *Decision) {
		for _, k := range ExecKeys(in.Run) {
			if t := recorded(in.Run, k); k.Stage == v1.StagePost && k.Hook == 1 && phaseOf(in.Run) == v1.PhasePostHooks && t.Claim == nil && t.Attempts == 0 {
				switch in.World.Exec[k].State {
				case ExecUnknown:
					*d = Decision{Act: []Effect{ReserveExec{Key: k}}}
				case ExecReserved:
					m := &machine{Input: in, st: in.Run.Status.DeepCopy()}
					m.claim(m.postSteps()[1], recorded(&v1.SnapshotRun{Status: *m.st}, k))
					*d = Decision{Persist: m.st}
				case ExecQueued, ExecRunning, ExecHeld, ExecReleasing, ExecDone:
				}
			}
		}
	}), "had been tried (order)", with(0, 0, 0, 0, func(n *node) {
		n.Schedule.Spec.PostHooks = append(n.Schedule.Spec.PostHooks, post("second", "db"))
	})},
	"a held command is released before its snapshots are cut": {also(v1.PhaseSnapshotting, func(in Input) Effect {
		for _, k := range heldKeys(in) {
			return ReleaseHeld{Key: k}
		}
		return nil
	}), "was released in phase Snapshotting (I1)", exploredWorlds["a held pre hook and a crash"]},
	"held commands are released in list order": {onDecision(func(in Input, d *Decision) {
		for i, e := range d.Act {
			if _, ok := e.(ReleaseHeld); ok && d.Persist == nil {
				d.Act[i] = ReleaseHeld{Key: heldKeys(in)[0]}
			}
		}
	}), "before a hook that came after it (order)", exploredWorlds["two held pre hooks"]},
	"post hooks do not wait for held commands": {onCopy(func(in *Input) {
		if phaseOf(in.Run) == v1.PhasePostHooks {
			eachTarget(&in.Run.Status, v1.StagePre, func(_ *v1.HookStatus, t *v1.TargetStatus) {
				if t.Claim != nil {
					t.Claim, t.Reason = nil, v1.ReasonHookCompleted
				}
			})
		}
	}), "was released (order)", exploredWorlds["a held pre hook and a crash"]},
	"the execution policy is not looked at": {onPlan(func(p *v1.RunPlan, _ *Input) {
		for i := range p.PostHooks {
			p.PostHooks[i].ExecutionPolicy = v1.ExecuteAlways
		}
	}), "against its executionPolicy", exploredWorlds["execution policies"]},
	"a command is cancelled without a record": {also(v1.PhasePreHooks, func(in Input) Effect {
		for k, e := range in.World.Exec {
			if e.State == ExecRunning {
				return CancelExec{Key: k}
			}
		}
		return nil
	}), "was cancelled without a record (I1)", plain},
}

// withoutPostHooks in the plan, nor in the record that goes with it.
func withoutPostHooks(p *v1.RunPlan, in *Input) {
	p.PostHooks = nil
	in.Run.Status.Hooks = slices.DeleteFunc(in.Run.Status.Hooks, func(h v1.HookStatus) bool { return h.Stage == v1.StagePost })
}
