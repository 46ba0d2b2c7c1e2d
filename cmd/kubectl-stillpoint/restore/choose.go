// SPDX-License-Identifier: Apache-2.0

package restore

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/naming"
)

// Latest is the default of Request.At.
const Latest = "latest"

// Request is what somebody asked for.
type Request struct {
	// Schedule whose snapshots are restored.
	Schedule string
	// At is Latest, a time, or the name of a run or of a snapshot.
	At string
	// Zone in which a time without one is read: the schedule's.
	Zone *time.Location
	// Claims by their original names; empty: all of the point.
	Claims []string
	// Application: only snapshots that were cut while the application was quiesced.
	Application bool
}

// Choice is the point that was found.
type Choice struct {
	Point *Point
	// Members to be restored: all of the point or those that were asked for. Each has its snapshot.
	Members []Member
	// Passed are newer points that could not be taken, with the reason, in words.
	Passed []string
}

// Choose the point that was asked for. The error says what there is instead.
func Choose(points []Point, r Request) (*Choice, error) {
	if len(points) == 0 {
		return nil, fmt.Errorf("schedule %s has no snapshots: nothing carries the label %s=%s in this namespace", r.Schedule, v1.LabelSchedule, naming.ScheduleLabel(r.Schedule))
	}
	candidates, named, err := matching(points, r)
	if err != nil {
		return nil, err
	}
	c := &Choice{}
	for _, p := range candidates {
		members, why := p.restorable(r)
		if why == "" {
			c.Point, c.Members = p, members
			return c, nil
		}
		c.Passed = append(c.Passed, fmt.Sprintf("%s (%s) cannot be restored: %s", p.Name(), stamp(p.When), why))
	}
	if named {
		return nil, fmt.Errorf("%s%s", c.Passed[0], others(candidates[0], r))
	}
	return nil, fmt.Errorf("no run of schedule %s can be restored as asked:\n  %s%s", r.Schedule, strings.Join(firsts(c.Passed, 5), "\n  "), others(candidates[0], r))
}

// others tells what else could be asked for.
func others(p *Point, r Request) string {
	var usable []string
	for _, m := range p.Members {
		if m.Why == "" && (!r.Application || m.Consistency == v1.ConsistencyApplication) {
			usable = append(usable, m.Claim)
		}
	}
	if len(usable) == 0 || len(r.Claims) > 0 {
		return "\nsee what there is: kubectl stillpoint history " + r.Schedule
	}
	return fmt.Sprintf("\nto restore of %s only what can be restored: --at %s --claims %s", p.Name(), p.handle(), strings.Join(usable, ","))
}

// handle is what --at takes for this point.
func (p *Point) handle() string {
	if p.Run != "" {
		return p.Run
	}
	return naming.When(p.When)
}

func firsts(list []string, n int) []string {
	if len(list) <= n {
		return list
	}
	return append(slices.Clone(list[:n]), fmt.Sprintf("and %d more", len(list)-n))
}

// restorable members of a point, or why it cannot be restored as asked.
func (p *Point) restorable(r Request) ([]Member, string) {
	if p.Record != nil {
		switch p.Record.Status.Phase {
		case v1.PhaseAwaitingReady, v1.PhaseCompleted:
		default:
			return nil, "the run is still at work"
		}
	}
	if len(p.Members) == 0 {
		why := "it made no snapshot"
		if p.Record != nil && p.Record.Status.Message != "" {
			why += ": " + p.Record.Status.Message
		}
		return nil, why
	}
	members := p.Members
	if len(r.Claims) > 0 {
		members = nil
		for _, name := range r.Claims {
			m := p.member(name)
			if m == nil {
				return nil, fmt.Sprintf("it has no claim %s, only %s", name, strings.Join(p.claims(), ", "))
			}
			members = append(members, *m)
		}
	}
	var problems []string
	for _, m := range members {
		switch {
		case m.Why != "":
			problems = append(problems, fmt.Sprintf("claim %s: %s", m.Claim, m.Why))
		case r.Application && m.Consistency != v1.ConsistencyApplication:
			problems = append(problems, fmt.Sprintf("claim %s: snapshot %s is not application-consistent", m.Claim, m.Snapshot.Name))
		}
	}
	return members, strings.Join(firsts(problems, 5), "; ")
}

func (p *Point) claims() []string {
	var out []string
	for _, m := range p.Members {
		out = append(out, m.Claim)
	}
	return out
}

// matching points, the best first. named: one point was meant and no other will do.
func matching(points []Point, r Request) (found []*Point, named bool, err error) {
	if r.At == "" || r.At == Latest {
		return pointers(points, func(*Point) bool { return true }), false, nil
	}
	name := r.At
	for _, prefix := range []string{"run/", "snapshotrun/", "volumesnapshot/", "snapshot/"} {
		name = strings.TrimPrefix(name, prefix)
	}
	if found = pointers(points, func(p *Point) bool { return p.Run == name }); len(found) > 0 {
		return found[:1], true, nil
	}
	holds := func(p *Point) bool {
		return slices.ContainsFunc(p.Members, func(m Member) bool { return m.Snapshot != nil && m.Snapshot.Name == name })
	}
	if found = pointers(points, holds); len(found) > 0 {
		return found[:1], true, nil
	}
	if stray := pointers(points, func(p *Point) bool { return slices.Contains(p.Stray, name) }); len(stray) > 0 {
		return nil, false, fmt.Errorf("snapshot %s carries the mark of %s and is not in its record: somebody else made it; restore from it by hand if you trust it", name, stray[0].Name())
	}
	if t, err := time.Parse(minuteLayout, name); err == nil {
		if found = pointers(points, func(p *Point) bool { return p.When.Equal(t) }); len(found) > 0 {
			return found, true, nil
		}
		return nil, false, fmt.Errorf("no run of schedule %s is named for %s (UTC)%s", r.Schedule, name, nearby(points, t))
	}
	t, err := ParseTime(name, r.Zone)
	if err != nil {
		return nil, false, fmt.Errorf("--at %s is neither a time nor a run or snapshot of schedule %s; times are written as 2026-03-01T07:00:00Z, or 2026-03-01T07:00 in the schedule's zone%s", r.At, r.Schedule, nearby(points, time.Time{}))
	}
	// Whoever repeats the minute that a listing shows means that run, although it was cut some seconds later.
	if found = pointers(points, func(p *Point) bool { return p.When.Equal(t.UTC()) }); len(found) > 0 {
		return found, true, nil
	}
	if found = pointers(points, func(p *Point) bool { return !p.Time().After(t) }); len(found) > 0 {
		return found, false, nil
	}
	return nil, false, fmt.Errorf("schedule %s has nothing that was cut at %s or before%s", r.Schedule, stamp(t), nearby(points, t))
}

func pointers(points []Point, match func(*Point) bool) []*Point {
	var out []*Point
	for i := range points {
		if match(&points[i]) {
			out = append(out, &points[i])
		}
	}
	return out
}

// nearby names points to choose from: the newest, the oldest, and those around t.
func nearby(points []Point, t time.Time) string {
	var names []string
	for i := range points {
		around := !t.IsZero() && ((i > 0 && points[i-1].When.After(t) != points[i].When.After(t)) || (i+1 < len(points) && points[i+1].When.After(t) != points[i].When.After(t)))
		if i == 0 || i == len(points)-1 || around {
			names = append(names, fmt.Sprintf("%s (%s)", stamp(points[i].When), points[i].handle()))
		}
	}
	return "; there are: " + strings.Join(firsts(names, 6), ", ")
}

// layouts of times that name no zone.
var layouts = []string{"2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02"}

// ParseTime reads a time; one without a zone is read in the one given.
func ParseTime(text string, zone *time.Location) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err == nil {
		return t, nil
	}
	if zone == nil {
		zone = time.UTC
	}
	for _, layout := range layouts {
		if t, err := time.ParseInLocation(layout, text, zone); err == nil {
			return t, nil
		}
	}
	return time.Time{}, err
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }
