// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

func TestHeldAndOtherHooksInContainersThatDoNotRun(t *testing.T) {
	w := begin(t)
	db := w.app("db")
	w.light("broken", "broken", func(p *corev1.Pod) {
		second := *p.Spec.Containers[0].DeepCopy()
		second.Name, second.Command = "crashing", []string{"/no-such-command"} // one that starts and exits would run for a moment now and then
		p.Spec.Containers = append(p.Spec.Containers, second)
	})
	w.light("victim", "victim", func(p *corev1.Pod) { p.Spec.RestartPolicy = corev1.RestartPolicyNever })
	victim := appNamed(w, "victim")
	victim.ready()
	await(w, appNamed(w, "broken").object(), "crashed", func(p *corev1.Pod) bool {
		for _, c := range p.Status.ContainerStatuses {
			if c.Name == "crashing" && c.State.Waiting != nil && c.State.Waiting.Reason == "CrashLoopBackOff" {
				return true
			}
		}
		return false
	})
	holdIn := func(label, container string) shape {
		return all(holding(db, doNothing), func(s *v1.SnapshotScheduleSpec) {
			h := &s.PreHooks[len(s.PreHooks)-1]
			h.PodSelector, h.Container = ptr.To(labelled(label)), container
		})
	}

	t.Run("not running when the run is planned: nothing is quiesced", func(t *testing.T) {
		w := w.within(t)
		o := w.ends(w.start(w.schedule("broken", before(hook(db, "quiesce", "echo x >>/state/pre")), holdIn("broken", "crashing"))), v1.ResultFailed)
		w.expectReason(o, "hold", v1.ReasonContainerNotRunning, "crashing", "broken")
		w.expectCondition(o.Status.Conditions, v1.ConditionPreHooksSucceeded, metav1.ConditionFalse, v1.ReasonPreflightFailed)
		w.expectCondition(o.Status.Conditions, v1.ConditionMayBeQuiesced, metav1.ConditionFalse, v1.ReasonNothingQuiesced)
		w.Expect(db.noted("pre")).To(BeZero())
		w.expectLabels(o, map[string]string{})
	})
	t.Run("ended between plan and start", func(t *testing.T) {
		w := w.within(t)
		o := w.start(w.schedule("victim", before(hook(db, "quiesce", "echo x >>/state/pre; until [ -e /state/go ]; do sleep 0.1; done")), holdIn("victim", "")))
		db.awaitNote("pre", 1)
		_, _ = w.exec(victim.name, "kill", "-TERM", "1") // may die with it
		await(w, victim.object(), "failed", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodFailed })
		db.sh("touch /state/go")
		o = w.ends(o, v1.ResultFailed)
		w.expectReason(o, "hold", v1.ReasonContainerNotRunning, "victim")
		w.expectLabels(o, map[string]string{})
	})
	t.Run("deleted while held, before a snapshot exists", func(t *testing.T) {
		w := w.within(t)
		w.light("leaving", "leaving")
		appNamed(w, "leaving").ready()
		o := w.start(w.schedule("leaving", holdIn("leaving", ""), before(hook(db, "wait", "echo x >>/state/waiting; sleep 20"))))
		db.awaitNote("waiting", 1)
		w.forceDelete(appNamed(w, "leaving").object())
		o = w.completes(patience, o)
		w.Expect(o.Status.Result).To(Equal(v1.ResultFailed), describe(o))
		w.expectReason(o, "hold", v1.ReasonHoldLost, "leaving", "code 137")
		w.expectReason(o, "wait", v1.ReasonInterrupted, "hold")
		w.expectCondition(o.Status.Conditions, v1.ConditionMayBeQuiesced, metav1.ConditionTrue, v1.ReasonGivenUp)
		w.expectLabels(o, map[string]string{})
	})
}
