// SPDX-License-Identifier: Apache-2.0

package run

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// digest writes what tells states apart, with times relative to now.
type digest struct {
	buf []byte
	now time.Time
}

func (d *digest) text(list ...string) {
	for _, s := range list {
		d.buf = append(append(d.buf, s...), 0)
	}
}

func (d *digest) number(list ...int) {
	for _, i := range list {
		d.buf = binary.AppendVarint(d.buf, int64(i))
	}
}

func (d *digest) flag(list ...bool) {
	for _, b := range list {
		if b {
			d.buf = append(d.buf, 1)
			continue
		}
		d.buf = append(d.buf, 0)
	}
}

func (d *digest) at(t time.Time) {
	if t.IsZero() {
		d.buf = append(d.buf, '-')
		return
	}
	// Backoffs carry a jitter: what is closer than this is the same moment. Rounded up, so that what is due stays apart from what is not.
	const unit = 100 * time.Millisecond
	left := t.Sub(d.now)
	units := left / unit
	if left%unit > 0 {
		units++
	}
	d.number(int(units))
}

func (d *digest) micro(list ...*metav1.MicroTime) {
	for _, t := range list {
		if t == nil {
			d.at(time.Time{})
			continue
		}
		d.at(t.Time)
	}
}

func (d *digest) execKey(k ExecKey) {
	d.text(string(k.Stage), k.Target)
	d.number(int(k.Pass), int(k.Hook), int(k.Attempt))
}

func (d *digest) conditions(list []metav1.Condition) {
	for _, c := range list {
		d.text(c.Type, string(c.Status), c.Reason)
		if c.Type != v1.ConditionComplete { // it says how long the run was quiesced
			d.text(c.Message)
		}
	}
}

func (d *digest) sum() uint64 {
	h := fnv.New64a()
	_, _ = h.Write(d.buf)
	return h.Sum64()
}

// status of a run. Its messages count: two records that differ in words only are two records.
func (d *digest) status(st *v1.SnapshotRunStatus) {
	d.text(string(st.Phase), string(st.Result))
	d.micro(st.QuiescedTime, st.SnapshottingTime)
	d.flag(st.ReleasedTime != nil, st.Plan != nil, st.Consistency != nil, st.Release != nil)
	if p := st.Plan; p != nil {
		d.number(int(p.Version), len(p.PreHooks), len(p.PostHooks))
		for i := range p.PostHooks {
			d.text(p.PostHooks[i].Name)
		}
	}
	if c := st.Consistency; c != nil {
		d.text(c.Verdict, c.Reason)
	}
	if r := st.Release; r != nil {
		d.number(int(r.Pass))
		d.text(r.Reason, r.Requested)
		d.flag(r.Looked, r.BestEffort)
		d.micro(&r.PassTime, r.NextPassTime, r.UnknownUntil)
	}
	if st.Phase != v1.PhaseCompleted && (st.Release == nil || st.Release.NextPassTime == nil) { // else it names a time
		d.text(st.Message)
	}
	d.conditions(st.Conditions)
	for i := range st.Hooks {
		h := &st.Hooks[i]
		d.text(string(h.Stage), h.Name)
		d.number(int(h.Pass), len(h.Targets))
		d.conditions(h.Conditions)
		for j := range h.Targets {
			t := &h.Targets[j]
			d.text(string(t.PodUID), t.Container, t.Reason, t.Message)
			d.number(int(t.Attempts), int(t.NotStarted))
			d.flag(t.HeldTime != nil, t.Gone, t.Joined, t.Claim != nil)
			d.micro(t.NextAttemptTime, t.UnknownUntil)
			if t.Claim != nil {
				d.text(t.Claim.Process)
				d.micro(&t.Claim.Time)
			}
		}
	}
	for i := range st.Snapshots {
		s := &st.Snapshots[i]
		d.text(s.Name, string(s.State), s.Message, string(s.UID))
		d.flag(s.CutBeforeRelease)
	}
}

func (d *digest) snapshot(s Snapshot) {
	d.flag(s.Foreign, s.Cut, s.Ready, s.Bound)
	d.text(s.Error, s.Consistency, string(s.UID))
}

// key of a state: everything that decisions and checks depend on.
func (n *node) key() uint64 {
	if n.known == 0 {
		n.known = n.digest()
	}
	return n.known
}

func (n *node) digest() uint64 {
	d := &digest{buf: make([]byte, 0, 2048), now: n.Now}
	d.number(n.Process, n.Faults, n.Edits, n.Crashes, n.Delays, n.Stales)
	d.flag(n.Lock, n.Blind, n.Leftover, n.Refusing, n.Run.DeletionTimestamp != nil, len(n.Run.Finalizers) > 0, n.Schedule != nil)
	d.text(n.Run.Annotations[v1.AnnotationRelease])
	d.status(&n.Run.Status)
	d.at(n.Run.CreationTimestamp.Time)
	if n.Schedule != nil {
		d.flag(alarmed(n.Schedule), n.Schedule.Spec.Disabled)
		d.number(len(n.Schedule.Spec.PreHooks), len(n.Schedule.Spec.PostHooks))
		for i := range n.Schedule.Spec.PostHooks {
			d.text(n.Schedule.Spec.PostHooks[i].Name)
		}
	}
	for _, k := range sortedKeys(n.Exec) {
		d.execKey(k)
		d.number(int(n.Exec[k].State))
		d.text(n.Exec[k].Outcome.Reason)
		d.at(n.Ends[k])
	}
	for _, k := range sortedKeys(n.Starts) {
		d.execKey(k)
	}
	for _, k := range sortedKeys(n.Lost) {
		d.execKey(k)
	}
	for _, k := range sortedKeys(n.Free) {
		d.execKey(k)
		d.number(int(n.Free[k]))
	}
	for _, volume := range slices.Sorted(maps.Keys(n.Frozen)) {
		d.text(volume)
		d.flag(n.Frozen[volume])
	}
	for _, volume := range slices.Sorted(maps.Keys(n.Loose)) {
		d.text(volume)
		d.at(n.Loose[volume])
	}
	if n.Posts.After(n.Now) {
		d.at(n.Posts)
	}
	d.text(slices.Sorted(maps.Keys(n.Broken))...)
	for _, list := range [][]Target{n.Pods, n.Away} {
		d.number(len(list))
		for _, p := range list {
			d.text(string(p.UID), p.ContainerID)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(n.Snapshots)) {
		d.text(name)
		d.snapshot(n.Snapshots[name])
		d.flag(n.CutFrozen[name])
	}
	for _, name := range slices.Sorted(maps.Keys(n.Behind)) {
		d.text(name)
		d.snapshot(n.Behind[name])
	}
	for _, name := range slices.Sorted(maps.Keys(n.Creates)) {
		d.text(name)
		d.at(n.Creates[name].RetryTime)
		d.flag(n.Creates[name].Refused)
	}
	if n.Stale != nil && n.Crashes > 0 {
		d.status(&n.Stale.Status)
	}
	return d.sum()
}

func sortedKeys[V any](m map[ExecKey]V) []ExecKey {
	return slices.SortedFunc(maps.Keys(m), func(a, b ExecKey) int {
		return cmp.Or(cmp.Compare(a.Stage, b.Stage), cmp.Compare(a.Pass, b.Pass), cmp.Compare(a.Hook, b.Hook), cmp.Compare(a.Target, b.Target), cmp.Compare(a.Attempt, b.Attempt))
	})
}
