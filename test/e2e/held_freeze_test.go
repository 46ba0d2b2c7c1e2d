// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/test/cluster"
)

// tick is how exactly the times of a writer's lines are known, and its own pause between two lines.
const tick = 150 * time.Millisecond

func TestHeldFreezeBlocksAWriterExactlyWhileItIsHeld(t *testing.T) {
	w := begin(t)
	db := w.writer("db")
	log := db.diary()
	s := w.schedule("held", cooked(db, recipe(w, "fsfreeze, held")))
	w.knobs(cluster.Knobs{CutDelay: 2 * time.Second})

	o := w.reaches(w.start(s), v1.PhaseSnapshotting)
	w.expectReason(o, "freeze", v1.ReasonHeld)
	w.expectCondition(o.Status.Conditions, v1.ConditionMayBeQuiesced, metav1.ConditionTrue, v1.ReasonQuiescing)
	log.expectWaiting()
	o = w.ends(o, v1.ResultSucceeded)

	w.expectLabels(o, map[string]string{"db": application})
	w.expectReason(o, "freeze", v1.ReasonHookCompleted)
	w.expectCondition(o.Status.Conditions, v1.ConditionPostHooksSucceeded, metav1.ConditionTrue, v1.ReasonNoHooks)
	w.expectCondition(o.Status.Conditions, v1.ConditionMayBeQuiesced, metav1.ConditionFalse, v1.ReasonReleased)
	held := target(hookOf(o, "freeze"))
	w.Expect(*held.ExitCode).To(BeZero())
	w.Expect(strings.Fields(held.Output)).To(Equal([]string{"READY", "RELEASED"}))
	w.Expect(db.sh("ps | grep -c '[s]leep 60' || true")).To(Equal("0"), "the dead-man's switch is gone")
	log.awaitWriting(patience)

	waited := log.longest()
	t.Logf("the writer waited %s; held from %s to %s", waited, held.HeldTime.Format(time.StampMilli), held.EndTime.Format(time.StampMilli))
	w.Expect(waited.from).To(BeTemporally("<=", held.HeldTime.Add(tick)), "it waits from the freeze")
	w.Expect(waited.to).To(BeTemporally(">=", o.Status.ReleaseTime.Time), "until the cut was seen")
	w.Expect(waited.to).To(BeTemporally("<=", held.EndTime.Add(tick)), "and no longer than the command")
	back := w.restore(o.Status.Snapshots[0].Name, "back")
	w.Expect(back.number("wc -l </data/log")).To(Equal(waited.lines), "lines restored, and lines at the freeze")
}

func TestHeldCommandIsReleasedByAnAnnotationAndByTheDeletionOfItsRun(t *testing.T) {
	w := begin(t)
	db := w.writer("db")
	log := db.diary()
	s := w.schedule("held", cooked(db, recipe(w, "fsfreeze, held")))
	w.knobs(cluster.Knobs{CutDelay: 3 * time.Second})
	snapshotting := func() *v1.SnapshotRun {
		t.Helper()
		o := w.reaches(w.start(s), v1.PhaseSnapshotting)
		w.Eventually(func() int { return len(w.snapshotsOf(o)) }, "1s", "20ms").Should(Equal(1), "snapshots of the run")
		return o
	}

	o := snapshotting()
	change(w, o, func(o *v1.SnapshotRun) { o.Annotations = map[string]string{v1.AnnotationRelease: "now"} })
	log.awaitWriting(time.Second)
	o = w.ends(o, v1.ResultPartiallyFailed)
	w.expectReason(o, "freeze", v1.ReasonHookCompleted)
	w.expectCondition(o.Status.Conditions, v1.ConditionSnapshotsCut, metav1.ConditionFalse, v1.ReasonReleaseRequested)
	w.expectLabels(o, map[string]string{"db": crash})

	o = snapshotting()
	w.remove(o)
	log.awaitWriting(time.Second)
	awaitGone(w, o)
	w.expectLabels(o, map[string]string{"db": crash})
}

func TestHeldFreezeThatItsSwitchEndedBeforeTheCutIsNoSuccess(t *testing.T) {
	w := begin(t)
	db := w.writer("db")
	log := db.diary()
	s := w.schedule("held", cooked(db, recipe(w, "fsfreeze, held")), switchAfter(1))
	w.knobs(cluster.Knobs{CutDelay: 6 * time.Second})

	o := w.reaches(w.start(s), v1.PhaseSnapshotting)
	log.awaitWriting(5 * time.Second) // before the cut
	o = w.completes(patience, o)

	w.Expect(o.Status.Result).To(Equal(v1.ResultPartiallyFailed), describe(o))
	w.expectReason(o, "freeze", v1.ReasonNonZeroExit, "code 1")
	w.expectCondition(o.Status.Conditions, v1.ConditionSnapshotsCut, metav1.ConditionTrue, v1.ReasonAllCut)
	w.expectLabels(o, map[string]string{"db": crash})
	w.Expect(log.longest().to.Sub(log.longest().from)).To(BeNumerically("<", 2*time.Second))
	t.Log("without a post hook nothing proves that the application is free, until a run succeeds")
	w.expectCondition(o.Status.Conditions, v1.ConditionMayBeQuiesced, metav1.ConditionTrue, v1.ReasonGivenUp)
	w.expectAlarm(s, metav1.ConditionTrue)

	t.Log("nor does a run that fails before it holds anything")
	w.knobs(cluster.Knobs{})
	var command string
	change(w, s, func(s *v1.SnapshotSchedule) {
		command, s.Spec.PreHooks[0].Command[2] = s.Spec.PreHooks[0].Command[2], "exit 1"
	})
	o = w.completes(patience, w.start(s))
	w.Expect(o.Status.Result).To(Equal(v1.ResultFailed), describe(o))
	s = await(w, s, "telling of run "+o.Name, func(s *v1.SnapshotSchedule) bool {
		c := meta.FindStatusCondition(s.Status.Conditions, v1.ConditionLastRunSucceeded)
		return c != nil && strings.Contains(c.Message, o.Name)
	})
	w.Expect(meta.IsStatusConditionTrue(s.Status.Conditions, v1.ConditionMayBeQuiesced)).To(BeTrue(), describe(s))
	change(w, s, func(s *v1.SnapshotSchedule) { s.Spec.PreHooks[0].Command[2] = command })
	w.ends(w.start(s), v1.ResultSucceeded)
	w.expectAlarm(s, metav1.ConditionFalse)
}

// expectAlarm waits until a schedule says that its application may be quiesced, or that it is not.
func (w *world) expectAlarm(s *v1.SnapshotSchedule, status metav1.ConditionStatus) {
	w.Helper()
	await(w, s, v1.ConditionMayBeQuiesced+" is "+string(status), func(s *v1.SnapshotSchedule) bool {
		return meta.IsStatusConditionPresentAndEqual(s.Status.Conditions, v1.ConditionMayBeQuiesced, status)
	})
}
