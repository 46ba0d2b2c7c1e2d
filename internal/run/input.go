// SPDX-License-Identifier: Apache-2.0

package run

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

const (
	// JournalVersion is the version of the journal that this package writes and continues. A run with another one
	// is only released.
	JournalVersion = 1
	// ClaimWindow is how long after its claim an attempt may be started.
	ClaimWindow = 10 * time.Second
	// ReleaseGrace is added to the time that a command whose end is unknown may still run, before the second release pass.
	ReleaseGrace = 30 * time.Second
	// MaxRetries is how often a failed run is repeated at most (runRetryLimit).
	MaxRetries = 20
	// maxEarly is how far ahead of this process's clock a slot may be whose run exists: the clock of the process that created it may differ.
	maxEarly = 5 * time.Minute
	// DirectGrace is how long a run without hooks waits for its snapshots before it records them as a plan.
	DirectGrace = 10 * time.Second
	// LookInterval is how often pods are looked up while a post hook waits for one.
	LookInterval = 2 * time.Second
	// LookPatience is how long the second post hook waits for a look at the pods that fails again and again.
	LookPatience = 30 * time.Second
	// LabelPatience is how long a run that somebody deleted goes on trying to label its snapshots.
	LabelPatience = 30 * time.Second
	// ReplacementWait is how long a post hook waits for a pod in the place of one that went away while it was quiesced, although others
	// match.
	ReplacementWait = 5 * time.Minute
	// MaxJournalBytes is the largest journal that a plan may grow to.
	MaxJournalBytes = 512 << 10
	// reportSlack is added to a command's own timeout before its report is believed lost.
	reportSlack = 5 * time.Second
)

// Input is all that a decision depends on.
type Input struct {
	Now     time.Time
	Process string // identity of this process; claims carry it
	Config  Config
	Run     *v1.SnapshotRun
	// Schedule of the run as it is now; nil: it does not exist.
	Schedule *v1.SnapshotSchedule
	World    World
}

// Config is what the operator's flags say.
type Config struct {
	ReleaseDeadline time.Duration // from the beginning of a release pass until its post hooks are given up
	ReadyTimeout    time.Duration // from the run's creation until unready snapshots are given up
	OwnerReferences bool          // default of ownerReferencePolicy
	Hooks           HookRules
}

// HookRules is what the operator's flags say about the hooks of every schedule.
type HookRules struct {
	// Off: why this operator runs no hooks, in words; empty: it does.
	Off string
	// DefaultAccount is the ServiceAccount of the schedule's namespace for schedules that name none; empty: the operator itself.
	DefaultAccount string
	// CrossNamespace: hooks that run as the operator itself may run in other namespaces than the schedule's.
	CrossNamespace bool
}

// Account that hooks run as: the schedule's own, or the default one; empty: the operator itself.
func (r HookRules) Account(named string) string { return orDefault(named, r.DefaultAccount) }

// Reach reports whether hooks of a schedule or run in namespace own may run in a namespace: in their own, and in others as an account, whose
// rights then decide.
func (r HookRules) Reach(own, namespace, account string) bool {
	return namespace == own || r.Account(account) != "" || r.CrossNamespace
}

// World is what was seen. Which parts are filled in is what Needs asked for.
type World struct {
	// Draining: the operator is about to stop; nothing new is planned.
	Draining bool
	// Lock on the run's pods and claims.
	Lock Lock
	// Survey of claims and targets (Pending).
	Survey *Survey
	// Snapshots that exist under the run's names.
	Snapshots map[string]Snapshot
	// Group snapshot under the run's name, of a run that takes one; nil: it does not exist.
	Group *Group
	// Creates that failed, by the snapshot's name.
	Creates map[string]CreateFailure
	// Uncut snapshots of the planned claims that earlier runs of this schedule left behind.
	Leftovers []Leftover
	// Exec states by key; absent: this process knows nothing of it.
	Exec map[ExecKey]Exec
	// Look at the pods that match now (PostHooks).
	Look *Look
}

// Lock is the state of the run's lock on the pods and claims of its survey or plan.
type Lock struct {
	Held       bool
	WaitingFor string // if not held: another run, in words
}

// Survey is what a run could take and where its hooks would run.
type Survey struct {
	Claims  []Claim
	LeftOut []string // claims that match and cannot be taken, in words
	NoGroup *Problem // why the claims cannot be taken as a group, where the schedule asks for one
	Pre     []HookTargets
	Post    []HookTargets
}

// Claim is a PersistentVolumeClaim that can be taken.
type Claim struct {
	Name      string
	UID       types.UID
	ClassName string // VolumeSnapshotClass; empty: the cluster's default
}

// HookTargets are the containers a hook would run in.
type HookTargets struct {
	Targets  []Target
	Problems []Problem
}

// Target is one container of one pod.
type Target struct {
	Namespace, Pod         string
	UID                    types.UID
	Container, ContainerID string
	RestartCount           int32
	Terminating            bool
}

// Problem is why a hook cannot run; Reason is one of the API's hook reasons.
type Problem struct{ Reason, Message string }

// Snapshot is a VolumeSnapshot under one of the run's names.
type Snapshot struct {
	Name         string // of a member of a group snapshot, which no run names
	Foreign      bool   // not made for this run
	UID          types.UID
	Terminating  bool
	Cut          bool
	CreationTime *time.Time // the storage's time of the cut
	Ready        bool
	Error        string
	Bound        bool   // it has a content; an error without one is final
	Consistency  string // label
}

// CreateFailure is the answer to a create that failed.
type CreateFailure struct {
	Message string
	// Refused: the API server will not have it (a 4xx answer); otherwise the failure may pass.
	Refused bool
	// RetryTime is when it may be tried again.
	RetryTime time.Time
}

// Leftover is an uncut snapshot of an earlier run.
type Leftover struct {
	Name string
	UID  types.UID
}

// Look is a live look at the pods, after the release began.
type Look struct {
	Pre  []HookTargets // per planned pre hook, what matches now
	Post []HookTargets // per planned post hook, what matches now
	// Existing UIDs of planned pods that still exist, terminating ones included.
	Existing map[types.UID]bool
}

// ExecKey names one attempt of one hook in one target.
type ExecKey struct {
	Stage   v1.HookStage
	Pass    int32
	Hook    int32 // index in the list of its stage
	Target  string
	Attempt int32
}

// ExecState is what this process knows of an attempt.
type ExecState int

// States of an attempt; Unknown is the zero value: this process never heard of it.
const (
	ExecUnknown ExecState = iota
	ExecQueued
	ExecReserved
	ExecRunning
	ExecHeld
	ExecReleasing
	ExecDone
)

// Exec is the state of one attempt.
type Exec struct {
	State   ExecState
	HeldAt  time.Time
	Outcome Outcome // if State is ExecDone
}

// Outcome is how an attempt ended.
type Outcome struct {
	Reason       string
	Message      string
	ExitCode     *int32
	Output       string
	Started      time.Time
	Ended        time.Time
	EndUnknown   bool
	NeverStarted bool
}

// Decision is exactly one of: a state to persist, effects, or a wait.
type Decision struct {
	// Persist is the whole new status.
	Persist *v1.SnapshotRunStatus
	// Anew, with Persist: the old record could not be carried on and is begun anew. Once that is persisted, what this process knows of the old one's
	// attempts is to be forgotten, since the new ones have the same keys.
	Anew bool
	// Act are effects to carry out, in any order.
	Act []Effect
	// Wait is when to look again if no event comes first; zero: only on an event.
	Wait time.Time
}

// Effect is something to do in the world.
type Effect interface{ effect() }

type (
	// AddFinalizer puts the release finalizer on the run.
	AddFinalizer struct{}
	// RemoveFinalizer takes it away: the release is done or given up on record.
	RemoveFinalizer struct{}
	// DropLock gives the lock back.
	DropLock struct{}
	// CreateSnapshot creates one VolumeSnapshot.
	CreateSnapshot struct {
		Name, Claim, ClassName string
		ClaimUID               types.UID
		Labels, Annotations    map[string]string
		Owned                  bool // by the schedule ScheduleUID
		ScheduleName           string
		ScheduleUID            types.UID
	}
	// DeleteLeftover deletes an uncut snapshot of an earlier run.
	DeleteLeftover struct{ Leftover }
	// LabelConsistency raises a snapshot's consistency label.
	LabelConsistency struct {
		Name, Value string
		UID         types.UID
	}
	// ReserveExec asks for a slot of the exec pool.
	ReserveExec struct{ Key ExecKey }
	// StartExec starts a claimed attempt.
	StartExec struct {
		Key    ExecKey
		Target v1.TargetStatus
		Hook   v1.PlannedHook
		// ServiceAccountName as which it runs.
		ServiceAccountName string
	}
	// ReleaseHeld closes the standard input of a held command.
	ReleaseHeld struct{ Key ExecKey }
	// CancelExec ends the wait for a command; the command may go on.
	CancelExec struct{ Key ExecKey }
)

func (AddFinalizer) effect()     {}
func (RemoveFinalizer) effect()  {}
func (DropLock) effect()         {}
func (CreateSnapshot) effect()   {}
func (CreateGroup) effect()      {}
func (LabelMember) effect()      {}
func (DeleteGroup) effect()      {}
func (DeleteLeftover) effect()   {}
func (LabelConsistency) effect() {}
func (ReserveExec) effect()      {}
func (StartExec) effect()        {}
func (ReleaseHeld) effect()      {}
func (CancelExec) effect()       {}
