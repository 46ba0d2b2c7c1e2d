// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/test/cluster"
)

func TestAPreHookThatFailsMeansNoSnapshotAndARelease(t *testing.T) {
	w := begin(t)
	db := w.app("db")
	for name, c := range map[string]struct {
		hook   func(*v1.PreHook)
		reason string
		code   *int32
		words  []string
	}{
		"the command exits with another code than 0": {
			hook: func(h *v1.PreHook) {
				h.Command = []string{"sh", "-c", "fsfreeze --freeze /data; echo the disk is full; exit 3"}
			},
			reason: v1.ReasonNonZeroExit, code: ptr.To[int32](3), words: []string{"exited with code 3"},
		},
		"the command does not exist": {
			hook:   func(h *v1.PreHook) { h.Command = []string{"no-such-program"} },
			reason: v1.ReasonCommandNotFound, words: []string{"not found"},
		},
		"the command does not say what is expected": {
			hook: func(h *v1.PreHook) {
				h.Command, h.ExpectOutput = []string{"sh", "-c", "fsfreeze --freeze /data; echo almost"}, "frozen"
			},
			reason: v1.ReasonOutputMissing, code: ptr.To[int32](0),
		},
		"the command kills itself": {
			hook:   func(h *v1.PreHook) { h.Command = []string{"sh", "-c", "fsfreeze --freeze /data; kill -9 $$"} },
			reason: v1.ReasonNonZeroExit, code: ptr.To[int32](137), words: []string{"killed by signal 9"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := w.within(t)
			db := db.in(w)
			before := db.noted("post")
			s := w.schedule("s"+string(rune('a'+before)), freezing(db), func(s *v1.SnapshotScheduleSpec) { c.hook(&s.PreHooks[0]) })

			o := w.ends(w.start(s), v1.ResultFailed)

			w.expectReason(o, "freeze", c.reason, c.words...)
			w.Expect(target(hookOf(o, "freeze")).ExitCode).To(Equal(c.code))
			w.expectCondition(o.Status.Conditions, v1.ConditionPreHooksSucceeded, metav1.ConditionFalse, v1.ReasonHookFailed)
			w.expectCondition(o.Status.Conditions, v1.ConditionPostHooksSucceeded, metav1.ConditionTrue, v1.ReasonHooksSucceeded)
			w.expectLabels(o, map[string]string{})
			w.expectEvent(o, "PreHookFailed", c.reason)
			w.Expect(db.noted("post")).To(Equal(before+1), "the post hook ran once")
			db.expectFree()
		})
	}
}

func TestAPreHookWithoutAUsableTargetIsFoundBeforeAnythingIsQuiesced(t *testing.T) {
	w := begin(t)
	db := w.app("db")
	done := &app{world: w, name: "done"}
	w.create(w.pod("done", "db", "exit 0", func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever }))
	await(w, done.object(), "completed", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodSucceeded })
	leaving := &app{world: w, name: "leaving"}
	w.create(w.pod("leaving", "db", idle, slowToLeave))
	leaving.ready()
	w.remove(leaving.object())
	t.Cleanup(func() { w.forceDelete(leaving.object()) })

	for name, c := range map[string]struct {
		hook   func(*v1.PreHook)
		reason string
		words  []string
	}{
		"no pod matches": {
			hook:   func(h *v1.PreHook) { h.PodSelector = ptr.To(labelled("nobody")) },
			reason: v1.ReasonPodNotFound, words: []string{"no running pod", "app=nobody"},
		},
		"the pod has no such container": {
			hook:   func(h *v1.PreHook) { h.Container = "other" },
			reason: v1.ReasonContainerNotFound, words: []string{"other", "db"},
		},
		"the pod has completed": {
			hook:   func(h *v1.PreHook) { h.PodSelector = ptr.To(labelled("done")) },
			reason: v1.ReasonPodNotFound, words: []string{"app=done"},
		},
		"the pod is being deleted": {
			hook:   func(h *v1.PreHook) { h.PodSelector = ptr.To(labelled("leaving")) },
			reason: v1.ReasonPodNotFound, words: []string{"app=leaving"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := w.within(t)
			db := db.in(w)
			before := db.noted("post")
			// The first hook would freeze; what is wrong with the second is seen before.
			s := w.schedule("s"+string(rune('a'+before)), freezing(db), alsoBefore(db, c.hook))

			o := w.ends(w.start(s), v1.ResultFailed)

			w.expectReason(o, "second", c.reason, c.words...)
			w.expectCondition(o.Status.Conditions, v1.ConditionPreHooksSucceeded, metav1.ConditionFalse, v1.ReasonPreflightFailed)
			w.expectCondition(o.Status.Conditions, v1.ConditionMayBeQuiesced, metav1.ConditionFalse, v1.ReasonNothingQuiesced)
			w.Expect(o.Status.QuiescedTime).To(BeNil())
			w.Expect(db.noted("pre")).To(BeZero(), "nothing was quiesced")
			w.Expect(db.noted("post")).To(Equal(before+1), "the post hook ran once all the same")
			w.expectLabels(o, map[string]string{})
			db.expectFree()
		})
	}

	t.Run("no pod matches, and that is allowed: the snapshot is taken and only crash consistent", func(t *testing.T) {
		w := w.within(t)
		db := db.in(w)
		s := w.schedule("skipping", freezing(db), alsoBefore(db, func(h *v1.PreHook) {
			h.PodSelector, h.SkipIfNoSelectorFound = ptr.To(labelled("nobody")), true
		}))
		o := w.ends(w.start(s), v1.ResultSucceeded)
		w.expectReason(o, "second", v1.ReasonHookSkipped, "no running pod")
		w.expectLabels(o, map[string]string{"db": crash})
		db.expectFree()
	})
}

// alsoBefore adds a second pre hook.
func alsoBefore(a *app, change func(*v1.PreHook)) shape {
	return func(s *v1.SnapshotScheduleSpec) {
		h := v1.PreHook{Hook: hook(a, "second", "echo x >>/state/second")}
		change(&h)
		s.PreHooks = append(s.PreHooks, h)
	}
}

func TestAPreHookThatTimesOutIsRepeatedAndThenReleasedTwice(t *testing.T) {
	w := begin(t)
	db := w.app("db")
	s := w.schedule("hourly", hooked(db, "echo x >>/state/pre; sleep 5; fsfreeze --freeze /data", thaw), bounded(1, 1))

	o := w.endsWithin(secondPass, w.start(s), v1.ResultFailed)

	w.expectReason(o, "quiesce", v1.ReasonTimeout)
	w.Expect(target(hookOf(o, "quiesce")).Attempts).To(BeEquivalentTo(2))
	w.Expect(db.noted("pre")).To(Equal(2), "as often as backoffLimit says")
	w.Expect(passes(o, "release")).To(HaveLen(2))
	last := target(hookOf(o, "quiesce")).StartTime
	second := target(passes(o, "release")[1]).StartTime
	w.Expect(second.Time).To(BeTemporally(">=", last.Add(31*time.Second)), "the command's own 1 s and a grace of 30 s")
	w.Expect(second.Time).To(BeTemporally("<", last.Add(45*time.Second)))
	w.expectLabels(o, map[string]string{})
	w.expectEvent(o, "PreHookFailed", v1.ReasonTimeout)
	db.expectFree()
}

func TestADriverThatFailsForOneVolumeAndRecovers(t *testing.T) {
	w := begin(t)
	good, bad := w.app("good"), w.app("bad")
	s := w.schedule("hourly", freezing(good), before(hook(bad, "freeze-bad", freeze)), after(hook(bad, "thaw-bad", thaw)),
		snapshotTimeout(4), func(s *v1.SnapshotScheduleSpec) { s.ClaimSelector = metav1.LabelSelector{} })
	w.knobs(cluster.Knobs{FailCreateSnapshot: "the array is full", FailVolumes: []string{w.ns + "/bad"}})

	o := w.start(s)
	o = w.reaches(o, v1.PhaseAwaitingReady)
	good.expectFree()
	bad.expectFree()
	w.Expect(o.Status.ReleasedTime.Sub(o.Status.SnapshottingTime.Time)).To(BeNumerically("<", 7*time.Second))
	w.Expect(o.Status.Snapshots).To(ContainElement(HaveField("Message", ContainSubstring("the array is full"))), describe(o))

	w.knobs(cluster.Knobs{}) // the array has room again: the sidecar tries on
	o = w.endsWithin(2*patience, o, v1.ResultPartiallyFailed)
	w.expectLabels(o, map[string]string{"good": application, "bad": crash})
}
