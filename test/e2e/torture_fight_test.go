// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/test/cluster"
	"github.com/stillpoint-operator/stillpoint/test/torture"
)

// fight is what is done to the processes.
type fight struct {
	*world
	*pair
	random    *rand.Rand
	ledger    *ledger
	rounds    int
	kills     int
	hits      map[string]int // kills that found a run in a phase
	blows     []torture.Blow
	handovers []torture.Handover
	undead    []string
}

// lasts is about how long a phase lasts here: the blow falls somewhere in it.
var lasts = map[v1.RunPhase]time.Duration{
	v1.PhasePending: 20 * time.Millisecond, v1.PhasePlanned: 0, v1.PhasePreHooks: 700 * time.Millisecond, v1.PhaseSnapshotting: 1500 * time.Millisecond,
	v1.PhasePostHooks: 500 * time.Millisecond, v1.PhaseAwaitingReady: time.Second, "": 2 * time.Second,
}

// round is one kill, and now and then something else.
func (f *fight) round() {
	f.Helper()
	f.rounds++
	if f.random.IntN(3) == 0 {
		f.knobs(cluster.Knobs{CutDelay: f.upTo(1500 * time.Millisecond), ReplyDelay: f.upTo(300 * time.Millisecond), ReadyDelay: f.upTo(time.Second)})
	}
	switch {
	case f.rounds%40 == 35:
		f.freeze()
	case f.rounds%20 == 10:
		f.replace()
	case f.rounds%10 == 5:
		f.killPart()
	}
	f.kill(f.rounds%6 != 0)
}

func (f *fight) upTo(d time.Duration) time.Duration {
	return time.Duration(f.random.Int64N(int64(d) + 1))
}

// kill the leader.
func (f *fight) kill(hastened bool) {
	f.Helper()
	f.ready()
	victim := f.leader
	b := torture.Blow{Victim: torture.Leader, How: "SIGKILL", Hastened: hastened}
	f.strike(&b, f.aim(), func() { victim.signal(syscall.SIGKILL) })
	f.bury(b, victim)
}

// bury a leader that was killed: what it was at is counted, and another one takes over.
func (f *fight) bury(b torture.Blow, victim *operator) {
	f.Helper()
	<-victim.done
	b.Hits = f.look()
	for _, phase := range torture.Phases {
		if slices.ContainsFunc(b.Hits, func(h torture.Hit) bool { return h.Phase == phase }) {
			f.hits[phase]++
		}
	}
	if b.Hastened {
		dropLease()
	}
	f.fill()
	f.awaitLeader()
	b.Over = time.Now()
	f.blows = append(f.blows, b)
	f.kills++
}

// aim at the phase that was hit least so far, and now and then at any moment.
func (f *fight) aim() v1.RunPhase {
	if f.random.IntN(4) == 0 {
		return ""
	}
	least := torture.Phases[f.random.IntN(len(torture.Phases))]
	for _, phase := range torture.Phases {
		if f.hits[phase] < f.hits[least] {
			least = phase
		}
	}
	return v1.RunPhase(least)
}

// strike when a run enters a phase, or somewhat later; if none does, after a while.
func (f *fight) strike(b *torture.Blow, phase v1.RunPhase, blow func()) {
	b.Aim = string(phase)
	after := f.upTo(lasts[phase])
	struck := make(chan struct{})
	blowNow := func() {
		b.At = time.Now()
		blow()
		close(struck)
	}
	if phase == "" {
		<-time.After(after)
		blowNow()
		return
	}
	cancel := f.ledger.when(phase, func() {
		if after == 0 {
			blowNow() // at once, before the operator goes on
			return
		}
		time.AfterFunc(after, blowNow)
	})
	select {
	case <-struck:
	case <-time.After(10 * time.Second):
		if cancel() {
			b.Aim = ""
			blowNow()
		}
		<-struck
	}
}

// look at the runs that are under way. Nobody works on them now.
func (f *fight) look() []torture.Hit {
	f.Helper()
	var list v1.SnapshotRunList
	f.Eventually(func() error { return api.List(f.Context(), &list, client.InNamespace(f.ns)) }, 2*patience, "50ms").Should(Succeed())
	var out []torture.Hit
	for i := range list.Items {
		o := &list.Items[i]
		phase := o.Status.Phase
		if phase == v1.PhaseCompleted {
			continue
		}
		if phase == "" {
			phase = v1.PhasePending
		}
		out = append(out, torture.Hit{Run: o.Name, Phase: string(phase)})
	}
	return out
}

// freeze the leader until another one leads, and let it wake beside that one.
func (f *fight) freeze() {
	f.Helper()
	f.ready()
	old := f.leader
	b := torture.Blow{Victim: torture.Leader, How: "SIGSTOP"}
	phase := []v1.RunPhase{v1.PhasePreHooks, v1.PhasePostHooks}[f.random.IntN(2)]
	f.strike(&b, phase, func() { old.signal(syscall.SIGSTOP) })
	b.Hits = f.look()
	f.awaitLeader()
	b.Over = time.Now()
	f.blows = append(f.blows, b)
	<-time.After(f.upTo(4 * time.Second))
	old.signal(syscall.SIGCONT)
	select {
	case <-old.done:
	case <-time.After(patience):
		f.undead = append(f.undead, "an operator that was stopped beyond its lease went on for 30 s:\n"+old.log.tail())
		old.kill()
	}
	f.fill()
}

// replace the leader as a rollout does, and measure from when its lease is free.
func (f *fight) replace() {
	f.Helper()
	f.ready()
	old := f.leader
	ctx, cancel := context.WithTimeout(f.Context(), time.Minute)
	defer cancel()
	lease := watchLease(ctx, f.world)
	b := torture.Blow{Victim: torture.Leader, How: "SIGTERM"}
	f.strike(&b, f.aim(), func() { old.signal(syscall.SIGTERM) })
	b.Hits = f.look()
	f.awaitLeader()
	b.Over = time.Now()
	<-old.done
	b.Hits = append(b.Hits, f.look()...)
	f.blows = append(f.blows, b)
	select {
	case l := <-lease:
		f.handovers = append(f.handovers, torture.Handover{Acquired: l.taken.Sub(l.free), Works: b.Over.Sub(l.free)})
	case <-ctx.Done():
		f.Errorf("the lease was not handed over within a minute")
	}
	f.fill()
}

type leaseTimes struct{ free, taken time.Time }

// watchLease tells when the lease was free and when it was taken after that.
func watchLease(ctx context.Context, w *world) <-chan leaseTimes {
	w.Helper()
	events, err := api.Watch(ctx, &coordinationv1.LeaseList{}, client.InNamespace(operatorNamespace), client.MatchingFields{"metadata.name": leaseName})
	w.Expect(err).NotTo(HaveOccurred())
	out := make(chan leaseTimes, 1)
	go func() {
		defer events.Stop()
		var t leaseTimes
		for e := range events.ResultChan() {
			l, ok := e.Object.(*coordinationv1.Lease)
			switch {
			case !ok:
			case ptr.Deref(l.Spec.HolderIdentity, "") == "":
				t.free = time.Now()
			case !t.free.IsZero():
				t.taken = time.Now()
				out <- t
				return
			}
		}
	}()
	return out
}

// killPart kills a part of the cluster, sometimes with the leader, and starts it again.
func (f *fight) killPart() {
	f.Helper()
	f.ready()
	parts := []string{"kube-apiserver", "kubelet", "snapshot-controller", "csi-snapshotter"}
	b := torture.Blow{Victim: parts[f.random.IntN(len(parts))], How: "SIGKILL"}
	victim, both := f.leader, f.random.IntN(3) == 0
	f.strike(&b, f.aim(), func() {
		if err := local.KillComponent(b.Victim); err != nil {
			f.Errorf("killing %s: %v", b.Victim, err)
		}
		if both {
			victim.signal(syscall.SIGKILL)
		}
	})
	<-time.After(f.upTo(time.Second))
	if err := local.StartComponent(f.Context(), b.Victim); err != nil {
		f.Fatalf("starting %s: %v", b.Victim, err)
	}
	b.Over = time.Now()
	f.blows = append(f.blows, b)
	if both {
		f.bury(torture.Blow{Victim: torture.Leader, How: "SIGKILL", At: b.At, Aim: b.Aim, Hastened: true}, victim)
	}
}
