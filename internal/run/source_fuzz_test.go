// SPDX-License-Identifier: Apache-2.0

package run

import (
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// source turns a fuzzer's bytes into choices. When they are used up, every choice is the first one.
type source struct{ data []byte }

// n is a number below limit.
func (s *source) n(limit int) int {
	if len(s.data) == 0 {
		return 0
	}
	b := s.data[0]
	s.data = s.data[1:]
	return int(b) % limit
}

func (s *source) yes() bool { return s.n(2) == 1 }

// rarely is true one time in eight.
func (s *source) rarely() bool { return s.n(8) == 7 }

func pick[T any](s *source, list ...T) T { return list[s.n(len(list))] }

// text is one of few, so that names meet.
func (s *source) text() string { return pick(s, "", "a", "b", "c") }

// name is one that the API server accepts. What it shows of the world has such names; a record may have any.
func (s *source) name() string { return pick(s, "a", "b", "c") }

func (s *source) time() time.Time {
	return begin.Add(pick(s, 0, -time.Second, -time.Minute, -time.Hour, time.Second, time.Minute, time.Hour, -1000*time.Hour, 1000*time.Hour))
}

func (s *source) micro() *metav1.MicroTime {
	if !s.yes() {
		return nil
	}
	return ptr.To(metav1.NewMicroTime(s.time()))
}

var (
	fuzzReasons = []string{"", v1.ReasonHookCompleted, v1.ReasonNonZeroExit, v1.ReasonTimeout, v1.ReasonConnectionLost, v1.ReasonInterrupted, v1.ReasonHoldLost,
		v1.ReasonPodNotFound, v1.ReasonUnreachable, v1.ReasonHeld, v1.ReasonHookSkipped, v1.ReasonGivenUp, v1.ReasonPodGone, "Unheard-of"}
	fuzzConditions = []string{v1.ConditionPreHooksSucceeded, v1.ConditionSnapshotsCut, v1.ConditionPostHooksSucceeded, v1.ConditionSnapshotsReady,
		v1.ConditionMayBeQuiesced, v1.ConditionComplete, "Unheard-of"}
)

// plannedHooks of a record.
func (s *source) plannedHooks() []v1.PlannedHook {
	var out []v1.PlannedHook
	for range s.n(4) {
		h := v1.PlannedHook{Name: s.text(), Namespace: "shop", TimeoutSeconds: int32(s.n(20)), Command: []string{"x"},
			TargetPolicy: pick(s, v1.TargetAll, v1.TargetOne, "Unheard-of"), SkipIfNoSelectorFound: s.rarely(),
			Mode: pick(s, v1.ModeRun, v1.ModeHold, "", "Unheard-of"), OnError: pick(s, v1.OnErrorFail, v1.OnErrorContinue, ""),
			ExecutionPolicy: pick(s, v1.ExecuteAlways, v1.ExecuteOnSuccess, v1.ExecuteOnFailure, "Unheard-of"), ReleaseTimeoutSeconds: int32(s.n(20))}
		if s.yes() {
			h.BackoffLimit = ptr.To(int32(s.n(4) - 1))
		}
		out = append(out, h)
	}
	return out
}

func (s *source) targetStatus() v1.TargetStatus {
	t := v1.TargetStatus{Namespace: "shop", Pod: s.text(), PodUID: types.UID(s.text()), Container: "c", Attempts: int32(s.n(4)), Reason: pick(s, fuzzReasons...),
		HeldTime: s.micro(), NextAttemptTime: s.micro(), UnknownUntil: s.micro(), StartTime: s.micro(), Gone: s.rarely(), Joined: s.rarely()}
	if s.yes() {
		t.Claim = &v1.AttemptClaim{Process: pick(s, "p1", "p0", ""), Time: metav1.NewMicroTime(s.time())}
	}
	return t
}

func (s *source) conditions(types ...string) []metav1.Condition {
	var out []metav1.Condition
	for _, typ := range types {
		if s.yes() {
			out = append(out, metav1.Condition{Type: typ, Status: pick(s, metav1.ConditionTrue, metav1.ConditionFalse, metav1.ConditionUnknown, ""),
				Reason: pick(s, append(fuzzReasons, v1.ReasonReleasing, v1.ReasonQuiescing)...)})
		}
	}
	return out
}

// status is any record, as a person could forge it or another version could have written it.
func (s *source) status() v1.SnapshotRunStatus {
	st := v1.SnapshotRunStatus{Phase: pick(s, "", v1.PhasePending, v1.PhasePlanned, v1.PhasePreHooks, v1.PhaseSnapshotting, v1.PhasePostHooks, v1.PhaseAwaitingReady,
		v1.PhaseCompleted, "Unheard-of"), QuiescedTime: s.micro(), SnapshottingTime: s.micro(), ReleaseTime: s.micro(), ReleasedTime: s.micro()}
	if !s.rarely() {
		st.Plan = &v1.RunPlan{Version: pick[int32](s, JournalVersion, 0, JournalVersion+1), At: metav1.NewTime(begin), SnapshotTimeoutSeconds: int32(s.n(60)),
			MaxQuiesceSeconds: int32(s.n(30)), ReleaseDeadlineSeconds: int32(s.n(60)), PreHooks: s.plannedHooks(), PostHooks: s.plannedHooks()}
	}
	for range s.n(6) {
		h := v1.HookStatus{Stage: pick(s, v1.StagePre, v1.StagePost, "Unheard-of"), Name: s.text(), Pass: int32(s.n(3)), Conditions: s.conditions(v1.ConditionSucceeded)}
		for range s.n(4) {
			h.Targets = append(h.Targets, s.targetStatus())
		}
		st.Hooks = append(st.Hooks, h)
	}
	if s.yes() {
		st.Release = &v1.ReleaseStatus{Pass: int32(s.n(3)), PassTime: metav1.NewMicroTime(s.time()), Looked: s.yes(), NextPassTime: s.micro(),
			Requested: s.text(), Reason: pick(s, fuzzReasons...), BestEffort: s.rarely()}
	}
	if s.yes() {
		st.Consistency = &v1.ConsistencyStatus{Verdict: pick(s, v1.ConsistencyApplication, v1.ConsistencyCrash, "")}
	}
	for range s.n(4) {
		st.Snapshots = append(st.Snapshots, v1.SnapshotStatus{Claim: s.text(), ClaimUID: types.UID(s.text()), Name: s.text(), CutSeenTime: s.micro(), UID: types.UID(s.text()),
			State: pick(s, v1.SnapshotPending, v1.SnapshotCut, v1.SnapshotReady, v1.SnapshotFailed, "Unheard-of"), CutBeforeRelease: s.yes()})
	}
	st.Conditions = s.conditions(fuzzConditions...)
	return st
}

func (s *source) target() Target {
	return Target{Namespace: "shop", Pod: s.name(), UID: types.UID(s.name()), Container: "c", ContainerID: s.text(), RestartCount: int32(s.n(2)), Terminating: s.rarely()}
}

func (s *source) hookTargets(n int) []HookTargets {
	out := make([]HookTargets, n)
	for i := range out {
		for range s.n(4) {
			out[i].Targets = append(out[i].Targets, s.target())
		}
		if s.rarely() {
			out[i].Problems = []Problem{{pick(s, fuzzReasons...), "something"}}
		}
	}
	return out
}

func (s *source) outcome() Outcome {
	o := Outcome{Reason: pick(s, fuzzReasons...), Message: strings.Repeat("ö", 1024*s.n(2)), Output: strings.Repeat("€\n", 4096*s.n(2)), EndUnknown: s.yes(), NeverStarted: s.rarely()}
	if s.yes() {
		o.ExitCode = ptr.To(int32(s.n(256)))
	}
	if s.yes() {
		o.Started, o.Ended = s.time(), s.time()
	}
	return o
}

// schedule with hooks that can be planned, or with some that cannot.
func (s *source) schedule() *v1.SnapshotSchedule {
	if s.rarely() {
		return nil
	}
	o := &v1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{Name: "hourly", Namespace: "shop", UID: "s"}}
	for range s.n(3) {
		h := v1.PreHook{Hook: hook(s.text()), OnError: pick(s, v1.OnErrorFail, v1.OnErrorContinue)}
		if s.rarely() {
			h.PodSelector = nil
		}
		o.Spec.PreHooks = append(o.Spec.PreHooks, h)
	}
	for range s.n(3) {
		o.Spec.PostHooks = append(o.Spec.PostHooks, v1.PostHook{Hook: hook(s.text()), ExecutionPolicy: pick(s, "", v1.ExecuteAlways, v1.ExecuteOnFailure)})
	}
	o.Status.ActiveRun = s.text()
	return o
}

// input: any record in any world.
func (s *source) input() Input {
	r := &v1.SnapshotRun{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "shop", UID: "r", CreationTimestamp: metav1.NewTime(s.time())},
		Spec: v1.SnapshotRunSpec{ScheduleName: "hourly", Mode: pick(s, v1.RunSnapshot, "", v1.RunTestHooks, v1.RunRelease, "Unheard-of")}}
	if s.yes() {
		r.Finalizers = []string{v1.FinalizerRelease}
	}
	if s.rarely() {
		r.DeletionTimestamp = ptr.To(metav1.NewTime(begin))
	}
	if s.rarely() {
		r.Annotations = map[string]string{v1.AnnotationRelease: s.text()}
	}
	r.Status = s.status()
	in := Input{Now: begin, Process: "p1", Run: r, Schedule: s.schedule(), Config: Config{ReleaseDeadline: time.Minute, ReadyTimeout: 24 * time.Hour, OwnerReferences: s.yes()}}
	w := &in.World
	w.Draining, w.Lock.Held = s.rarely(), s.yes()
	if s.yes() {
		w.Survey = &Survey{Pre: s.hookTargets(s.n(4)), Post: s.hookTargets(s.n(4))}
		for range s.n(3) {
			w.Survey.Claims = append(w.Survey.Claims, Claim{Name: s.name(), UID: types.UID(s.name())})
		}
	}
	w.Snapshots, w.Creates, w.Exec = map[string]Snapshot{}, map[string]CreateFailure{}, map[ExecKey]Exec{}
	for _, name := range []string{"a", "b", "c"} {
		if s.yes() {
			w.Snapshots[name] = Snapshot{Foreign: s.rarely(), UID: types.UID(s.text()), Terminating: s.rarely(), Cut: s.yes(), Ready: s.yes(),
				Error: s.text(), Bound: s.yes(), Consistency: pick(s, "", v1.ConsistencyCrash, v1.ConsistencyApplication)}
		}
		if s.rarely() {
			w.Creates[name] = CreateFailure{Message: "no", Refused: s.yes(), RetryTime: s.time()}
		}
	}
	if s.rarely() {
		w.Leftovers = []Leftover{{Name: "old", UID: "old"}}
	}
	for _, k := range ExecKeys(r) {
		if s.yes() {
			w.Exec[k] = Exec{State: ExecState(s.n(int(ExecDone) + 2)), HeldAt: s.time(), Outcome: s.outcome()}
		}
	}
	if s.yes() {
		w.Look = &Look{Pre: s.hookTargets(s.n(4)), Post: s.hookTargets(s.n(4)), Existing: map[types.UID]bool{"a": s.yes(), "b": s.yes()}}
	}
	return in
}
