// SPDX-License-Identifier: Apache-2.0

package hooks

import "time"

// Reason says how a call ended, in one word that is stable across versions.
type Reason string

const (
	// Completed: the command exited with 0 and everything that was expected of its output appeared.
	Completed Reason = "Completed"
	// NonZeroExit: the command ran and exited with the code in Outcome.ExitCode; 128+n is a death by signal n. 137 may be the container's
	// own end, which nothing on the stream tells from an ordinary SIGKILL.
	NonZeroExit Reason = "NonZeroExit"
	// OutputMissing: the command exited with 0 but text that was expected never appeared.
	OutputMissing Reason = "OutputMissing"
	// Timeout: the call took longer than it may. The process lives on and its end is unknown.
	Timeout Reason = "Timeout"
	// ConnectionLost: the stream ended without a status, or with one that tells nothing about the command. Whether it started and whether it
	// has ended is unknown.
	ConnectionLost Reason = "ConnectionLost"
	// Interrupted: this process cancelled the call. If Outcome.Started is zero it was cancelled before it started.
	Interrupted Reason = "Interrupted"
	// HoldLost: a held command ended, or its stream broke, after it was ready and before it was released. With an exit code it has ended.
	HoldLost Reason = "HoldLost"
	// PodGone: the kubelet or the runtime says that the container is not running (any more). Whatever the command did is over; a frozen file
	// system outlives it.
	PodGone Reason = "PodGone"

	// Unreachable: the API server or the node could not be reached, within the timeout or at all, or refused the request for a passing
	// reason. The command never started.
	Unreachable Reason = "Unreachable"
	// PodNotFound: the pod does not exist. The command never started.
	PodNotFound Reason = "PodNotFound"
	// ContainerNotFound: the pod has no such container. The command never started.
	ContainerNotFound Reason = "ContainerNotFound"
	// ContainerNotRunning: the pod's container exists but does not run. The command never started.
	ContainerNotRunning Reason = "ContainerNotRunning"
	// Forbidden: the account may not exec there, or the operator may not act as the account. The command never started.
	Forbidden Reason = "Forbidden"
	// CommandNotFound: the container has no such program, or it is not executable. The command never started. Exit codes 126 and 127 are a
	// shell's way of saying so, and stay NonZeroExit.
	CommandNotFound Reason = "CommandNotFound"
	// HoldNotSupported: a held command needs WebSocket, and the path to the node does not speak it. The command never started.
	HoldNotSupported Reason = "HoldNotSupported"
)

// EndUnknown: with this reason the command may still be running, or may yet start. What it does to the application can come later than
// any release that follows at once.
func (r Reason) EndUnknown() bool {
	switch r {
	case Timeout, ConnectionLost, Interrupted, HoldLost:
		return true
	default:
		return false
	}
}

// NeverStarted: with this reason no process was started, so nothing was done and the call may be repeated.
func (r Reason) NeverStarted() bool {
	switch r {
	case Unreachable, PodNotFound, ContainerNotFound, ContainerNotRunning, Forbidden, CommandNotFound, HoldNotSupported:
		return true
	default:
		return false
	}
}

// Outcome is how a call ended.
type Outcome struct {
	Reason Reason
	// ExitCode of the command, 0..255; nil when none is known.
	ExitCode *int32
	// Message is one line for an operator, without the command's arguments.
	Message string
	// Output is the end of what the command wrote to stdout and stderr: valid UTF-8 of at most MaxOutput bytes. Control characters but
	// newline and tab, and bytes that are not UTF-8, are replaced by U+FFFD; "…" stands in front of it when the beginning is missing.
	Output string
	// Started is when the call began; zero when it was cancelled before.
	Started time.Time
	// Ended is when its end was known here.
	Ended time.Time
	// Protocol that carried the call; empty when no stream was opened.
	Protocol Protocol
}

// NeverStarted: no process was started. It knows more than Reason.NeverStarted: a call that was cancelled while it waited never started.
func (o Outcome) NeverStarted() bool {
	return o.Reason.NeverStarted() || (o.Reason == Interrupted && o.Started.IsZero())
}

// EndUnknown: the command may still be running. It knows more than Reason.EndUnknown: a held command that was lost with an exit code
// has ended, and so has everything that never started.
func (o Outcome) EndUnknown() bool {
	return o.Reason.EndUnknown() && o.ExitCode == nil && !o.NeverStarted()
}
