// SPDX-License-Identifier: Apache-2.0

package torture

import "time"

// Kind is how an application is quiesced.
type Kind string

// Kinds of application.
const (
	// Hooks: a pre hook freezes the file system and a post hook thaws it.
	Hooks Kind = "fsfreeze, pre and post hook"
	// Held: one held command freezes, and thaws when its input ends.
	Held Kind = "fsfreeze, held"
	// Plain: nothing is quiesced.
	Plain Kind = "no hooks"
)

// Words that hooks note in their container, outside of the file system that they freeze.
const (
	WordPre    = "pre"    // a pre hook's command has started
	WordFrozen = "frozen" // the file system is frozen
	WordThaw   = "thaw"   // it is about to be thawed
)

// Note is one line that a hook appended.
type Note struct {
	Word string
	Tag  string    // that the hook's command carries
	At   time.Time // to 10 ms, early or late
}

// Write is one line that an application wrote and synced. Done is zero if that never ended.
type Write struct{ Begun, Done time.Time }

// App is one application: a pod with a volume that it writes to all the time.
type App struct {
	Name   string
	Kind   Kind
	Notes  []Note  // in the order of the file
	Writes []Write // likewise
	Frozen bool    // at the end
}

// Run is a SnapshotRun as it was last seen.
type Run struct {
	Name, Schedule, App string
	Kind                Kind
	// Tag is the one in the pre hook's command that the run planned. Runs that were made by hand have one each, if the operator had seen the
	// newest edit of their schedule; those of slots share one.
	Tag     string
	Created time.Time
	Slot    time.Time // zero: it was made by hand
	// Claimed and LastClaimed are when the first and the newest attempt of its pre hook were recorded; zero: none was.
	Claimed, LastClaimed time.Time
	Attempts             int // of its pre hook, as recorded
	Released, Completed  time.Time
	Finalizer            bool // it has one still
	Result, Message      string
}

// Snapshot is a VolumeSnapshot that exists at the end.
type Snapshot struct {
	Name, App string
	Label     string    // application, crash or empty
	Cut       time.Time // by the storage
	// Clean: the file system in it is one that was frozen or unmounted when it was cut. It is read from the content.
	Clean bool
}

// Slots of one schedule from the first that came due up to the last.
type Slots struct {
	Schedule string
	Due      []time.Time
	Missed   int64 // as the schedule's status tells
}

// Blow is one thing that was done to a process.
type Blow struct {
	Victim string // Leader, or a component of the cluster
	How    string // SIGKILL, SIGSTOP, SIGTERM
	At     time.Time
	// Over is when somebody works again: another operator leads, or the component serves.
	Over time.Time
	// Hastened: the lease was deleted, so that the next operator need not wait until it runs out.
	Hastened bool
	Aim      string // the phase that it was meant to hit; empty: any
	Hits     []Hit
}

// Leader is the victim that is no component of the cluster.
const Leader = "operator"

// Hit is a run that was not completed at a blow, with its phase as recorded then.
type Hit struct{ Run, Phase string }

// Handover is how long it took from the release of a lease to the next leader's work.
type Handover struct{ Acquired, Works time.Duration }

// Evidence is all of it.
type Evidence struct {
	Seed      uint64
	Lasted    time.Duration
	Apps      []App
	Runs      []Run
	Snapshots []Snapshot
	Slots     []Slots
	Blows     []Blow
	Handovers []Handover
	// Undead are operators that went on after another one led.
	Undead []string
	// Alarms are schedules that say at the end, after a run that nobody disturbed, that their application may be quiesced.
	Alarms []string
}
