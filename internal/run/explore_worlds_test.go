// SPDX-License-Identifier: Apache-2.0

package run

import (
	"time"

	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

const exploreTimeout = 5 * time.Second

func startNode(claims, pods int) *node {
	w := newWorld(nil)
	w.schedule.Spec.PreHooks[0].TimeoutSeconds = ptr.To(int32(exploreTimeout / time.Second))
	w.schedule.Spec.PostHooks[0].TimeoutSeconds = ptr.To(int32(exploreTimeout / time.Second))
	w.schedule.Spec.SnapshotTimeoutSeconds = ptr.To[int32](30)
	return &node{Now: begin, Run: w.run, Schedule: w.schedule, Config: Config{ReleaseDeadline: 10 * time.Second, ReadyTimeout: 24 * time.Hour},
		Exec: map[ExecKey]Exec{}, Ends: map[ExecKey]time.Time{}, Starts: map[ExecKey]int{}, Lost: map[ExecKey]bool{}, Free: map[ExecKey]int32{},
		Frozen: map[string]bool{}, Loose: map[string]time.Time{}, Broken: map[string]bool{}, Pods: w.pods[:pods], Claims: w.claims[:claims],
		Snapshots: map[string]Snapshot{}, Behind: map[string]Snapshot{}, CutFrozen: map[string]bool{}, Creates: map[string]CreateFailure{},
		Lock: true}
}

// budget of faults, edits, crashes, delays and stale reads of one history.
func (n *node) budget(faults, edits, crashes, delays, stales int) *node {
	n.Faults, n.Edits, n.Crashes, n.Delays, n.Stales = faults, edits, crashes, delays, stales
	return n
}

// hold makes a pre hook a held one.
func hold(h *v1.PreHook) {
	h.Mode, h.ExpectOutput, h.ExpectReleaseOutput, h.ReleaseTimeoutSeconds = v1.ModeHold, "READY", "RELEASED", ptr.To[int32](4)
}

// app names the container of pod i, so that hooks for that app run in it alone.
func (n *node) app(i int, name string) { n.Pods[i].Container = name }

func pre(name, app string) v1.PreHook {
	h := v1.PreHook{Hook: hook(name, app)}
	h.TimeoutSeconds = ptr.To(int32(exploreTimeout / time.Second))
	return h
}

func post(name, app string) v1.PostHook {
	h := v1.PostHook{Hook: hook(name, app)}
	h.TimeoutSeconds = ptr.To(int32(exploreTimeout / time.Second))
	return h
}

// exploredWorlds are many small ones rather than one big one. Budgets are what a history may hold of everything that goes wrong.
var exploredWorlds = map[string]func() *node{
	"one pod, one claim: a fault and an edit": func() *node {
		return startNode(1, 1).budget(1, 1, 0, 0, 0)
	},
	"one pod, one claim: a fault and a crash": func() *node {
		return startNode(1, 1).budget(1, 0, 1, 0, 1)
	},
	"one pod, one claim: an edit and a crash": func() *node {
		return startNode(1, 1).budget(0, 1, 1, 0, 0)
	},
	"one pod, one claim: two edits": func() *node {
		n := startNode(1, 1).budget(0, 2, 0, 0, 0)
		n.Persons = []string{"the run is deleted", "the schedule loses its hooks", "the schedule gets other hooks", "the release is asked for", "a pod is replaced", "a pod goes away"}
		return n
	},
	"one pod, one claim: deadlines pass": func() *node {
		return startNode(1, 1).budget(1, 0, 0, 2, 0)
	},
	"one pod, one claim: a deadline and an edit": func() *node {
		return startNode(1, 1).budget(0, 1, 0, 1, 0)
	},
	"one pod, one claim: deadlines and a crash": func() *node {
		n := startNode(1, 1).budget(0, 0, 1, 2, 0)
		n.Downtime = 10 * time.Minute
		return n
	},
	"two pods, two claims": func() *node {
		return startNode(2, 2).budget(1, 0, 1, 0, 0)
	},
	"two pods, two claims, stale reads": func() *node {
		n := startNode(2, 1).budget(0, 0, 1, 1, 1)
		n.Slow = true
		return n
	},
	"two pods, one claim, a person": func() *node {
		return startNode(1, 2).budget(0, 1, 0, 0, 0)
	},
	"a repeated pre hook": func() *node {
		n := startNode(1, 1).budget(2, 0, 0, 0, 0)
		n.Schedule.Spec.PreHooks[0].BackoffLimit = ptr.To[int32](1)
		return n
	},
	"a pre hook that may fail": func() *node {
		n := startNode(1, 1).budget(1, 0, 1, 0, 0)
		n.Schedule.Spec.PreHooks[0].OnError = v1.OnErrorContinue
		return n
	},
	"a held pre hook and an edit": func() *node {
		n := startNode(1, 1).budget(1, 1, 0, 0, 0)
		hold(&n.Schedule.Spec.PreHooks[0])
		return n
	},
	"a held pre hook and a crash": func() *node {
		n := startNode(1, 1).budget(1, 0, 1, 0, 0)
		hold(&n.Schedule.Spec.PreHooks[0])
		return n
	},
	"a held pre hook and no post hook": func() *node {
		n := startNode(1, 1).budget(1, 0, 1, 1, 0)
		hold(&n.Schedule.Spec.PreHooks[0])
		n.Schedule.Spec.PostHooks = nil
		return n
	},
	"a pre hook held in two pods": func() *node {
		n := startNode(1, 2).budget(1, 0, 1, 0, 0)
		hold(&n.Schedule.Spec.PreHooks[0])
		return n
	},
	"two held pre hooks": func() *node {
		n := startNode(1, 2).budget(1, 0, 1, 0, 0)
		n.app(0, "db0")
		n.app(1, "web")
		n.Schedule.Spec.PreHooks = []v1.PreHook{pre("first", "db0"), pre("second", "web")}
		hold(&n.Schedule.Spec.PreHooks[0])
		hold(&n.Schedule.Spec.PreHooks[1])
		return n
	},
	"a held and an ordinary pre hook, two post hooks": func() *node {
		n := startNode(2, 2).budget(1, 0, 1, 0, 0)
		n.app(0, "db0")
		n.app(1, "web")
		n.Schedule.Spec.PreHooks = []v1.PreHook{pre("quiesce", "db0"), pre("hold", "web")}
		hold(&n.Schedule.Spec.PreHooks[1])
		n.Schedule.Spec.PostHooks = []v1.PostHook{post("release", "db0"), post("release-web", "web")}
		return n
	},
	"two post hooks in two pods that come and go": func() *node {
		n := startNode(1, 2).budget(0, 2, 0, 0, 0)
		n.Config.ReleaseDeadline = 5 * time.Second
		n.app(0, "db0")
		n.app(1, "web")
		n.Schedule.Spec.PostHooks = []v1.PostHook{post("release", "db0"), post("release-web", "web")}
		n.Persons = []string{"a pod goes away", "a pod is replaced"}
		return n
	},
	"two post hooks in one pod that comes and goes": func() *node {
		n := startNode(1, 1).budget(1, 1, 0, 0, 0)
		n.Schedule.Spec.PostHooks = []v1.PostHook{post("release", "db"), post("release-again", "db")}
		n.Persons = []string{"a pod goes away", "a pod is replaced"}
		return n
	},
	"two pre hooks and two crashes": func() *node {
		n := startNode(1, 1).budget(0, 0, 2, 0, 1)
		n.Schedule.Spec.PreHooks = append(n.Schedule.Spec.PreHooks, pre("second", "db"))
		return n
	},
	"maxQuiesceSeconds": func() *node {
		n := startNode(1, 1).budget(0, 0, 1, 2, 0)
		n.Schedule.Spec.MaxQuiesceSeconds = ptr.To[int32](20)
		n.Downtime = 10 * time.Minute
		return n
	},
	"writes that are refused": func() *node {
		n := startNode(1, 1).budget(1, 1, 0, 0, 0)
		n.Leftover, n.Refusable = true, true
		n.Config.ReadyTimeout = 3 * time.Minute
		n.Persons = []string{"the run is deleted", "a snapshot is deleted"}
		return n
	},
	"execution policies": func() *node {
		n := startNode(1, 1).budget(1, 0, 1, 0, 0)
		bad, good := post("bad-news", "db"), post("good-news", "db")
		bad.ExecutionPolicy, good.ExecutionPolicy = v1.ExecuteOnFailure, v1.ExecuteOnSuccess
		bad.BackoffLimit, good.BackoffLimit = ptr.To[int32](0), ptr.To[int32](1)
		n.Schedule.Spec.PostHooks = append([]v1.PostHook{bad, good}, n.Schedule.Spec.PostHooks...)
		return n
	},
	"TestHooks": func() *node {
		n := startNode(1, 1).budget(1, 1, 0, 0, 0)
		n.Run.Spec.Mode = v1.RunTestHooks
		return n
	},
	"Release": func() *node {
		n := startNode(1, 1).budget(1, 1, 0, 0, 0)
		n.Run.Spec.Mode = v1.RunRelease
		return n
	},
	"no hooks": func() *node {
		n := startNode(2, 0).budget(1, 1, 1, 0, 1)
		n.Schedule.Spec.PreHooks, n.Schedule.Spec.PostHooks = nil, nil
		n.Run.Finalizers = nil
		return n
	},
	"a preflight that fails": func() *node {
		n := startNode(1, 2).budget(1, 0, 1, 0, 0)
		n.Problems = map[string]Problem{"quiesce": {v1.ReasonContainerNotFound, "pod shop/db-0 has no container x"}}
		return n
	},
	"one of two pods": func() *node {
		n := startNode(1, 2).budget(1, 1, 0, 0, 0)
		n.Pods[1].UID = "u0''''" // the same volume: who asks one of many pods quiesces and releases what all of them share
		n.Schedule.Spec.PreHooks[0].TargetPolicy, n.Schedule.Spec.PostHooks[0].TargetPolicy = v1.TargetOne, v1.TargetOne
		return n
	},
	"hooks that may be skipped": func() *node {
		n := startNode(1, 0).budget(1, 1, 1, 0, 0)
		n.Schedule.Spec.PreHooks[0].SkipIfNoSelectorFound, n.Schedule.Spec.PostHooks[0].SkipIfNoSelectorFound = true, true
		return n
	},
}
