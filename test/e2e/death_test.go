// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/test/cluster"
)

// secondPass is how long the second pass of a release may take to come after the hook's own timeout: a grace of 30 s and some slack.
const secondPass = 70 * time.Second

func TestAnOperatorKilledWhileApplicationsAreQuiescedReleasesThemWhenItStartsAgain(t *testing.T) {
	op := startOperator(t)
	w := settle(t)
	quiescing, waiting, releasing := w.app("quiescing"), w.app("waiting"), w.app("releasing")
	early := w.schedule("early", hooked(quiescing, "echo x >>/state/pre; sleep 6; fsfreeze --freeze /data", thaw), bounded(10, 3))
	middle := w.schedule("middle", freezing(waiting))
	// The release hangs only once: as if the operator's death had cut it off.
	late := w.schedule("late", hooked(releasing, freeze, "echo x >>/state/begun; [ $(wc -l </state/begun) -gt 1 ] || sleep 60; "+thaw),
		releaseTimeout(20))

	third := w.start(late)
	releasing.awaitNote("begun", 1)
	w.knobs(cluster.Knobs{CutDelay: 8 * time.Second})
	second := w.start(middle)
	w.reaches(second, v1.PhaseSnapshotting)
	first := w.start(early)
	quiescing.awaitNote("pre", 1)
	w.Expect(waiting.frozen()).To(BeTrue())
	w.Expect(releasing.frozen()).To(BeTrue())

	startOperatorAfter(t, op.kill)

	t.Run("during the post hook: released again, and nothing is lost", func(t *testing.T) {
		w := w.within(t)
		releasing := releasing.in(w)
		o := w.endsWithin(secondPass, third, v1.ResultSucceeded) // the lost command may run for 20 s, and 30 s are added
		w.expectLabels(o, map[string]string{"releasing": application})
		releasing.expectFree()
		w.Expect(releasing.noted("pre")).To(Equal(1))
	})
	t.Run("while frozen: the wait for the cut goes on", func(t *testing.T) {
		w := w.within(t)
		waiting := waiting.in(w)
		o := w.ends(second, v1.ResultSucceeded)
		w.expectLabels(o, map[string]string{"waiting": application})
		w.expectOrder(o)
		waiting.expectFree()
		w.Expect(waiting.noted("pre")).To(Equal(1))
	})
	t.Run("during the pre hook: never run again, released twice, no snapshot", func(t *testing.T) {
		w := w.within(t)
		quiescing := quiescing.in(w)
		o := w.endsWithin(secondPass, first, v1.ResultFailed)
		w.expectReason(o, "quiesce", v1.ReasonInterrupted, "operator process")
		w.expectLabels(o, map[string]string{})
		w.Expect(quiescing.noted("pre")).To(Equal(1))
		w.Expect(passes(o, "release")).To(HaveLen(2))
		begun := target(hookOf(o, "quiesce")).StartTime
		w.Expect(target(passes(o, "release")[1]).StartTime.Time).To(BeTemporally(">=", begun.Add(40*time.Second)), "the command's 10 s and a grace of 30 s")
		quiescing.expectFree()
		w.expectEvent(o, "PreHookFailed", "quiesce")
	})
}

// startOperatorAfter ends an operator in some way and starts another one.
func startOperatorAfter(t *testing.T, end func(), flags ...string) *operator {
	t.Helper()
	end()
	dropLease()
	return startOperator(t, flags...)
}

func TestAnOperatorThatIsToldToStopReleasesFirst(t *testing.T) {
	op := startOperator(t)
	w := settle(t)
	db := w.app("db")
	s := w.schedule("hourly", freezing(db))
	w.knobs(cluster.Knobs{CutDelay: 4 * time.Second})
	o := w.start(s)
	w.reaches(o, v1.PhaseSnapshotting)

	op.signal(syscall.SIGTERM)
	late := w.start(s) // comes while it drains
	select {
	case <-op.done:
	case <-time.After(patience):
		t.Fatalf("the operator did not stop:\n%s", describe(o))
	}

	w.Expect(api.Get(t.Context(), keyOf(o), o)).To(Succeed())
	w.Expect(o.Status.ReleasedTime).NotTo(BeNil(), "the application was released before the operator stopped:\n%s", describe(o))
	w.expectCondition(o.Status.Conditions, v1.ConditionSnapshotsCut, metav1.ConditionTrue, v1.ReasonAllCut)
	db.expectFree()
	w.Expect(api.Get(t.Context(), keyOf(late), late)).To(Succeed())
	w.Expect(late.Status.Phase).To(BeElementOf(v1.RunPhase(""), v1.PhasePending), "nothing begins while the operator drains:\n%s", describe(late))

	w.knobs(cluster.Knobs{})
	startOperator(t)
	w.expectLabels(w.completes(patience, o), map[string]string{"db": application})
	w.ends(late, v1.ResultSucceeded)
	w.Expect(db.noted("pre")).To(Equal(2))
	db.expectFree()
}

func TestAStandbyTakesOverFromALeaderThatStopsAndFromOneThatIsKilled(t *testing.T) {
	first := startOperator(t)
	w := settle(t)
	db := w.app("db")
	s := w.schedule("hourly", freezing(db))

	second := addOperator(t)
	first.signal(syscall.SIGTERM)
	second.awaitLog(t, working)
	<-first.done
	w.ends(w.start(s), v1.ResultSucceeded)

	third := addOperator(t)
	w.knobs(cluster.Knobs{CutDelay: 3 * time.Second})
	o := w.start(s)
	w.reaches(o, v1.PhaseSnapshotting)
	w.Expect(db.frozen()).To(BeTrue())
	killed := time.Now()
	second.kill()
	third.awaitLog(t, working)
	t.Logf("the standby leads %s after the leader was killed", time.Since(killed).Round(time.Millisecond))
	o = w.ends(o, v1.ResultSucceeded)
	w.expectLabels(o, map[string]string{"db": application})
	db.expectFree()
	w.Expect(db.noted("pre")).To(Equal(2))
}
