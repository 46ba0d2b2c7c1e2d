// SPDX-License-Identifier: Apache-2.0

package restore

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/naming"
	"github.com/stillpoint-operator/stillpoint/internal/run"
	"github.com/stillpoint-operator/stillpoint/internal/snapshots"
)

// minuteLayout is that of the minute at the end of names.
const minuteLayout = "200601021504"

// World is what was seen in the namespace of a schedule.
type World struct {
	Schedule  string
	Runs      []v1.SnapshotRun            // of the schedule
	Snapshots []snapshotv1.VolumeSnapshot // with the schedule's label
	Claims    []corev1.PersistentVolumeClaim
}

// Point is what one run left.
type Point struct {
	// When is the minute for which the run is named, in UTC.
	When time.Time
	// Cut is when the last of the snapshots was cut; zero: unknown.
	Cut time.Time
	// Run is the run's name; empty: snapscheduler made the snapshots.
	Run string
	// Record of the run; nil: it is no longer kept, or there never was one.
	Record *v1.SnapshotRun
	// Members by claim, ordered by its name.
	Members []Member
	// Stray snapshots carry the run's mark and are not in its record.
	Stray []string
}

// Member is one claim of a point and its snapshot.
type Member struct {
	Claim    string
	ClaimUID types.UID // empty: not recorded
	// Snapshot to restore from; nil: there is none.
	Snapshot *snapshotv1.VolumeSnapshot
	// Why the claim cannot be restored, in words; empty: it can.
	Why string
	// Consistency that the snapshot may claim: empty, crash or application.
	Consistency string
}

// Time by which points are ordered: the cut, else the minute of the name.
func (p *Point) Time() time.Time {
	if !p.Cut.IsZero() {
		return p.Cut
	}
	return p.When
}

// Name of the point for people: its run, else its minute.
func (p *Point) Name() string {
	if p.Run != "" {
		return "run " + p.Run
	}
	return "the snapshots of " + naming.When(p.When)
}

// member of a claim; nil: the point has none.
func (p *Point) member(claim string) *Member {
	i := slices.IndexFunc(p.Members, func(m Member) bool { return m.Claim == claim })
	if i < 0 {
		return nil
	}
	return &p.Members[i]
}

// Points of a schedule, newest first.
func Points(w World) []Point {
	byRun := map[types.UID][]*snapshotv1.VolumeSnapshot{}
	for i := range w.Snapshots {
		s := &w.Snapshots[i]
		if s.Spec.Source.PersistentVolumeClaimName == nil {
			continue // made from an existing content: not the schedule's, whatever its labels say
		}
		uid := types.UID(s.Annotations[v1.AnnotationRunUID])
		byRun[uid] = append(byRun[uid], s)
	}
	var out []Point
	for i := range w.Runs {
		if r := &w.Runs[i]; run.ModeOf(r) == v1.RunSnapshot {
			out = append(out, recorded(r, byRun[r.UID]))
			delete(byRun, r.UID)
		}
	}
	for _, list := range byRun {
		out = append(out, unrecorded(w.Schedule, list)...)
	}
	slices.SortFunc(out, func(a, b Point) int {
		return cmp.Or(b.Time().Compare(a.Time()), b.When.Compare(a.When), cmp.Compare(b.Run, a.Run))
	})
	fillGaps(out, w.Claims)
	return out
}

// minuteOf a snapshot that the schedule made: the end of its name, which nobody can change.
func minuteOf(s *snapshotv1.VolumeSnapshot) string { return s.Name[strings.LastIndex(s.Name, "-")+1:] }

// usable says why a snapshot cannot be restored from; empty: it can.
func usable(s *snapshotv1.VolumeSnapshot) string {
	seen := snapshots.Observe("", s)
	switch {
	case seen.Terminating:
		return fmt.Sprintf("snapshot %s is being deleted", s.Name)
	case seen.Ready:
		return ""
	case seen.Error != "":
		return fmt.Sprintf("snapshot %s is not ready: %s", s.Name, seen.Error)
	case seen.Cut:
		return fmt.Sprintf("snapshot %s is cut and not ready yet: the storage is still copying it", s.Name)
	}
	return fmt.Sprintf("snapshot %s is not cut yet", s.Name)
}

// cutOf a snapshot: the storage's time, else the creation of the object.
func cutOf(s *snapshotv1.VolumeSnapshot) time.Time {
	if t := snapshots.Observe("", s).CreationTime; t != nil {
		return t.UTC()
	}
	return s.CreationTimestamp.UTC()
}

func (p *Point) sort() {
	slices.SortFunc(p.Members, func(a, b Member) int { return cmp.Compare(a.Claim, b.Claim) })
	slices.Sort(p.Stray)
	for i := range p.Members {
		if m := &p.Members[i]; m.Snapshot != nil && m.Why == "" && cutOf(m.Snapshot).After(p.Cut) {
			p.Cut = cutOf(m.Snapshot)
		}
	}
}

// recorded is the point of a run whose record exists: the record says what belongs to it.
func recorded(r *v1.SnapshotRun, found []*snapshotv1.VolumeSnapshot) Point {
	p := Point{When: run.NamedAt(r).UTC().Truncate(time.Minute), Run: r.Name, Record: r}
	if r.Status.Plan != nil {
		p.When = r.Status.Plan.At.UTC().Truncate(time.Minute)
	}
	byName := map[string]*snapshotv1.VolumeSnapshot{}
	for _, s := range found {
		byName[s.Name] = s
	}
	for i := range r.Status.Snapshots {
		st := &r.Status.Snapshots[i]
		m := Member{Claim: st.Claim, ClaimUID: st.ClaimUID}
		s := byName[st.Name]
		delete(byName, st.Name)
		switch {
		case s == nil && st.State == v1.SnapshotFailed:
			m.Why = strings.TrimSuffix(fmt.Sprintf("its snapshot failed: %s", st.Message), ": ")
		case s == nil:
			m.Why = fmt.Sprintf("snapshot %s of this run does not exist (any more)", st.Name)
		case *s.Spec.Source.PersistentVolumeClaimName != st.Claim:
			m.Why = fmt.Sprintf("snapshot %s is of claim %s: it is not the one that the run made", st.Name, *s.Spec.Source.PersistentVolumeClaimName)
		default:
			m.Snapshot, m.Why = s, usable(s)
			m.Consistency = claimed(r, st, s)
		}
		p.Members = append(p.Members, m)
	}
	for name := range byName {
		p.Stray = append(p.Stray, name)
	}
	p.sort()
	return p
}

// claimed is what a snapshot may say of itself: its label, and not more than its run's record.
func claimed(r *v1.SnapshotRun, st *v1.SnapshotStatus, s *snapshotv1.VolumeSnapshot) string {
	label := s.Labels[v1.LabelConsistency]
	c := r.Status.Consistency
	if label == v1.ConsistencyApplication && (c == nil || c.Verdict != v1.ConsistencyApplication || !st.CutBeforeRelease) {
		return v1.ConsistencyCrash
	}
	return label
}

// unrecorded are the points of snapshots that no record names. Their names tell the schedule and the minute; labels and annotations, which others
// can write, are believed about nothing but what keeps two runs of one minute apart.
func unrecorded(schedule string, list []*snapshotv1.VolumeSnapshot) []Point {
	byMinute := map[string][]*snapshotv1.VolumeSnapshot{}
	for _, s := range list {
		if snapshots.MadeBy(schedule, s) {
			byMinute[minuteOf(s)] = append(byMinute[minuteOf(s)], s)
		}
	}
	var out []Point
	for minute, list := range byMinute {
		when, err := time.Parse(minuteLayout, minute)
		if err != nil {
			continue // no name that the schedule gives ends so
		}
		out = append(out, together(when, list))
	}
	return out
}

// together is the point of snapshots of one minute.
func together(when time.Time, list []*snapshotv1.VolumeSnapshot) Point {
	slices.SortFunc(list, func(a, b *snapshotv1.VolumeSnapshot) int { return cmp.Compare(a.Name, b.Name) })
	p := Point{When: when}
	for _, s := range list {
		p.Run = s.Annotations[v1.AnnotationRun]
		claim := *s.Spec.Source.PersistentVolumeClaimName
		if other := p.member(claim); other != nil {
			// One run makes one snapshot of a claim; which of the two it made, nobody can tell.
			other.Why = fmt.Sprintf("both %s and %s say that they are its snapshot of this run", other.Snapshot.Name, s.Name)
			continue
		}
		p.Members = append(p.Members, Member{Claim: claim, ClaimUID: types.UID(s.Annotations[v1.AnnotationClaimUID]), Snapshot: s, Why: usable(s),
			Consistency: s.Labels[v1.LabelConsistency]})
	}
	p.sort()
	return p
}

// fillGaps adds to points without a record the claims that must have been among theirs: taken by the schedule before, and there
// afterwards. points are ordered, newest first.
func fillGaps(points []Point, claims []corev1.PersistentVolumeClaim) {
	exists := map[string]*corev1.PersistentVolumeClaim{}
	for i := range claims {
		exists[claims[i].Name] = &claims[i]
	}
	oldest := map[string]int{} // the last point of each claim in the list
	for i := range points {
		for _, m := range points[i].Members {
			oldest[m.Claim] = i
		}
	}
	newer := map[string]bool{} // claims of the points before in the list
	for i := range points {
		p := &points[i]
		var gaps []Member
		for claim, last := range oldest {
			if p.Record != nil || last <= i || p.member(claim) != nil {
				continue
			}
			c := exists[claim]
			if newer[claim] || (c != nil && c.CreationTimestamp.Time.Before(p.When) && c.Annotations[v1.AnnotationExclude] != "true") {
				gaps = append(gaps, Member{Claim: claim, Why: "it has snapshots of earlier runs and none of this one"})
			}
		}
		for _, m := range p.Members {
			newer[m.Claim] = true
		}
		p.Members = append(p.Members, gaps...)
		slices.SortFunc(p.Members, func(a, b Member) int { return cmp.Compare(a.Claim, b.Claim) })
	}
}
