// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

const quiescing = `{schedule: "0 * * * *", preHooks: [{name: freeze, podSelector: {matchLabels: {app: db}}, command: [freeze]}], postHooks: [{name: thaw, podSelector: {matchLabels: {app: db}}, command: [thaw]}]}`

// created is the run that the newest command created.
func (p *plugin) created(schedule string) *v1.SnapshotRun {
	p.t.Helper()
	var found *v1.SnapshotRun
	p.will(func() int {
		runs := p.runs(schedule)
		for i := range runs {
			if found == nil || found.CreationTimestamp.Before(&runs[i].CreationTimestamp) {
				found = &runs[i]
			}
		}
		return len(runs)
	}).Should(BeNumerically(">", 0))
	return found
}

// status plays the operator: it changes what is recorded of a run.
func (p *plugin) status(r *v1.SnapshotRun, change func(*v1.SnapshotRunStatus)) {
	p.t.Helper()
	before := r.DeepCopy()
	change(&r.Status)
	p.Expect(api.Status().Patch(p.t.Context(), r, client.MergeFrom(before))).To(Succeed())
}

func TestPluginRun(t *testing.T) {
	o := operate(t)
	p := o.plugin()
	o.claim("data")
	o.schedule("s", hourlyOfAll)
	out := p.ok("run", "s", "--wait")
	p.Expect(out).To(MatchRegexp(`(?m)^snapshotrun.snapscheduler.backube/s-run-\w{5} created$`))
	p.Expect(out).To(MatchRegexp(`(?m)^\d\d:\d\d:\d\d    snapshot data-s-\d{12} of claim data: ready$`))
	p.Expect(out).To(MatchRegexp(`(?m)^\d\d:\d\d:\d\d  Completed     Succeeded: snapshots ready: 1$`))
	r := o.runs("s")[0]
	p.Expect(r.Labels).To(Equal(map[string]string{v1.LabelSchedule: "s", v1.LabelVeleroExclude: "true"}))
	p.Expect(r.OwnerReferences).To(HaveLen(1))
	p.Expect(r.OwnerReferences[0].UID).To(Equal(o.read("s").UID))
	p.Expect(metav1.GetControllerOf(&r)).To(BeNil(), "it is no slot of the schedule")

	var printed v1.SnapshotRun
	p.Expect(json.Unmarshal([]byte(p.ok("run", "snapshotschedule/s", "-o", "json", "--wait")), &printed)).To(Succeed(), "nothing but the object on standard output")
	p.Expect(printed.Kind).To(Equal("SnapshotRun"))
	p.Expect(p.ok("run", "s", "-o", "name")).To(MatchRegexp(`^snapshotrun.snapscheduler.backube/s-run-\w{5}\n$`))
	p.Expect(p.do("run", "s").err).To(ContainSubstring("see how it goes: kubectl stillpoint -n " + o.namespace + " describe run/s-run-"))
}

func TestPluginRunSaysHowItEndedByItsExitCode(t *testing.T) {
	o := operate(t)
	p := o.plugin()
	o.schedule("s", hourlyOfAll)
	p.fails(4, "Skipped: no claim to take", "run", "s", "--wait")
	o.claim("a")
	o.claim("b")
	o.stores(o.broken)
	p.fails(2, "snapshot a-s-", "run", "s", "--wait")
	n := 0
	o.stores(nil)
	r := p.begin("run", "s", "--wait")
	var snapshots = func() int { n = len(o.snapshots()); return n }
	o.will(snapshots).Should(Equal(4)) // two that failed, two that nobody has finished
	for _, s := range o.snapshots() {
		if s.Status != nil && s.Status.Error != nil {
			continue
		}
		if strings.HasPrefix(s.Name, "a-") {
			o.writeStatus(&s, readySince(s.Name, o.clock.Now()))
		} else {
			o.writeStatus(&s, o.broken(&s))
		}
	}
	end := r.end()
	p.Expect(end.code).To(Equal(3), end.out+end.err)
	p.Expect(end.err).To(ContainSubstring("what to do: snapshots failed: look at their events"))

	o.schedule("hooked", quiescing)
	p.fails(2, "hook freeze (PodNotFound): no running pod matches", "test-hooks", "hooked", "--wait")
	o.pod("db-0")
	p.Expect(p.ok("test-hooks", "hooked", "--wait")).To(MatchRegexp(`(?m)^\S+    pre  freeze  db-0/db  Completed`))
}

func TestPluginRunThatIsNotWaitedForGoesOn(t *testing.T) {
	o := operate(t)
	p := o.plugin()
	o.claim("data")
	o.schedule("s", hourlyOfAll)
	o.stores(nil)
	r := p.fails(5, "--timeout is over; the run goes on: kubectl stillpoint -n "+o.namespace+" describe run/s-run-", "run", "s", "--wait", "--timeout", "1s")
	p.Expect(r.err).To(ContainSubstring("cancel run/s-run-"))
	ctx, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	interrupted := p.doUntil(ctx, "run", "s", "--wait")
	p.Expect(interrupted.code).To(Equal(130), interrupted.err)
	p.Expect(interrupted.err).To(ContainSubstring("error: interrupted; the run goes on"))
	o.finish()
	o.will(func() []v1.RunResult {
		var out []v1.RunResult
		for _, x := range o.runs("s") {
			out = append(out, x.Status.Result)
		}
		return out
	}).Should(HaveEach(v1.ResultSucceeded))
}

// The test plays an operator that runs hooks: what the command shows of them, as it happens.
func TestPluginFollowsHooks(t *testing.T) {
	o := prepare(t)
	p := o.plugin()
	o.schedule("s", quiescing)
	r := p.begin("run", "s", "--wait")
	made := p.created("s")
	now := func() *metav1.MicroTime { return ptr.To(metav1.NewMicroTime(o.clock.Now())) }
	target := func(pod string) v1.TargetStatus {
		return v1.TargetStatus{Namespace: o.namespace, Pod: pod, Container: "db", Attempts: 1}
	}
	p.status(made, func(st *v1.SnapshotRunStatus) {
		st.Phase, st.Message = v1.PhasePending, "waiting for run other"
	})
	o.will(r.said).Should(ContainSubstring("Pending       waiting for run other"))
	p.status(made, func(st *v1.SnapshotRunStatus) {
		st.Phase, st.Message, st.QuiescedTime = v1.PhasePreHooks, "", now()
		st.Hooks = []v1.HookStatus{{Stage: v1.StagePre, Name: "freeze", Targets: []v1.TargetStatus{target("db-0"), target("db-1")}}, {Stage: v1.StagePost, Name: "thaw", Pass: 1}}
	})
	o.will(r.said).Should(ContainSubstring("PreHooks      quiesces the application"))
	p.status(made, func(st *v1.SnapshotRunStatus) {
		h := &st.Hooks[0]
		for i, code := range []int32{0, 3} {
			x := &h.Targets[i]
			x.Reason, x.ExitCode, x.StartTime, x.EndTime = v1.ReasonHookCompleted, ptr.To(code), now(), ptr.To(metav1.NewMicroTime(o.clock.Now().Add(84*time.Millisecond)))
			x.Output = "one\ntwo\x1b[2J\nthree\nfour\n"
		}
		h.Targets[1].Reason, h.Targets[1].Message = v1.ReasonNonZeroExit, "the command exited with code 3"
		meta.SetStatusCondition(&h.Conditions, metav1.Condition{Type: v1.ConditionSucceeded, Status: metav1.ConditionFalse, Reason: v1.ReasonNonZeroExit})
		st.Phase, st.Release, st.Message = v1.PhasePostHooks, &v1.ReleaseStatus{Pass: 1, Reason: v1.ReasonHookFailed, PassTime: *now()}, "hook freeze failed"
	})
	o.will(r.said).Should(And(
		ContainSubstring("  pre  freeze  db-0/db  Completed, after 84ms\n"),
		MatchRegexp(`\(1 lines before\)\n\S+ +\| two\x{FFFD}\[2J\n`),
		ContainSubstring("  pre  freeze  db-1/db  NonZeroExit, exit code 3, after 84ms: the command exited with code 3\n"),
		ContainSubstring("PostHooks     releases the application early (HookFailed): hook freeze failed"),
	))
	p.status(made, func(st *v1.SnapshotRunStatus) {
		st.ReleasedTime = now()
		st.Phase, st.Result, st.Message = v1.PhaseCompleted, v1.ResultFailed, "hook freeze failed"
	})
	end := r.end()
	p.Expect(end.code).To(Equal(2), end.out)
	p.Expect(end.out).To(ContainSubstring("Completed     Failed: hook freeze failed"))
	p.Expect(strings.Count(end.out, "db-0/db")).To(Equal(1), "everything once")
	p.Expect(end.err).To(ContainSubstring("what to do: hook freeze (NonZeroExit): read the command's output above"))
	p.Expect(end.out).NotTo(ContainSubstring("\x1b"))

	said := p.ok("describe", "run/"+made.Name)
	p.Expect(said).To(MatchRegexp(`State: +Failed: hook freeze failed`))
	p.Expect(said).To(MatchRegexp(`Slot: +none \(created by hand\)`))
	p.Expect(said).To(MatchRegexp(`Quiesced: .*, for 0s`))
	p.Expect(said).To(ContainSubstring("       db-1/db  NonZeroExit, exit code 3, after 84ms: the command exited with code 3\n         | one\n"))
	p.Expect(said).To(ContainSubstring("What to do:\n  hook freeze (NonZeroExit)"))
	p.Expect(p.ok("describe", "s")).To(ContainSubstring("Run " + made.Name))
}

func TestPluginSaysWhenARunIsGone(t *testing.T) {
	o := prepare(t)
	p := o.plugin()
	o.schedule("s", hourlyOfAll)
	r := p.begin("run", "s", "--wait")
	made := p.created("s")
	p.status(made, func(st *v1.SnapshotRunStatus) { st.Phase = v1.PhaseSnapshotting })
	o.will(r.said).Should(ContainSubstring("Snapshotting"))
	o.Expect(api.Delete(t.Context(), made)).To(Succeed())
	end := r.end()
	p.Expect(end.code).To(Equal(2))
	p.Expect(end.err).To(ContainSubstring("was deleted (it was last seen in phase Snapshotting)"))
}

func TestPluginRelease(t *testing.T) {
	o := operate(t)
	p := o.plugin()
	o.claim("data")
	o.pod("db-0")
	o.schedule("plain", hourlyOfAll)
	p.fails(4, "the schedule has no post hooks: there is nothing to release", "release", "plain", "--wait")
	o.schedule("s", quiescing)
	out := p.ok("release", "s", "--wait")
	p.Expect(out).To(MatchRegexp(`snapshotrun.snapscheduler.backube/s-release-\w{5} created`))
	p.Expect(out).To(ContainSubstring("  post thaw  db-0/db  Completed"))
	p.Expect(o.runs("s")[0].Spec.Mode).To(Equal(v1.RunRelease))

	// An active run whose snapshots are never cut is sent to its release, and no second run is made.
	o.stores(nil)
	o.manual("s", "stuck")
	o.will(func() v1.RunPhase { return o.run("stuck").Status.Phase }).Should(Equal(v1.PhaseSnapshotting))
	out = p.ok("release", "s", "--wait")
	p.Expect(out).To(ContainSubstring("snapshotrun.snapscheduler.backube/stuck sent to its release"))
	p.Expect(out).To(ContainSubstring("run stuck: the application is released"))
	p.Expect(o.run("stuck").Status.Release.Reason).To(Equal(v1.ReasonReleaseRequested))
	p.Expect(o.runs("s")).To(HaveLen(2))
}

func TestPluginReleaseThatDoesNotSucceed(t *testing.T) {
	o := prepare(t)
	p := o.plugin()
	o.schedule("s", quiescing)
	stuck := o.manual("s", "stuck")
	p.status(stuck, func(st *v1.SnapshotRunStatus) { st.Phase = v1.PhasePostHooks })
	r := p.begin("release", "s", "--wait")
	o.will(func() string { return o.run("stuck").Annotations[v1.AnnotationRelease] }).ShouldNot(BeEmpty())
	stuck = o.run("stuck")
	p.status(stuck, func(st *v1.SnapshotRunStatus) {
		st.Phase = v1.PhaseAwaitingReady
		st.ReleasedTime = ptr.To(metav1.NowMicro())
		meta.SetStatusCondition(&st.Conditions, metav1.Condition{Type: v1.ConditionMayBeQuiesced, Status: metav1.ConditionTrue, Reason: v1.ReasonGivenUp, Message: "hook thaw: exit code 1"})
	})
	end := r.end()
	p.Expect(end.code).To(Equal(2))
	p.Expect(end.err).To(ContainSubstring("the application may still be quiesced: hook thaw: exit code 1"))
	p.Expect(end.err).To(ContainSubstring(fmt.Sprintf("kubectl stillpoint -n %s release s --wait", o.namespace)))
}

func TestPluginCancel(t *testing.T) {
	o := operate(t)
	p := o.plugin()
	o.claim("data")
	o.pod("db-0")
	o.schedule("s", quiescing)
	p.fails(4, "nothing to stop: s has no run", "cancel", "s")
	p.fails(1, "SnapshotSchedule other does not exist", "cancel", "other")
	o.stores(nil)
	o.manual("s", "one")
	o.will(func() v1.RunPhase { return o.run("one").Status.Phase }).Should(Equal(v1.PhaseSnapshotting))
	p.Expect(p.ok("cancel", "s", "--wait")).To(ContainSubstring("snapshotrun.snapscheduler.backube/one cancelled"))
	o.will(func() []v1.SnapshotRun { return o.runs("s") }).Should(BeEmpty())

	o.manual("s", "two")
	o.will(func() v1.RunPhase { return o.run("two").Status.Phase }).Should(Equal(v1.PhaseSnapshotting))
	p.Expect(p.ok("cancel", "run/two")).To(Equal("snapshotrun.snapscheduler.backube/two cancelled\n"))
	o.will(func() []v1.SnapshotRun { return o.runs("s") }).Should(BeEmpty())

	// What only waits for the storage holds no application.
	o.stores(o.cutOnly)
	o.manual("s", "three")
	o.will(func() v1.RunPhase { return o.run("three").Status.Phase }).Should(Equal(v1.PhaseAwaitingReady))
	p.fails(4, "nothing to stop", "cancel", "s")
	p.Expect(o.run("three").DeletionTimestamp).To(BeNil())
	o.finish()
}

func TestPluginHistory(t *testing.T) {
	o := operate(t)
	p := o.plugin()
	o.claim("data")
	p.fails(1, "SnapshotSchedule s does not exist", "history", "s")
	o.schedule("s", hourlyOfAll)
	p.Expect(p.do("history", "s").err).To(Equal("Schedule s has no runs and no snapshots yet.\n"))
	old := when(o.clock.Now().Add(-30 * time.Hour))
	o.made("data-s-"+old, "s", "data", "", 30*time.Hour)
	p.ok("run", "s", "--wait")
	o.schedule("hooked", quiescing)
	p.fails(2, "", "test-hooks", "hooked", "--wait")

	lines := strings.Split(strings.TrimSpace(p.ok("history", "s")), "\n")
	p.Expect(lines).To(HaveLen(3))
	p.Expect(strings.Fields(lines[0])).To(Equal([]string{"RUN", "AGE", "RESULT", "QUIESCED", "READY", "CONSISTENCY", "MESSAGE"}))
	p.Expect(lines[1]).To(MatchRegexp(`^s-run-\w{5} .*Succeeded +- +1/1 +- +snapshots ready: 1`))
	p.Expect(lines[2]).To(MatchRegexp(`^` + old + ` +30h +- +- +1/1 +- +made without a run`))
	p.Expect(p.ok("history", "hooked")).To(MatchRegexp(`(?m)^hooked-test-\w{5} .*Failed`))
	p.Expect(p.ok("history", "hooked", "-o", "wide")).To(MatchRegexp(`(?m)^hooked-test-\w{5} +TestHooks +-`))
	p.Expect(p.ok("history", "s", "-o", "name")).To(MatchRegexp(`^snapshotrun.snapscheduler.backube/s-run-\w{5}\n$`))
	p.Expect(p.ok("history", "s", "-o", "yaml")).To(ContainSubstring("kind: SnapshotRun"))
}
