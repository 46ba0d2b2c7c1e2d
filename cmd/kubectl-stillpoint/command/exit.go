// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// Exit codes. They are part of what users rely on; docs/kubectl.md explains them.
const (
	// ExitOK: done, and as asked.
	ExitOK = 0
	// ExitError: the command could not be carried out: usage, no connection, no right, no such object. Nothing was changed, or the message says what.
	ExitError = 1
	// ExitFailed: the run failed; the plan would fail; lint found errors.
	ExitFailed = 2
	// ExitPartial: the run is not all that was asked for; a restore made some of its claims.
	ExitPartial = 3
	// ExitSkipped: the run found nothing to do; the plan would.
	ExitSkipped = 4
	// ExitTimeout: --timeout was over; what was begun goes on.
	ExitTimeout = 5
	// ExitInterrupted: Ctrl-C; what was begun goes on.
	ExitInterrupted = 130
)

// failure is an error with an exit code. An empty message: everything was said.
type failure struct {
	code int
	err  error
}

func (f *failure) Error() string {
	if f.err == nil {
		return ""
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }

// exitWith ends the command with a code, everything being said.
func exitWith(code int) error {
	if code == ExitOK {
		return nil
	}
	return &failure{code: code}
}

// codeOf an error that a command returned.
func codeOf(err error) int {
	var f *failure
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &f):
		return f.code
	case errors.Is(err, context.Canceled):
		return ExitInterrupted
	}
	return ExitError
}

// codeOfResult of a completed run.
func codeOfResult(result v1.RunResult) int {
	switch result {
	case v1.ResultSucceeded:
		return ExitOK
	case v1.ResultPartiallyFailed:
		return ExitPartial
	case v1.ResultSkipped:
		return ExitSkipped
	case v1.ResultFailed:
	}
	return ExitFailed
}
