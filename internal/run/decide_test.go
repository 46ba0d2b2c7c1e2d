// SPDX-License-Identifier: Apache-2.0

package run

import (
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
