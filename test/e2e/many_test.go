// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/test/cluster"
)

// Held commands occupy no slot of the pool: more of them are held than --max-concurrent-hooks allows to start at a time.
func TestFourHooksInFiftyPodsHoldTwoHundredCommandsAtOnce(t *testing.T) {
	const pods, hooks = 50, 4
	w := begin(t)
	db := w.app("db")
	for i := range pods {
		w.light(fmt.Sprintf("web-%02d", i), "web", func(p *corev1.Pod) { p.Spec.Containers[0].SecurityContext = nil })
	}
	for i := range pods {
		web := appNamed(w, fmt.Sprintf("web-%02d", i))
		awaitFor(w, 3*time.Minute, web.object(), "ready", podReady)
	}
	s := w.schedule("pods", holding(db, "hostname; echo x >>/state/pre; "+doNothing), func(s *v1.SnapshotScheduleSpec) {
		held := s.PreHooks[0]
		held.PodSelector, held.TimeoutSeconds = ptr.To(labelled("web")), ptr.To[int32](60)
		s.PreHooks = nil
		for i := range hooks {
			held.Name = fmt.Sprintf("hold-%d", i)
			s.PreHooks = append(s.PreHooks, held)
		}
	})

	o := w.endsWithin(3*time.Minute, w.start(s), v1.ResultSucceeded)

	w.expectLabels(o, map[string]string{"db": application})
	for i := range hooks {
		h := hookOf(o, fmt.Sprintf("hold-%d", i))
		w.Expect(h.Targets).To(HaveLen(pods))
		for _, target := range h.Targets {
			w.Expect(target.Reason).To(Equal(v1.ReasonHookCompleted))
			w.Expect(target.Output).To(ContainSubstring(target.Pod))
			w.Expect(target.HeldTime.Time).To(BeTemporally("<=", o.Status.SnapshottingTime.Time), "all are held before the first snapshot")
			w.Expect(target.EndTime.Time).To(BeTemporally(">=", o.Status.ReleaseTime.Time))
		}
	}
	w.Expect(appNamed(w, "web-07").noted("pre")).To(Equal(hooks))
	t.Logf("%d commands: held %s after the run began, released in %s", pods*hooks,
		o.Status.SnapshottingTime.Sub(o.Status.StartTime.Time), o.Status.ReleasedTime.Sub(o.Status.ReleaseTime.Time))
}

func TestTwentyHooksOfOneScheduleRunInOrder(t *testing.T) {
	const many = 20
	w := begin(t)
	db := w.app("db")
	s := w.schedule("hooks", taking(db), func(s *v1.SnapshotScheduleSpec) {
		for i := range many {
			before(hook(db, fmt.Sprintf("quiesce-%d", i), fmt.Sprintf("echo quiesce-%d >>/state/order", i)))(s)
			after(hook(db, fmt.Sprintf("release-%d", i), fmt.Sprintf("echo release-%d >>/state/order", i)))(s)
		}
	})

	o := w.endsWithin(2*time.Minute, w.start(s), v1.ResultSucceeded) // beside the kubelet that takes down the fifty pods above

	w.expectLabels(o, map[string]string{"db": application})
	var want string
	for _, stage := range []string{"quiesce", "release"} {
		for i := range many {
			want += fmt.Sprintf("%s-%d\n", stage, i)
		}
	}
	w.Expect(db.sh("cat /state/order") + "\n").To(Equal(want))
}

// A command that takes long occupies no worker (kanister#1175, cloudnative-pg#2797).
func TestAHookThatTakesLongHoldsUpNobodyElse(t *testing.T) {
	w := begin(t)
	slow, fast := w.app("slow"), w.app("fast")
	long := w.reaches(w.start(w.schedule("slow", hooked(slow, "while [ ! -e /state/enough ]; do sleep 0.2; done", "true"))), v1.PhasePreHooks)
	s := w.schedule("fast", freezing(fast))

	for range 3 {
		w.ends(w.start(s), v1.ResultSucceeded)
		w.nextSecond()
	}

	w.Expect(api.Get(t.Context(), keyOf(long), long)).To(Succeed())
	w.Expect(long.Status.Phase).To(Equal(v1.PhasePreHooks))
	slow.sh("touch /state/enough")
	w.ends(long, v1.ResultSucceeded)
	fast.expectFree()
}

// With the rate limits that the CSI sidecars have by default, a cut takes seconds: the application waits for all of them, and no longer.
func TestASidecarWithItsDefaultRateLimitsDelaysTheCutAndLosesNothing(t *testing.T) {
	w := begin(t)
	sidecars := func(qps int) {
		if _, err := cluster.Up(t.Context(), cluster.Options{StateDir: local.StateDir(), SidecarQPS: qps, Out: os.Stderr}); err != nil {
			t.Fatalf("restarting the sidecars with %d requests a second: %v", qps, err)
		}
	}
	db := w.app("db")
	want := map[string]string{"db": application}
	for i := range 7 {
		name := fmt.Sprintf("log-%d", i)
		claim := w.claim(name, nil)
		await(w, claim, "bound", func(c *corev1.PersistentVolumeClaim) bool { return c.Status.Phase == corev1.ClaimBound })
		want[name] = application
	}
	s := w.schedule("all", freezing(db), func(s *v1.SnapshotScheduleSpec) { s.ClaimSelector.MatchLabels = nil })
	sidecars(5)
	defer func() {
		if _, err := cluster.Up(t.Context(), cluster.Options{StateDir: local.StateDir(), Out: os.Stderr}); err != nil {
			t.Errorf("restarting the sidecars: %v", err)
		}
	}()

	o := w.endsWithin(2*time.Minute, w.start(s), v1.ResultSucceeded)

	w.expectLabels(o, want)
	w.Expect(o.Status.ReleaseTime.Time).To(BeTemporally(">=", o.Status.CutTime.Time))
	db.expectFree()
	t.Logf("8 claims were cut in %s", o.Status.CutTime.Sub(o.Status.SnapshottingTime.Time))
}
