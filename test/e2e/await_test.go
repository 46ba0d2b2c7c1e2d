// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// patience is how long a test waits for what should take a moment.
const patience = 30 * time.Second

// await watches an object until holds says that it is as it should be, and returns it. The test fails if that takes longer than patience.
func await[T client.Object](w *world, o T, what string, holds func(T) bool) T {
	w.Helper()
	return awaitFor(w, patience, o, what, holds)
}

// awaitFor is await with a patience of its own.
func awaitFor[T client.Object](w *world, limit time.Duration, o T, what string, holds func(T) bool) T {
	w.Helper()
	seen, ok := watchUntil(w, limit, o, func(kind watch.EventType, o T) bool { return kind != watch.Deleted && holds(o) })
	if !ok {
		w.Fatalf("%s %s: not %s within %s:\n%s", kindOf(o), o.GetName(), what, limit, describe(o))
	}
	return seen
}

// awaitGone waits until an object is deleted, finalizers and all.
func awaitGone[T client.Object](w *world, o T) {
	w.Helper()
	_, ok := watchUntil(w, 2*patience, o, func(kind watch.EventType, seen T) bool {
		return kind == watch.Deleted || (o.GetUID() != "" && seen.GetUID() != o.GetUID())
	})
	if !ok {
		w.Fatalf("%s %s is still there:\n%s", kindOf(o), o.GetName(), describe(o))
	}
}

// watchUntil goes on through the death of the API server: a watch that ends is begun again.
func watchUntil[T client.Object](w *world, limit time.Duration, o T, enough func(watch.EventType, T) bool) (T, bool) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), limit)
	defer cancel()
	for {
		if seen, ok := watchOnce(ctx, o, enough); ok {
			return seen, true
		}
		select {
		case <-ctx.Done():
			var none T
			return none, false
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func watchOnce[T client.Object](ctx context.Context, o T, enough func(watch.EventType, T) bool) (T, bool) {
	var none T
	list, err := listFor(o)
	if err != nil {
		return none, false
	}
	events, err := api.Watch(ctx, list, client.InNamespace(o.GetNamespace()), client.MatchingFields{"metadata.name": o.GetName()})
	if err != nil {
		return none, false
	}
	defer events.Stop()
	// A watch tells nothing of an object that is not there.
	current, ok := o.DeepCopyObject().(T)
	if ok && apierrors.IsNotFound(api.Get(ctx, client.ObjectKeyFromObject(o), current)) && enough(watch.Deleted, o) {
		return o, true
	}
	for e := range events.ResultChan() {
		if seen, ok := e.Object.(T); ok && enough(e.Type, seen) {
			return seen, true
		}
	}
	return none, false
}

func listFor(o client.Object) (client.ObjectList, error) {
	gvk, err := apiutil.GVKForObject(o, scheme)
	if err != nil {
		return nil, err
	}
	gvk.Kind += "List"
	list, err := scheme.New(gvk)
	if err != nil {
		return nil, err
	}
	return list.(client.ObjectList), nil
}

func kindOf(o client.Object) string {
	gvk, err := apiutil.GVKForObject(o, scheme)
	if err != nil {
		return "object"
	}
	return gvk.Kind
}
