// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// server is the API server as one story sees it. Every write of the story goes through it, whoever makes it, so that it knows each version of
// each object that an operator caches, in order. It tells the story's time: what is created now was created at the clock's time.
type server struct {
	client.Client
	clock    clock.PassiveClock
	births   map[types.UID]metav1.Time
	newest   map[objectKey]client.Object // what exists
	versions []version                   // the record; a cache may be anywhere in it
	writes   int
	wrote    func()
}

// objectKey is an object of the kinds that the operator caches.
type objectKey struct{ kind, name string }

// version of an object.
type version struct {
	objectKey
	object client.Object // nil: it is gone
}

const (
	kindSchedule = "SnapshotSchedule"
	kindRun      = "SnapshotRun"
	kindSnapshot = "VolumeSnapshot"
)

func newServer(c clock.PassiveClock) *server {
	return &server{Client: api, clock: c, births: map[types.UID]metav1.Time{}, newest: map[objectKey]client.Object{}}
}

func keyOf(o client.Object) (objectKey, bool) {
	switch o.(type) {
	case *v1.SnapshotSchedule:
		return objectKey{kindSchedule, o.GetName()}, true
	case *v1.SnapshotRun:
		return objectKey{kindRun, o.GetName()}, true
	case *snapshotv1.VolumeSnapshot:
		return objectKey{kindSnapshot, o.GetName()}, true
	}
	return objectKey{}, false
}

// dress an object that came from the API server in the story's time.
func (s *server) dress(o client.Object) {
	if t, ok := s.births[o.GetUID()]; ok {
		o.SetCreationTimestamp(t)
	}
}

// note a version that was written.
func (s *server) note(o client.Object, gone bool) {
	s.writes++
	key, cached := keyOf(o)
	if !cached {
		return
	}
	if gone || (o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0) {
		delete(s.newest, key)
		s.versions = append(s.versions, version{key, nil})
	} else {
		if before := s.newest[key]; before != nil && before.GetResourceVersion() == o.GetResourceVersion() {
			return // nothing was changed by it
		}
		kept, ok := o.DeepCopyObject().(client.Object)
		if !ok {
			panic("a copy of an object is an object")
		}
		s.newest[key] = kept
		s.versions = append(s.versions, version{key, kept})
	}
	if s.wrote != nil {
		s.wrote()
	}
}

func (s *server) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return s.createdAt(ctx, s.clock.Now(), o, opts...)
}

// createdAt is Create at another time.
func (s *server) createdAt(ctx context.Context, t time.Time, o client.Object, opts ...client.CreateOption) error {
	if err := s.Client.Create(ctx, o, opts...); err != nil {
		return err
	}
	s.births[o.GetUID()] = metav1.NewTime(t.Truncate(time.Second))
	s.dress(o)
	s.note(o, false)
	return nil
}

func (s *server) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	if err := s.Client.Patch(ctx, o, p, opts...); err != nil {
		return err
	}
	s.dress(o)
	s.note(o, false)
	return nil
}

func (s *server) patchStatus(ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	if err := s.Client.Status().Patch(ctx, o, p, opts...); err != nil {
		return err
	}
	s.dress(o)
	s.note(o, false)
	return nil
}

func (s *server) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	if err := s.Client.Delete(ctx, o, opts...); err != nil {
		return err
	}
	left, ok := o.DeepCopyObject().(client.Object)
	if !ok {
		panic("a copy of an object is an object")
	}
	err := s.Get(ctx, client.ObjectKeyFromObject(o), left)
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	s.note(left, err != nil)
	return nil
}

func (s *server) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	err := s.Client.Get(ctx, key, o, opts...)
	s.dress(o)
	return err
}

// lag is how far a cache trails.
type lag struct {
	kind string // of the objects; "" is all
	// by is how many later writes it takes until one is seen; or, with forever, nothing is seen while the operator has anything left to do.
	by      int
	forever bool
}

func (l lag) String() string {
	of := l.kind
	if of == "" {
		of = "everything"
	}
	if l.forever {
		return of + " trails for ever"
	}
	return fmt.Sprintf("%s trails by %d", of, l.by)
}

func (l lag) concerns(v version) bool {
	return (l.by > 0 || l.forever) && (l.kind == "" || l.kind == v.kind)
}

// view is an operator's cache: the server's objects as of some earlier write.
type view struct {
	server *server
	lag    lag
	read   int // how many of the server's versions were looked at
	hidden []hiddenVersion
	shown  map[objectKey]client.Object
	// changed is told of every version that comes into view, and of what was there before.
	changed func(objectKey, client.Object)
}

type hiddenVersion struct {
	version
	since int // how many writes there had been
}

// follow brings into view what is due.
func (v *view) follow() {
	for ; v.read < len(v.server.versions); v.read++ {
		next := v.server.versions[v.read]
		if !v.lag.concerns(next) {
			v.show(next)
			continue
		}
		v.hidden = append(v.hidden, hiddenVersion{next, v.read + 1})
	}
	for len(v.hidden) > 0 && !v.lag.forever && v.read-v.hidden[0].since >= v.lag.by {
		v.reveal()
	}
}

// reveal the oldest version that is hidden.
func (v *view) reveal() {
	first := v.hidden[0].version
	v.hidden = v.hidden[1:]
	v.show(first)
}

func (v *view) show(next version) {
	before := v.shown[next.objectKey]
	if next.object == nil {
		delete(v.shown, next.objectKey)
	} else {
		seen := visible(next.object)
		if seen == nil {
			return
		}
		v.shown[next.objectKey] = seen
		before = seen
	}
	if before != nil && v.changed != nil {
		v.changed(next.objectKey, before)
	}
}

// names of the objects of a kind that are in view, sorted.
func (v *view) names(kind string) []string {
	var names []string
	for key := range v.shown {
		if key.kind == kind {
			names = append(names, key.name)
		}
	}
	slices.Sort(names)
	return names
}

// get copies an object in view.
func (v *view) get(key client.ObjectKey, into client.Object) error {
	k, ok := keyOf(into)
	if !ok {
		return fmt.Errorf("the cache holds no %T", into)
	}
	k.name = key.Name
	switch found := v.shown[k].(type) {
	case *v1.SnapshotSchedule:
		return copyInto(found, into)
	case *v1.SnapshotRun:
		return copyInto(found, into)
	case *snapshotv1.VolumeSnapshot:
		return copyInto(found, into)
	}
	return apierrors.NewNotFound(v1.GroupVersion.WithResource(k.kind).GroupResource(), key.Name)
}

func copyInto[T interface{ DeepCopyInto(into T) }](found T, into client.Object) error {
	to, ok := into.(T)
	if !ok {
		return errors.New("the kinds differ")
	}
	found.DeepCopyInto(to)
	return nil
}
