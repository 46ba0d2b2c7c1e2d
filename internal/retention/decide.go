// SPDX-License-Identifier: Apache-2.0

package retention

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// claimKey tells claims apart. A vanished claim without a recorded UID has the
// empty one.
type claimKey struct{ name, uid string }

// group is what belongs to one claim.
type group struct {
	exists bool
	// ready, failed and pinned hold positions in the list of verdicts, newest
	// first. Pinned ones are ready and labelled keep.
	ready, failed, pinned []int
}

// Decide returns one verdict for each snapshot, ordered by claim name, claim
// UID as recorded, newest first. claims must be all that exist: the last
// snapshot of a claim that is missing there is no longer safe from expires.
func Decide(now time.Time, rules Rules, claims []Claim, snapshots []Snapshot) []Verdict {
	rules = rules.normalized()
	verdicts := make([]Verdict, len(snapshots))
	for i, s := range snapshots {
		verdicts[i] = Verdict{Snapshot: s}
	}
	slices.SortStableFunc(verdicts, func(a, b Verdict) int { return compare(a.Snapshot, b.Snapshot) })

	groups := map[claimKey]*group{}
	current := existing(claims)
	for i := range verdicts {
		v := &verdicts[i]
		key, exists := owner(v.Snapshot, current)
		g := groups[key]
		if g == nil {
			g = &group{exists: exists}
			groups[key] = g
		}
		g.admit(v, i, now, rules)
	}
	for _, g := range groups {
		g.judgeFailed(verdicts, now, rules)
		g.judgeReady(verdicts, now, rules)
	}
	holdGroups(verdicts)
	return verdicts
}

// NextDue returns when a verdict may change by the mere passing of time, and
// Decide should be asked again; zero: only when something changes.
func NextDue(verdicts []Verdict) time.Time {
	var next time.Time
	for _, v := range verdicts {
		if !v.Due.IsZero() && (next.IsZero() || v.Due.Before(next)) {
			next = v.Due
		}
	}
	return next
}

// compare orders by claim, newest first. Two snapshots of the same moment are
// told apart by creation and then by name, so that the order is total.
func compare(a, b Snapshot) int {
	return cmp.Or(
		cmp.Compare(a.ClaimName, b.ClaimName),
		cmp.Compare(a.ClaimUID, b.ClaimUID),
		newer(a, b),
	)
}

func newer(a, b Snapshot) int {
	return cmp.Or(
		b.Time().Compare(a.Time()),
		b.Created.Compare(a.Created),
		cmp.Compare(b.Name, a.Name),
		cmp.Compare(b.UID, a.UID),
	)
}

// existing finds claims by name. Names are unique; should one come twice, the
// order of the list must not decide.
func existing(claims []Claim) map[string]Claim {
	current := make(map[string]Claim, len(claims))
	for _, c := range claims {
		if other, ok := current[c.Name]; !ok || c.UID < other.UID {
			current[c.Name] = c
		}
	}
	return current
}

// owner returns the claim a snapshot belongs to and whether it exists.
func owner(s Snapshot, current map[string]Claim) (key claimKey, exists bool) {
	claim, found := current[s.ClaimName]
	switch {
	case s.ClaimUID != "":
		return claimKey{s.ClaimName, s.ClaimUID}, found && claim.UID == s.ClaimUID
	case !found || !s.Created.After(claim.Created):
		return claimKey{s.ClaimName, ""}, false
	default:
		return claimKey{claim.Name, claim.UID}, true
	}
}

// admit gives those a verdict that are not judged against others, and puts the
// rest where it is counted.
func (g *group) admit(v *Verdict, position int, now time.Time, rules Rules) {
	s := v.Snapshot
	waited := s.Created.Add(rules.ReadyTimeout)
	switch {
	case s.ContentSourced && s.Group == "":
		v.stay(NotOurs, "it was made from an existing content, not by the schedule")
	case s.Foreign:
		v.stay(NotOurs, "its name is not one that the schedule gives: it was made by somebody else, and labelled")
	case s.State == Terminating:
		v.stay(AlreadyTerminating, "it is being deleted already")
	case s.Keep:
		v.stay(KeepLabel, "it is labelled snapscheduler.backube/retention=keep")
		switch {
		case s.State == Ready && !s.Time().After(now):
			g.pinned = append(g.pinned, position)
		case s.State == Ready && rules.any():
			// It will then be the newest, and another one no longer.
			v.Due = s.Time()
		}
	case s.State == Ready && s.Time().After(now):
		v.stay(InFuture, "its time %s is in the future", stamp(s.Time()))
		if rules.any() {
			v.Due = s.Time()
		}
	case s.State == Ready:
		g.ready = append(g.ready, position)
	case s.RunActive:
		v.stay(RunActive, "its run is not completed")
	case s.State == Failed:
		g.failed = append(g.failed, position)
	case rules.ReadyTimeout <= 0 || now.Before(waited):
		v.stay(StillUnfinished, "it is not ready yet")
		if rules.ReadyTimeout > 0 && rules.any() {
			v.Due = waited
		}
	default:
		g.failed = append(g.failed, position)
	}
}

// judgeFailed keeps the newest one that failed.
func (g *group) judgeFailed(verdicts []Verdict, now time.Time, rules Rules) {
	slices.SortFunc(g.failed, func(a, b int) int { return newer(verdicts[a].Snapshot, verdicts[b].Snapshot) })
	for nth, position := range g.failed {
		v := &verdicts[position]
		expires, limited := rules.expiry(v.Snapshot)
		switch {
		case !rules.any():
			v.stay(NoRules, "the schedule has no retention")
		case nth > 0:
			v.leave(FailedSuperseded, "it failed, and so did a newer one, which is kept for diagnosis")
		case limited && !now.Before(expires):
			v.leave(FailedExpired, "it failed and is older than %s (expires)", human(*rules.Expires))
		default:
			v.stay(NewestFailed, "it is the newest that failed and kept for diagnosis")
			if limited {
				v.Due = expires
			}
		}
	}
}

// judgeReady applies the rules to the ready ones of a claim.
func (g *group) judgeReady(verdicts []Verdict, now time.Time, rules Rules) {
	byAge := func(a, b int) int { return newer(verdicts[a].Snapshot, verdicts[b].Snapshot) }
	slices.SortFunc(g.ready, byAge)
	all := slices.Concat(g.ready, g.pinned)
	slices.SortFunc(all, byAge)
	lastReady, lastApplication := -1, -1
	for _, position := range slices.Backward(all) {
		lastReady = position
		if verdicts[position].Snapshot.Consistency == ConsistencyApplication {
			lastApplication = position
		}
	}
	times := make([]time.Time, len(g.ready))
	for i, position := range g.ready {
		times[i] = verdicts[position].Snapshot.Time()
	}
	selected := rules.selected(times)
	for nth, position := range g.ready {
		r := ready{nth: nth, newest: position == lastReady, application: position == lastApplication,
			exists: g.exists, selected: selected[nth]}
		r.judge(&verdicts[position], now, rules)
	}
}

// ready is what decides about one ready snapshot.
type ready struct {
	// nth counts newer ones that count.
	nth int
	// newest and application: it is the newest ready one and the newest
	// application-consistent one of its claim.
	newest, application bool
	// exists: its claim does.
	exists bool
	// selected holds the keep rules that select it.
	selected []Rule
}

func (r ready) judge(v *Verdict, now time.Time, rules Rules) {
	expires, limited := rules.expiry(v.Snapshot)
	expired := limited && !now.Before(expires)
	// Whether expires may delete it although it is the last of its kind.
	guarded := (r.newest || r.application) && r.exists && !rules.ExpireLast
	switch {
	case v.Snapshot.RunActive:
		v.stay(RunActive, "its run is not completed")
		return
	case !rules.any():
		v.stay(NoRules, "the schedule has no retention")
		return
	case len(r.selected) > 0 && !guarded:
		v.stay(r.selected[0], "%s", rules.sentence(r.selected))
		return
	case expired && !guarded:
		v.leave(Expired, "it is older than %s (expires)", human(*rules.Expires))
		return
	case r.newest && r.exists:
		v.stay(NewestReady, "it is the newest ready snapshot of its claim")
	case r.newest:
		v.stay(VanishedNewest, "it is the newest ready snapshot of a claim that no longer exists")
	case r.application:
		v.stay(NewestApplication, "it is the newest application-consistent snapshot of its claim")
	case rules.MaxCount != nil && r.nth >= int(*rules.MaxCount):
		v.leave(BeyondMaxCount, "%d newer ready snapshots of its claim exist (maxCount)", r.nth)
	case rules.keepsOnly():
		v.leave(Unselected, "no keep rule selects it")
	default:
		v.stay(Within, "%s", rules.within())
	}
	if !v.Delete && limited && !guarded {
		v.Due = expires
	}
}

// holdGroups turns deletions back where another member of the group stays: the
// members of a group snapshot can only be deleted together.
func holdGroups(verdicts []Verdict) {
	heldBy := map[string]string{}
	for _, v := range verdicts {
		if s := v.Snapshot; s.Group != "" && !v.Delete && v.Rule != AlreadyTerminating && heldBy[s.Group] == "" {
			heldBy[s.Group] = s.Name
		}
	}
	for i := range verdicts {
		v := &verdicts[i]
		if member, held := heldBy[v.Snapshot.Group]; v.Delete && held {
			v.Delete = false
			v.stay(GroupHeld, "it would go, but %s of the same group snapshot stays", member)
		}
	}
}

func (v *Verdict) stay(rule Rule, reason string, args ...any) {
	v.Rule, v.Reason = rule, fmt.Sprintf(reason, args...)
}

func (v *Verdict) leave(rule Rule, reason string, args ...any) {
	v.Delete, v.Rule, v.Reason = true, rule, fmt.Sprintf(reason, args...)
}

// human writes a duration without the zeroes at its end.
func human(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// stamp writes a time for a person.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }
