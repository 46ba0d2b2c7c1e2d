// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// deletedObjects are what this process has deleted and the cache may still show as if nothing had happened: to delete it once more would say nothing
// new, and to judge it as something that stays would be wrong. What was deleted stays deleted, so this is never wrong for being old.
type deletedObjects struct {
	mu   sync.Mutex
	uids map[types.NamespacedName]map[types.UID]bool // by schedule
}

func (d *deletedObjects) add(schedule types.NamespacedName, uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.uids == nil {
		d.uids = map[types.NamespacedName]map[types.UID]bool{}
	}
	if d.uids[schedule] == nil {
		d.uids[schedule] = map[types.UID]bool{}
	}
	d.uids[schedule][uid] = true
}

func (d *deletedObjects) has(schedule types.NamespacedName, uid types.UID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.uids[schedule][uid]
}

// keep those that the cache still shows, and forget the others.
func (d *deletedObjects) keep(schedule types.NamespacedName, shown func(types.UID) bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for uid := range d.uids[schedule] {
		if !shown(uid) {
			delete(d.uids[schedule], uid)
		}
	}
	if len(d.uids[schedule]) == 0 {
		delete(d.uids, schedule)
	}
}
