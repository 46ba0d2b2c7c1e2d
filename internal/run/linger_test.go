// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// A post hook of unknown end may still be running, and would release an application that the next run has quiesced. The run is released, labelled
// and ready, and keeps its lock and its finalizer until that command has run out of time and the grace is over.
func TestARunKeepsItsLockWhileALostPostHookMayBeRunning(t *testing.T) {
	for name, end := range map[string]func(w *world, e StartExec) *Outcome{
		"its connection was lost": func(*world, StartExec) *Outcome { return lost() },
		"its operator died":       func(w *world, _ StartExec) *Outcome { w.restart(); return nil },
	} {
		for _, failing := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, and the pre hook failed: %t", name, failing), func(t *testing.T) {
				g := NewWithT(t)
				w := newWorld(t)
				w.pods = w.pods[:1]
				w.onStart = func(w *world, e StartExec) *Outcome {
					switch {
					case e.Key.Stage == v1.StagePost && e.Key.Attempt == 1:
						return end(w, e)
					case e.Key.Stage == v1.StagePre && failing:
						return failed()
					}
					return completed()
				}
				w.settle()
				w.now = w.now.Add(2 * time.Second) // the backoff
				d := w.settle()
				g.Expect(w.started).To(ContainElement("Post/release/db-0#2"))
				g.Expect(w.run.Status.Phase).To(Equal(v1.PhaseAwaitingReady))
				g.Expect(w.cond(v1.ConditionMayBeQuiesced).Status).To(BeEquivalentTo("False"), "it is released")
				g.Expect(w.cond(v1.ConditionComplete).Message).To(ContainSubstring("the end of a post hook is unknown"))
				if !failing {
					g.Expect(w.labelled).To(HaveLen(2), "the label does not wait")
				}
				until := w.run.Status.Hooks[1].Targets[0].UnknownUntil.Add(ReleaseGrace)
				g.Expect(until).To(BeTemporally("~", begin.Add(300*time.Second+ReleaseGrace), time.Second))
				g.Expect(d.Wait).To(BeTemporally("==", until))
				g.Expect(w.lockHeld).To(BeTrue())
				g.Expect(Lingers(w.run, until.Add(-time.Second))).To(BeTrue())

				w.now = until
				w.settle()
				g.Expect(w.lockHeld).To(BeFalse())
				g.Expect(Lingers(w.run, until)).To(BeFalse())
				g.Expect(w.run.Status.Phase).To(Equal(v1.PhaseCompleted))
				g.Expect(w.run.Status.Result == v1.ResultSucceeded).To(Equal(!failing))
				g.Expect(w.run.Finalizers).To(BeEmpty())
			})
		}
	}
}

// A person asks for the release again and again. The record forgets the passes in between, and not that a command of one of them may be running.
func TestARunKeepsItsLockWhileAPostHookOfAForgottenPassMayBeRunning(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.pods = w.pods[:1]
	w.onStart = func(_ *world, e StartExec) *Outcome {
		switch {
		case e.Key.Stage == v1.StagePre, e.Key.Pass == 5:
			return completed()
		case e.Key.Pass == 2:
			return lost()
		}
		return failed()
	}
	w.onStep = func(w *world) {
		if rel := w.run.Status.Release; rel != nil && rel.Pass < 5 {
			h := w.run.Status.Hooks[len(w.run.Status.Hooks)-1]
			if len(h.Targets) == 1 && h.Targets[0].Attempts == 1 && h.Targets[0].Claim == nil { // its end is on record
				w.run.Annotations = map[string]string{v1.AnnotationRelease: string(rune('0' + rel.Pass))}
			}
		}
	}
	d := w.settle()
	g.Expect(w.run.Status.Release.Pass).To(BeEquivalentTo(5))
	g.Expect(w.run.Status.Hooks).NotTo(ContainElement(HaveField("Pass", BeEquivalentTo(2))))
	g.Expect(w.run.Status.Phase).To(Equal(v1.PhaseAwaitingReady))
	g.Expect(w.lockHeld).To(BeTrue())
	g.Expect(d.Wait).To(BeTemporally("~", begin.Add(300*time.Second+ReleaseGrace), time.Second))
	w.now = d.Wait
	w.settle()
	g.Expect(w.lockHeld).To(BeFalse())
	g.Expect(w.run.Status.Result).To(Equal(v1.ResultSucceeded))
}
