// SPDX-License-Identifier: Apache-2.0

package torture

import (
	"fmt"
	"slices"
	"time"
)

const (
	// tick is how exactly notes are timed against the other times.
	tick = 20 * time.Millisecond
	// startWindow is how long after its attempt was recorded a command may start: 10 s, and what the way to the container takes on a busy machine.
	startWindow = 14 * time.Second
	// handoverLimit is how long the next leader may take once the lease is free.
	handoverLimit = 2 * time.Second
	// settling is how long after a component serves again what was lost with it may still end runs: those of a held command until its switch has acted.
	settling = 20 * time.Second
	// worthTelling is a block that is listed in the report.
	worthTelling = 500 * time.Millisecond
)

// Fault is a kind of what must not happen.
type Fault string

// Faults.
const (
	FaultFrozen     Fault = "frozen file systems left"
	FaultTwice      Fault = "pre hooks started more often than recorded, or late"
	FaultTogether   Fault = "pre hooks started while another run held the application"
	FaultMislabeled Fault = "snapshots called consistent that are not"
	FaultLost       Fault = "runs without an end"
	FaultSlot       Fault = "slots neither run nor reported, or both"
	FaultUncalled   Fault = "runs that failed though nothing of theirs was lost"
	FaultBlocked    Fault = "writers blocked for longer than promised"
	FaultUndead     Fault = "old leaders that went on"
	FaultHandover   Fault = "hand-overs that took longer than 2 s"
	FaultAlarm      Fault = "alarms left"
)

// Faults in the order of the report.
var Faults = []Fault{FaultFrozen, FaultTwice, FaultTogether, FaultMislabeled, FaultLost, FaultSlot, FaultUncalled, FaultBlocked, FaultUndead, FaultHandover, FaultAlarm}

// Verdict is what was found, in words by fault, and what is worth telling.
type Verdict struct {
	Found  map[Fault][]string
	Blocks []Block // longest first
}

// Good: there is no fault.
func (v *Verdict) Good() bool { return len(v.Found) == 0 }

func (v *Verdict) add(f Fault, format string, args ...any) {
	v.Found[f] = append(v.Found[f], fmt.Sprintf(format, args...))
}

// Judge the evidence.
func Judge(e *Evidence, p Promise) *Verdict {
	v := &Verdict{Found: map[Fault][]string{}}
	end := e.end()
	for i := range e.Apps {
		a := &e.Apps[i]
		if a.Frozen {
			v.add(FaultFrozen, "%s", a.Name)
		}
		e.judgeStarts(v, a)
		for _, b := range e.blocks(p, a, end, worthTelling) {
			v.Blocks = append(v.Blocks, b)
			if b.tooLong() {
				v.add(FaultBlocked, "%s for %s from %s, promised %s (%s)", b.App, seconds(b.For), clock(b.From), seconds(b.Bound), b.Why)
			}
		}
	}
	slices.SortFunc(v.Blocks, func(a, b Block) int { return int(b.For - a.For) })
	for i := range e.Snapshots {
		if why := e.mislabeled(&e.Snapshots[i]); why != "" {
			v.add(FaultMislabeled, "%s of %s: %s", e.Snapshots[i].Name, e.Snapshots[i].App, why)
		}
	}
	e.judgeRuns(v, p)
	e.judgeSlots(v)
	for _, name := range e.Undead {
		v.add(FaultUndead, "%s", name)
	}
	for _, h := range e.Handovers {
		if h.Works > handoverLimit {
			v.add(FaultHandover, "%s until the lease was taken, %s until the next leader worked", seconds(h.Acquired), seconds(h.Works))
		}
	}
	for _, name := range e.Alarms {
		v.add(FaultAlarm, "%s", name)
	}
	return v
}

// judgeStarts holds every start of a pre hook, as its container wrote it down, against the attempts that the runs recorded.
func (e *Evidence) judgeStarts(v *Verdict, a *App) {
	started := map[string]int{}
	for _, n := range a.Notes {
		if n.Word != WordPre {
			continue
		}
		r := e.owner(a, n)
		if r == nil || n.At.After(r.LastClaimed.Add(startWindow)) {
			v.add(FaultTwice, "%s: a hook of %s started at %s, and no run recorded an attempt then", a.Name, n.Tag, clock(n.At))
			continue
		}
		started[r.Name]++
		if other := e.during(a, r, n.At); other != "" {
			v.add(FaultTogether, "%s: a hook of %s started at %s, during run %s", a.Name, n.Tag, clock(n.At), other)
		}
	}
	for i := range e.Runs {
		if r := &e.Runs[i]; r.App == a.Name && started[r.Name] > r.Attempts {
			v.add(FaultTwice, "%s: run %s recorded %d attempts, and %d started", a.Name, r.Name, r.Attempts, started[r.Name])
		}
	}
}

// owner of a start: the run that was the last to record an attempt of that command before.
func (e *Evidence) owner(a *App, n Note) *Run {
	var owner *Run
	for i := range e.Runs {
		r := &e.Runs[i]
		if r.App != a.Name || r.Tag != n.Tag || r.Claimed.IsZero() || r.Claimed.After(n.At.Add(tick)) {
			continue
		}
		if owner == nil || r.Claimed.After(owner.Claimed) {
			owner = r
		}
	}
	return owner
}

// during is another run that had quiesced the application and not released it.
func (e *Evidence) during(a *App, r *Run, at time.Time) string {
	for i := range e.Runs {
		o := &e.Runs[i]
		if o.App == a.Name && o.Name != r.Name && !o.Claimed.IsZero() && !o.Released.IsZero() && at.After(o.Claimed.Add(tick)) && at.Before(o.Released.Add(-tick)) {
			return o.Name
		}
	}
	return ""
}

// mislabeled says why a snapshot that is called consistent is not; empty: it is, or is not called so.
func (e *Evidence) mislabeled(s *Snapshot) string {
	switch {
	case s.Label != "application":
		return ""
	case !s.Clean:
		return "its file system was not frozen when it was cut"
	case !e.frozenAt(s.App, s.Cut):
		return fmt.Sprintf("cut at %s, when no hook had frozen it", clock(s.Cut))
	}
	return ""
}

// frozenAt says whether the application's hooks had noted that they froze it, and not yet that they would thaw it.
func (e *Evidence) frozenAt(app string, at time.Time) bool {
	for i := range e.Apps {
		if e.Apps[i].Name != app {
			continue
		}
		frozen := false
		for _, n := range e.Apps[i].Notes {
			if n.Word == WordFrozen && n.At.After(at) || n.Word == WordThaw && n.At.Add(tick).After(at) {
				break
			}
			frozen = n.Word == WordFrozen || frozen && n.Word != WordThaw
		}
		return frozen
	}
	return false
}

func (e *Evidence) judgeRuns(v *Verdict, p Promise) {
	for i := range e.Runs {
		r := &e.Runs[i]
		switch {
		case r.Completed.IsZero() || r.Result == "":
			v.add(FaultLost, "%s: not completed: %s", r.Name, r.Message)
		case r.Finalizer:
			v.add(FaultLost, "%s: completed, and its finalizer is left", r.Name)
		case r.Result != "Succeeded" && !e.excused(r, p):
			v.add(FaultUncalled, "%s: %s: %s", r.Name, r.Result, r.Message)
		}
	}
}

// excused: something was lost that the run needed. An operator that dies takes a running pre hook with it and a held one, and nothing else.
func (e *Evidence) excused(r *Run, p Promise) bool {
	settled := settling
	if r.Kind == Held {
		settled += p.Switch
	}
	for _, b := range e.Blows {
		if b.At.After(r.Completed) || b.Over.Add(settled).Before(r.Created) {
			continue
		}
		if b.Victim != Leader {
			return true
		}
		for _, h := range b.Hits {
			if h.Run != r.Name {
				continue
			}
			if h.Phase == "PreHooks" || (r.Kind == Held && (h.Phase == "Snapshotting" || h.Phase == "PostHooks")) {
				return true
			}
		}
	}
	return false
}

func (e *Evidence) judgeSlots(v *Verdict) {
	for _, s := range e.Slots {
		runs := map[time.Time][]string{}
		for _, r := range e.Runs {
			if r.Schedule == s.Schedule && !r.Slot.IsZero() {
				runs[r.Slot.UTC()] = append(runs[r.Slot.UTC()], r.Name)
			}
		}
		without := int64(0)
		for _, slot := range s.Due {
			switch n := len(runs[slot.UTC()]); {
			case n == 0:
				without++
			case n > 1:
				v.add(FaultSlot, "%s: slot %s has %d runs: %v", s.Schedule, clock(slot), n, runs[slot.UTC()])
			}
		}
		if without != s.Missed {
			v.add(FaultSlot, "%s: %d of %d slots have no run, %d are reported as missed", s.Schedule, without, len(s.Due), s.Missed)
		}
	}
}

// end of the evidence: nothing was seen after it.
func (e *Evidence) end() time.Time {
	var end time.Time
	for i := range e.Apps {
		for _, w := range e.Apps[i].Writes {
			for _, t := range []time.Time{w.Begun, w.Done} {
				if t.After(end) {
					end = t
				}
			}
		}
	}
	return end
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05.000") }
