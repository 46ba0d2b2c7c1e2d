// SPDX-License-Identifier: Apache-2.0

package naming

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// maxName is the longest name of an object, in bytes.
	maxName = validation.DNS1123SubdomainMaxLength
	// maxLabel is the longest label value, in bytes. Names of runs keep to it so
	// that they can be one.
	maxLabel = validation.LabelValueMaxLength
	// hashLength is the number of characters of a hash, 5 bits each.
	hashLength = 10
	// cutBase is where snapscheduler cuts claim and schedule, in bytes, give or take a dash.
	cutBase = maxName - 1 - len(minutes)
	// minutes is the layout of When.
	minutes = "200601021504"
)

// When returns the minute of t in UTC as YYYYMMDDHHMM: the last part of names
// and the value of the label snapscheduler.backube/when.
func When(t time.Time) string {
	return t.UTC().Format(minutes)
}

// Run returns the name of the run that a schedule has for a slot.
func Run(schedule string, slot time.Time) string {
	return RetryRun(schedule, slot, 0)
}

// RetryRun returns the name of the run that repeats a failed one: retry is 1
// for the first repetition. With 0 or less it is Run.
func RetryRun(schedule string, slot time.Time, retry int) string {
	when := When(slot)
	suffix := "-" + when
	if retry > 0 {
		suffix += "-r" + strconv.Itoa(retry)
	}
	if name := schedule + suffix; len(name) <= maxLabel && isSubdomain(name) {
		return name
	}
	return hashed(schedule, suffix, maxLabel, "run", schedule, when, strconv.Itoa(max(retry, 0)))
}

// Snapshot returns the name of the snapshot of a claim that a schedule takes
// for the slot at: the one snapscheduler would give it, if that fits and is
// valid. Only minutes of at count. See the package comment for what to do if
// the name is taken.
func Snapshot(claim, schedule string, at time.Time) string {
	base, when := claim+"-"+schedule, When(at)
	if name := base + "-" + when; len(name) <= maxName && isSubdomain(name) {
		return name
	}
	return hashed(base, "-"+when, maxName, "snapshot", claim, schedule, when)
}

// SnapshotHashed returns the name of a snapshot whose plain name belongs to
// another object. It differs for each (claim, schedule, run, minute).
func SnapshotHashed(claim, schedule, runUID string, at time.Time) string {
	when := When(at)
	return hashed(claim+"-"+schedule, "-"+when, maxName, "taken", claim, schedule, runUID, when)
}

// Made reports whether the snapshot of a claim has a name that a run of the schedule gives it, or that snapscheduler gave it. Labels and
// annotations can be written by others; a name and a source never change, so they tell whose a snapshot is. runUID is what the snapshot says about its
// run; it is only believed as far as the name confirms it.
func Made(name, claim, schedule, runUID string) bool {
	rest, when, found := cutLast(name, "-")
	at, err := time.Parse(minutes, when)
	if !found || err != nil || When(at) != when {
		return false
	}
	base := claim + "-" + schedule
	switch {
	case rest == base:
		return true
	case len(base) > cutBase && len(rest) >= cutBase-2 && strings.HasPrefix(base, rest): // cut by snapscheduler, which then names other claims alike
		return true
	}
	return name == Snapshot(claim, schedule, at) || name == SnapshotHashed(claim, schedule, runUID, at)
}

// Group returns the name of the group snapshot that a schedule takes for the slot at.
func Group(schedule string, at time.Time) string {
	when := When(at)
	if name := schedule + "-" + when; len(name) <= maxName && isSubdomain(name) {
		return name
	}
	return hashed(schedule, "-"+when, maxName, "group", schedule, when)
}

// GroupHashed returns the name of a group snapshot whose plain name belongs to another object.
func GroupHashed(schedule, runUID string, at time.Time) string {
	when := When(at)
	return hashed(schedule, "-"+when, maxName, "group taken", schedule, runUID, when)
}

// MadeGroup reports whether a group snapshot has a name that a run of the schedule gives it. runUID is as in Made.
func MadeGroup(name, schedule, runUID string) bool {
	_, when, found := cutLast(name, "-")
	at, err := time.Parse(minutes, when)
	if !found || err != nil || When(at) != when {
		return false
	}
	return name == Group(schedule, at) || name == GroupHashed(schedule, runUID, at)
}

func cutLast(s, separator string) (before, after string, found bool) {
	i := strings.LastIndex(s, separator)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(separator):], true
}

// PlanSnapshots names the snapshots of one run: claim to name. No two claims
// share a name; the order of claims does not matter.
func PlanSnapshots(schedule string, claims []string, at time.Time) map[string]string {
	names := make(map[string]string, len(claims))
	taken := make(map[string]bool, len(claims))
	for _, claim := range slices.Sorted(slices.Values(claims)) {
		if _, done := names[claim]; done {
			continue
		}
		name := Snapshot(claim, schedule, at)
		// Plain names of one schedule differ. Two hashes could be equal, once in
		// some 10^15 pairs.
		for salt := 0; taken[name]; salt++ {
			name = SnapshotHashed(claim, schedule, strconv.Itoa(salt), at)
		}
		names[claim], taken[name] = name, true
	}
	return names
}

// ScheduleLabel returns the value of the label snapscheduler.backube/schedule
// for a schedule: its name, or for a name that is no label value a cut and
// hashed form of it. Selecting by the result finds what was labelled with it.
func ScheduleLabel(schedule string) string {
	if schedule != "" && len(validation.IsValidLabelValue(schedule)) == 0 {
		return schedule
	}
	return hashed(schedule, "", maxLabel, "schedule", schedule)
}

// hashed cuts base so that base, a hash of parts and suffix fit into limit.
func hashed(base, suffix string, limit int, parts ...string) string {
	tail := hash(parts...) + suffix
	base = trimmed(base[:min(len(base), limit-len(tail)-1)])
	if !isSubdomain(base) {
		base = sanitized(base)
	}
	if base == "" {
		return tail
	}
	return base + "-" + tail
}

// trimmed takes off what a part of a name must not end with.
func trimmed(s string) string {
	return strings.TrimRight(s, "-.")
}

// sanitized makes a name of text that is none. Objects of the API have valid
// names, so this is the last resort against an invalid one.
func sanitized(s string) string {
	return strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a'
		}
		return '-'
	}, s), "-")
}

func isSubdomain(name string) bool {
	return len(validation.IsDNS1123Subdomain(name)) == 0
}

// hash returns hashLength lower-case letters and digits. Each part is preceded
// by its length, so that no two lists of parts are the same input.
func hash(parts ...string) string {
	var input []byte
	for _, part := range parts {
		input = binary.AppendUvarint(input, uint64(len(part))) // #nosec G115 -- a length
		input = append(input, part...)
	}
	sum := sha256.Sum256(input)
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:hashLength]
}
