// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Key names one call for as long as its run is remembered.
type Key struct {
	Run   types.UID
	Stage string
	Pass  int32
	// Hook is the index in its list.
	Hook int32
	// Target is Target.ID.
	Target  string
	Attempt int32
}

// Owner is whom to wake when a call has changed.
type Owner types.NamespacedName

// Hold makes a request a held command. It is ready when ExpectOutput has appeared on stdout, and stays until it is released.
type Hold struct {
	// ExpectReleaseOutput must appear on stdout after the command was ready, or its release did not go well. Required.
	ExpectReleaseOutput string
	// ReleaseTimeout is how long it may take to end once its stdin is closed; more than 0.
	ReleaseTimeout time.Duration
}

// Request is what a call does.
type Request struct {
	Target
	Account Account
	Command []string
	// Timeout bounds the whole command; of a held one, until it is ready. More than 0.
	Timeout time.Duration
	// ExpectOutput must appear on stdout; empty: nothing is expected. A held command requires it.
	ExpectOutput string
	Hold         *Hold
}

func (r *Request) validate() error {
	switch {
	case len(r.Command) == 0:
		return errors.New("the request has no command")
	case r.Timeout <= 0:
		return errors.New("the request has no timeout")
	case r.Hold == nil:
		return nil
	case r.ExpectOutput == "" || r.Hold.ExpectReleaseOutput == "":
		return errors.New("a held command needs the texts that say that it is ready and that it has released")
	case r.Hold.ReleaseTimeout <= 0:
		return errors.New("a held command needs a release timeout")
	default:
		return nil
	}
}

// State is where a call stands; doc.go draws the states.
type State int

const (
	// Unknown: never heard of, forgotten, or a reservation that expired. Nothing has started.
	Unknown State = iota
	// Queued: waits for a slot.
	Queued
	// Reserved: a slot is the caller's own for Limits.Reservation.
	Reserved
	// Running: started and not ended; if held, not ready yet.
	Running
	// Held: the held command is ready.
	Held
	// Releasing: the held command's stdin is closed and it has not ended yet.
	Releasing
	// Done: ended; the outcome is known.
	Done
)

// Lane separates calls that may wait for each other from those that must not.
type Lane int

const (
	// LaneQuiesce is for commands before the snapshots.
	LaneQuiesce Lane = iota
	// LaneRelease is for commands after them: they never wait behind the others.
	LaneRelease
	lanes
)

// Limits bounds a Pool. A zero field means its default.
type Limits struct {
	// Quiesce and Release are how many calls of a lane may be reserved or running; default 64 and 256.
	Quiesce, Release int
	// Reservation is how long a slot stays reserved before it is given to the next; default 30 s.
	Reservation time.Duration
}

// Stats counts the calls of a Pool.
type Stats struct {
	// Busy and Queued count slots that are reserved or running, and calls that wait for one, by Lane.
	Busy, Queued [lanes]int
	// Held counts held commands that are ready or being released.
	Held int
}
