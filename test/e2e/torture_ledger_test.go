// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// ledger knows every run of a namespace as it was last, also those that are deleted, and most phases at the moment in which they begin. When
// the API server dies it looks at all of them again.
type ledger struct {
	mu      sync.Mutex
	runs    map[string]*v1.SnapshotRun
	aims    map[*aim]bool
	changed chan struct{} // closed at the next change
}

type aim struct {
	phase v1.RunPhase
	fire  func()
}

func newLedger(w *world) *ledger {
	w.Helper()
	l := &ledger{runs: map[string]*v1.SnapshotRun{}, aims: map[*aim]bool{}, changed: make(chan struct{})}
	ctx, stop := context.WithCancel(w.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		again(ctx, func() error {
			l.follow(ctx, w.ns)
			return errors.New("the watch ended")
		})
	}()
	w.Cleanup(func() { stop(); <-done })
	return l
}

// follow the runs until the watch ends.
func (l *ledger) follow(ctx context.Context, ns string) {
	var list v1.SnapshotRunList
	if err := api.List(ctx, &list, client.InNamespace(ns)); err != nil {
		return
	}
	for i := range list.Items {
		l.see(&list.Items[i])
	}
	raw := metav1.ListOptions{ResourceVersion: list.ResourceVersion}
	events, err := api.Watch(ctx, &list, client.InNamespace(ns), &client.ListOptions{Raw: &raw})
	if err != nil {
		return
	}
	defer events.Stop()
	for e := range events.ResultChan() {
		o, ok := e.Object.(*v1.SnapshotRun)
		if !ok {
			return
		}
		l.see(o)
	}
}

func phaseOf(o *v1.SnapshotRun) v1.RunPhase {
	if o == nil || o.Status.Phase == "" {
		return v1.PhasePending
	}
	return o.Status.Phase
}

func (l *ledger) see(o *v1.SnapshotRun) {
	l.mu.Lock()
	before, known := l.runs[o.Name]
	l.runs[o.Name] = o.DeepCopy()
	var fire []func()
	if !known || phaseOf(before) != phaseOf(o) {
		for a := range l.aims {
			if a.phase == phaseOf(o) {
				fire = append(fire, a.fire)
				delete(l.aims, a)
			}
		}
	}
	close(l.changed)
	l.changed = make(chan struct{})
	l.mu.Unlock()
	for _, f := range fire {
		f()
	}
}

// when the next run enters a phase, f is called. cancel answers whether that did not happen and will not.
func (l *ledger) when(phase v1.RunPhase, f func()) (cancel func() bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	a := &aim{phase: phase, fire: f}
	l.aims[a] = true
	return func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		waiting := l.aims[a]
		delete(l.aims, a)
		return waiting
	}
}

// await until the runs, by name, are as they should be, and say whether they are.
func (l *ledger) await(ctx context.Context, holds func(map[string]*v1.SnapshotRun) bool) bool {
	for {
		l.mu.Lock()
		ok, changed := holds(l.runs), l.changed
		l.mu.Unlock()
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// awaitEnd of one run.
func (l *ledger) awaitEnd(ctx context.Context, name string) bool {
	return l.await(ctx, func(runs map[string]*v1.SnapshotRun) bool { return runs[name] != nil && ended(runs[name]) })
}

func (l *ledger) all() []*v1.SnapshotRun {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out []*v1.SnapshotRun
	for _, name := range slices.Sorted(maps.Keys(l.runs)) {
		out = append(out, l.runs[name])
	}
	return out
}
