// SPDX-License-Identifier: Apache-2.0

// Package build says which build of the project a program is. hack/build.sh sets the variables.
package build

var (
	// Version as of git describe, "dev" for a program that hack/build.sh did not build.
	Version = "dev"
	// Commit that was built.
	Commit string
	// Date of the commit (RFC 3339, UTC): the same source makes the same program.
	Date string
)

// String is the version as people read it: "v0.1.0 (commit 0123abc, 2026-01-31T10:00:00Z)".
func String() string {
	if Commit == "" {
		return Version
	}
	return Version + " (commit " + Commit + ", " + Date + ")"
}
