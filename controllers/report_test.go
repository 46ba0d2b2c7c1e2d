// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// told collects events as "Kind Reason: note".
type told struct {
	recorder.EventRecorder
	events []string
}

func (l *told) Eventf(regarding, _ runtime.Object, _, reason, _, note string, args ...any) {
	l.events = append(l.events, fmt.Sprintf("%T %s: %s", regarding, reason, fmt.Sprintf(note, args...)))
}

func TestASlotWithoutHooksThatIsOverAtOnceIsOneEvent(t *testing.T) {
	g := NewWithT(t)
	now := time.Date(2026, 3, 1, 12, 0, 4, 0, time.UTC)
	scheme := runtime.NewScheme()
	g.Expect(v1.AddToScheme(scheme)).To(Succeed())
	events := &told{}
	r := &RunReconciler{Recorder: events, Clock: clocktesting.NewFakeClock(now),
		Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(&v1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "plain"}}).Build()}
	before := &v1.SnapshotRun{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "plain-202603011200"}, Spec: v1.SnapshotRunSpec{ScheduleName: "plain", Slot: ptr.To(metav1.NewTime(now.Truncate(time.Hour)))}}
	after := before.DeepCopy()
	after.Status = v1.SnapshotRunStatus{Phase: v1.PhaseCompleted, Result: v1.ResultSucceeded, Message: "snapshots ready: 1", StartTime: ptr.To(metav1.NewMicroTime(now)),
		Snapshots: []v1.SnapshotStatus{{Claim: "data", State: v1.SnapshotReady}}}
	mem := r.memory.of(before, now)

	r.report(t.Context(), before, after, mem)
	g.Expect(events.events).To(Equal([]string{"*v1.SnapshotSchedule RunSucceeded: run plain-202603011200: snapshots ready: 1"}))

	// A run of a schedule that is gone is told of by nobody.
	events.events = nil
	before.Spec.ScheduleName, after.Spec.ScheduleName = "gone", "gone"
	r.report(t.Context(), before, after, mem)
	g.Expect(events.events).To(BeEmpty())
}

func TestANoteIsCutBetweenCharacters(t *testing.T) {
	g := NewWithT(t)
	g.Expect(note("short")).To(Equal("short"))
	long := note("%s", "x"+strings.Repeat("ü", 1000))
	g.Expect(len(long)).To(And(BeNumerically("<=", maxNote), BeNumerically(">", maxNote-4)))
	g.Expect(long).To(HaveSuffix("ü..."))
	g.Expect(strings.ToValidUTF8(long, "")).To(Equal(long))
}

func TestWhichAttemptsOfHooksEndedInAStep(t *testing.T) {
	claimed := &v1.AttemptClaim{Process: "p"}
	next := ptr.To(metav1.NowMicro())
	target := func(pod, reason string, claim *v1.AttemptClaim) v1.TargetStatus {
		return v1.TargetStatus{PodUID: "uid", Pod: pod, Container: pod, Reason: reason, Claim: claim, Attempts: 1}
	}
	hook := func(pass int32, targets ...v1.TargetStatus) v1.HookStatus {
		return v1.HookStatus{Stage: v1.StagePost, Name: "thaw", Pass: pass, Targets: targets}
	}
	repeated := target("a", "Timeout", nil)
	repeated.NextAttemptTime = next
	for name, c := range map[string]struct {
		before, after []v1.HookStatus
		want          []string
	}{
		"a claim": {[]v1.HookStatus{hook(1, target("a", "", nil))}, []v1.HookStatus{hook(1, target("a", "", claimed))}, nil},
		"an end":  {[]v1.HookStatus{hook(1, target("a", "", claimed))}, []v1.HookStatus{hook(1, target("a", "Completed", nil))}, []string{"a Completed"}},
		"ends are listed failures first": {[]v1.HookStatus{hook(1, target("a", "", claimed), target("b", "", claimed))},
			[]v1.HookStatus{hook(1, target("b", "Timeout", nil), target("a", "Completed", nil))}, []string{"b Timeout", "a Completed"}},
		"one that ended before":             {[]v1.HookStatus{hook(1, target("a", "Completed", nil), target("b", "", claimed))}, []v1.HookStatus{hook(1, target("a", "Completed", nil), target("b", "", claimed))}, nil},
		"a failure that will be repeated":   {[]v1.HookStatus{hook(1, target("a", "", claimed))}, []v1.HookStatus{hook(1, repeated)}, []string{"a Timeout"}},
		"the repetition begins":             {[]v1.HookStatus{hook(1, repeated)}, []v1.HookStatus{hook(1, target("a", "", claimed))}, nil},
		"a claim is taken back":             {[]v1.HookStatus{hook(1, target("a", "", claimed))}, []v1.HookStatus{hook(1, target("a", "", nil))}, nil},
		"a pod that is gone was not run in": {[]v1.HookStatus{hook(1, target("a", "", nil))}, []v1.HookStatus{hook(1, target("a", "PodNotFound", nil))}, nil},
		"an end that begins another pass": {[]v1.HookStatus{hook(1, target("a", "", claimed))},
			[]v1.HookStatus{hook(1, target("a", "Interrupted", nil)), hook(2, target("a", "", nil))}, []string{"a Interrupted"}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			measureHooks(&v1.SnapshotRun{Status: v1.SnapshotRunStatus{Hooks: c.before}}, &v1.SnapshotRun{Status: v1.SnapshotRunStatus{Hooks: c.after}},
				func(_ v1.HookStage, t *v1.TargetStatus) { got = append(got, t.Pod+" "+t.Reason) })
			NewWithT(t).Expect(got).To(Equal(c.want))
		})
	}
}
