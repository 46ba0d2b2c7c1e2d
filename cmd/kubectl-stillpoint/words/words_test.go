// SPDX-License-Identifier: Apache-2.0

package words

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func moment(d time.Duration) *metav1.MicroTime { return ptr.To(metav1.NewMicroTime(noon.Add(d))) }

func TestHealth(t *testing.T) {
	condition := func(typ string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
		return metav1.Condition{Type: typ, Status: status, Reason: reason, Message: message}
	}
	ready := condition(v1.ConditionReady, "True", v1.ReasonScheduled, "")
	last := func(status metav1.ConditionStatus, reason string) metav1.Condition {
		return condition(v1.ConditionLastRunSucceeded, status, reason, "run x: why")
	}
	for name, c := range map[string]struct {
		conditions []metav1.Condition
		change     func(*v1.SnapshotSchedule)
		want       Health
		why        string
	}{
		"a release that was given up goes before everything": {conditions: []metav1.Condition{condition(v1.ConditionReady, "False", v1.ReasonInvalidHooks, "no"), last("False", v1.ReasonFailed),
			condition(v1.ConditionMayBeQuiesced, "True", v1.ReasonGivenUp, "stands still")}, want: Quiesced, why: "stands still"},
		"quiescing right now is no fault": {conditions: []metav1.Condition{ready, condition(v1.ConditionMayBeQuiesced, "True", v1.ReasonQuiescing, "run x")},
			change: func(s *v1.SnapshotSchedule) { s.Status.ActiveRun = "x" }, want: Running, why: "run x"},
		"not valid":               {conditions: []metav1.Condition{condition(v1.ConditionReady, "False", v1.ReasonInvalidSchedule, "spec.schedule ...")}, want: Invalid, why: "spec.schedule ..."},
		"failed":                  {conditions: []metav1.Condition{ready, last("False", v1.ReasonFailed)}, want: Failed, why: "run x: why"},
		"partially failed":        {conditions: []metav1.Condition{ready, last("False", v1.ReasonPartiallyFailed)}, want: Partial, why: "run x: why"},
		"failed and at it again":  {conditions: []metav1.Condition{ready, last("False", v1.ReasonFailed)}, change: func(s *v1.SnapshotSchedule) { s.Status.ActiveRun = "y" }, want: Failed, why: "run x: why"},
		"suspended after failure": {conditions: []metav1.Condition{ready, last("False", v1.ReasonFailed)}, change: func(s *v1.SnapshotSchedule) { s.Spec.Disabled = true }, want: Suspended, why: "no runs are started; retention goes on"},
		"skipped":                 {conditions: []metav1.Condition{ready, last("Unknown", v1.ReasonRunSkipped)}, want: Skipped, why: "run x: why"},
		"ok":                      {conditions: []metav1.Condition{ready, last("True", v1.ReasonSucceeded)}, want: OK, why: "run x: why"},
		"new":                     {conditions: []metav1.Condition{ready}, want: New, why: "no run yet"},
		"just created":            {change: func(s *v1.SnapshotSchedule) { s.CreationTimestamp = metav1.NewTime(noon.Add(-time.Minute)) }, want: New, why: "no run yet"},
		"nobody looks at it":      {want: Late, why: "is Stillpoint running? no operator has looked at it: kubectl get pods -A -l app.kubernetes.io/name=stillpoint"},
		"the slot is a minute ago": {conditions: []metav1.Condition{ready, last("True", v1.ReasonSucceeded)}, change: func(s *v1.SnapshotSchedule) {
			s.Status.NextSnapshotTime = ptr.To(metav1.NewTime(noon.Add(-time.Minute)))
		}, want: OK, why: "run x: why"},
		"the slot is long ago": {conditions: []metav1.Condition{ready, last("True", v1.ReasonSucceeded)}, change: func(s *v1.SnapshotSchedule) {
			s.Status.NextSnapshotTime = ptr.To(metav1.NewTime(noon.Add(-time.Hour)))
		}, want: Late, why: "is Stillpoint running? its slot of 2026-03-01T11:00:00Z has passed and no run began: kubectl get pods -A -l app.kubernetes.io/name=stillpoint"},
		"the slot is long ago and its run is at work": {conditions: []metav1.Condition{ready}, change: func(s *v1.SnapshotSchedule) {
			s.Status.NextSnapshotTime, s.Status.ActiveRun = ptr.To(metav1.NewTime(noon.Add(-time.Hour))), "y"
		}, want: Running, why: "run y"},
		"it starts later than its slot": {conditions: []metav1.Condition{ready}, change: func(s *v1.SnapshotSchedule) {
			s.Status.NextSnapshotTime, s.Spec.SpreadSeconds = ptr.To(metav1.NewTime(noon.Add(-30*time.Minute))), ptr.To(int32(3600))
		}, want: New, why: "no run yet"},
		"an error that passes":             {conditions: []metav1.Condition{ready, condition(v1.ConditionReconciled, "False", v1.ReasonReconcileError, "no answer")}, want: Erring, why: "no answer"},
		"snapscheduler's status says less": {conditions: []metav1.Condition{condition(v1.ConditionReconciled, "True", v1.ReasonReconcileComplete, "")}, want: New, why: "no run yet"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := &v1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(noon.Add(-24 * time.Hour))}}
			s.Status.Conditions = c.conditions
			if c.change != nil {
				c.change(s)
			}
			health, why := HealthOf(s, noon)
			g.Expect(health).To(Equal(c.want))
			g.Expect(why).To(Equal(c.why))
			g.Expect(health.String()).NotTo(BeEmpty())
		})
	}
}

func TestTimes(t *testing.T) {
	g := NewWithT(t)
	vienna, err := time.LoadLocation("Europe/Vienna")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(Moment(noon, vienna)).To(Equal("Sun 2026-03-01 13:00:00 CET (12:00:00 UTC)"))
	g.Expect(Moment(noon, time.UTC)).To(Equal("Sun 2026-03-01 12:00:00 UTC"))
	g.Expect(In(noon.Add(90*time.Minute), noon)).To(Equal("in 90m"))
	g.Expect(In(noon.Add(-time.Second), noon)).To(Equal("now"))
	g.Expect(In(noon.Add(-time.Hour), noon)).To(Equal("60m ago"))
	g.Expect(In(time.Time{}, noon)).To(Equal("-"))
	for d, want := range map[time.Duration]string{-1: "0s", 84_400 * time.Microsecond: "84ms", 1940 * time.Millisecond: "1.9s", 61_400 * time.Millisecond: "1m1s"} {
		g.Expect(Took(d)).To(Equal(want))
	}
	g.Expect(Tail("a\nb\nc\n\n", 2)).To(Equal([]string{"(1 lines before)", "b", "c"}))
	g.Expect(Tail(" \n", 2)).To(BeEmpty())
	g.Expect(Printable("a\x1b[31mb\tc\r\nd\u202e")).To(Equal("a\uFFFD[31mb\tc\uFFFD\nd\uFFFD"))
	g.Expect(Short("äöü und mehr", 5)).To(Equal("äöü …"))
}

// hooked is a run with one pre hook in two containers, and two snapshots.
func hooked() *v1.SnapshotRun {
	r := &v1.SnapshotRun{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "r"}, Spec: v1.SnapshotRunSpec{ScheduleName: "s"}}
	r.Status.Hooks = []v1.HookStatus{
		{Stage: v1.StagePre, Name: "freeze", Targets: []v1.TargetStatus{{Namespace: "shop", Pod: "db-0", Container: "db"}, {Namespace: "other", Pod: "db-1", Container: "db"}}},
		{Stage: v1.StagePost, Name: "thaw", Pass: 1, Targets: []v1.TargetStatus{{Namespace: "shop", Pod: "db-0", Container: "db"}}},
	}
	r.Status.Snapshots = []v1.SnapshotStatus{{Claim: "a", Name: "a-s", State: v1.SnapshotPending}, {Claim: "b", Name: "b-s", State: v1.SnapshotPending}}
	return r
}

func TestProgress(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1.SnapshotRunStatus)
		want   string
	}{
		"nothing yet": {func(*v1.SnapshotRunStatus) {}, "Pending  looks for claims and pods"},
		"waiting":     {func(st *v1.SnapshotRunStatus) { st.Phase, st.Message = v1.PhasePending, "waiting for run x" }, "Pending  waiting for run x"},
		"quiescing": {func(st *v1.SnapshotRunStatus) {
			st.Phase, st.QuiescedTime = v1.PhasePreHooks, moment(-3*time.Second)
			st.Hooks[0].Targets[0].Reason = v1.ReasonHookCompleted
		}, "PreHooks  hook freeze, 1 of 2 containers done, quiesced for 3s"},
		"cutting": {func(st *v1.SnapshotRunStatus) {
			st.Phase, st.QuiescedTime = v1.PhaseSnapshotting, moment(-3*time.Second)
			st.Snapshots[0].State = v1.SnapshotCut
		}, "Snapshotting  1 of 2 cut, quiesced for 3s"},
		"a release that is repeated": {func(st *v1.SnapshotRunStatus) {
			st.Phase, st.QuiescedTime = v1.PhasePostHooks, moment(-time.Minute)
			st.Hooks[1].Targets[0].Attempts, st.Hooks[1].Targets[0].Reason, st.Hooks[1].Targets[0].NextAttemptTime = 3, v1.ReasonNonZeroExit, moment(time.Second)
		}, "PostHooks  hook thaw, 0 of 1 container done, attempt 3, quiesced for 1m0s"},
		"copying": {func(st *v1.SnapshotRunStatus) {
			st.Phase, st.QuiescedTime, st.ReleasedTime = v1.PhaseAwaitingReady, moment(-time.Hour), moment(-time.Minute)
			st.Snapshots[0].State, st.Snapshots[1].State = v1.SnapshotReady, v1.SnapshotFailed
		}, "AwaitingReady  1 of 2 ready, 1 failed"},
	} {
		t.Run(name, func(t *testing.T) {
			r := hooked()
			c.change(&r.Status)
			NewWithT(t).Expect(Progress(r, noon)).To(Equal(c.want))
		})
	}
}

func TestStory(t *testing.T) {
	g := NewWithT(t)
	r := hooked()
	var s Story
	next := func() string {
		var out []string
		for _, l := range s.Next(r) {
			text := l.Text
			if l.Bad {
				text = "! " + text
			}
			out = append(out, text)
		}
		return strings.Join(out, "\n")
	}
	g.Expect(next()).To(BeEmpty())
	r.Status.Phase = v1.PhasePlanned
	g.Expect(next()).To(Equal("Planned       2 snapshots and 2 hooks planned; pods, containers and rights are as needed"))
	r.Status.Phase = v1.PhasePreHooks
	r.Status.Hooks[0].Targets[0].HeldTime = moment(0)
	g.Expect(next()).To(Equal("PreHooks      quiesces the application\n  pre  freeze  db-0/db  Held"))
	g.Expect(next()).To(BeEmpty(), "each thing once")
	x := &r.Status.Hooks[0].Targets[1]
	x.Reason, x.Message, x.Attempts, x.Output = v1.ReasonTimeout, "no end within 5s", 1, "hello"
	g.Expect(next()).To(Equal("!   pre  freeze  other/db-1/db  Timeout: no end within 5s\n       | hello"))
	r.Status.Phase = v1.PhaseSnapshotting
	r.Status.Snapshots[0].State = v1.SnapshotCut
	g.Expect(next()).To(Equal("  snapshot a-s of claim a: cut\nSnapshotting  creates the snapshots and waits for their cut"))
	r.Status.Snapshots[1].State, r.Status.Snapshots[1].Message = v1.SnapshotFailed, "the array is full"
	g.Expect(next()).To(Equal("!   snapshot b-s of claim b: failed: the array is full"))
	r.Status.Phase, r.Status.Result, r.Status.Message = v1.PhaseCompleted, v1.ResultPartiallyFailed, "b failed"
	g.Expect(next()).To(Equal("! Completed     PartiallyFailed: b failed"))
}

func TestDescribeRun(t *testing.T) {
	g := NewWithT(t)
	r := hooked()
	st := &r.Status
	st.Phase, st.Result, st.Message = v1.PhaseCompleted, v1.ResultFailed, "hook freeze: exit code 1"
	st.QuiescedTime, st.ReleasedTime = moment(0), moment(1900*time.Millisecond)
	st.Consistency = &v1.ConsistencyStatus{Verdict: v1.ConsistencyCrash, Reason: "hook freeze failed"}
	st.Hooks[0].Targets[0].Reason, st.Hooks[0].Targets[0].ExitCode, st.Hooks[0].Targets[0].Output = v1.ReasonNonZeroExit, ptr.To(int32(1)), "no such file"
	st.Hooks[0].Conditions = []metav1.Condition{{Type: v1.ConditionSucceeded, Status: "False", Reason: v1.ReasonNonZeroExit}}
	st.Snapshots[1].State = v1.SnapshotFailed
	st.ClaimsLeftOut = []string{"claim x is not bound"}
	st.Conditions = []metav1.Condition{{Type: v1.ConditionMayBeQuiesced, Status: "True", Reason: v1.ReasonGivenUp, Message: "thaw it"}}
	var b strings.Builder
	View{Now: noon, Zone: time.UTC}.Run(&b, r)
	g.Expect(b.String()).To(Equal(`Run r of schedule shop/s
  State:             Failed: hook freeze: exit code 1
  Mode:              Snapshot
  Slot:              none (created by hand)
  Quiesced:          Sun 2026-03-01 12:00:00 UTC, for 1.9s
  Released:          Sun 2026-03-01 12:00:01 UTC
  Consistency:       crash: hook freeze failed
  May be quiesced:   YES (GivenUp): thaw it
Hooks:
  pre  freeze  NonZeroExit
       db-0/db  NonZeroExit, exit code 1
         | no such file
       other/db-1/db  waiting
  post thaw  not ended
       db-0/db  waiting
Snapshots:
  CLAIM   SNAPSHOT   STATE     CUT   CONSISTENCY   MESSAGE
  a       a-s        Pending   -     -             
  b       b-s        Failed    -     -             
Left out:
  claim x is not bound
What to do:
  the application may still be quiesced. Correct the post hooks and type: kubectl stillpoint -n shop release s --wait
  hook freeze (NonZeroExit): read the command's output above
  snapshots failed: look at their events, and at the storage: kubectl -n shop describe volumesnapshot b-s
`))
}

func TestDescribeSchedule(t *testing.T) {
	g := NewWithT(t)
	s := &v1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "s", CreationTimestamp: metav1.NewTime(noon)}, Spec: v1.SnapshotScheduleSpec{Schedule: "0 * * * *"}}
	s.Status.LastMissed = &v1.MissedSlot{Slot: metav1.NewTime(noon.Add(-time.Hour)), Reason: v1.MissedOverlap, Count: 3}
	s.Status.LastSuccessTime = ptr.To(metav1.NewTime(noon.Add(-2 * time.Hour)))
	s.Status.Conditions = []metav1.Condition{{Type: v1.ConditionReady, Status: "True", Reason: v1.ReasonScheduled, LastTransitionTime: metav1.NewTime(noon.Add(-3 * time.Hour))}}
	var b strings.Builder
	View{Now: noon, Zone: time.UTC}.Schedule(&b, s, []time.Time{noon.Add(time.Hour)}, time.UTC)
	g.Expect(b.String()).To(Equal(`Schedule shop/s
  Health:           OK
  Schedule:         0 * * * *
  Next slot:        Sun 2026-03-01 13:00:00 UTC, in 60m
  Last snapshots:   never
  Last success:     Sun 2026-03-01 10:00:00 UTC, 120m ago
  Missed slots:     3 so far, the newest Sun 2026-03-01 11:00:00 UTC: the run before had not released its application
  Hooks:            0 before, 0 after
Conditions:
  Ready   True   Scheduled   3h    
`))
}
