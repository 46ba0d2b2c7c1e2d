// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"cmp"
	"slices"
)

// Level says how bad a finding is; the words are SARIF's.
type Level string

// Levels.
const (
	// Error: the API server refuses the object, or the operator cannot run it, or it harms.
	Error Level = "error"
	// Warning: it works, and probably not as meant.
	Warning Level = "warning"
	// Note: worth a look.
	Note Level = "note"
)

// Rule is a kind of finding.
type Rule struct {
	ID    string
	Level Level // of its findings, unless one says otherwise
	Text  string
}

// Rules are all that exist, in the order in which they are documented.
var Rules = []Rule{
	{"yaml", Error, "The file is not valid YAML."},
	{"duplicate-key", Error, "A key stands twice in the same mapping; the API server would take one of them."},
	{"unknown-kind", Error, "The API group knows no such kind or version."},
	{"unknown-field", Error, "No such field exists; a strict client refuses it, others drop it without a word."},
	{"admission", Error, "The API server refuses the object by its definition (OpenAPI and CEL rules)."},
	{"calendar", Error, "The schedule cannot be read, or never fires."},
	{"calendar-meaning", Warning, "The schedule is valid and probably means something else."},
	{"retention", Error, "The retention rules cannot be read; nothing would be deleted."},
	{"selector", Error, "The claim selector cannot be read; nothing would be taken."},
	{"group", Error, "What groupSnapshotClassName cannot be combined with; every run would be refused."},
	{"hooks", Error, "The operator cannot plan the hooks."},
	{"no-release", Note, "Pre hooks without any post hook: right only if there is nothing to release."},
	{"freeze-without-thaw", Error, "A hook quiesces an application and nothing releases it."},
	{"thaw-elsewhere", Warning, "What is frozen and what is thawed are not the same."},
	{"thaw-not-idempotent", Warning, "Thawing what is not frozen fails; a post hook may run more than once and must then succeed."},
	{"release-not-always", Warning, "What releases an application must run always."},
	{"lock-needs-hold", Warning, "The lock ends with its session, before the snapshots are cut; it needs mode Hold."},
	{"run-slot", Warning, "A run with a slot is the operator's own; one by hand has none."},
	{"duplicate-name", Error, "Two objects of the same kind, namespace and name."},
	{"collision", Warning, "Two schedules with hooks for the same pods or claims fire in the same minute; one waits for the other."},
}

func levelOf(id string) Level {
	i := slices.IndexFunc(Rules, func(r Rule) bool { return r.ID == id })
	if i < 0 {
		return Error
	}
	return Rules[i].Level
}

// Finding is one fault at one place.
type Finding struct {
	File         string
	Line, Column int // from 1
	Level        Level
	Rule         string // one of the Rules
	Object       string // kind namespace/name; empty: of the file
	Path         string // of the field; empty: of the object
	Message      string
}

// Report is what was read and what was found, ordered by file and line.
type Report struct {
	Files    int // that were read
	Objects  []Object
	Findings []Finding
}

// Object is one SnapshotSchedule or SnapshotRun that was judged.
type Object struct {
	File string
	Line int
	Name string // kind namespace/name
}

// Count of the findings of a level.
func (r *Report) Count(level Level) int {
	n := 0
	for i := range r.Findings {
		if r.Findings[i].Level == level {
			n++
		}
	}
	return n
}

func (r *Report) sort() {
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Rule, b.Rule), cmp.Compare(a.Message, b.Message))
	})
}
