// SPDX-License-Identifier: Apache-2.0

package restore

import (
	"strings"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/naming"
)

// hashedName is the other name that run r3 could give the snapshot of claim a.
var hashedName = naming.SnapshotHashed("a", "s", "uid-r3", hour(3))

func pointsOf(w World) []Point {
	w.Schedule = "s"
	return Points(w)
}

func TestChoose(t *testing.T) {
	vienna, err := time.LoadLocation("Europe/Vienna")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	three := World{ // two claims at 1, 2 and 3 o'clock, with records
		Runs: []v1.SnapshotRun{record(1, "r1", "a", "b"), record(2, "r2", "a", "b"), record(3, "r3", "a", "b")},
		Snapshots: []snapshotv1.VolumeSnapshot{snap("a", 1, "r1"), snap("b", 1, "r1"), snap("a", 2, "r2"), snap("b", 2, "r2"),
			snap("a", 3, "r3"), snap("b", 3, "r3")},
	}
	with := func(change func(*World)) World {
		w := World{Runs: append([]v1.SnapshotRun(nil), three.Runs...), Snapshots: append([]snapshotv1.VolumeSnapshot(nil), three.Snapshots...)}
		for i := range w.Snapshots {
			w.Snapshots[i] = *three.Snapshots[i].DeepCopy()
		}
		change(&w)
		return w
	}
	lastBroken := with(func(w *World) { unready(&w.Snapshots[5]) })
	for name, c := range map[string]struct {
		world  World
		ask    Request
		want   string // the point's run (or minute) and its claims
		passed int
		err    string
	}{
		"latest":                            {world: three, want: "r3 a b"},
		"latest, in words":                  {world: three, ask: Request{At: "latest"}, want: "r3 a b"},
		"one claim":                         {world: three, ask: Request{Claims: []string{"b"}}, want: "r3 b"},
		"claims keep the order":             {world: three, ask: Request{Claims: []string{"b", "a"}}, want: "r3 b a"},
		"a run":                             {world: three, ask: Request{At: "r1"}, want: "r1 a b"},
		"a run, with its kind":              {world: three, ask: Request{At: "run/r1"}, want: "r1 a b"},
		"a snapshot stands for its run":     {world: three, ask: Request{At: "b-s-202603010200"}, want: "r2 a b"},
		"the minute of a label":             {world: three, ask: Request{At: "202603010200"}, want: "r2 a b"},
		"the minute of a listing":           {world: three, ask: Request{At: "2026-03-01T02:00:00Z"}, want: "r2 a b"},
		"a time in the schedule's zone":     {world: three, ask: Request{At: "2026-03-01 03:00", Zone: vienna}, want: "r2 a b"},
		"just before the cut":               {world: three, ask: Request{At: "2026-03-01T02:00:02Z"}, want: "r1 a b"},
		"between two":                       {world: three, ask: Request{At: "2026-03-01T02:59:59Z"}, want: "r2 a b"},
		"long after":                        {world: three, ask: Request{At: "2027-01-01T00:00:00Z"}, want: "r3 a b"},
		"before everything":                 {world: three, ask: Request{At: "2026-02-01T00:00:00Z"}, err: "schedule s has nothing that was cut at 2026-02-01T00:00:00Z or before; there are: 2026-03-01T03:00:00Z (r3), 2026-03-01T01:00:00Z (r1)"},
		"no time and no name":               {world: three, ask: Request{At: "yesterday"}, err: "--at yesterday is neither a time nor a run or snapshot of schedule s"},
		"a minute without a run":            {world: three, ask: Request{At: "202603010230"}, err: "no run of schedule s is named for 202603010230 (UTC); there are: 2026-03-01T03:00:00Z (r3), 2026-03-01T02:00:00Z (r2), 2026-03-01T01:00:00Z (r1)"},
		"nothing at all":                    {err: "schedule s has no snapshots"},
		"a claim that never was":            {world: three, ask: Request{Claims: []string{"c"}}, err: "no run of schedule s can be restored as asked"},
		"an incomplete run is passed over":  {world: lastBroken, want: "r2 a b", passed: 1},
		"an incomplete run that was named":  {world: lastBroken, ask: Request{At: "r3"}, err: "run r3 (2026-03-01T03:00:00Z) cannot be restored: claim b: snapshot b-s-202603010300 is cut and not ready yet: the storage is still copying it\nto restore of run r3 only what can be restored: --at r3 --claims a"},
		"an incomplete run, the other half": {world: lastBroken, ask: Request{At: "r3", Claims: []string{"a"}}, want: "r3 a"},
		"a snapshot that is gone": {world: with(func(w *World) { w.Snapshots = w.Snapshots[:5] }), ask: Request{At: "r3"},
			err: "claim b: snapshot b-s-202603010300 of this run does not exist (any more)"},
		"a snapshot that failed": {world: with(func(w *World) {
			w.Runs[2] = *w.Runs[2].DeepCopy()
			w.Runs[2].Status.Snapshots[1].State, w.Runs[2].Status.Snapshots[1].Message = v1.SnapshotFailed, "the array is full"
			w.Snapshots = w.Snapshots[:5]
		}), ask: Request{At: "r3"}, err: "claim b: its snapshot failed: the array is full"},
		"a snapshot that is being deleted": {world: with(func(w *World) { w.Snapshots[5].DeletionTimestamp = ptr.To(metav1.Now()) }), ask: Request{At: "r3"},
			err: "claim b: snapshot b-s-202603010300 is being deleted"},
		"a run at work is not complete, whatever is ready": {world: with(func(w *World) { w.Runs[2].Status.Phase = v1.PhasePostHooks }), want: "r2 a b", passed: 1},
		"a run that waits for the storage may be":          {world: with(func(w *World) { w.Runs[2].Status.Phase = v1.PhaseAwaitingReady }), want: "r3 a b"},
		"a failed run is told and passed over": {world: with(func(w *World) {
			f := record(4, "r4")
			f.Status.Message = "hook freeze failed"
			w.Runs = append(w.Runs, f)
		}), want: "r3 a b", passed: 1},
		"a test of hooks is no point": {world: with(func(w *World) {
			f := record(4, "r4")
			f.Spec.Mode = v1.RunTestHooks
			w.Runs = append(w.Runs, f)
		}), want: "r3 a b"},

		"a forged snapshot of a claim that the run did not take": {world: with(func(w *World) { w.Snapshots = append(w.Snapshots, snap("c", 3, "r3")) }), want: "r3 a b"},
		"a forged snapshot that is named": {world: with(func(w *World) { w.Snapshots = append(w.Snapshots, snap("c", 3, "r3")) }), ask: Request{At: "c-s-202603010300"},
			err: "snapshot c-s-202603010300 carries the mark of run r3 and is not in its record"},
		"a snapshot under the run's name that another run made": {world: with(func(w *World) { w.Snapshots[5].Annotations[v1.AnnotationRunUID] = "uid-other" }), ask: Request{At: "r3", Claims: []string{"a"}}, want: "r3 a"},
		"a snapshot under the run's name, of another claim": {world: with(func(w *World) { w.Snapshots[5].Spec.Source.PersistentVolumeClaimName = ptr.To("x") }), ask: Request{At: "r3"},
			err: "claim b: snapshot b-s-202603010300 is of claim x: it is not the one that the run made"},
		"a snapshot of a content is not the schedule's": {world: with(func(w *World) {
			w.Snapshots[5].Spec.Source = snapshotv1.VolumeSnapshotSource{VolumeSnapshotContentName: ptr.To("c")}
		}), want: "r2 a b", passed: 1},

		"consistent ones, and there are none": {world: three, ask: Request{Application: true}, err: "claim a: snapshot a-s-202603010300 is not application-consistent"},
		"consistent ones": {world: with(func(w *World) {
			w.Runs[1] = *w.Runs[1].DeepCopy()
			w.Runs[1].Status.Consistency = &v1.ConsistencyStatus{Verdict: v1.ConsistencyApplication}
			consistent(&w.Snapshots[2])
			consistent(&w.Snapshots[3])
		}), ask: Request{Application: true}, want: "r2 a b", passed: 1},
		"a label that the record does not bear out": {world: with(func(w *World) {
			consistent(&w.Snapshots[4])
			consistent(&w.Snapshots[5])
		}), ask: Request{Application: true}, err: "not application-consistent"},

		"without records, by the run's mark": {world: World{Snapshots: three.Snapshots}, want: "r3 a b"},
		"without records, two snapshots of one claim": {world: World{Snapshots: append(append([]snapshotv1.VolumeSnapshot(nil), three.Snapshots...), snap("a", 3, "r3", func(s *snapshotv1.VolumeSnapshot) { s.Name = hashedName }))}, ask: Request{At: "r3"},
			err: "claim a: both a-s-202603010300 and " + hashedName + " say that they are its snapshot of this run"},
		"without records, one that only carries the label": {world: World{Snapshots: append(append([]snapshotv1.VolumeSnapshot(nil), three.Snapshots...), snap("c", 3, "r3", func(s *snapshotv1.VolumeSnapshot) { s.Name = "forged" }),
			snap("d", 3, "r3", func(s *snapshotv1.VolumeSnapshot) { s.Name = "d-other-202603010300" }))}, want: "r3 a b"},
		"without records, one that was labelled into another minute": {world: World{Snapshots: append(append([]snapshotv1.VolumeSnapshot(nil), three.Snapshots[:5]...), snap("b", 1, "r3", func(s *snapshotv1.VolumeSnapshot) {
			s.Labels[v1.LabelWhen] = "202603010300"
		}))}, ask: Request{At: "202603010300"}, want: "r3 a"},
		"snapscheduler's": {world: World{Snapshots: []snapshotv1.VolumeSnapshot{snap("a", 1, ""), snap("b", 1, ""), snap("a", 2, ""), snap("b", 2, "")}}, want: "202603010200 a b"},
		"snapscheduler's, a gap in the middle": {world: World{Snapshots: []snapshotv1.VolumeSnapshot{snap("a", 1, ""), snap("b", 1, ""), snap("a", 2, ""), snap("a", 3, ""), snap("b", 3, "")}},
			ask: Request{At: "202603010200"}, err: "claim b: it has snapshots of earlier runs and none of this one"},
		"snapscheduler's, a gap at the end, and the claim is there": {world: World{Snapshots: []snapshotv1.VolumeSnapshot{snap("a", 1, ""), snap("b", 1, ""), snap("a", 2, "")}, Claims: []corev1.PersistentVolumeClaim{claim("b", 0)}},
			want: "202603010100 a b", passed: 1},
		"snapscheduler's, a claim that was deleted meanwhile": {world: World{Snapshots: []snapshotv1.VolumeSnapshot{snap("a", 1, ""), snap("b", 1, ""), snap("a", 2, "")}}, want: "202603010200 a"},
		"snapscheduler's, a claim that came later":            {world: World{Snapshots: []snapshotv1.VolumeSnapshot{snap("a", 1, ""), snap("a", 2, ""), snap("b", 2, "")}}, ask: Request{At: "202603010100"}, want: "202603010100 a"},
		"snapscheduler's, a claim that is excluded now": {world: World{Snapshots: []snapshotv1.VolumeSnapshot{snap("a", 1, ""), snap("b", 1, ""), snap("a", 2, "")},
			Claims: []corev1.PersistentVolumeClaim{claim("b", 0, func(c *corev1.PersistentVolumeClaim) { c.Annotations = map[string]string{v1.AnnotationExclude: "true"} })}}, want: "202603010200 a"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			c.ask.Schedule = "s"
			choice, err := Choose(pointsOf(c.world), c.ask)
			if c.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(c.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			words := []string{choice.Point.handle()}
			for _, m := range choice.Members {
				g.Expect(m.Snapshot).NotTo(BeNil())
				words = append(words, m.Claim)
			}
			g.Expect(strings.Join(words, " ")).To(Equal(c.want))
			g.Expect(choice.Passed).To(HaveLen(c.passed))
		})
	}
}

// A run that was caught up late is named for its slot and holds the data of later.
func TestTimesAreThoseOfTheCut(t *testing.T) {
	g := NewWithT(t)
	late := record(2, "r2", "a")
	s := snap("a", 2, "r2", func(s *snapshotv1.VolumeSnapshot) { s.Status.CreationTime = ptr.To(metav1.NewTime(hour(5))) })
	points := pointsOf(World{Runs: []v1.SnapshotRun{record(1, "r1", "a"), late}, Snapshots: []snapshotv1.VolumeSnapshot{snap("a", 1, "r1"), s}})
	choice, err := Choose(points, Request{Schedule: "s", At: "2026-03-01T03:30:00Z"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(choice.Point.Run).To(Equal("r1"))
	choice, err = Choose(points, Request{Schedule: "s", At: "2026-03-01T05:00:00Z"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(choice.Point.Run).To(Equal("r2"))
}

func TestSummary(t *testing.T) {
	g := NewWithT(t)
	r := record(3, "r3", "a")
	r.Status.Consistency = &v1.ConsistencyStatus{Verdict: v1.ConsistencyCrash, Reason: "hook freeze failed: Timeout"}
	w := World{Runs: []v1.SnapshotRun{r}, Snapshots: []snapshotv1.VolumeSnapshot{snap("c", 3, "r3"),
		snap("a", 3, "r3", func(s *snapshotv1.VolumeSnapshot) { s.Labels[v1.LabelConsistency] = v1.ConsistencyCrash })}}
	choice, err := Choose(pointsOf(w), Request{Schedule: "s"})
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(choice.Summary()).To(Equal([]string{
		"from run r3, named for 2026-03-01T03:00:00Z, cut at 2026-03-01T03:00:03Z",
		"only crash-consistent, although the schedule has hooks: hook freeze failed: Timeout",
		"snapshot c-s-202603010300 carries this run's mark and is not in its record: it is left alone",
	}))
}
