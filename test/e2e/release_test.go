// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/test/cluster"
)

func TestAPostHookThatFailsIsRepeatedUntilItSucceeds(t *testing.T) {
	w := begin(t)
	db := w.app("db")
	s := w.schedule("hourly", hooked(db, freeze, `echo x >>/state/tries; [ $(wc -l </state/tries) -ge 3 ] || exit 1; `+thaw))

	o := w.ends(w.start(s), v1.ResultSucceeded)

	w.Expect(target(hookOf(o, "release")).Attempts).To(BeEquivalentTo(3))
	w.Expect(passes(o, "release")).To(HaveLen(1))
	w.expectLabels(o, map[string]string{"db": application})
	db.expectFree()
}

func TestAReleaseThatFailsIsMendedWithCorrectedPostHooksAndAnAnnotation(t *testing.T) {
	w := begin(t)
	db := w.app("db")
	s := w.schedule("hourly", hooked(db, freeze, "fsfreeze --unfreeze /dtaa"))
	o := w.start(s)
	await(w, o, "failing to release", func(o *v1.SnapshotRun) bool { return target(hookOf(o, "release")).Attempts >= 2 })
	w.Expect(db.frozen()).To(BeTrue())
	await(w, s, "saying that the application may be quiesced", func(s *v1.SnapshotSchedule) bool {
		return meta.IsStatusConditionTrue(s.Status.Conditions, v1.ConditionMayBeQuiesced)
	})

	change(w, s, func(s *v1.SnapshotSchedule) { s.Spec.PostHooks[0].Command[2] = thaw })
	change(w, o, func(o *v1.SnapshotRun) { o.Annotations = map[string]string{v1.AnnotationRelease: "typo corrected"} })

	o = w.ends(o, v1.ResultSucceeded)
	w.Expect(o.Status.Release.Requested).To(Equal("typo corrected"))
	w.expectReason(o, "release", v1.ReasonHookCompleted)
	w.expectCondition(o.Status.Conditions, v1.ConditionPostHooksSucceeded, metav1.ConditionTrue, v1.ReasonHooksSucceeded)
	w.expectCondition(o.Status.Conditions, v1.ConditionMayBeQuiesced, metav1.ConditionFalse, v1.ReasonReleased)
	w.expectLabels(o, map[string]string{"db": application})
	db.expectFree()
}

func TestAReleaseThatWasGivenUpIsToldUntilAReleaseRunSucceeds(t *testing.T) {
	startOperator(t, "--release-deadline=3s")
	w := settle(t)
	db := w.app("db")
	s := w.schedule("hourly", hooked(db, freeze, "echo no such volume; exit 1"))

	o := w.completes(patience, w.start(s))

	w.Expect(o.Status.Result).To(Equal(v1.ResultPartiallyFailed), describe(o))
	w.expectReason(o, "release", v1.ReasonGivenUp, "given up after 3 s", v1.ReasonNonZeroExit)
	w.expectCondition(o.Status.Conditions, v1.ConditionPostHooksSucceeded, metav1.ConditionFalse, v1.ReasonHookFailed)
	w.expectCondition(o.Status.Conditions, v1.ConditionMayBeQuiesced, metav1.ConditionTrue, v1.ReasonGivenUp)
	w.expectEvent(o, "ReleaseGivenUp", "mode: Release")
	w.Expect(db.frozen()).To(BeTrue(), "it really is still frozen")
	stuck := func(s *v1.SnapshotSchedule) bool {
		c := meta.FindStatusCondition(s.Status.Conditions, v1.ConditionMayBeQuiesced)
		return c != nil && c.Status == metav1.ConditionTrue && c.Reason == v1.ReasonGivenUp
	}
	await(w, s, "saying that the application may be quiesced", stuck)
	w.remove(o)
	awaitGone(w, o)
	w.Expect(api.Get(t.Context(), keyOf(s), s)).To(Succeed())
	w.Expect(stuck(s)).To(BeTrue(), "the run is gone and the alarm stays")

	change(w, s, func(s *v1.SnapshotSchedule) { s.Spec.PostHooks[0].Command[2] = thaw })
	w.ends(w.start(s, v1.RunRelease), v1.ResultSucceeded)

	db.expectFree()
	await(w, s, "all clear", func(s *v1.SnapshotSchedule) bool {
		c := meta.FindStatusCondition(s.Status.Conditions, v1.ConditionMayBeQuiesced)
		return c != nil && c.Status == metav1.ConditionFalse && c.Reason == v1.ReasonReleased
	})
}

func TestTwoSchedulesOfOneApplicationWaitForEachOther(t *testing.T) {
	w := begin(t)
	db := w.app("db")
	hourly, daily := w.schedule("hourly", freezing(db)), w.schedule("daily", freezing(db))
	w.knobs(cluster.Knobs{CutDelay: 3 * time.Second})

	first := w.reaches(w.start(hourly), v1.PhaseSnapshotting)
	second := w.start(daily)
	await(w, second, "waiting visibly", func(o *v1.SnapshotRun) bool {
		return o.Status.Phase == v1.PhasePending && o.Status.Message == "waiting for "+w.ns+"/hourly (run "+first.Name+")"
	})
	w.knobs(cluster.Knobs{})

	first, second = w.ends(first, v1.ResultSucceeded), w.ends(second, v1.ResultSucceeded)
	w.Expect(second.Status.QuiescedTime.Time).To(BeTemporally(">=", first.Status.ReleasedTime.Time), "they are never quiesced at the same time")
	w.expectLabels(first, map[string]string{"db": application})
	w.expectLabels(second, map[string]string{"db": application})
	db.expectFree()
}

func TestHooksCanBeTestedAndReleasedWithoutASnapshot(t *testing.T) {
	w := begin(t)
	db := w.app("db")
	s := w.schedule("hourly", freezing(db))

	o := w.ends(w.start(s, v1.RunTestHooks), v1.ResultSucceeded)
	w.expectReason(o, "freeze", v1.ReasonHookCompleted)
	w.expectReason(o, "thaw", v1.ReasonHookCompleted)
	w.expectLabels(o, map[string]string{})
	w.Expect([]int{db.noted("pre"), db.noted("post")}).To(Equal([]int{1, 1}))
	w.expectEvent(o, "Succeeded", "all hooks succeeded")
	db.expectFree()

	db.sh("fsfreeze --freeze /data") // by somebody else
	o = w.ends(w.start(s, v1.RunRelease), v1.ResultSucceeded)
	w.Expect(hookOf(o, "freeze")).To(BeNil())
	w.expectReason(o, "thaw", v1.ReasonHookCompleted)
	w.expectLabels(o, map[string]string{})
	w.Expect([]int{db.noted("pre"), db.noted("post")}).To(Equal([]int{1, 2}))
	db.expectFree()

	failing := w.schedule("failing", hooked(db, "exit 4", thaw))
	o = w.ends(w.start(failing, v1.RunTestHooks), v1.ResultFailed)
	w.expectReason(o, "quiesce", v1.ReasonNonZeroExit)
	w.Expect(db.noted("post")).To(Equal(3))
}
