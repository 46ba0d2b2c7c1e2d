// SPDX-License-Identifier: Apache-2.0

package retention

import "time"

// State is how far a snapshot has come.
type State string

const (
	// Ready: restorable.
	Ready State = "Ready"
	// Unfinished: neither ready nor failed; may become either.
	Unfinished State = "Unfinished"
	// Failed: will never be ready.
	Failed State = "Failed"
	// Terminating: deletion was asked for and has not ended.
	Terminating State = "Terminating"
)

// ConsistencyApplication is the Consistency of a snapshot that was cut while
// its application was quiesced.
const ConsistencyApplication = "application"

// Snapshot is what retention needs to know of a VolumeSnapshot.
type Snapshot struct {
	// Name and UID of the object. Names are unique in one call.
	Name, UID string
	// ClaimName is the claim it was taken of. ClaimUID is that claim's UID as
	// recorded on the snapshot; empty on those that snapscheduler made.
	ClaimName, ClaimUID string
	// Created is the creation of the object.
	Created time.Time
	// CutAt is status.creationTime, if known.
	CutAt *time.Time
	// State is one of the State constants; any other value is held for Unfinished.
	State State
	// Consistency is the value of its consistency label: empty, "crash" or
	// "application".
	Consistency string
	// Keep: a person labelled it retention=keep.
	Keep bool
	// RunActive: the run that made it is not completed.
	RunActive bool
	// Foreign: it carries the schedule's label and was made by nobody on the schedule's behalf.
	Foreign bool
	// ContentSourced: its source is an existing content, not a claim.
	ContentSourced bool
	// Group names the group snapshot it is a member of; empty: none. Members of
	// a group are the schedule's even if they are ContentSourced.
	Group string
}

// earliestCut is before the first CSI snapshot that could exist. A driver that
// reports an earlier cut has no clock.
var earliestCut = time.Date(2016, 1, 1, 0, 0, 0, 0, time.UTC)

// Time is the moment of the cut, else the creation of the object.
func (s Snapshot) Time() time.Time {
	if s.CutAt != nil && s.CutAt.After(earliestCut) {
		return *s.CutAt
	}
	return s.Created
}

// Claim is a claim that exists.
type Claim struct {
	Name, UID string
	// Created is the creation of the claim. Zero: unknown; then every snapshot
	// without a recorded UID is taken for this claim's.
	Created time.Time
}

// Rules is a schedule's spec.retention. A count that is nil or below 1 is no
// rule. The zero Rules delete nothing.
type Rules struct {
	// Expires is the age at which a snapshot goes; 0 is any age. Nil: no rule.
	Expires *time.Duration
	// MaxCount is how many ready snapshots of a claim stay.
	MaxCount *int32
	// The keep rules of restic's forget.
	KeepLast, KeepHourly, KeepDaily, KeepWeekly, KeepMonthly, KeepYearly *int32
	// ExpireLast: Expires also applies to the newest ready snapshot of a claim
	// that exists, and to its newest application one.
	ExpireLast bool
	// Location is the zone of the keep rules' calendar; nil: UTC.
	Location *time.Location
	// ReadyTimeout is how long after its creation an unfinished snapshot counts
	// as failed. Zero or less: never.
	ReadyTimeout time.Duration
}

// Rule is why a snapshot goes or stays. Values are stable and may be used as
// reasons of events.
type Rule string

// Why a snapshot goes.
const (
	// Expired: older than expires.
	Expired Rule = "Expired"
	// BeyondMaxCount: maxCount newer ready ones of its claim exist.
	BeyondMaxCount Rule = "BeyondMaxCount"
	// Unselected: there are only keep rules, and none selects it.
	Unselected Rule = "Unselected"
	// FailedSuperseded: a newer one of its claim failed as well.
	FailedSuperseded Rule = "FailedSuperseded"
	// FailedExpired: the newest failed one of its claim, older than expires.
	FailedExpired Rule = "FailedExpired"
)

// Why a snapshot stays.
const (
	// NotOurs: made from an existing content, or under another name: not by the schedule.
	NotOurs Rule = "NotOurs"
	// AlreadyTerminating: it goes anyway.
	AlreadyTerminating Rule = "AlreadyTerminating"
	// KeepLabel: a person labelled it retention=keep.
	KeepLabel Rule = "KeepLabel"
	// RunActive: its run is not completed.
	RunActive Rule = "RunActive"
	// StillUnfinished: neither ready nor failed before the ready timeout.
	StillUnfinished Rule = "StillUnfinished"
	// NoRules: the schedule has no retention.
	NoRules Rule = "NoRules"
	// NewestFailed: kept for diagnosis.
	NewestFailed Rule = "NewestFailed"
	// InFuture: its time has not come; a clock is wrong.
	InFuture Rule = "InFuture"
	// NewestReady: the newest ready one of a claim that exists.
	NewestReady Rule = "NewestReady"
	// NewestApplication: the newest application-consistent one of its claim.
	NewestApplication Rule = "NewestApplication"
	// VanishedNewest: the newest ready one of a claim that does not exist.
	VanishedNewest Rule = "VanishedNewest"
	// KeptLast and the following: a keep rule selects it. The first one in this
	// order is named, the Reason names all.
	KeptLast    Rule = "KeepLast"
	KeptHourly  Rule = "KeepHourly"
	KeptDaily   Rule = "KeepDaily"
	KeptWeekly  Rule = "KeepWeekly"
	KeptMonthly Rule = "KeepMonthly"
	KeptYearly  Rule = "KeepYearly"
	// Within: neither too old nor one too many.
	Within Rule = "Within"
	// GroupHeld: it would go, but another member of its group stays.
	GroupHeld Rule = "GroupHeld"
)

// Verdict is what becomes of one snapshot.
type Verdict struct {
	Snapshot Snapshot
	// Delete: it goes. The caller deletes with the UID as a precondition; that it
	// is gone already is success.
	Delete bool
	// Rule is why.
	Rule Rule
	// Reason says the same to an operator, in one sentence without its name.
	Reason string
	// Due is when this verdict may become another one by the mere passing of
	// time; zero: only when something changes.
	Due time.Time
}
