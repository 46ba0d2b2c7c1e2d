// SPDX-License-Identifier: Apache-2.0

package run

import (
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// Faults that the exploration and the fuzzer found, each as a history of its own.

// carry lets a run go on until it waits in that phase, or is about to make a decision there.
func (w *world) carry(phase v1.RunPhase) {
	w.t.Helper()
	for w.run.Status.Phase != phase {
		if _, more := w.step(); !more {
			w.t.Fatalf("the run waits in phase %s", w.run.Status.Phase)
		}
	}
}

// A snapshot is deleted after its cut was seen, and a process that read an old record creates it once more, uncut: the new one is not the
// one that was cut.
func TestASnapshotThatWasDeletedAndCreatedOnceMoreIsNotCalledConsistent(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.claims = w.claims[:1]
	w.carry(v1.PhasePostHooks)
	name := w.run.Status.Snapshots[0].Name
	w.snapshots[name] = &Snapshot{UID: "another", Consistency: v1.ConsistencyCrash, Bound: true, Cut: true, Ready: true, CreationTime: ptr.To(w.now)}
	w.finish()
	g.Expect(w.labelled).To(BeEmpty())
	g.Expect(w.run.Status.Result).To(Equal(v1.ResultFailed))
	g.Expect(w.run.Status.Message).To(ContainSubstring("deleted before the run completed"))
}

// The end of a pre hook is unknown and its pod goes away. The second pass of the release must not forget what the first one waited for.
func TestASecondReleaseStillWaitsForAPodThatWentAway(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.schedule.Status.Conditions = givenUp
	w.onStart = func(w *world, e StartExec) *Outcome {
		if e.Key.Stage == v1.StagePre && e.Target.Pod == "db-1" {
			w.pods = w.pods[:1]
			return timedOut()
		}
		return completed()
	}
	w.finish()
	g.Expect(w.run.Status.Release.Pass).To(BeEquivalentTo(2))
	g.Expect(w.cond(v1.ConditionMayBeQuiesced).Reason).To(Equal(v1.ReasonGivenUp))
	g.Expect(w.cond(v1.ConditionMayBeQuiesced).Message).To(ContainSubstring("shop/db-1"))
}

// A person asks for the release, before it began or while it waits. A pod that went away while quiesced is still waited for.
func TestARequestedReleaseStillWaitsForAPodThatWentAway(t *testing.T) {
	for name, at := range map[string]v1.RunPhase{"before the release": v1.PhaseSnapshotting, "while it waits": v1.PhasePostHooks} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := newWorld(t)
			w.onCreated = func(_ *world, s *Snapshot) { s.Cut, s.Ready, s.Bound = true, true, true }
			w.carry(v1.PhaseSnapshotting)
			w.pods = w.pods[:1]
			if at == v1.PhasePostHooks {
				w.settle()
			}
			w.run.Annotations = map[string]string{v1.AnnotationRelease: "now"}
			w.settle()
			g.Expect(w.run.Status.Phase).To(Equal(v1.PhasePostHooks))
			g.Expect(w.run.Status.Message).To(ContainSubstring("waits for a pod in the place of shop/db-1"))
			w.pods = append(w.pods, Target{Namespace: "shop", Pod: "db-1", UID: "u1b", Container: "c", ContainerID: "c1b"})
			w.finish()
			g.Expect(w.started).To(ContainElement("Post/release/db-1#1"))
			g.Expect(w.cond(v1.ConditionMayBeQuiesced).Status).To(BeEquivalentTo("False"))
		})
	}
}

// The corrected post hooks run where their own selectors say: in pods that exist, those of the hooks that they replace do not count.
func TestARequestedReleaseDoesNotRunInPodsThatTheCorrectedHookDoesNotMatch(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.onStart = func(_ *world, e StartExec) *Outcome {
		if e.Hook.Name == "release" {
			return failed()
		}
		return completed()
	}
	w.settle()
	w.schedule.Spec.PostHooks = []v1.PostHook{{Hook: hook("corrected")}}
	w.schedule.Spec.PostHooks[0].TargetPolicy = v1.TargetOne
	w.run.Annotations = map[string]string{v1.AnnotationRelease: "now"}
	w.finish()
	g.Expect(w.started).To(ContainElement("Post/corrected/db-0#1"))
	g.Expect(w.started).NotTo(ContainElement("Post/corrected/db-1#1"))
	g.Expect(w.cond(v1.ConditionMayBeQuiesced).Status).To(BeEquivalentTo("False"))
}

// The schedule lost its hooks, and then somebody asks for the release: there are no other post hooks than the planned ones.
func TestARequestedReleaseOfAScheduleWithoutPostHooksRunsThePlannedOnes(t *testing.T) {
	for _, at := range []v1.RunPhase{v1.PhasePreHooks, v1.PhaseSnapshotting, v1.PhasePostHooks} {
		g := NewWithT(t)
		w := newWorld(t)
		w.carry(at)
		w.schedule.Spec.PreHooks, w.schedule.Spec.PostHooks = nil, nil
		w.run.Annotations = map[string]string{v1.AnnotationRelease: "now"}
		w.finish()
		g.Expect(w.started).To(ContainElements("Post/release/db-0#1", "Post/release/db-1#1"), string(at))
	}
}

// The operator hangs, and sees a cut only when maxQuiesceSeconds is over: it may have been later.
func TestACutThatWasSeenAfterMaxQuiesceSecondsIsNotCalledConsistent(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.schedule.Spec.MaxQuiesceSeconds = ptr.To[int32](20)
	w.onCreated = func(_ *world, s *Snapshot) { s.Bound = true }
	w.settle()
	g.Expect(w.run.Status.Phase).To(Equal(v1.PhaseSnapshotting))
	w.now = w.now.Add(21 * time.Second)
	for _, s := range w.snapshots {
		s.Cut, s.Ready = true, true
	}
	w.finish()
	g.Expect(w.labelled).To(BeEmpty())
	g.Expect(w.run.Status.Result).To(Equal(v1.ResultPartiallyFailed))
}

// A held command said that it was ready and was killed before the operator saw it. No post hook makes up for it.
func TestAHeldCommandThatIsKilledBeforeItWasSeenMayHaveQuiesced(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	hold(&w.schedule.Spec.PreHooks[0])
	w.schedule.Spec.PostHooks = nil
	w.schedule.Status.Conditions = givenUp
	w.onStart = func(*world, StartExec) *Outcome {
		return &Outcome{Reason: v1.ReasonHoldLost, ExitCode: ptr.To[int32](137)}
	}
	w.finish()
	g.Expect(w.cond(v1.ConditionMayBeQuiesced).Reason).To(Equal(v1.ReasonGivenUp))
}

// The second look at the pods belongs to the first pass of the release. A person who asks for a new pass before it does not skip it.
func TestARequestedReleaseDoesNotSkipTheSecondLook(t *testing.T) {
	for name, fails := range map[string]bool{"the look is there": false, "the look fails": true} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := newWorld(t)
			w.carry(v1.PhasePostHooks)
			w.pods[0].ContainerID, w.pods[0].RestartCount = "c0b", 1
			w.lookFails = fails
			w.run.Annotations = map[string]string{v1.AnnotationRelease: "now"}
			_, more := w.step()
			g.Expect(more).To(BeTrue())
			w.lookFails = false
			w.finish()
			g.Expect(w.labelled).To(BeEmpty())
			g.Expect(w.run.Status.Result).To(Equal(v1.ResultPartiallyFailed))
		})
	}
}

// The second post hook has claimed an attempt, when the first one finds no pod and the pods must be looked at again: no look is taken before
// a claimed attempt is started, and so it is started.
func TestALaterPostHookThatHasClaimedAnAttemptStartsIt(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.pods = w.pods[:1]
	w.schedule.Spec.PostHooks = append(w.schedule.Spec.PostHooks, v1.PostHook{Hook: hook("second")})
	w.onStart = func(_ *world, e StartExec) *Outcome {
		if e.Hook.Name == "release" && e.Key.Attempt == 1 {
			return failed() // and is repeated beside the second one
		}
		return completed()
	}
	w.carry(v1.PhasePostHooks)
	for w.run.Status.Hooks[2].Targets[0].Claim == nil {
		_, more := w.step()
		g.Expect(more).To(BeTrue())
	}
	w.run.Status.Release.Looked = false // as the outcome PodNotFound of another attempt does
	w.lookFails = true
	d := Decide(w.input())
	g.Expect(d.Act).To(ContainElement(BeAssignableToTypeOf(StartExec{})), "%+v", d)
	w.lookFails = false
	w.finish()
	g.Expect(w.now.Sub(begin)).To(BeNumerically("<", time.Minute))
}

// Attempts are told apart by their hook: the reserved second attempt of one hook is no reason to think that the claimed second attempt of
// another one was not started.
func TestAReservedAttemptOfAnotherHookIsNotTakenForAClaimedOne(t *testing.T) {
	target := func(attempts int32) v1.TargetStatus {
		return v1.TargetStatus{Namespace: "shop", Pod: "db-0", PodUID: "u0", Container: "c", Attempts: attempts}
	}
	first, second := target(1), target(2)
	second.Claim = &v1.AttemptClaim{Process: "p1"}
	r := &v1.SnapshotRun{Status: v1.SnapshotRunStatus{Hooks: []v1.HookStatus{
		{Stage: v1.StagePost, Pass: 1, Targets: []v1.TargetStatus{first}}, {Stage: v1.StagePost, Pass: 1, Targets: []v1.TargetStatus{second}}}}}
	key := func(hook int32) ExecKey {
		return ExecKey{Stage: v1.StagePost, Pass: 1, Hook: hook, Target: targetID(&first), Attempt: 2}
	}
	g := NewWithT(t)
	g.Expect(Unstarted(r, map[ExecKey]Exec{key(0): {State: ExecReserved}, key(1): {State: ExecRunning}})).To(BeFalse())
	g.Expect(Unstarted(r, map[ExecKey]Exec{key(1): {State: ExecReserved}})).To(BeTrue())
}

// Pods cannot be listed any more. Every post hook runs in its planned pods, and the release has an end.
func TestPodsThatCannotBeListedDoNotHoldTheReleaseUpForEver(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.schedule.Spec.PostHooks = append(w.schedule.Spec.PostHooks, v1.PostHook{Hook: hook("second")})
	w.lookFails = true
	w.finish()
	g.Expect(w.started).To(ContainElements("Post/release/db-0#1", "Post/release/db-1#1", "Post/second/db-0#1", "Post/second/db-1#1"))
	g.Expect(w.labelled).To(BeEmpty())
	g.Expect(w.now.Sub(begin)).To(BeNumerically("~", time.Hour, time.Minute))
	g.Expect(w.run.Status.Consistency.Reason).To(ContainSubstring("the pods could not be looked up"))
}

// Records that another version wrote, or somebody changed: what may be quiesced is released, by the planned hooks or, if the plan is lost,
// by the schedule's.
func TestADamagedRecordIsReleased(t *testing.T) {
	dropPosts := func(st *v1.SnapshotRunStatus) {
		st.Hooks = slices.DeleteFunc(st.Hooks, func(h v1.HookStatus) bool { return h.Stage == v1.StagePost })
	}
	for name, damage := range map[string]func(st *v1.SnapshotRunStatus){
		"a phase that this version does not know": func(st *v1.SnapshotRunStatus) { st.Phase = "Verifying" },
		"no plan":                      func(st *v1.SnapshotRunStatus) { st.Plan = nil },
		"no release":                   func(st *v1.SnapshotRunStatus) { st.Release, st.SnapshottingTime = nil, nil },
		"neither":                      func(st *v1.SnapshotRunStatus) { st.Plan, st.Release, st.SnapshottingTime = nil, nil, nil },
		"no entries of the post hooks": func(st *v1.SnapshotRunStatus) { st.Phase, st.Plan.Version = v1.PhasePostHooks, 99; dropPosts(st) },
		"no entries of the hooks":      func(st *v1.SnapshotRunStatus) { st.Hooks = nil },
	} {
		for _, at := range []v1.RunPhase{v1.PhasePreHooks, v1.PhaseSnapshotting, v1.PhasePostHooks} {
			t.Run(name+" in "+string(at), func(t *testing.T) {
				g := NewWithT(t)
				w := newWorld(t)
				w.carry(at)
				damage(&w.run.Status)
				w.finish()
				for _, pod := range []string{"db-0", "db-1"} {
					released := slices.ContainsFunc(w.started, func(s string) bool { return strings.HasPrefix(s, "Post/release/"+pod) })
					g.Expect(released).To(BeTrue(), "%v", w.started)
				}
				g.Expect(w.cond(v1.ConditionMayBeQuiesced).Status).To(BeEquivalentTo("False"))
			})
		}
	}
}

// Pods were looked up by the selectors of a forged record, when it is found to be forged: the schedule's own post hooks must not run there, and
// must not be taken for done in the pods that matter.
func TestALookForAForgedRecordIsNotBelieved(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.forged = true
	w.carry(v1.PhasePostHooks)
	w.run.Status.Plan.SnapshotTimeoutSeconds = 0
	in := w.input()
	in.World.Look = &Look{Existing: map[types.UID]bool{"w": true},
		Post: []HookTargets{{Targets: []Target{{Namespace: "shop", Pod: "web-0", UID: "w", Container: "c", ContainerID: "cw"}}}}}
	d := Decide(in)
	g.Expect(d.Anew).To(BeTrue())
	g.Expect(d.Persist.Release.Looked).To(BeFalse())
	w.persist(d.Persist)
	w.exec, w.starts = map[ExecKey]*Exec{}, map[ExecKey]int{}
	w.finish()
	g.Expect(w.started[len(w.started)-2:]).To(ConsistOf("Post/release/db-0#1", "Post/release/db-1#1"))
	g.Expect(w.started).NotTo(ContainElement(ContainSubstring("web-0")))
}

// A survey that was taken for other hooks, before the schedule was edited, is not planned with.
func TestASurveyOfOtherHooksIsNotPlannedWith(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	in := w.input()
	in.World.Survey.Pre, in.World.Survey.Post = nil, nil
	d := Decide(in)
	g.Expect(d.Persist).To(BeNil())
	g.Expect(d.Wait).To(BeTemporally("==", w.now.Add(LookInterval)))
}

// givenUp is what the schedule controller makes of a release that was given up.
var givenUp = []metav1.Condition{{Type: v1.ConditionMayBeQuiesced, Status: "True", Reason: v1.ReasonGivenUp}}
