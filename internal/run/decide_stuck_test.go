// SPDX-License-Identifier: Apache-2.0

package run

import (
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// Effects that are refused for ever, by a webhook or for want of rights: they are tried again and again, and must not keep the run from going on.

// stuck makes the steps in which nothing else than a refused effect can be done take a while.
func stuck(effect func(d Decision) bool) func(w *world) {
	return func(w *world) {
		if effect(Decide(w.input())) {
			w.now = w.now.Add(11 * time.Second)
		}
	}
}

// What an earlier run left uncut cannot be deleted: the application is released in time all the same.
func TestAnUncutSnapshotThatCannotBeDeletedDoesNotKeepTheApplicationQuiesced(t *testing.T) {
	for name, hooks := range map[string]bool{"with hooks": true, "without hooks": false} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := newWorld(t)
			if !hooks {
				w.schedule.Spec.PreHooks, w.schedule.Spec.PostHooks = nil, nil
				w.snapshots["data-hourly-202603011200"] = &Snapshot{Foreign: true, UID: "foreign"} // another name is put on record first
			}
			w.leftovers = []Leftover{{Name: "data-hourly-202603011100", UID: "x"}}
			w.undeletable = true
			w.onCreated = func(_ *world, s *Snapshot) { s.Bound = true }
			refused := stuck(func(d Decision) bool { return slices.Contains(d.Act, Effect(DeleteLeftover{w.leftovers[0]})) })
			w.onStep = func(w *world) {
				refused(w)
				for _, s := range w.snapshots {
					s.Cut, s.Ready = true, w.run.Status.Phase == v1.PhaseAwaitingReady
				}
			}
			w.finish()
			g.Expect(w.now.Sub(begin)).To(BeNumerically("~", 5*time.Minute, 15*time.Second))
			if hooks {
				g.Expect(w.run.Status.Result).To(Equal(v1.ResultFailed))
				g.Expect(w.run.Status.Message).To(ContainSubstring("were not cut within snapshotTimeoutSeconds"))
				g.Expect(w.started).To(ContainElements("Post/release/db-0#1", "Post/release/db-1#1"))
				return
			}
			g.Expect(w.run.Status.Result).To(Equal(v1.ResultSucceeded))
		})
	}
}

// The label cannot be written: the run ends at the ready timeout, or soon after somebody deletes it, and says so.
func TestALabelThatCannotBeWrittenDoesNotKeepTheRunForEver(t *testing.T) {
	for name, deleted := range map[string]bool{"the ready timeout passes": false, "the run is deleted": true} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := newWorld(t)
			w.config.ReadyTimeout = 2 * time.Minute
			w.unlabellable = true
			refused := stuck(func(d Decision) bool { return len(d.Act) > 0 && labels(d.Act[0]) })
			w.onStep = func(w *world) {
				if deleted && w.run.Status.Phase == v1.PhaseAwaitingReady && w.run.DeletionTimestamp == nil {
					w.run.DeletionTimestamp = ptr.To(metav1.NewTime(w.now))
				}
				refused(w)
			}
			w.finish()
			g.Expect(w.now.Sub(begin)).To(BeNumerically("<", 3*time.Minute))
			g.Expect(w.run.Status.Result).To(Equal(v1.ResultPartiallyFailed))
			g.Expect(w.run.Status.Message).To(ContainSubstring("could not be labelled"))
		})
	}
}

func labels(e Effect) bool {
	_, ok := e.(LabelConsistency)
	return ok
}
