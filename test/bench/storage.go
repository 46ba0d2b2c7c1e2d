// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// storageWriters is how many statuses are written at a time.
const storageWriters = 16

// storage plays the snapshot controller and the driver: what is created is cut and ready at once. It also is the harness's eye: it notes when a
// VolumeSnapshot was first seen.
type storage struct {
	client client.Client
	cancel context.CancelFunc
	queue  chan types.NamespacedName
	ended  sync.WaitGroup

	mu     sync.Mutex
	idle   bool                   // leaves new snapshots alone
	left   []types.NamespacedName // alone
	seen   tally
	wake   chan struct{} // closed and replaced whenever a tally changes
	failed error
}

// tally of the snapshots that were seen to come and go since the last reset.
type tally struct {
	created, deleted         int
	lastCreated, lastDeleted time.Time
}

func startStorage(ctx context.Context, config *rest.Config, scheme *runtime.Scheme) (*storage, error) {
	ctx, cancel := context.WithCancel(ctx)
	s := &storage{cancel: cancel, queue: make(chan types.NamespacedName, 1<<17), wake: make(chan struct{})}
	var err error
	if s.client, err = client.New(config, client.Options{Scheme: scheme}); err != nil {
		cancel()
		return nil, err
	}
	c, err := cache.New(config, cache.Options{Scheme: scheme, DefaultTransform: cache.TransformStripManagedFields()})
	if err != nil {
		cancel()
		return nil, err
	}
	informer, err := c.GetInformer(ctx, &snapshotv1.VolumeSnapshot{})
	if err != nil {
		cancel()
		return nil, err
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: s.added, DeleteFunc: s.deleted}); err != nil {
		cancel()
		return nil, err
	}
	s.ended.Go(func() { _ = c.Start(ctx) })
	if !c.WaitForCacheSync(ctx) {
		cancel()
		return nil, fmt.Errorf("the cache of VolumeSnapshots did not fill: %w", ctx.Err())
	}
	for range storageWriters {
		s.ended.Go(func() { s.work(ctx) })
	}
	return s, nil
}

func (s *storage) stop() {
	s.cancel()
	s.ended.Wait()
}

// rest lets the storage leave new snapshots alone, or not any more.
func (s *storage) rest(yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle, s.left = yes, nil
}

// resume, and make what was left alone ready.
func (s *storage) resume() {
	s.mu.Lock()
	left := s.left
	s.idle, s.left = false, nil
	s.mu.Unlock()
	for _, key := range left {
		s.queue <- key
	}
}

func (s *storage) added(o any) {
	snapshot, ok := o.(*snapshotv1.VolumeSnapshot)
	if !ok {
		return
	}
	s.mu.Lock()
	idle := s.idle
	if idle {
		s.left = append(s.left, client.ObjectKeyFromObject(snapshot))
	}
	s.seen.created++
	s.seen.lastCreated = time.Now()
	s.changed()
	s.mu.Unlock()
	if !idle {
		s.queue <- client.ObjectKeyFromObject(snapshot)
	}
}

func (s *storage) deleted(any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen.deleted++
	s.seen.lastDeleted = time.Now()
	s.changed()
}

// reset the tally.
func (s *storage) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen = tally{}
}

func (s *storage) changed() {
	close(s.wake)
	s.wake = make(chan struct{})
}

// await until the tally is as wanted.
func (s *storage) await(ctx context.Context, enough func(tally) bool) (tally, error) {
	for {
		s.mu.Lock()
		t, wake, failed := s.seen, s.wake, s.failed
		s.mu.Unlock()
		switch {
		case failed != nil:
			return t, failed
		case enough(t):
			return t, nil
		}
		select {
		case <-ctx.Done():
			return t, fmt.Errorf("waiting for snapshots: %d were created and %d deleted: %w", t.created, t.deleted, ctx.Err())
		case <-wake:
		}
	}
}

func (s *storage) work(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case key := <-s.queue:
			if err := s.finish(ctx, key); err != nil && !apierrors.IsNotFound(err) && ctx.Err() == nil {
				s.mu.Lock()
				s.failed = fmt.Errorf("writing the status of VolumeSnapshot %s: %w", key, err)
				s.changed()
				s.mu.Unlock()
			}
		}
	}
}

func (s *storage) finish(ctx context.Context, key types.NamespacedName) error {
	o := &snapshotv1.VolumeSnapshot{}
	o.Namespace, o.Name = key.Namespace, key.Name
	return s.client.Status().Patch(ctx, o, client.RawPatch(types.MergePatchType, readyPatch(key.Name, time.Now())))
}

// readyPatch is the status of a snapshot that was cut at that time and is ready.
func readyPatch(name string, cut time.Time) []byte {
	return fmt.Appendf(nil, `{"status":{"boundVolumeSnapshotContentName":"content-%s","readyToUse":true,"creationTime":%q}}`, name, cut.UTC().Format(time.RFC3339))
}

// snapshot of a claim, as a baseline makes it.
func snapshot(namespace, name, claim string) *snapshotv1.VolumeSnapshot {
	return &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: snapshotv1.VolumeSnapshotSpec{VolumeSnapshotClassName: ptr.To(className),
			Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: ptr.To(claim)}},
	}
}
