// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/run"
)

// What active runs hold by their plans, nobody gets from a new leader, nor what a lost post hook may still release. Completed runs hold nothing, nor does the emergency exit.
func TestANewLeaderKeepsTheLocksOfActiveRuns(t *testing.T) {
	g := NewWithT(t)
	planned := func(name string, phase v1.RunPhase, mode v1.RunMode) *v1.SnapshotRun {
		o := &v1.SnapshotRun{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID(name)}, Spec: v1.SnapshotRunSpec{ScheduleName: "of-" + name, Mode: mode}}
		o.Status.Phase = phase
		o.Status.Hooks = []v1.HookStatus{{Stage: v1.StagePre, Name: "quiesce", Targets: []v1.TargetStatus{{Namespace: "shop", PodUID: types.UID("pod of " + name)}}}}
		o.Status.Snapshots = []v1.SnapshotStatus{{ClaimUID: types.UID("claim of " + name)}}
		return o
	}
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	lingering := func(name string, unknownUntil time.Time) *v1.SnapshotRun {
		o := planned(name, v1.PhaseAwaitingReady, v1.RunSnapshot)
		o.Status.Hooks = append(o.Status.Hooks, v1.HookStatus{Stage: v1.StagePost, Name: "release", Targets: []v1.TargetStatus{
			{Namespace: "shop", PodUID: types.UID("pod of " + name), UnknownUntil: ptr.To(metav1.NewMicroTime(unknownUntil))}}})
		return o
	}
	scheme := runtime.NewScheme()
	g.Expect(v1.AddToScheme(scheme)).To(Succeed())
	r := &RunReconciler{Clock: clocktesting.NewFakeClock(now), Client: fake.NewClientBuilder().WithScheme(scheme).WithObjects(
		planned("frozen", v1.PhaseSnapshotting, v1.RunSnapshot),
		planned("releasing", v1.PhasePostHooks, v1.RunSnapshot),
		planned("uploading", v1.PhaseAwaitingReady, v1.RunSnapshot),
		planned("done", v1.PhaseCompleted, v1.RunSnapshot),
		planned("exit", v1.PhasePostHooks, v1.RunRelease),
		lingering("lingering", now.Add(-run.ReleaseGrace+time.Second)),
		lingering("lingered", now.Add(-run.ReleaseGrace)),
	).Build()}

	r.rebuildLocks(t.Context())

	ask := func(resource types.UID) string {
		defer r.locks.drop("asking")
		_, waitingFor := r.locks.take("asking", named("asking"), "asking", locked(resource))
		return waitingFor
	}
	g.Expect(ask("pod of frozen")).To(Equal("shop/of-frozen (run frozen)"))
	g.Expect(ask("claim of frozen")).To(Equal("shop/of-frozen (run frozen)"))
	g.Expect(ask("pod of releasing")).To(Equal("shop/of-releasing (run releasing)"))
	g.Expect(ask("pod of lingering")).To(Equal("shop/of-lingering (run lingering)"), "its lost post hook may still be running")
	for _, free := range []types.UID{"pod of lingered", "pod of uploading", "pod of done", "pod of exit", "pod of nobody"} {
		g.Expect(ask(free)).To(BeEmpty(), string(free))
	}
}
