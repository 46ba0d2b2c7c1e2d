// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/hooks"
	"github.com/stillpoint-operator/stillpoint/internal/naming"
)

// In these tests the admission policy is off, and somebody writes what only the operator should: docs/security.md says what is left of its promises.

// calls are the commands that were run, in order: namespace/pod as account: program.
type calls struct {
	mu   sync.Mutex
	made []string
}

func (c *calls) record(call hooks.Call) hooks.Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made = append(c.made, fmt.Sprintf("%s/%s as %q: %s", call.Target.Namespace, call.Target.Pod, call.Account.Name, call.Command[0]))
	return hooks.Result{Reason: hooks.Completed, ExitCode: ptr.To(int32(0))}
}

func (c *calls) all() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]string{}, c.made...)
}

// watching records the commands that an operator runs.
func (o *operator) watching() *calls {
	c := &calls{}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.outcome = c.record
	return c
}

// forge writes the status of a run as somebody else.
func (o *operator) forge(name string, status any) {
	o.t.Helper()
	b, err := json.Marshal(map[string]any{"status": status})
	o.Expect(err).NotTo(HaveOccurred())
	r := &v1.SnapshotRun{ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: name}}
	o.Expect(api.Status().Patch(o.t.Context(), r, client.RawPatch(types.MergePatchType, b))).To(Succeed())
}

// ended waits until a run is completed, letting time pass, and returns it.
func (o *operator) ended(name string) *v1.SnapshotRun {
	o.t.Helper()
	o.will(func() v1.RunPhase {
		o.clock.Step(time.Second)
		return o.run(name).Status.Phase
	}).Should(Equal(v1.PhaseCompleted), name)
	return o.run(name)
}

// planIn is a plan whose hooks run in all pods of a namespace, and one target there.
func planIn(namespace, pod, account string) v1.SnapshotRunStatus {
	hook := v1.PlannedHook{Name: "h", Namespace: namespace, TargetPolicy: v1.TargetAll, Command: []string{"forged"}, TimeoutSeconds: 10}
	post := hook
	post.ExecutionPolicy = v1.ExecuteAlways
	target := v1.TargetStatus{Namespace: namespace, Pod: pod, PodUID: "u", Container: "db"}
	return v1.SnapshotRunStatus{
		Phase: v1.PhasePlanned,
		Plan: &v1.RunPlan{Version: 1, At: metav1.Now(), ServiceAccountName: account, SnapshotTimeoutSeconds: 10, ReleaseDeadlineSeconds: 30,
			PreHooks: []v1.PlannedHook{hook}, PostHooks: []v1.PlannedHook{post}},
		Hooks: []v1.HookStatus{{Stage: v1.StagePre, Name: "h", Targets: []v1.TargetStatus{target}},
			{Stage: v1.StagePost, Name: "h", Pass: 1, Targets: []v1.TargetStatus{target}}},
	}
}

func TestAForgedPlanReachesNoOtherNamespace(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	c := o.watching()
	elsewhere := Namespace(t)
	o.podIn(elsewhere, "victim")
	o.podIn(elsewhere, "hidden-pod")
	o.schedule("mine", `{`+never+`}`)
	o.mayExec("powerful", o.namespace) // and nowhere else
	claimed := planIn(elsewhere, "victim", "")
	claimed.Phase = v1.PhasePreHooks
	claimed.Hooks[0].Targets[0].Attempts = 1
	claimed.Hooks[0].Targets[0].Claim = &v1.AttemptClaim{Process: o.namespace + "_0", Time: metav1.NewMicroTime(o.clock.Now())}
	releasing := planIn(elsewhere, "victim", "")
	releasing.Phase = v1.PhasePostHooks
	releasing.QuiescedTime = ptr.To(metav1.NewMicroTime(o.clock.Now()))
	releasing.Release = &v1.ReleaseStatus{Pass: 1, PassTime: metav1.NewMicroTime(o.clock.Now())}
	otherTarget := planIn(o.namespace, "victim", "")
	otherTarget.Hooks[0].Targets[0].Namespace, otherTarget.Hooks[1].Targets[0].Namespace = elsewhere, elsewhere
	tests := map[string]v1.SnapshotRunStatus{
		"planned": planIn(elsewhere, "victim", ""), "claimed": claimed, "releasing": releasing, "other-target": otherTarget,
	}
	for name, status := range tests {
		o.Expect(o.manual("mine", name).Status).To(BeZero())
		o.forge(name, status)
	}
	o.start()
	for name := range tests {
		r := o.ended(name)
		o.Expect(r.Status.Result).To(Equal(v1.ResultFailed), name)
	}
	o.Expect(c.all()).To(BeEmpty())
	o.Expect(o.run("planned").Status.Message).To(ContainSubstring("a hook in namespace " + elsewhere + " needs spec.serviceAccountName"))
	seen := fmt.Sprintf("%+v %+v", o.runs(""), o.eventsOf(""))
	o.Expect(seen).NotTo(ContainSubstring("hidden-pod"), "the pods of the other namespace are not told")

	// As an account the command is sent, and the API server asks what that account may do there. What else is there, nobody learns.
	o.Expect(o.manual("mine", "as-account").Status).To(BeZero())
	o.forge("as-account", planIn(elsewhere, "victim", "powerful"))
	r := o.ended("as-account")
	o.Expect(c.all()).To(HaveEach(HavePrefix(elsewhere + `/victim as "powerful"`)))
	o.Expect(fmt.Sprintf("%+v", r.Status)).NotTo(ContainSubstring("hidden-pod"))
}

// What a forged plan does in its own namespace, a schedule could do there.
func TestAForgedPlanInItsOwnNamespaceHasTheRightsOfASchedule(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	c := o.watching()
	o.rules.DefaultAccount = "snapshots"
	o.mayExec("snapshots", o.namespace)
	o.pod("db")
	o.schedule("mine", `{`+never+`}`)
	o.manual("mine", "forged")
	o.forge("forged", planIn(o.namespace, "db", ""))
	o.start()
	o.ended("forged")
	o.Expect(c.all()).NotTo(BeEmpty())
	o.Expect(c.all()).To(HaveEach(HavePrefix(o.namespace + `/db as "snapshots"`)))
}

func TestARunThatSomebodyCompletesWhileItIsQuiescedIsReleased(t *testing.T) {
	t.Parallel()
	for name, status := range map[string]any{
		"completed":      map[string]any{"phase": "Completed", "result": "Succeeded"},
		"awaiting-ready": map[string]any{"phase": "AwaitingReady"},
		"no-plan":        map[string]any{"plan": nil},
		"nothing-left":   map[string]any{"plan": nil, "hooks": nil, "snapshots": nil, "release": nil, "quiescedTime": nil, "snapshottingTime": nil, "conditions": nil},
		"no-hooks":       map[string]any{"hooks": nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := prepare(t)
			c := o.watching()
			o.claim("data")
			o.pod("db")
			o.stores(nil) // never cut: the run stays quiesced
			o.start()
			o.schedule("hourly", hookedHourly)
			o.at(o.hour(0))
			o.will(func() v1.RunPhase { return o.runs("hourly")[0].Status.Phase }).Should(Equal(v1.PhaseSnapshotting))
			run := o.runs("hourly")[0].Name
			o.forge(run, status)
			o.will(c.all).Should(Equal([]string{o.namespace + `/db as "": freeze`, o.namespace + `/db as "": thaw`}))
			r := o.ended(run)
			o.Expect(r.Status.Result).To(Equal(v1.ResultFailed))
			o.Expect(r.Status.Message).To(ContainSubstring("the run's record was not written by the operator"))
			o.will(func() []string { return o.run(run).Finalizers }).Should(BeEmpty())
			o.settle()
			o.Expect(o.condition("hourly", v1.ConditionMayBeQuiesced).Status).To(BeEquivalentTo("False"))
			o.Expect(o.condition("hourly", v1.ConditionLastRunSucceeded).Status).To(BeEquivalentTo("False"))
		})
	}
}

// The records of completed runs are read by the schedule for as long as they are kept.
func TestForgedRecordsOfCompletedRunsDoNotStopTheSchedule(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	o.claim("data")
	s := o.schedule("hourly", `{schedule: "0 * * * *", runRetryLimit: 3}`)
	condition := metav1.Condition{Type: v1.ConditionMayBeQuiesced, Status: "True", Reason: v1.ReasonGivenUp, LastTransitionTime: metav1.NewTime(o.base)}
	for i, status := range []v1.SnapshotRunStatus{
		{Phase: v1.PhaseCompleted, Result: v1.ResultSucceeded},
		{Phase: v1.PhaseCompleted, Result: v1.ResultFailed},
		{Phase: v1.PhaseCompleted},
		{Phase: v1.PhaseCompleted, Result: v1.ResultFailed, Conditions: []metav1.Condition{condition}},
		{Phase: v1.PhaseAwaitingReady, Result: v1.ResultSucceeded},
		{Phase: v1.PhaseCompleted, Result: v1.ResultFailed, ReleasedTime: ptr.To(metav1.NewMicroTime(o.base)), Conditions: []metav1.Condition{condition}},
	} {
		slot := o.hour(-2 - i)
		r := &v1.SnapshotRun{ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: naming.Run("hourly", slot), Annotations: map[string]string{v1.AnnotationRetry: "-5"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s, v1.GroupVersion.WithKind(scheduleKind))}},
			Spec: v1.SnapshotRunSpec{ScheduleName: "hourly", Slot: ptr.To(metav1.NewTime(slot))}}
		o.Expect(api.Create(t.Context(), r)).To(Succeed())
		o.forge(r.Name, status)
	}
	o.start()
	o.settle()
	for n := range 2 {
		o.at(o.hour(n))
		o.will(func() []v1.SnapshotRun { return o.runs("hourly") }).Should(ContainElement(And(
			HaveField("Name", naming.Run("hourly", o.hour(n))), HaveField("Status.Result", v1.ResultSucceeded))))
	}
	o.Expect(strings.Join(o.loggedErrors(), "\n")).NotTo(ContainSubstring("panic"))
}

// A run that has not begun has no record; what is written there must not lead it anywhere.
func TestAForgedRecordOfARunThatHasNotBegunIsNotFollowed(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	o.claim("data")
	o.schedule("mine", `{`+never+`}`)
	o.manual("mine", "forged")
	o.forge("forged", v1.SnapshotRunStatus{Phase: v1.PhasePending, Snapshots: []v1.SnapshotStatus{{Claim: "data", ClaimUID: "x", Name: "forged", State: v1.SnapshotReady}},
		Conditions: []metav1.Condition{{Type: v1.ConditionMayBeQuiesced, Status: "True", Reason: v1.ReasonQuiescing, LastTransitionTime: metav1.NewTime(o.base)}}})
	o.start()
	o.will(func() v1.RunResult { return o.run("forged").Status.Result }).Should(Equal(v1.ResultSucceeded))
	r := o.run("forged")
	o.Expect(r.Status.Snapshots).To(HaveLen(1))
	o.Expect(r.Status.Snapshots[0].Name).To(HavePrefix("data-mine-"))
	o.Expect(meta.FindStatusCondition(r.Status.Conditions, v1.ConditionMayBeQuiesced)).To(BeNil())
	o.Expect(o.snapshots()).To(HaveLen(1))
	o.Expect(o.loggedErrors()).To(BeEmpty())
}

func TestAForgedStatusOfAScheduleDoesNotStopIt(t *testing.T) {
	t.Parallel()
	for name, status := range map[string]string{
		"active-run-is-no-name": `{"activeRun":"../../other/x"}`,
		"active-run-is-long":    `{"activeRun":"` + strings.Repeat("x", 100_000) + `"}`,
		"active-run-is-another": `{"activeRun":"of-another"}`,
		"next-in-year-one":      `{"nextSnapshotTime":"0001-01-02T00:00:00Z"}`,
		"next-in-year-9999":     `{"nextSnapshotTime":"9999-12-31T00:00:00Z"}`,
		"all-lies": `{"observedGeneration":99,"lastSnapshotTime":"9999-12-31T00:00:00Z","lastSuccessTime":"9999-12-31T00:00:00Z","lastCompletionTime":"9999-12-31T00:00:00Z",
			"lastMissed":{"slot":"0001-01-01T00:00:00Z","reason":"\u001b[31m","count":-9223372036854775808},"claimsLeftOut":["x"],
			"hooks":[{"stage":"Pre","name":"x"}],"conditions":[{"type":"MayBeQuiesced","status":"True","reason":"GivenUp","message":"","lastTransitionTime":"9999-01-01T00:00:00Z"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := prepare(t)
			o.claim("data")
			o.schedule("hourly", hourlyOfAll)
			o.schedule("another", `{`+never+`}`)
			o.manual("another", "of-another")
			o.forge("of-another", map[string]any{"phase": "Pending", "message": "waiting for ever"})
			o.patchStatus("hourly", `{"status":`+status+`}`)
			o.start()
			o.settle()
			for n := range 2 {
				o.at(o.hour(n))
				o.will(func() []string { return o.runNames("hourly") }).Should(ContainElement(naming.Run("hourly", o.hour(n))))
				o.idle()
			}
			o.Expect(o.read("hourly").Status.NextSnapshotTime.Time).To(BeTemporally("==", o.hour(2)))
			o.Expect(o.loggedErrors()).To(BeEmpty())
		})
	}
}

// The name of a run is the lock of its slot. Who takes it before the operator does must not have the slot counted as run.
func TestARunInTheNameOfASlotDoesNotPassForIt(t *testing.T) {
	t.Parallel()
	type maker func(o *operator, s *v1.SnapshotSchedule, r *v1.SnapshotRun)
	owned := func(_ *operator, s *v1.SnapshotSchedule, r *v1.SnapshotRun) {
		r.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(s, v1.GroupVersion.WithKind(scheduleKind))}
	}
	for name, change := range map[string]maker{
		"owned-and-early": owned,
		"owned-and-completed": func(o *operator, s *v1.SnapshotSchedule, r *v1.SnapshotRun) {
			owned(o, s, r)
			r.Spec.Mode = v1.RunTestHooks
		},
		"nobodys": func(*operator, *v1.SnapshotSchedule, *v1.SnapshotRun) {},
		"by-hand": func(o *operator, s *v1.SnapshotSchedule, r *v1.SnapshotRun) { r.Spec.Slot = nil },
		"of-another-slot": func(o *operator, s *v1.SnapshotSchedule, r *v1.SnapshotRun) {
			owned(o, s, r)
			r.Spec.Slot = ptr.To(metav1.NewTime(o.hour(7)))
		},
		"of-another-schedule": func(o *operator, s *v1.SnapshotSchedule, r *v1.SnapshotRun) {
			owned(o, s, r)
			r.Spec.ScheduleName = "another"
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := operate(t)
			o.claim("data")
			s := o.schedule("hourly", hourlyOfAll)
			r := &v1.SnapshotRun{ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: naming.Run("hourly", o.hour(0))},
				Spec: v1.SnapshotRunSpec{ScheduleName: "hourly", Slot: ptr.To(metav1.NewTime(o.hour(0)))}}
			change(o, s, r)
			o.Expect(api.Create(t.Context(), r)).To(Succeed())
			o.will(func() v1.RunPhase { return o.run(r.Name).Status.Phase }).Should(Equal(v1.PhaseCompleted), "it is not the operator's, or by hand")
			before := len(o.snapshots())
			o.at(o.hour(0))
			o.will(func() string { return o.condition("hourly", v1.ConditionReconciled).Message }).Should(ContainSubstring("exists and is not this schedule's"))
			o.Expect(o.snapshots()).To(HaveLen(before))
			o.Expect(api.Delete(t.Context(), r)).To(Succeed(), "as the message says")
			o.at(o.hour(0).Add(time.Minute))
			o.will(func() v1.RunResult {
				list := o.runs("hourly")
				if len(list) == 0 {
					return ""
				}
				return list[len(list)-1].Status.Result
			}).Should(Equal(v1.ResultSucceeded))
			o.tick(o.hour(1))
			o.Expect(o.runNames("hourly")).To(ContainElements(naming.Run("hourly", o.hour(0)), naming.Run("hourly", o.hour(1))))
		})
	}
}
