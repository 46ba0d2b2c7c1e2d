// SPDX-License-Identifier: Apache-2.0

package torture

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
)

var (
	noon    = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	promise = Promise{Quiet: 10 * time.Second, Takeover: 25 * time.Second, Hastened: 10 * time.Second, Reconnect: 15 * time.Second,
		Unknown: 36 * time.Second, Switch: 15 * time.Second}
)

func at(seconds float64) time.Time { return noon.Add(time.Duration(seconds * float64(time.Second))) }

// peace is one run of an application that was frozen from second 2 to 4, cut at 3, with the leader killed at 2.5 and replaced at 3.5.
func peace() *Evidence {
	return &Evidence{
		Apps: []App{{
			Name: "db", Kind: Hooks,
			Notes:  []Note{{WordPre, "db-1", at(1.5)}, {WordFrozen, "db-1", at(2)}, {WordThaw, "db-1", at(4)}},
			Writes: []Write{{at(1), at(1.01)}, {at(1.9), at(4.1)}, {at(100), at(100.01)}},
		}},
		Runs: []Run{{
			Name: "db-1", Schedule: "db", App: "db", Kind: Hooks, Tag: "db-1", Created: at(1), Claimed: at(1.4), LastClaimed: at(1.4), Attempts: 1,
			Released: at(4.2), Completed: at(5), Result: "Succeeded",
		}},
		Snapshots: []Snapshot{{Name: "db-snapshot", App: "db", Label: "application", Cut: at(3), Clean: true}},
		Slots:     []Slots{{Schedule: "minutely", Due: nil}},
		Blows:     []Blow{{Victim: Leader, How: "SIGKILL", At: at(2.5), Over: at(3.5), Hits: []Hit{{"db-1", "Snapshotting"}}}},
		Handovers: []Handover{{Acquired: time.Second, Works: 1500 * time.Millisecond}},
	}
}

func TestJudgeAcceptsWhatIsGood(t *testing.T) {
	for name, change := range map[string]func(e *Evidence){
		"as it is": func(*Evidence) {},
		"a run that lost its pre hook with the operator failed": func(e *Evidence) {
			e.Runs[0].Result = "Failed"
			e.Blows[0].Hits[0].Phase = "PreHooks"
			e.Snapshots = nil
		},
		"a held command that died with its operator while snapshots were cut": func(e *Evidence) {
			e.Runs[0].Kind, e.Runs[0].Result, e.Snapshots[0].Label = Held, "PartiallyFailed", "crash"
		},
		"a run that a kubelet's death ended": func(e *Evidence) {
			e.Runs[0].Result = "Failed"
			e.Blows = append(e.Blows, Blow{Victim: "kubelet", How: "SIGKILL", At: at(3), Over: at(3.5)})
		},
		"an attempt that was recorded and never started": func(e *Evidence) {
			e.Apps[0].Notes, e.Snapshots = nil, nil
		},
		"a file system that was not frozen, called crash consistent": func(e *Evidence) {
			e.Snapshots[0].Label, e.Snapshots[0].Clean = "crash", false
		},
		"a second run of the same command, with an attempt of its own": func(e *Evidence) {
			again := e.Runs[0]
			again.Name, again.Claimed, again.LastClaimed, again.Released, again.Completed = "db-2", at(61), at(61), at(63), at(64)
			e.Runs = append(e.Runs, again)
			e.Apps[0].Notes = append(e.Apps[0].Notes, Note{WordPre, "db-1", at(61.2)})
		},
		"a block while the lease of a dead leader runs out": func(e *Evidence) {
			e.Blows[0].Over = at(30)
			e.Apps[0].Writes[1].Done = at(31)
		},
		"a slot without a run that is reported": func(e *Evidence) {
			e.Slots = []Slots{{Schedule: "minutely", Due: []time.Time{at(0)}, Missed: 1}}
		},
		"a slot with a run": func(e *Evidence) {
			e.Runs[0].Schedule, e.Runs[0].Slot = "minutely", at(0)
			e.Slots = []Slots{{Schedule: "minutely", Due: []time.Time{at(0)}}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := peace()
			change(e)
			NewWithT(t).Expect(Judge(e, promise).Found).To(BeEmpty())
		})
	}
}

func TestJudgeFindsEachFault(t *testing.T) {
	for name, c := range map[string]struct {
		change func(e *Evidence)
		fault  Fault
		words  string
	}{
		"a file system is frozen at the end": {func(e *Evidence) { e.Apps[0].Frozen = true }, FaultFrozen, "db"},
		"a pre hook started twice by one attempt": {func(e *Evidence) {
			e.Apps[0].Notes = append([]Note{{WordPre, "db-1", at(1.45)}}, e.Apps[0].Notes...)
		}, FaultTwice, "run db-1 recorded 1 attempts, and 2 started"},
		"a pre hook started by nobody's attempt": {func(e *Evidence) {
			e.Apps[0].Notes = append(e.Apps[0].Notes, Note{WordPre, "db-7", at(6)})
		}, FaultTwice, "no run recorded an attempt"},
		"a pre hook started before its attempt was recorded": {func(e *Evidence) { e.Runs[0].Claimed = at(1.6) }, FaultTwice, "no run recorded an attempt"},
		"a leader that woke up started the attempt that it had recorded long before": {func(e *Evidence) {
			e.Apps[0].Notes = []Note{{WordPre, "db-1", at(20)}}
			e.Runs[0].Result, e.Snapshots, e.Blows[0].Hits[0].Phase = "Failed", nil, "PreHooks"
		}, FaultTwice, "no run recorded an attempt then"},
		"two runs quiesce one application at once": {func(e *Evidence) {
			other := e.Runs[0]
			other.Name, other.Tag, other.Claimed, other.LastClaimed, other.Released = "daily-1", "daily-1", at(2.2), at(2.2), at(8)
			e.Runs = append(e.Runs, other)
			e.Apps[0].Notes = append(e.Apps[0].Notes, Note{WordPre, "daily-1", at(2.3)})
		}, FaultTogether, "a hook of daily-1 started at 12:00:02.300, during run db-1"},
		"a snapshot is called consistent and its file system was written to": {func(e *Evidence) { e.Snapshots[0].Clean = false }, FaultMislabeled, "was not frozen"},
		"a snapshot is called consistent and was cut before the freeze":      {func(e *Evidence) { e.Snapshots[0].Cut = at(1.9) }, FaultMislabeled, "no hook had frozen it"},
		"a snapshot is called consistent and was cut after the thaw":         {func(e *Evidence) { e.Snapshots[0].Cut = at(4.1) }, FaultMislabeled, "no hook had frozen it"},
		"a snapshot is called consistent of an application without hooks": {func(e *Evidence) {
			e.Snapshots = append(e.Snapshots, Snapshot{Name: "x", App: "plain", Label: "application", Cut: at(3), Clean: true})
		}, FaultMislabeled, "x of plain"},
		"a run never ends":            {func(e *Evidence) { e.Runs[0].Result, e.Runs[0].Completed = "", time.Time{} }, FaultLost, "db-1: not completed"},
		"a run keeps its finalizer":   {func(e *Evidence) { e.Runs[0].Finalizer = true }, FaultLost, "finalizer"},
		"a run fails for no reason":   {func(e *Evidence) { e.Runs[0].Result = "Failed" }, FaultUncalled, "db-1: Failed"},
		"a slot vanishes":             {func(e *Evidence) { e.Slots[0].Due = []time.Time{at(0)} }, FaultSlot, "1 of 1 slots have no run, 0 are reported"},
		"a slot runs and is reported": {func(e *Evidence) { e.Slots[0].Missed = 1 }, FaultSlot, "0 of 0 slots have no run, 1 are reported"},
		"a slot runs twice": {func(e *Evidence) {
			e.Runs[0].Schedule, e.Runs[0].Slot = "minutely", at(0)
			e.Runs = append(e.Runs, e.Runs[0])
			e.Slots[0].Due = []time.Time{at(0)}
		}, FaultSlot, "has 2 runs"},
		"a writer waits for longer than lease and hooks may take": {func(e *Evidence) { e.Apps[0].Writes[1].Done = at(38) }, FaultBlocked, "db for 36.1 s"},
		"a writer waits and nobody was killed": {func(e *Evidence) {
			e.Blows = nil
			e.Apps[0].Writes[1].Done = at(13)
		}, FaultBlocked, "promised 10.0 s"},
		"a writer waits although the next leader did not wait for the lease": {func(e *Evidence) {
			e.Blows[0].Hastened = true
			e.Apps[0].Writes[1].Done = at(23)
		}, FaultBlocked, "promised 20.0 s"},
		"a writer waits for longer than the switch of a held command": {func(e *Evidence) {
			e.Apps[0].Kind = Held
			e.Apps[0].Writes[1].Done = at(28)
		}, FaultBlocked, "promised 25.0 s (the command's own switch)"},
		"a writer never comes back": {func(e *Evidence) {
			e.Apps[0].Writes[1].Done = time.Time{}
		}, FaultBlocked, "db for 98.1 s"},
		"an old leader goes on":      {func(e *Evidence) { e.Undead = []string{"operator 7"} }, FaultUndead, "operator 7"},
		"a hand-over takes too long": {func(e *Evidence) { e.Handovers[0].Works = 3 * time.Second }, FaultHandover, "3.0 s until the next leader worked"},
		"an alarm is left":           {func(e *Evidence) { e.Alarms = []string{"db"} }, FaultAlarm, "db"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			e := peace()
			c.change(e)
			v := Judge(e, promise)
			g.Expect(v.Good()).To(BeFalse())
			g.Expect(v.Found).To(HaveLen(1), "%v", v.Found)
			g.Expect(v.Found[c.fault]).To(ContainElement(ContainSubstring(c.words)), "%v", v.Found)
			g.Expect(e.Table(promise, v)).To(ContainSubstring(strings.ToUpper(string(c.fault)) + ": "))
		})
	}
}

func TestTableTellsTheFaultsAndTheLongestBlock(t *testing.T) {
	g := NewWithT(t)
	e := peace()
	e.Blows = append(e.Blows, Blow{Victim: "kubelet", How: "SIGKILL", At: at(50), Over: at(52)}, Blow{Victim: Leader, How: "SIGSTOP", At: at(60), Over: at(77)})
	var table []string
	for line := range strings.Lines(e.Table(promise, Judge(e, promise))) {
		table = append(table, strings.Join(strings.Fields(line), " "))
	}
	for _, line := range []string{
		"SIGKILLs of the leader 1", "Snapshotting 1 1", "Planned 0 0", "SIGKILL of kubelet 1 over after 2.0 s (median), 2.0 s at most",
		"SIGSTOP of operator 1 over after 17.0 s (median), 17.0 s at most", "hand-over lease taken after 1.0 s, work after 1.5 s",
		"fsfreeze, pre and post hook, longest 2.2 s 35.0 s db-1 (hooks and cut + 25.0 s lease and take-over)", "application 1 1", "frozen file systems left 0",
	} {
		g.Expect(table).To(ContainElement(line))
	}
}
