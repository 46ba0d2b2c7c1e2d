// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// A decision is made for every event of every snapshot of a run: with many claims it must cost one look at each of them. Allocations are counted and
// not timed, so that the bounds hold on every machine; the race detector adds some.
func TestADecisionThatLeavesEverythingAsItIsAllocatesLittle(t *testing.T) {
	cases := map[string]struct {
		storage func(w *world, s *Snapshot)
		hooks   bool
		phase   v1.RunPhase
		// of a run with 10 claims, and of each claim more
		run, claim float64
	}{
		"snapshots under hooks are not cut yet": {hooks: true, phase: v1.PhaseSnapshotting,
			storage: func(*world, *Snapshot) {}, run: 100, claim: 0.99},
		"snapshots under hooks are cut and not ready yet": {hooks: true, phase: v1.PhaseAwaitingReady,
			storage: func(w *world, s *Snapshot) { s.Cut, s.Bound, s.CreationTime = true, true, ptr.To(w.now) }, run: 130, claim: 3.5},
		"snapshots of a run without hooks are not ready yet": {phase: v1.PhasePending,
			storage: func(*world, *Snapshot) {}, run: 120, claim: 4.5},
		"the run is over": {hooks: true, phase: v1.PhaseCompleted, run: 100, claim: 3.5},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			allocations := func(claims int) float64 {
				w := newWorld(t)
				w.claims = nil
				for i := range claims {
					w.claims = append(w.claims, Claim{Name: fmt.Sprintf("data-%03d", i), UID: types.UID(fmt.Sprintf("k%d", i))})
				}
				if !c.hooks {
					w.schedule.Spec.PreHooks, w.schedule.Spec.PostHooks, w.run.Finalizers = nil, nil, nil
				}
				w.onCreated = c.storage
				w.settle()
				g.Expect(phaseOf(w.run)).To(Equal(c.phase))
				in := w.input()
				d := Decide(in)
				g.Expect(d.Persist).To(BeNil())
				g.Expect(d.Act).To(BeEmpty())
				return testing.AllocsPerRun(20, func() { Decide(in) })
			}
			few, many := allocations(10), allocations(110)
			t.Logf("%g allocations, and %g for each claim more", few, (many-few)/100)
			g.Expect(few).To(BeNumerically("<=", c.run))
			g.Expect((many - few) / 100).To(BeNumerically("<=", c.claim))
		})
	}
}
