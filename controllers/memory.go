// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"sync"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/run"
)

// memory is what the leader remembers of runs between reconciles. All of it can be lost: it saves look-ups and bridges the time in
// which the cache trails behind our own writes.
type memory struct {
	mu   sync.Mutex
	runs map[types.UID]*runMemory
}

// runMemory belongs to the one worker that reconciles the run.
type runMemory struct {
	name      types.NamespacedName
	latest    *v1.SnapshotRun // as our last write returned it
	gone      bool            // our last write let it go; the cache may still show it
	survey    *run.Survey     // of a run without hooks
	snapshots map[string]seenSnapshot
	creates   map[string]run.CreateFailure
	tries     map[string]int
	leftovers map[types.UID]bool // deleted by this process
	making    map[string]*making // snapshots that this process creates, by name
	began     time.Time          // when this process first saw the run
	// unanswered: the run as it was before a write that was answered with an error. It may have been done all the same.
	unanswered *v1.SnapshotRun
}

type seenSnapshot struct {
	object *snapshotv1.VolumeSnapshot
	at     time.Time
}

func (m *memory) of(o *v1.SnapshotRun, now time.Time) *runMemory {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.runs == nil {
		m.runs = map[types.UID]*runMemory{}
	}
	r := m.runs[o.UID]
	if r == nil {
		r = &runMemory{snapshots: map[string]seenSnapshot{}, creates: map[string]run.CreateFailure{}, tries: map[string]int{}, leftovers: map[types.UID]bool{},
			making: map[string]*making{}, began: now, name: client.ObjectKeyFromObject(o)}
		m.runs[o.UID] = r
	}
	return r
}

func (m *memory) forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.runs, uid)
}

// ofName are the runs of that name that are remembered: one, or more if it was deleted and made again.
func (m *memory) ofName(name types.NamespacedName) []types.UID {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []types.UID
	for uid, r := range m.runs {
		if r.name == name {
			out = append(out, uid)
		}
	}
	return out
}

// fresher of the cached object and our own last write. Effects that were derived from an older state than our own would be harmless
// and useless; this saves them.
func (r *runMemory) fresher(cached *v1.SnapshotRun) *v1.SnapshotRun {
	if r.latest == nil || r.latest.UID != cached.UID {
		return cached
	}
	if c, err := resourceversion.CompareResourceVersion(cached.ResourceVersion, r.latest.ResourceVersion); err == nil && c < 0 {
		return r.latest
	}
	r.latest = nil
	return cached
}
