// SPDX-License-Identifier: Apache-2.0

package run

import (
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// The operator dies at every step of a run and another takes over: the application is released, no attempt is started twice (checked by
// the world), and the snapshots are only called consistent if everything was seen.
func TestTheOperatorDiesAtEveryStep(t *testing.T) {
	for n := 1; ; n++ {
		w := newWorld(t)
		steps := 0
		w.onStep = func(w *world) {
			if steps++; steps == n {
				w.restart()
			}
		}
		w.finish()
		g := NewWithT(t)
		g.Expect(w.cond(v1.ConditionMayBeQuiesced).Status).NotTo(BeEquivalentTo("True"), "step %d", n)
		released := slices.ContainsFunc(w.started, func(s string) bool { return strings.HasPrefix(s, "Post/") })
		quiesced := w.run.Status.QuiescedTime != nil
		g.Expect(released || !quiesced).To(BeTrue(), "step %d: %v", n, w.started)
		if w.run.Status.Result != v1.ResultSucceeded {
			g.Expect(w.labelled).To(BeEmpty(), "step %d", n)
		}
		if steps < n {
			g.Expect(n).To(BeNumerically(">", 12), "the run should have more steps than that")
			return
		}
	}
}

// At every step: the schedule is edited, disabled, deleted, or the run is deleted. The release is never skipped (I8).
func TestEditsAtEveryStep(t *testing.T) {
	edits := map[string]func(w *world){
		"the schedule loses its hooks": func(w *world) { w.schedule.Spec.PreHooks, w.schedule.Spec.PostHooks = nil, nil },
		"the schedule is disabled":     func(w *world) { w.schedule.Spec.Disabled = true },
		"the schedule is deleted":      func(w *world) { w.schedule = nil },
		"the run is deleted":           func(w *world) { w.run.DeletionTimestamp = ptr.To(metav1.NewTime(w.now)) },
		"the release is asked for":     func(w *world) { w.run.Annotations = map[string]string{v1.AnnotationRelease: "now"} },
	}
	for name, edit := range edits {
		t.Run(name, func(t *testing.T) {
			for n := 1; n < 30; n++ {
				w := newWorld(t)
				steps := 0
				w.onStep = func(w *world) {
					if steps++; steps == n {
						edit(w)
					}
				}
				w.finish()
				if w.run.Status.QuiescedTime == nil {
					continue
				}
				g := NewWithT(t)
				for _, pod := range []string{"db-0", "db-1"} {
					g.Expect(w.started).To(ContainElement("Post/release/"+pod+"#1"), "step %d: %v", n, w.started)
				}
				g.Expect(w.cond(v1.ConditionMayBeQuiesced).Status).To(BeEquivalentTo("False"), "step %d", n)
			}
		})
	}
}

func TestTheEmergencyExitUsesTheCorrectedPostHooks(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.pods = w.pods[:1]
	w.onStart = func(_ *world, e StartExec) *Outcome {
		if e.Hook.Name == "release" {
			return failed()
		}
		return completed()
	}
	w.settle()
	g.Expect(w.run.Status.Phase).To(Equal(v1.PhasePostHooks))
	w.schedule.Spec.PostHooks = []v1.PostHook{{Hook: hook("corrected")}}
	w.run.Annotations = map[string]string{v1.AnnotationRelease: "1"}
	w.finish()
	g.Expect(w.started).To(ContainElement("Post/corrected/db-0#1"))
	g.Expect(w.cond(v1.ConditionMayBeQuiesced).Status).To(BeEquivalentTo("False"))
	g.Expect(w.cond(v1.ConditionPostHooksSucceeded).Status).To(BeEquivalentTo("True"))
}

// All pods are gone when the application is to be released: a freeze outlives its pod, so the run waits for one.
func TestTheReleaseWaitsForAPodToComeBack(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.pods = w.pods[:1]
	w.onCreated = func(w *world, s *Snapshot) {
		s.Cut, s.Ready, s.Bound = true, true, true
		w.pods = nil
	}
	d := w.settle()
	g.Expect(w.run.Status.Phase).To(Equal(v1.PhasePostHooks))
	g.Expect(w.run.Status.Message).To(ContainSubstring("waiting to run post hook release"))
	g.Expect(d.Wait).To(BeTemporally("==", w.now.Add(LookInterval)))
	w.now = w.now.Add(time.Minute)
	w.pods = []Target{{Namespace: "shop", Pod: "db-0", UID: "u0b", Container: "c", ContainerID: "c0b"}}
	w.finish()
	g.Expect(w.started).To(Equal([]string{"Pre/quiesce/db-0#1", "Post/release/db-0#1"}))
	g.Expect(w.cond(v1.ConditionMayBeQuiesced).Status).To(BeEquivalentTo("False"))
	g.Expect(w.run.Status.Result).To(Equal(v1.ResultPartiallyFailed))
}

// Two post hooks wait for the same pod: the record says so once, and is not written again and again.
func TestTwoPostHooksThatWaitComeToRest(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.pods = w.pods[:1]
	w.schedule.Spec.PostHooks = append(w.schedule.Spec.PostHooks, v1.PostHook{Hook: hook("second")})
	w.onCreated = func(w *world, s *Snapshot) {
		s.Cut, s.Ready, s.Bound = true, true, true
		w.pods = nil
	}
	w.settle()
	g.Expect(w.run.Status.Message).To(And(ContainSubstring("post hook release"), ContainSubstring("post hook second")))
	w.pods = []Target{{Namespace: "shop", Pod: "db-0", UID: "u0b", Container: "c", ContainerID: "c0b"}}
	w.finish()
	g.Expect(w.cond(v1.ConditionMayBeQuiesced).Status).To(BeEquivalentTo("False"))
}

func TestAReleaseThatFailsIsGivenUpOnRecordAndNotBefore(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.pods = w.pods[:1]
	w.onStart = func(_ *world, e StartExec) *Outcome {
		if e.Key.Stage == v1.StagePost {
			return failed()
		}
		return completed()
	}
	w.onStep = func(w *world) {
		if w.run.Status.Phase == v1.PhaseCompleted && w.now.Sub(begin) > time.Hour+time.Minute {
			// The schedule controller has taken the alarm over.
			w.schedule.Status.Conditions = []metav1.Condition{{Type: v1.ConditionMayBeQuiesced, Status: "True", Reason: v1.ReasonGivenUp}}
		}
	}
	w.finish()
	c := w.cond(v1.ConditionMayBeQuiesced)
	g.Expect(c.Status).To(BeEquivalentTo("True"))
	g.Expect(c.Reason).To(Equal(v1.ReasonGivenUp))
	g.Expect(c.Message).To(ContainSubstring("NonZeroExit"))
	g.Expect(w.run.Status.ReleasedTime.Sub(begin)).To(BeNumerically(">=", time.Hour))
	g.Expect(w.now.Sub(begin)).To(BeNumerically(">", time.Hour+time.Minute), "the finalizer went before the schedule showed the alarm")
}

func TestOnePostHookFailingDoesNotStopTheNext(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.pods = w.pods[:1]
	w.schedule.Spec.PostHooks = append(w.schedule.Spec.PostHooks, v1.PostHook{Hook: hook("second")}, v1.PostHook{Hook: hook("bad-news"), ExecutionPolicy: v1.ExecuteOnFailure})
	w.onStart = func(_ *world, e StartExec) *Outcome {
		if e.Hook.Name == "release" && e.Key.Attempt < 3 {
			return failed()
		}
		return completed()
	}
	w.settle()
	g.Expect(w.started).To(Equal([]string{"Pre/quiesce/db-0#1", "Post/release/db-0#1", "Post/second/db-0#1"}))
	w.finish()
	g.Expect(w.run.Status.Result).To(Equal(v1.ResultSucceeded))
	g.Expect(w.started).NotTo(ContainElement(ContainSubstring("bad-news")))
}

// All pre hooks end before the first snapshot exists (velero#4268, #2652, #3542, #3978), and the application is released when the
// snapshots are cut and not when they are ready (velero#1519).
func TestOrder(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.schedule.Spec.PreHooks = append(w.schedule.Spec.PreHooks, v1.PreHook{Hook: hook("second")})
	w.onCreate = func(w *world, _ CreateSnapshot) *CreateFailure {
		g.Expect(w.started).To(HaveLen(4))
		return nil
	}
	w.onCreated = func(_ *world, s *Snapshot) { s.Bound, s.Cut = true, true }
	w.settle()
	g.Expect(w.started).To(HaveLen(6))
	g.Expect(w.run.Status.Phase).To(Equal(v1.PhaseAwaitingReady))
	g.Expect(w.cond(v1.ConditionMayBeQuiesced).Status).To(BeEquivalentTo("False"))
	g.Expect(w.lockHeld).To(BeFalse())
}

func TestAnUnknownJournalIsOnlyReleased(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.onStep = func(w *world) {
		if w.run.Status.Phase == v1.PhaseSnapshotting {
			w.run.Status.Plan.Version = 99
		}
	}
	w.finish()
	g.Expect(w.created).To(BeEmpty())
	g.Expect(w.started).To(ContainElement("Post/release/db-0#1"))
	g.Expect(w.run.Status.Result).To(Equal(v1.ResultFailed))
}

// Another version's record may have more entries than its plan has hooks. It is released all the same.
func TestAnUnknownJournalThatDoesNotMatchItsPlanIsReleased(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.onStep = func(w *world) {
		if w.run.Status.Phase == v1.PhaseSnapshotting && w.run.Status.Plan.Version == JournalVersion {
			w.run.Status.Plan.Version = 99
			w.run.Status.Hooks = append(w.run.Status.Hooks, v1.HookStatus{Stage: v1.StagePost, Name: "unheard-of", Pass: 1})
		}
	}
	w.finish()
	g.Expect(w.started).To(ContainElements("Post/release/db-0#1", "Post/release/db-1#1"))
	g.Expect(w.cond(v1.ConditionMayBeQuiesced).Status).To(BeEquivalentTo("False"))
}

func TestAHeldCommandThatIsLostBeforeTheCut(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.pods = w.pods[:1]
	w.schedule.Spec.PreHooks[0].Mode = v1.ModeHold
	w.schedule.Spec.PreHooks[0].ExpectOutput = "READY"
	w.schedule.Spec.PreHooks[0].ExpectReleaseOutput = "RELEASED"
	w.onCreated = func(w *world, s *Snapshot) {
		s.Cut, s.Ready, s.Bound = true, true, true
		for k, e := range w.exec {
			if e.State == ExecHeld {
				w.exec[k] = &Exec{State: ExecDone, Outcome: Outcome{Reason: v1.ReasonHoldLost, EndUnknown: true, Message: "the stream broke"}}
			}
		}
	}
	w.finish()
	g.Expect(w.run.Status.Result).To(Equal(v1.ResultPartiallyFailed))
	g.Expect(w.labelled).To(BeEmpty())
	g.Expect(w.run.Status.Message).To(ContainSubstring("HoldLost"))
}

// A kubelet that has just started knows no pods: what it says of a pod that exists is not believed.
func TestAPodThatOnlyTheKubeletDoesNotFindIsReleasedAllTheSame(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.pods = w.pods[:1]
	w.onStart = func(_ *world, e StartExec) *Outcome {
		if e.Key.Stage == v1.StagePost && e.Key.Attempt < 3 {
			return &Outcome{Reason: v1.ReasonPodNotFound, NeverStarted: true}
		}
		return completed()
	}
	w.finish()
	g.Expect(w.started).To(Equal([]string{"Pre/quiesce/db-0#1", "Post/release/db-0#1", "Post/release/db-0#2", "Post/release/db-0#3"}))
	g.Expect(w.run.Status.Result).To(Equal(v1.ResultSucceeded))
}

// One of two pods goes away while quiesced and comes back as another one when the release has begun: its file system may be frozen.
func TestThePodInPlaceOfOneThatWentAwayIsReleasedAlthoughAnotherMatches(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.onCreated = func(w *world, s *Snapshot) {
		s.Cut, s.Ready, s.Bound = true, true, true
		w.pods = w.pods[:1]
	}
	w.settle()
	g.Expect(w.run.Status.Phase).To(Equal(v1.PhasePostHooks), "the release waits for what takes the place of db-1")
	g.Expect(w.run.Status.Message).To(Equal("post hook release waits for a pod in the place of shop/db-1, which went away while it may have been quiesced"))
	w.now = w.now.Add(30 * time.Second)
	w.pods = append(w.pods, Target{Namespace: "shop", Pod: "db-1", UID: "u1b", Container: "c", ContainerID: "c1b"})
	w.finish()
	g.Expect(w.started).To(HaveLen(4))
	g.Expect(w.cond(v1.ConditionMayBeQuiesced).Status).To(BeEquivalentTo("False"))
}

func TestAPodThatWentAwayForGoodWhileQuiescedRaisesTheAlarm(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.schedule.Status.Conditions = []metav1.Condition{{Type: v1.ConditionMayBeQuiesced, Status: "True", Reason: v1.ReasonGivenUp}}
	w.onCreated = func(w *world, s *Snapshot) {
		s.Cut, s.Ready, s.Bound = true, true, true
		w.pods = w.pods[:1]
	}
	w.finish()
	c := w.cond(v1.ConditionMayBeQuiesced)
	g.Expect(c.Status).To(BeEquivalentTo("True"))
	g.Expect(c.Message).To(ContainSubstring("shop/db-1"))
	g.Expect(w.run.Status.ReleasedTime.Sub(begin)).To(BeNumerically("~", ReplacementWait, time.Minute))
}

// A refused claim is tried again while the run waits for its other snapshots, and does not keep the next slot from coming.
func TestARefusedClaimWithoutHooksIsTriedAgainAndBlocksNothing(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.schedule.Spec.PreHooks, w.schedule.Spec.PostHooks = nil, nil
	w.run.Finalizers = nil
	w.onCreate = func(w *world, e CreateSnapshot) *CreateFailure {
		if e.Claim == "wal" && w.now.Sub(begin) < time.Minute {
			return &CreateFailure{Message: "exceeded quota", Refused: true, RetryTime: w.now.Add(10 * time.Second)}
		}
		return nil
	}
	w.settle()
	w.now = w.now.Add(DirectGrace)
	w.settle()
	g.Expect(BeforeAwaitingReady(w.run)).To(BeFalse())
	w.finish()
	g.Expect(w.run.Status.Result).To(Equal(v1.ResultSucceeded))
	g.Expect(w.created).To(HaveLen(2))
}

func TestARefusedClaimWithoutHooksIsGivenUpInTheEnd(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.schedule.Spec.PreHooks, w.schedule.Spec.PostHooks = nil, nil
	w.run.Finalizers = nil
	w.onCreate = func(w *world, e CreateSnapshot) *CreateFailure {
		if e.Claim == "wal" {
			return &CreateFailure{Message: "exceeded quota", Refused: true, RetryTime: w.now.Add(10 * time.Second)}
		}
		return nil
	}
	w.finish()
	g.Expect(w.run.Status.Result).To(Equal(v1.ResultPartiallyFailed))
	g.Expect(w.run.Status.Message).To(ContainSubstring("exceeded quota"))
	g.Expect(w.now.Sub(begin)).To(BeNumerically("~", 5*time.Minute, time.Minute))
}

// A node that is not reached for a moment, before anything has started, costs no run.
func TestAPreHookThatNeverStartedIsRepeatedAFewTimes(t *testing.T) {
	for _, reason := range []string{v1.ReasonUnreachable, v1.ReasonPodNotFound} {
		g := NewWithT(t)
		w := newWorld(t)
		w.pods = w.pods[:1]
		w.onStart = func(_ *world, e StartExec) *Outcome {
			if e.Key.Stage == v1.StagePre && e.Key.Attempt < 3 {
				return &Outcome{Reason: reason, NeverStarted: true}
			}
			return completed()
		}
		w.finish()
		g.Expect(w.run.Status.Result).To(Equal(v1.ResultSucceeded), reason)
		g.Expect(w.started).To(HaveLen(4))
	}
}

// A held command freezes before it says that it is ready: one whose end is unknown may have.
func TestAHeldCommandThatNeverSaidReadyMayHaveQuiesced(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.pods = w.pods[:1]
	w.schedule.Spec.PreHooks[0].Mode = v1.ModeHold
	w.schedule.Spec.PreHooks[0].ExpectOutput = "READY"
	w.schedule.Spec.PreHooks[0].ExpectReleaseOutput = "RELEASED"
	w.schedule.Spec.PostHooks = nil
	w.schedule.Status.Conditions = []metav1.Condition{{Type: v1.ConditionMayBeQuiesced, Status: "True", Reason: v1.ReasonGivenUp}}
	w.onStart = func(*world, StartExec) *Outcome { return timedOut() }
	w.finish()
	g.Expect(w.run.Status.Result).To(Equal(v1.ResultFailed))
	g.Expect(w.cond(v1.ConditionMayBeQuiesced).Reason).To(Equal(v1.ReasonGivenUp))
}

// All that was refused before it started has quiesced nothing: one attempt of the post hooks is enough, and there is no alarm. It does not
// matter that the refused account could not release anything either.
func TestPreHooksThatWereAllRefusedHaveQuiescedNothing(t *testing.T) {
	for _, reason := range []string{v1.ReasonForbidden, v1.ReasonCommandNotFound} {
		g := NewWithT(t)
		w := newWorld(t)
		w.onStart = func(*world, StartExec) *Outcome { return &Outcome{Reason: reason, NeverStarted: true} }
		begin := w.now
		w.finish()
		g.Expect(w.run.Status.Result).To(Equal(v1.ResultFailed))
		g.Expect(w.cond(v1.ConditionMayBeQuiesced).Reason).To(Equal(v1.ReasonNothingQuiesced))
		g.Expect(w.run.Status.QuiescedTime).To(BeNil())
		g.Expect(w.now.Sub(begin)).To(BeNumerically("<", time.Minute), "it does not wait for the release deadline")
	}
}

// One that did start, in one of the pods, may have.
func TestAPreHookThatStartedInOnePodOnlyMayHaveQuiescedIt(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.schedule.Status.Conditions = []metav1.Condition{{Type: v1.ConditionMayBeQuiesced, Status: "True", Reason: v1.ReasonGivenUp}}
	w.onStart = func(w *world, e StartExec) *Outcome {
		if e.Key.Stage == v1.StagePre && e.Target.Pod == w.pods[0].Pod {
			return completed()
		}
		return &Outcome{Reason: v1.ReasonForbidden, NeverStarted: true}
	}
	w.finish()
	g.Expect(w.run.Status.QuiescedTime).NotTo(BeNil())
	g.Expect(w.cond(v1.ConditionMayBeQuiesced).Reason).To(Equal(v1.ReasonGivenUp))
}
