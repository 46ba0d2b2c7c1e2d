// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"slices"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// expectRest: another look at everything asks for no change.
func (h *story) expectRest() {
	h.faults = nil
	before := len(h.made)
	for _, kind := range []string{kindSchedule, kindRun} {
		for _, name := range h.sorted(kind) {
			h.process.enqueue(request{kind, name})
		}
	}
	for h.reconciles <= maxReconciles && h.process.work() {
	}
	for _, c := range h.made[before:] {
		if !strings.HasPrefix(c.what, "cached ") {
			h.complain("another look at the end has something to do: %s", c.what)
		}
	}
}

// judge the world at the end. It is read anew.
func (h *story) judge() {
	var schedules v1.SnapshotScheduleList
	var runs v1.SnapshotRunList
	var snapshots snapshotv1.VolumeSnapshotList
	for _, list := range []client.ObjectList{&schedules, &runs, &snapshots} {
		if err := api.List(h.t.Context(), list, client.InNamespace(h.namespace)); err != nil {
			h.t.Fatal(err)
		}
	}
	h.judgePods()
	left := map[string]*snapshotv1.VolumeSnapshot{}
	for i := range snapshots.Items {
		left[snapshots.Items[i].Name] = &snapshots.Items[i]
	}
	take := func(name, why string) *snapshotv1.VolumeSnapshot {
		s := left[name]
		if s == nil {
			h.complain("snapshot %s does not exist: %s", name, why)
		}
		delete(left, name)
		return s
	}
	take("theirs", "it belongs to another schedule")
	take("by-hand", "it belongs to nobody")
	for i := range schedules.Items {
		s := &schedules.Items[i]
		take("keep-"+s.Name, "it is labelled keep")
		r := h.judgeRuns(s, runs.Items)
		if r == nil {
			continue
		}
		h.judgeRun(r)
		h.judgeSchedule(s, r)
		for _, claim := range h.claimNames() {
			replaced := false
			if name := claim + "-" + r.Name; r.Status.Result != v1.ResultFailed {
				if taken := take(name, "the run took it"); taken != nil {
					h.judgeSnapshot(s, r, claim, taken)
					replaced = !h.hooked || taken.Labels[v1.LabelConsistency] == v1.ConsistencyApplication
				}
			}
			if !replaced {
				take(claim+"-"+oldRun(s.Name), "no newer one is as good")
			}
		}
	}
	for name := range left {
		h.complain("snapshot %s should not exist", name)
	}
}

func (h *story) judgePods() {
	for _, name := range h.podNames() {
		p := h.apps[name]
		if p.quiesced {
			h.complain("%s is left quiesced", name)
		}
		for schedule, n := range p.starts {
			if n > 1 {
				h.complain("the pre hook of %s began %d times in %s", schedule, n, name)
			}
		}
	}
	for _, c := range h.commands {
		if c.state != finished {
			h.complain("%s is not over", c)
		}
	}
}

// judgeRuns: one of the slot, and the old one if it is to be kept. Returns the one of the slot.
func (h *story) judgeRuns(s *v1.SnapshotSchedule, runs []v1.SnapshotRun) *v1.SnapshotRun {
	var found *v1.SnapshotRun
	old := false
	for i := range runs {
		r := &runs[i]
		switch {
		case r.Spec.ScheduleName != s.Name:
		case r.Name == oldRun(s.Name):
			old = true
		case r.Name == h.runNamed(s.Name):
			found = r
		default:
			h.complain("there is another run: %s", r.Name)
		}
	}
	if found == nil {
		h.complain("schedule %s has no run of its slot", s.Name)
		return nil
	}
	if old != (found.Status.Result != v1.ResultSucceeded) {
		h.complain("the run before exists: %t, and the newer one %s", old, found.Status.Result)
	}
	return found
}

// lossIsKnown: the end of a held command is unknown and nothing proves the release, so that the alarm must stay.
func (h *story) alarmed(r *v1.SnapshotRun) bool {
	return h.held && !h.released && h.unknown[r.Name] != ""
}

func (h *story) judgeRun(r *v1.SnapshotRun) {
	if r.Status.Phase != v1.PhaseCompleted || len(r.Finalizers) > 0 || r.DeletionTimestamp != nil {
		h.complain("run %s is in phase %q with finalizers %v: %s", r.Name, r.Status.Phase, r.Finalizers, r.Status.Message)
	}
	why := h.unknown[r.Name]
	switch succeeded := r.Status.Result == v1.ResultSucceeded; {
	case succeeded && why != "":
		h.complain("run %s claims to have succeeded although %s", r.Name, why)
	case !succeeded && why == "":
		h.complain("run %s %s without a reason: %s", r.Name, r.Status.Result, r.Status.Message)
	case !succeeded && r.Status.Result != v1.ResultFailed && r.Status.Result != v1.ResultPartiallyFailed:
		h.complain("run %s ended with %q", r.Name, r.Status.Result)
	case !succeeded && r.Status.Message == "":
		h.complain("run %s does not say why it %s", r.Name, r.Status.Result)
	case succeeded:
		for _, name := range h.podNames() {
			if h.apps[name].starts[r.Spec.ScheduleName] != 1 {
				h.complain("run %s succeeded and its pre hook did not run in %s", r.Name, name)
			}
		}
	}
	if !h.hooked {
		return
	}
	alarm := meta.FindStatusCondition(r.Status.Conditions, v1.ConditionMayBeQuiesced)
	if alarm == nil || (alarm.Status == metav1.ConditionTrue) != h.alarmed(r) {
		h.complain("run %s says about its application: %+v", r.Name, alarm)
	}
	if r.Status.ReleasedTime == nil {
		h.complain("run %s does not say when it released its application", r.Name)
	}
}

func (h *story) judgeSnapshot(s *v1.SnapshotSchedule, r *v1.SnapshotRun, claim string, taken *snapshotv1.VolumeSnapshot) {
	want := map[string]string{v1.AnnotationRun: r.Name, v1.AnnotationRunUID: string(r.UID), v1.AnnotationClaimUID: string(h.claims[claim])}
	for k, v := range want {
		if taken.Annotations[k] != v {
			h.complain("snapshot %s has annotation %s=%q and not %q", taken.Name, k, taken.Annotations[k], v)
		}
	}
	labels := map[string]string{v1.LabelSchedule: s.Name, v1.LabelWhen: when(noon)}
	owners := 0
	if s.Spec.SnapshotTemplate != nil {
		labels["team"], owners = "shop", 1
	}
	consistent := ""
	if h.hooked {
		consistent = v1.ConsistencyCrash
		if h.unknown[r.Name] == "" {
			consistent = v1.ConsistencyApplication
		}
	}
	labels[v1.LabelConsistency] = consistent
	for k, v := range labels {
		if taken.Labels[k] != v {
			h.complain("snapshot %s has label %s=%q and not %q", taken.Name, k, taken.Labels[k], v)
		}
	}
	if consistent == v1.ConsistencyApplication && !h.cuts[taken.Name] {
		h.complain("snapshot %s is called consistent and was cut while something was not quiesced", taken.Name)
	}
	if len(taken.OwnerReferences) != owners || (owners > 0 && taken.OwnerReferences[0].UID != s.UID) {
		h.complain("snapshot %s has owners %+v", taken.Name, taken.OwnerReferences)
	}
	if taken.Status == nil || !ptr.Deref(taken.Status.ReadyToUse, false) || ptr.Deref(taken.Spec.Source.PersistentVolumeClaimName, "") != claim {
		h.complain("snapshot %s is not ready, or of another claim", taken.Name)
	}
	i := slices.IndexFunc(r.Status.Snapshots, func(x v1.SnapshotStatus) bool { return x.Name == taken.Name })
	if i < 0 || r.Status.Snapshots[i].State != v1.SnapshotReady || r.Status.Snapshots[i].Consistency != consistent {
		h.complain("run %s does not say of snapshot %s that it is ready and %q: %+v", r.Name, taken.Name, consistent, r.Status.Snapshots)
	}
}

func (h *story) judgeSchedule(s *v1.SnapshotSchedule, r *v1.SnapshotRun) {
	expect := func(typ string, status metav1.ConditionStatus, reason string) {
		c := ptr.Deref(meta.FindStatusCondition(s.Status.Conditions, typ), metav1.Condition{})
		if c.Status != status || (reason != "" && c.Reason != reason) {
			h.complain("schedule %s says %s=%s (%s: %s) and not %s", s.Name, typ, c.Status, c.Reason, c.Message, status)
		}
		if typ == v1.ConditionLastRunSucceeded && !strings.Contains(c.Message, r.Name) {
			h.complain("schedule %s speaks of another run: %s", s.Name, c.Message)
		}
	}
	expect(v1.ConditionReady, metav1.ConditionTrue, "")
	expect(v1.ConditionReconciled, metav1.ConditionTrue, "")
	succeeded, success := metav1.ConditionFalse, noon.Add(-time.Hour)
	if r.Status.Result == v1.ResultSucceeded {
		succeeded, success = metav1.ConditionTrue, r.Status.CompletionTime.Truncate(time.Second)
	}
	expect(v1.ConditionLastRunSucceeded, succeeded, string(r.Status.Result))
	if h.hooked {
		quiesced := metav1.ConditionFalse
		if h.alarmed(r) {
			quiesced = metav1.ConditionTrue
		}
		expect(v1.ConditionMayBeQuiesced, quiesced, "")
	}
	last := noon.Add(-time.Hour)
	if r.Status.SnapshottingTime != nil {
		last = r.Status.SnapshottingTime.Truncate(time.Second)
	}
	st := &s.Status
	if st.ActiveRun != "" || st.LastMissed != nil || !is(st.NextSnapshotTime, noon.Add(time.Hour)) || !is(st.LastSnapshotTime, last) || !is(st.LastSuccessTime, success) {
		h.complain("schedule %s: active run %q, missed %+v, next %s, last %s, last success %s", s.Name, st.ActiveRun, st.LastMissed, st.NextSnapshotTime, st.LastSnapshotTime, st.LastSuccessTime)
	}
}

func is(t *metav1.Time, want time.Time) bool { return t != nil && t.Equal(&metav1.Time{Time: want}) }
