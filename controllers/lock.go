// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// lockTable keeps runs with hooks off each other's pods and claims. A run takes all it needs or nothing, so there is no
// deadlock, and a run never overtakes an earlier one that waits for something both need. It lives in the leader's memory and is rebuilt from the
// runs that are active.
type lockTable struct {
	mu      sync.Mutex
	entries []*lockEntry // holders and waiters, in order of their first request
	ready   []types.NamespacedName
	// freed says that woken has something to tell; nil: nobody listens.
	freed chan struct{}
}

// resource is a pod or a claim. The namespace is part of it, so that a run's record, whoever wrote it, cannot name what belongs to others by a UID alone.
type resource struct {
	namespace string
	uid       types.UID
}

type lockEntry struct {
	run       types.UID
	name      types.NamespacedName
	label     string // what others see themselves wait for
	held      bool
	resources map[resource]bool
}

func (e *lockEntry) conflicts(resources map[resource]bool) bool {
	for r := range resources {
		if e.resources[r] {
			return true
		}
	}
	return false
}

// take asks for the resources on behalf of a run; it holds them, or keeps its place in the queue and learns for whom it waits.
func (t *lockTable) take(run types.UID, name types.NamespacedName, label string, resources map[resource]bool) (held bool, waitingFor string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.IndexFunc(t.entries, func(e *lockEntry) bool { return e.run == run })
	if i < 0 {
		i = len(t.entries)
		t.entries = append(t.entries, &lockEntry{run: run, name: name, label: label})
	}
	me := t.entries[i]
	me.resources = resources
	for j, e := range t.entries {
		if e != me && (e.held || j < i) && e.conflicts(resources) {
			me.held = false
			return false, e.label
		}
	}
	me.held = true
	return true, ""
}

// hold records that a run holds its resources, whatever others think: its plan says so.
func (t *lockTable) hold(run types.UID, name types.NamespacedName, label string, resources map[resource]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.entries {
		if e.run == run {
			e.held, e.resources = true, resources
			return
		}
	}
	t.entries = append(t.entries, &lockEntry{run: run, name: name, label: label, held: true, resources: resources})
}

// holds reports whether a run holds its lock.
func (t *lockTable) holds(run types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.ContainsFunc(t.entries, func(e *lockEntry) bool { return e.run == run && e.held })
}

// drop gives up a run's lock or its place in the queue and wakes the runs that waited.
func (t *lockTable) drop(run types.UID) {
	t.remove(func(e *lockEntry) bool { return e.run == run })
}

// dropName is drop for a run that no longer exists.
func (t *lockTable) dropName(name types.NamespacedName) {
	t.remove(func(e *lockEntry) bool { return e.name == name })
}

func (t *lockTable) remove(match func(*lockEntry) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := len(t.entries)
	t.entries = slices.DeleteFunc(t.entries, match)
	if len(t.entries) == n {
		return
	}
	for _, e := range t.entries {
		if !e.held && !slices.Contains(t.ready, e.name) {
			t.ready = append(t.ready, e.name)
		}
	}
	select {
	case t.freed <- struct{}{}:
	default: // it was said before and not heard yet, or nobody listens
	}
}

// woken are the runs that should ask again; each is told once.
func (t *lockTable) woken() []types.NamespacedName {
	t.mu.Lock()
	defer t.mu.Unlock()
	ready := t.ready
	t.ready = nil
	return ready
}
