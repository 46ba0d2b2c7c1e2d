// SPDX-License-Identifier: Apache-2.0

package run

import (
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// expected is how a run ended.
type expected struct {
	result      v1.RunResult
	started     string // hooks in order
	consistency string // of the snapshots that exist; "" if there is none
	quiesced    metav1.ConditionStatus
	message     string // part of the run's message
}

const (
	bothPre  = "Pre/quiesce/db-0#1 Pre/quiesce/db-1#1"
	bothPost = "Post/release/db-0#1 Post/release/db-1#1"
	secondly = bothPre + " " + bothPost + " " + bothPost // with a second release pass
)

func TestARunIsCarriedToItsEnd(t *testing.T) {
	cases := map[string]struct {
		set  func(w *world)
		want expected
	}{
		"hooks and snapshots succeed": {
			set:  func(*world) {},
			want: expected{v1.ResultSucceeded, bothPre + " " + bothPost, v1.ConsistencyApplication, "False", ""},
		},
		"a pre hook fails: no snapshot is created and the release runs": {
			set: func(w *world) {
				w.onStart = func(_ *world, e StartExec) *Outcome {
					if e.Hook.Name == "quiesce" && e.Target.Pod == "db-1" {
						return failed()
					}
					return completed()
				}
			},
			want: expected{v1.ResultFailed, bothPre + " " + bothPost, "", "False", "hook quiesce: NonZeroExit in shop/db-1"},
		},
		"a pre hook fails, is repeated and succeeds": {
			set: func(w *world) {
				w.schedule.Spec.PreHooks[0].BackoffLimit = ptr.To[int32](1)
				w.onStart = func(_ *world, e StartExec) *Outcome {
					if e.Hook.Name == "quiesce" && e.Key.Attempt == 1 && e.Target.Pod == "db-1" {
						return failed()
					}
					return completed()
				}
			},
			want: expected{v1.ResultSucceeded, bothPre + " Pre/quiesce/db-1#2 " + bothPost, v1.ConsistencyApplication, "False", ""},
		},
		"a pre hook fails and may: the snapshots are created and only crash consistent": {
			set: func(w *world) {
				w.schedule.Spec.PreHooks[0].OnError = v1.OnErrorContinue
				w.onStart = func(_ *world, e StartExec) *Outcome {
					if e.Hook.Name == "quiesce" {
						return failed()
					}
					return completed()
				}
			},
			want: expected{v1.ResultPartiallyFailed, bothPre + " " + bothPost, v1.ConsistencyCrash, "False", "hook quiesce: NonZeroExit"},
		},
		"a pre hook times out: a second release follows when its command can no longer run": {
			set: func(w *world) {
				w.onStart = func(_ *world, e StartExec) *Outcome {
					if e.Hook.Name == "quiesce" && e.Target.Pod == "db-0" {
						return timedOut()
					}
					return completed()
				}
			},
			want: expected{v1.ResultFailed, secondly, "", "False", "Timeout in shop/db-0"},
		},
		"a pre hook times out, is repeated and succeeds: the snapshots are only crash consistent": {
			set: func(w *world) {
				w.schedule.Spec.PreHooks[0].BackoffLimit = ptr.To[int32](1)
				w.onStart = func(_ *world, e StartExec) *Outcome {
					if e.Hook.Name == "quiesce" && e.Key.Attempt == 1 && e.Target.Pod == "db-0" {
						return timedOut()
					}
					return completed()
				}
			},
			want: expected{v1.ResultPartiallyFailed, bothPre + " Pre/quiesce/db-0#2 " + bothPost + " " + bothPost, v1.ConsistencyCrash, "False", "end of an attempt is unknown"},
		},
		"the connection of a pre hook is lost: it is not repeated whatever its backoffLimit": {
			set: func(w *world) {
				w.schedule.Spec.PreHooks[0].BackoffLimit = ptr.To[int32](5)
				w.onStart = func(_ *world, e StartExec) *Outcome {
					if e.Hook.Name == "quiesce" && e.Target.Pod == "db-0" {
						return lost()
					}
					return completed()
				}
			},
			want: expected{v1.ResultFailed, secondly, "", "False", "ConnectionLost in shop/db-0"},
		},
		"no pod matches: the run fails before anything is quiesced and raises no alarm": {
			set: func(w *world) { w.pods = nil },
			want: expected{v1.ResultFailed, "", "", "False",
				"hook quiesce: no running pod in namespace shop matches app=db"},
		},
		"no pod matches and the hooks may be skipped: the snapshots are taken and only crash consistent, as the schedule allows": {
			set: func(w *world) {
				w.pods = nil
				w.schedule.Spec.PreHooks[0].SkipIfNoSelectorFound = true
				w.schedule.Spec.PostHooks[0].SkipIfNoSelectorFound = true
			},
			want: expected{v1.ResultSucceeded, "", v1.ConsistencyCrash, "False", ""},
		},
		"a container is missing: nothing is quiesced, the post hooks are tried once where they can": {
			set: func(w *world) {
				w.problems["quiesce"] = Problem{v1.ReasonContainerNotFound, "pod shop/db-0 has no container x"}
			},
			want: expected{v1.ResultFailed, bothPost, "", "False", "hook quiesce: pod shop/db-0 has no container x"},
		},
		"the account may not exec for the post hook: found out before anything is quiesced": {
			set: func(w *world) {
				w.problems["release"] = Problem{v1.ReasonForbidden, "account shop/x may not exec"}
			},
			want: expected{v1.ResultFailed, "", "", "False", "hook release: account shop/x may not exec"},
		},
		"no claim matches: no hook runs": {
			set:  func(w *world) { w.claims = nil },
			want: expected{v1.ResultSkipped, "", "", "", "no claim to take"},
		},
		"one snapshot is refused: the other is taken and labelled, the run is partly failed": {
			set: func(w *world) {
				w.onCreate = func(_ *world, e CreateSnapshot) *CreateFailure {
					if e.Claim == "wal" {
						return &CreateFailure{Message: "exceeded quota", Refused: true}
					}
					return nil
				}
			},
			want: expected{v1.ResultPartiallyFailed, bothPre + " " + bothPost, v1.ConsistencyApplication, "False", "exceeded quota"},
		},
		"the API server fails for a moment: the create is repeated": {
			set: func(w *world) {
				n := 0
				w.onCreate = func(w *world, e CreateSnapshot) *CreateFailure {
					if n++; n == 1 {
						return &CreateFailure{Message: "connection refused", RetryTime: w.now.Add(time.Second)}
					}
					return nil
				}
			},
			want: expected{v1.ResultSucceeded, bothPre + " " + bothPost, v1.ConsistencyApplication, "False", ""},
		},
		"the snapshot controller refuses: the other snapshot is taken": {
			set: func(w *world) {
				w.onCreated = func(w *world, s *Snapshot) {
					if len(w.created) == 1 {
						s.Error = "no class"
						return
					}
					s.Cut, s.Ready, s.Bound = true, true, true
				}
			},
			want: expected{v1.ResultPartiallyFailed, bothPre + " " + bothPost, "", "False", "no class"},
		},
		"the driver never cuts: released after snapshotTimeoutSeconds": {
			set: func(w *world) {
				w.onCreated = func(_ *world, s *Snapshot) { s.Bound = true; s.Error = "storage is busy" }
			},
			want: expected{v1.ResultFailed, bothPre + " " + bothPost, v1.ConsistencyCrash, "False", "storage is busy"},
		},
		"the driver cuts after the release: ready in the end, and only crash consistent": {
			set: func(w *world) {
				w.onCreated = func(_ *world, s *Snapshot) { s.Bound = true }
				w.onStep = func(w *world) {
					if w.run.Status.Phase == v1.PhaseAwaitingReady {
						for _, s := range w.snapshots {
							s.Cut, s.Ready = true, true
						}
					}
				}
			},
			want: expected{v1.ResultPartiallyFailed, bothPre + " " + bothPost, v1.ConsistencyCrash, "False", "not cut within"},
		},
		"maxQuiesceSeconds goes over snapshotTimeoutSeconds": {
			set: func(w *world) {
				w.schedule.Spec.MaxQuiesceSeconds = ptr.To[int32](20)
				w.onCreated = func(_ *world, s *Snapshot) { s.Bound = true }
			},
			want: expected{v1.ResultFailed, bothPre + " " + bothPost, v1.ConsistencyCrash, "False", "maxQuiesceSeconds"},
		},
		"a container was restarted while quiesced: only crash consistent": {
			set: func(w *world) {
				w.onCreated = func(w *world, s *Snapshot) {
					s.Cut, s.Ready, s.Bound = true, true, true
					w.pods[1].ContainerID, w.pods[1].RestartCount = "c1b", 1
				}
			},
			want: expected{v1.ResultPartiallyFailed, bothPre + " " + bothPost, v1.ConsistencyCrash, "False", "container c of pod shop/db-1 was restarted"},
		},
		"a pod was replaced while quiesced: the new one is released too": {
			set: func(w *world) {
				w.onCreated = func(w *world, s *Snapshot) {
					s.Cut, s.Ready, s.Bound = true, true, true
					w.pods[1].UID, w.pods[1].ContainerID = "u1b", "c1b"
				}
				w.onStart = func(w *world, e StartExec) *Outcome {
					if e.Key.Stage == v1.StagePost && e.Target.PodUID == "u1" {
						w.t.Error("a pod that is gone was released instead of the one in its place")
					}
					return completed()
				}
			},
			want: expected{v1.ResultPartiallyFailed, bothPre + " " + bothPost, v1.ConsistencyCrash, "False", "pod shop/db-1"},
		},
		"a pod came while quiesced: only crash consistent": {
			set: func(w *world) {
				w.onCreated = func(w *world, s *Snapshot) {
					s.Cut, s.Ready, s.Bound = true, true, true
					if len(w.pods) == 2 {
						w.pods = append(w.pods, Target{Namespace: "shop", Pod: "db-2", UID: "u2", Container: "c", ContainerID: "c2"})
					}
				}
			},
			want: expected{v1.ResultPartiallyFailed, bothPre + " " + bothPost + " Post/release/db-2#1", v1.ConsistencyCrash, "False", "db-2 came after the hook ran"},
		},
		"a post hook fails twice and then succeeds": {
			set: func(w *world) {
				w.pods = w.pods[:1]
				w.onStart = func(_ *world, e StartExec) *Outcome {
					if e.Key.Stage == v1.StagePost && e.Key.Attempt < 3 {
						return failed()
					}
					return completed()
				}
			},
			want: expected{v1.ResultSucceeded, "Pre/quiesce/db-0#1 Post/release/db-0#1 Post/release/db-0#2 Post/release/db-0#3", v1.ConsistencyApplication, "False", ""},
		},
		"a post hook with a backoffLimit fails for good: the alarm stays": {
			set: func(w *world) {
				w.pods = w.pods[:1]
				w.schedule.Spec.PostHooks[0].BackoffLimit = ptr.To[int32](1)
				w.schedule.Status.Conditions = []metav1.Condition{{Type: v1.ConditionMayBeQuiesced, Status: "True", Reason: v1.ReasonGivenUp}}
				w.onStart = func(_ *world, e StartExec) *Outcome {
					if e.Key.Stage == v1.StagePost {
						return failed()
					}
					return completed()
				}
			},
			want: expected{v1.ResultPartiallyFailed, "Pre/quiesce/db-0#1 Post/release/db-0#1 Post/release/db-0#2", v1.ConsistencyApplication, "True", "hook release"},
		},
		"a run without hooks completes in one write": {
			set: func(w *world) {
				w.schedule.Spec.PreHooks, w.schedule.Spec.PostHooks = nil, nil
				w.run.Finalizers = nil
			},
			want: expected{v1.ResultSucceeded, "", "", "", ""},
		},
		"the hook of another namespace needs an account": {
			set: func(w *world) { w.schedule.Spec.PreHooks[0].Namespace = "other" },
			want: expected{v1.ResultFailed, "", "", "",
				`spec.preHooks[0].namespace is "other"`},
		},
		"the schedule's own namespace is no other one": {
			set:  func(w *world) { w.schedule.Spec.PreHooks[0].Namespace = "shop" },
			want: expected{v1.ResultSucceeded, bothPre + " " + bothPost, v1.ConsistencyApplication, "False", ""},
		},
		"the schedule does not exist": {
			set:  func(w *world) { w.schedule = nil },
			want: expected{v1.ResultFailed, "", "", "", "does not exist"},
		},
		"a restored run with an old slot starts nothing": {
			set: func(w *world) {
				w.schedule.Status.ActiveRun = ""
				w.schedule.Status.NextSnapshotTime = ptr.To(metav1.NewTime(begin.Add(time.Hour)))
			},
			want: expected{v1.ResultSkipped, "", "", "", "spec.slot is not one that the schedule is at"},
		},
		"a held command is released before the post hooks": {
			set: func(w *world) {
				w.schedule.Spec.PreHooks[0].Mode = v1.ModeHold
				w.schedule.Spec.PreHooks[0].ExpectOutput = "READY"
				w.schedule.Spec.PreHooks[0].ExpectReleaseOutput = "RELEASED"
			},
			want: expected{v1.ResultSucceeded, bothPre + " " + bothPost, v1.ConsistencyApplication, "False", ""},
		},
		"TestHooks takes no snapshot": {
			set:  func(w *world) { w.run.Spec.Mode = v1.RunTestHooks },
			want: expected{v1.ResultSucceeded, bothPre + " " + bothPost, "", "False", ""},
		},
		"Release runs the post hooks only": {
			set: func(w *world) {
				w.run.Spec.Mode = v1.RunRelease
				w.locked = "another run"
			},
			want: expected{v1.ResultSucceeded, bothPost, "", "False", ""},
		},
		"the look at the pods fails for a while": {
			set: func(w *world) {
				w.lookFails = true
				w.onStep = func(w *world) {
					if w.now.Sub(begin) > 10*time.Second {
						w.lookFails = false
					}
				}
			},
			want: expected{v1.ResultSucceeded, bothPre + " " + bothPost, v1.ConsistencyApplication, "False", ""},
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			c.set(w)
			w.finish()
			w.expect(c.want)
		})
	}
}

func (w *world) expect(want expected) {
	w.t.Helper()
	g := NewWithT(w.t)
	g.Expect(w.run.Status.Result).To(Equal(want.result), "message: %s", w.run.Status.Message)
	g.Expect(strings.Join(w.started, " ")).To(Equal(want.started))
	g.Expect(w.run.Status.Message).To(ContainSubstring(want.message))
	g.Expect(w.cond(v1.ConditionMayBeQuiesced).Status).To(Equal(want.quiesced))
	for name, s := range w.snapshots {
		if !s.Foreign && s.Error != "no class" && want.consistency != "" {
			g.Expect(s.Consistency).To(Equal(want.consistency), name)
		}
	}
	if want.consistency == "" && want.result != v1.ResultSucceeded && want.message != "no class" {
		g.Expect(w.created).To(BeEmpty())
	}
	g.Expect(w.lockHeld).To(BeFalse())
}

func TestPhasesOfARunWithHooks(t *testing.T) {
	w := newWorld(t)
	w.finish()
	NewWithT(t).Expect(w.phases).To(Equal(order[1:]))
}

func TestARunWithoutHooksWritesItsRecordOnce(t *testing.T) {
	w := newWorld(t)
	w.schedule.Spec.PreHooks, w.schedule.Spec.PostHooks = nil, nil
	w.run.Finalizers = nil
	w.finish()
	NewWithT(t).Expect(w.phases).To(Equal([]v1.RunPhase{v1.PhaseCompleted}))
}

func TestARunWithoutHooksRecordsASlowSnapshotAndWaits(t *testing.T) {
	w := newWorld(t)
	w.schedule.Spec.PreHooks, w.schedule.Spec.PostHooks = nil, nil
	w.run.Finalizers = nil
	w.onCreated = func(_ *world, s *Snapshot) { s.Bound = true }
	w.onStep = func(w *world) {
		if w.now.Sub(begin) > time.Hour {
			for _, s := range w.snapshots {
				s.Cut, s.Ready = true, true
			}
		}
	}
	w.settle()
	w.now = w.now.Add(DirectGrace)
	w.settle()
	g := NewWithT(t)
	g.Expect(w.run.Status.Phase).To(Equal(v1.PhaseAwaitingReady))
	w.now = w.now.Add(2 * time.Hour)
	w.finish()
	g.Expect(w.run.Status.Result).To(Equal(v1.ResultSucceeded))
}

func TestARunWaitsForTheLock(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.locked = "shop/daily (run daily-1)"
	w.settle()
	g.Expect(w.run.Status.Message).To(Equal("waiting for shop/daily (run daily-1)"))
	g.Expect(w.started).To(BeEmpty())
	w.locked = ""
	w.finish()
	g.Expect(w.run.Status.Result).To(Equal(v1.ResultSucceeded))
}

func TestADrainingOperatorPlansNothing(t *testing.T) {
	w := newWorld(t)
	w.draining = true
	w.settle()
	NewWithT(t).Expect(w.run.Status.Phase).To(BeEmpty())
}

func TestAForeignSnapshotWithOurNameIsLeftAlone(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.snapshots["data-hourly-202603011200"] = &Snapshot{Foreign: true, UID: "foreign"}
	w.finish()
	g.Expect(w.run.Status.Result).To(Equal(v1.ResultSucceeded))
	g.Expect(w.snapshots["data-hourly-202603011200"].UID).To(BeEquivalentTo("foreign"))
	g.Expect(w.snapshots).To(HaveLen(3))
}

func TestUncutSnapshotsOfEarlierRunsAreDeletedFirst(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.leftovers = []Leftover{{Name: "data-hourly-202603011100", UID: "x"}}
	w.onCreate = func(w *world, _ CreateSnapshot) *CreateFailure {
		g.Expect(w.deleted).To(ConsistOf("data-hourly-202603011100"))
		return nil
	}
	w.finish()
	g.Expect(w.run.Status.Result).To(Equal(v1.ResultSucceeded))
}

// The operator dies at every step of a run and another takes over: the application is released, no attempt is started twice (checked by
// the world), and the snapshots are only called consistent if everything was seen.
func TestTheOperatorDiesAtEveryStep(t *testing.T) {
	for n := 1; ; n++ {
		w := newWorld(t)
		steps := 0
		w.onStep = func(w *world) {
			if steps++; steps == n {
				w.restart()
			}
		}
		w.finish()
		g := NewWithT(t)
		g.Expect(w.cond(v1.ConditionMayBeQuiesced).Status).NotTo(BeEquivalentTo("True"), "step %d", n)
		released := slices.ContainsFunc(w.started, func(s string) bool { return strings.HasPrefix(s, "Post/") })
		quiesced := w.run.Status.QuiescedTime != nil
		g.Expect(released || !quiesced).To(BeTrue(), "step %d: %v", n, w.started)
		if w.run.Status.Result != v1.ResultSucceeded {
			g.Expect(w.labelled).To(BeEmpty(), "step %d", n)
		}
		if steps < n {
			g.Expect(n).To(BeNumerically(">", 12), "the run should have more steps than that")
			return
		}
	}
}

// At every step: the schedule is edited, disabled, deleted, or the run is deleted. The release is never skipped (I8).
func TestEditsAtEveryStep(t *testing.T) {
	edits := map[string]func(w *world){
		"the schedule loses its hooks": func(w *world) { w.schedule.Spec.PreHooks, w.schedule.Spec.PostHooks = nil, nil },
		"the schedule is disabled":     func(w *world) { w.schedule.Spec.Disabled = true },
		"the schedule is deleted":      func(w *world) { w.schedule = nil },
		"the run is deleted":           func(w *world) { w.run.DeletionTimestamp = ptr.To(metav1.NewTime(w.now)) },
		"the release is asked for":     func(w *world) { w.run.Annotations = map[string]string{v1.AnnotationRelease: "now"} },
	}
	for name, edit := range edits {
		t.Run(name, func(t *testing.T) {
			for n := 1; n < 30; n++ {
				w := newWorld(t)
				steps := 0
				w.onStep = func(w *world) {
					if steps++; steps == n {
						edit(w)
					}
				}
				w.finish()
				if w.run.Status.QuiescedTime == nil {
					continue
				}
				g := NewWithT(t)
				for _, pod := range []string{"db-0", "db-1"} {
					g.Expect(w.started).To(ContainElement("Post/release/"+pod+"#1"), "step %d: %v", n, w.started)
				}
				g.Expect(w.cond(v1.ConditionMayBeQuiesced).Status).To(BeEquivalentTo("False"), "step %d", n)
			}
		})
	}
}

func TestTheEmergencyExitUsesTheCorrectedPostHooks(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.pods = w.pods[:1]
	w.onStart = func(_ *world, e StartExec) *Outcome {
		if e.Hook.Name == "release" {
			return failed()
		}
		return completed()
	}
	w.settle()
	g.Expect(w.run.Status.Phase).To(Equal(v1.PhasePostHooks))
	w.schedule.Spec.PostHooks = []v1.PostHook{{Hook: hook("corrected")}}
	w.run.Annotations = map[string]string{v1.AnnotationRelease: "1"}
	w.finish()
	g.Expect(w.started).To(ContainElement("Post/corrected/db-0#1"))
	g.Expect(w.cond(v1.ConditionMayBeQuiesced).Status).To(BeEquivalentTo("False"))
	g.Expect(w.cond(v1.ConditionPostHooksSucceeded).Status).To(BeEquivalentTo("True"))
}

// All pods are gone when the application is to be released: a freeze outlives its pod, so the run waits for one.
func TestTheReleaseWaitsForAPodToComeBack(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.pods = w.pods[:1]
	w.onCreated = func(w *world, s *Snapshot) {
		s.Cut, s.Ready, s.Bound = true, true, true
		w.pods = nil
	}
	d := w.settle()
	g.Expect(w.run.Status.Phase).To(Equal(v1.PhasePostHooks))
	g.Expect(w.run.Status.Message).To(ContainSubstring("waiting to run post hook release"))
	g.Expect(d.Wait).To(BeTemporally("==", w.now.Add(LookInterval)))
	w.now = w.now.Add(time.Minute)
	w.pods = []Target{{Namespace: "shop", Pod: "db-0", UID: "u0b", Container: "c", ContainerID: "c0b"}}
	w.finish()
	g.Expect(w.started).To(Equal([]string{"Pre/quiesce/db-0#1", "Post/release/db-0#1"}))
	g.Expect(w.cond(v1.ConditionMayBeQuiesced).Status).To(BeEquivalentTo("False"))
	g.Expect(w.run.Status.Result).To(Equal(v1.ResultPartiallyFailed))
}

func TestAReleaseThatFailsIsGivenUpOnRecordAndNotBefore(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.pods = w.pods[:1]
	w.onStart = func(_ *world, e StartExec) *Outcome {
		if e.Key.Stage == v1.StagePost {
			return failed()
		}
		return completed()
	}
	w.onStep = func(w *world) {
		if w.run.Status.Phase == v1.PhaseCompleted && w.now.Sub(begin) > time.Hour+time.Minute {
			// The schedule controller has taken the alarm over.
			w.schedule.Status.Conditions = []metav1.Condition{{Type: v1.ConditionMayBeQuiesced, Status: "True", Reason: v1.ReasonGivenUp}}
		}
	}
	w.finish()
	c := w.cond(v1.ConditionMayBeQuiesced)
	g.Expect(c.Status).To(BeEquivalentTo("True"))
	g.Expect(c.Reason).To(Equal(v1.ReasonGivenUp))
	g.Expect(c.Message).To(ContainSubstring("NonZeroExit"))
	g.Expect(w.run.Status.ReleasedTime.Sub(begin)).To(BeNumerically(">=", time.Hour))
	g.Expect(w.now.Sub(begin)).To(BeNumerically(">", time.Hour+time.Minute), "the finalizer went before the schedule showed the alarm")
}

func TestOnePostHookFailingDoesNotStopTheNext(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.pods = w.pods[:1]
	w.schedule.Spec.PostHooks = append(w.schedule.Spec.PostHooks, v1.PostHook{Hook: hook("second")}, v1.PostHook{Hook: hook("bad-news"), ExecutionPolicy: v1.ExecuteOnFailure})
	w.onStart = func(_ *world, e StartExec) *Outcome {
		if e.Hook.Name == "release" && e.Key.Attempt < 3 {
			return failed()
		}
		return completed()
	}
	w.settle()
	g.Expect(w.started).To(Equal([]string{"Pre/quiesce/db-0#1", "Post/release/db-0#1", "Post/second/db-0#1"}))
	w.finish()
	g.Expect(w.run.Status.Result).To(Equal(v1.ResultSucceeded))
	g.Expect(w.started).NotTo(ContainElement(ContainSubstring("bad-news")))
}

// All pre hooks end before the first snapshot exists (velero#4268, #2652, #3542, #3978), and the application is released when the
// snapshots are cut and not when they are ready (velero#1519).
func TestOrder(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.schedule.Spec.PreHooks = append(w.schedule.Spec.PreHooks, v1.PreHook{Hook: hook("second")})
	w.onCreate = func(w *world, _ CreateSnapshot) *CreateFailure {
		g.Expect(w.started).To(HaveLen(4))
		return nil
	}
	w.onCreated = func(_ *world, s *Snapshot) { s.Bound, s.Cut = true, true }
	w.settle()
	g.Expect(w.started).To(HaveLen(6))
	g.Expect(w.run.Status.Phase).To(Equal(v1.PhaseAwaitingReady))
	g.Expect(w.cond(v1.ConditionMayBeQuiesced).Status).To(BeEquivalentTo("False"))
	g.Expect(w.lockHeld).To(BeFalse())
}

func TestAnUnknownJournalIsOnlyReleased(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.onStep = func(w *world) {
		if w.run.Status.Phase == v1.PhaseSnapshotting {
			w.run.Status.Plan.Version = 99
		}
	}
	w.finish()
	g.Expect(w.created).To(BeEmpty())
	g.Expect(w.started).To(ContainElement("Post/release/db-0#1"))
	g.Expect(w.run.Status.Result).To(Equal(v1.ResultFailed))
}

func TestAHeldCommandThatIsLostBeforeTheCut(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.pods = w.pods[:1]
	w.schedule.Spec.PreHooks[0].Mode = v1.ModeHold
	w.schedule.Spec.PreHooks[0].ExpectOutput = "READY"
	w.schedule.Spec.PreHooks[0].ExpectReleaseOutput = "RELEASED"
	w.onCreated = func(w *world, s *Snapshot) {
		s.Cut, s.Ready, s.Bound = true, true, true
		for k, e := range w.exec {
			if e.State == ExecHeld {
				w.exec[k] = &Exec{State: ExecDone, Outcome: Outcome{Reason: v1.ReasonHoldLost, EndUnknown: true, Message: "the stream broke"}}
			}
		}
	}
	w.finish()
	g.Expect(w.run.Status.Result).To(Equal(v1.ResultPartiallyFailed))
	g.Expect(w.labelled).To(BeEmpty())
	g.Expect(w.run.Status.Message).To(ContainSubstring("HoldLost"))
}

// A kubelet that has just started knows no pods: what it says of a pod that exists is not believed.
func TestAPodThatOnlyTheKubeletDoesNotFindIsReleasedAllTheSame(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.pods = w.pods[:1]
	w.onStart = func(_ *world, e StartExec) *Outcome {
		if e.Key.Stage == v1.StagePost && e.Key.Attempt < 3 {
			return &Outcome{Reason: v1.ReasonPodNotFound, NeverStarted: true}
		}
		return completed()
	}
	w.finish()
	g.Expect(w.started).To(Equal([]string{"Pre/quiesce/db-0#1", "Post/release/db-0#1", "Post/release/db-0#2", "Post/release/db-0#3"}))
	g.Expect(w.run.Status.Result).To(Equal(v1.ResultSucceeded))
}

// One of two pods goes away while quiesced and comes back as another one when the release has begun: its file system may be frozen.
func TestThePodInPlaceOfOneThatWentAwayIsReleasedAlthoughAnotherMatches(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.onCreated = func(w *world, s *Snapshot) {
		s.Cut, s.Ready, s.Bound = true, true, true
		w.pods = w.pods[:1]
	}
	w.settle()
	g.Expect(w.run.Status.Phase).To(Equal(v1.PhasePostHooks), "the release waits for what takes the place of db-1")
	w.now = w.now.Add(30 * time.Second)
	w.pods = append(w.pods, Target{Namespace: "shop", Pod: "db-1", UID: "u1b", Container: "c", ContainerID: "c1b"})
	w.finish()
	g.Expect(w.started).To(HaveLen(4))
	g.Expect(w.cond(v1.ConditionMayBeQuiesced).Status).To(BeEquivalentTo("False"))
}

func TestAPodThatWentAwayForGoodWhileQuiescedRaisesTheAlarm(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.schedule.Status.Conditions = []metav1.Condition{{Type: v1.ConditionMayBeQuiesced, Status: "True", Reason: v1.ReasonGivenUp}}
	w.onCreated = func(w *world, s *Snapshot) {
		s.Cut, s.Ready, s.Bound = true, true, true
		w.pods = w.pods[:1]
	}
	w.finish()
	c := w.cond(v1.ConditionMayBeQuiesced)
	g.Expect(c.Status).To(BeEquivalentTo("True"))
	g.Expect(c.Message).To(ContainSubstring("shop/db-1"))
	g.Expect(w.run.Status.ReleasedTime.Sub(begin)).To(BeNumerically("~", ReplacementWait, time.Minute))
}

// A refused claim is tried again while the run waits for its other snapshots, and does not keep the next slot from coming.
func TestARefusedClaimWithoutHooksIsTriedAgainAndBlocksNothing(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.schedule.Spec.PreHooks, w.schedule.Spec.PostHooks = nil, nil
	w.run.Finalizers = nil
	w.onCreate = func(w *world, e CreateSnapshot) *CreateFailure {
		if e.Claim == "wal" && w.now.Sub(begin) < time.Minute {
			return &CreateFailure{Message: "exceeded quota", Refused: true, RetryTime: w.now.Add(10 * time.Second)}
		}
		return nil
	}
	w.settle()
	w.now = w.now.Add(DirectGrace)
	w.settle()
	g.Expect(BeforeAwaitingReady(w.run)).To(BeFalse())
	w.finish()
	g.Expect(w.run.Status.Result).To(Equal(v1.ResultSucceeded))
	g.Expect(w.created).To(HaveLen(2))
}

func TestARefusedClaimWithoutHooksIsGivenUpInTheEnd(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.schedule.Spec.PreHooks, w.schedule.Spec.PostHooks = nil, nil
	w.run.Finalizers = nil
	w.onCreate = func(w *world, e CreateSnapshot) *CreateFailure {
		if e.Claim == "wal" {
			return &CreateFailure{Message: "exceeded quota", Refused: true, RetryTime: w.now.Add(10 * time.Second)}
		}
		return nil
	}
	w.finish()
	g.Expect(w.run.Status.Result).To(Equal(v1.ResultPartiallyFailed))
	g.Expect(w.run.Status.Message).To(ContainSubstring("exceeded quota"))
	g.Expect(w.now.Sub(begin)).To(BeNumerically("~", 5*time.Minute, time.Minute))
}
