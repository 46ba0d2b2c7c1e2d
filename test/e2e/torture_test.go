// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/stillpoint-operator/stillpoint/test/torture"
)

// What make torture turns up.
var (
	tortureKills = flag.Int("torture.kills", 20, "how many times the leader is killed")
	tortureLimit = flag.Duration("torture.limit", 4*time.Minute, "how long the killing may take")
	tortureSeed  = flag.Uint64("torture.seed", 0, "seed of its random choices; 0: a new one")
)

// promised is what the flags, the lease and the schedules of this test say about the longest block of a writer. The leader's lease is good for
// 15 s and a standby tries every 2 to 4.4 s; the rest of each number is for a busy machine.
var promised = torture.Promise{
	Quiet: 20 * time.Second, Takeover: (15 + 5 + 5) * time.Second, Hastened: (5 + 5) * time.Second, Reconnect: 15 * time.Second,
	Unknown: (tortureTimeout + 30 + 2) * time.Second, Switch: tortureSwitch * time.Second,
}

// TestWhateverIsKilledNothingStaysFrozenAndNoSnapshotLies kills operators at random moments and at chosen ones of many runs at once, and
// now and then stops, replaces or kills something else. Package torture judges what is left.
func TestWhateverIsKilledNothingStaysFrozenAndNoSnapshotLies(t *testing.T) {
	seed := *tortureSeed
	if seed == 0 {
		seed = rand.Uint64N(1 << 32)
	}
	t.Logf("seed %d (-torture.seed=%d repeats its choices, not the machine's)", seed, seed)
	begun := time.Now()
	stopShared()
	w := settle(t)
	f := &fight{world: w, random: rand.New(rand.NewPCG(seed, 0)), pair: newPair(t), hits: map[string]int{}}
	f.ready()
	l := startLoad(w, seed)
	f.ledger = l.ledger

	for deadline := time.Now().Add(*tortureLimit); f.kills < *tortureKills && time.Now().Before(deadline); {
		f.round()
	}
	f.ready()
	l.finish()

	e := l.evidence()
	e.Seed, e.Lasted = seed, time.Since(begun)
	e.Blows, e.Handovers, e.Undead = f.blows, f.handovers, f.undead
	l.keep(e, f.pair)
	verdict := torture.Judge(e, promised)
	t.Logf("report\n%s", e.Table(promised, verdict))
	if !verdict.Good() {
		t.Errorf("faults were found (go test -artifacts keeps the evidence, the records and the logs of all operators)")
	}
	w.Expect(f.kills).To(BeNumerically(">=", *tortureKills), "kills within %s", *tortureLimit)
	if *tortureKills >= 200 {
		for _, phase := range torture.Phases {
			kills, _ := e.KillsIn(phase)
			w.Expect(kills).To(BeNumerically(">=", 5), "kills that found a run in phase %s", phase)
		}
	}
	for i := range e.Apps {
		w.Expect(len(e.Apps[i].Writes)).To(BeNumerically(">", 100), "the writer of %s wrote", e.Apps[i].Name)
	}
	open := 0
	for _, s := range e.Snapshots {
		if !s.Clean {
			open++
		}
	}
	w.Expect(open).To(BeNumerically(">", 0), "the content of snapshots that were taken without hooks shows that nothing was frozen")
}
