// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// ends waits for the end of a run and checks what holds at every end: the finalizer is gone, nothing may be quiesced, the record tells of
// exactly the snapshots that exist, each labelled as recorded, and the schedule tells the result.
func (w *world) ends(o *v1.SnapshotRun, result v1.RunResult) *v1.SnapshotRun {
	w.Helper()
	return w.endsWithin(patience, o, result)
}

func (w *world) endsWithin(limit time.Duration, o *v1.SnapshotRun, result v1.RunResult) *v1.SnapshotRun {
	w.Helper()
	o = w.completes(limit, o)
	w.Expect(o.Status.Result).To(Equal(result), describe(o))
	if result != v1.ResultSucceeded {
		w.Expect(o.Status.Message).NotTo(BeEmpty(), "a run that did not succeed says why")
	}
	w.Expect(meta.IsStatusConditionTrue(o.Status.Conditions, v1.ConditionMayBeQuiesced)).To(BeFalse(), describe(o))
	w.expectSnapshotsAsRecorded(o)
	if o.Spec.Mode == "" || o.Spec.Mode == v1.RunSnapshot {
		w.expectScheduleTells(o)
	}
	return o
}

// completes waits for the end of a run, whatever it is.
func (w *world) completes(limit time.Duration, o *v1.SnapshotRun) *v1.SnapshotRun {
	w.Helper()
	return awaitFor(w, limit, o, "completed and without its finalizer", func(o *v1.SnapshotRun) bool {
		return o.Status.Phase == v1.PhaseCompleted && len(o.Finalizers) == 0
	})
}

func (w *world) expectSnapshotsAsRecorded(o *v1.SnapshotRun) {
	w.Helper()
	recorded, found := map[string]string{}, map[string]string{}
	for _, s := range o.Status.Snapshots {
		if s.State != v1.SnapshotFailed {
			recorded[s.Name] = s.Consistency
		}
	}
	for _, s := range w.snapshotsOf(o) {
		if name := s.Name; s.Status != nil && ptr.Deref(s.Status.ReadyToUse, false) || recorded[name] != "" {
			found[name] = s.Labels[v1.LabelConsistency]
		}
	}
	w.Expect(found).To(Equal(recorded), "snapshots that exist, and those of the record:\n%s", describe(o))
}

// snapshotsOf a run that exist.
func (w *world) snapshotsOf(o *v1.SnapshotRun) []snapshotv1.VolumeSnapshot {
	w.Helper()
	var list snapshotv1.VolumeSnapshotList
	w.Expect(api.List(w.Context(), &list, client.InNamespace(w.ns))).To(Succeed())
	var out []snapshotv1.VolumeSnapshot
	for _, s := range list.Items {
		if s.Annotations[v1.AnnotationRunUID] == string(o.UID) {
			out = append(out, s)
		}
	}
	return out
}

func (w *world) expectScheduleTells(o *v1.SnapshotRun) {
	w.Helper()
	s := &v1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: o.Spec.ScheduleName}}
	await(w, s, "telling the result of run "+o.Name, func(s *v1.SnapshotSchedule) bool {
		c := meta.FindStatusCondition(s.Status.Conditions, v1.ConditionLastRunSucceeded)
		quiesced := meta.IsStatusConditionTrue(s.Status.Conditions, v1.ConditionMayBeQuiesced)
		return c != nil && c.Reason == string(o.Status.Result) && strings.Contains(c.Message, o.Name) && strings.Contains(c.Message, o.Status.Message) && !quiesced
	})
}

// expectLabels: consistency of a run's snapshots by claim.
func (w *world) expectLabels(o *v1.SnapshotRun, want map[string]string) {
	w.Helper()
	got := map[string]string{}
	for _, s := range w.snapshotsOf(o) {
		got[*s.Spec.Source.PersistentVolumeClaimName] = s.Labels[v1.LabelConsistency]
	}
	w.Expect(got).To(Equal(want), "consistency labels by claim:\n%s", describe(o))
}

// expectReason of a hook, with words in its message that help.
func (w *world) expectReason(o *v1.SnapshotRun, name, reason string, words ...string) {
	w.Helper()
	h := hookOf(o, name)
	w.Expect(h).NotTo(BeNil(), describe(o))
	c := meta.FindStatusCondition(h.Conditions, v1.ConditionSucceeded)
	w.Expect(c).NotTo(BeNil(), describe(o))
	w.Expect(c.Reason).To(Equal(reason), describe(o))
	for _, word := range words {
		w.Expect(c.Message).To(ContainSubstring(word))
	}
}

func (w *world) expectCondition(conditions []metav1.Condition, typ string, status metav1.ConditionStatus, reason string) {
	w.Helper()
	c := meta.FindStatusCondition(conditions, typ)
	w.Expect(c).NotTo(BeNil(), "condition %s", typ)
	w.Expect([]any{c.Status, c.Reason}).To(Equal([]any{status, reason}), "condition %s: %s", typ, c.Message)
}

// expectEvent waits for an event on an object.
func (w *world) expectEvent(o client.Object, reason, words string) {
	w.Helper()
	w.Eventually(func() []string {
		var out []string
		for _, e := range eventsOf(w.Context(), o) {
			out = append(out, e.Reason+": "+e.Note)
		}
		return out
	}, patience, "100ms").Should(ContainElement(And(HavePrefix(reason+": "), ContainSubstring(words))))
}

// expectOrder: the times of a run that took snapshots of a quiesced application.
func (w *world) expectOrder(o *v1.SnapshotRun) {
	w.Helper()
	st := o.Status
	times := []*metav1.MicroTime{st.StartTime, st.QuiescedTime, target(hookOf(o, st.Plan.PreHooks[0].Name)).EndTime, st.SnapshottingTime, st.CutTime, st.ReleaseTime,
		target(hookOf(o, st.Plan.PostHooks[0].Name)).StartTime, st.ReleasedTime, st.CompletionTime}
	for i := 1; i < len(times); i++ {
		w.Expect(times[i]).NotTo(BeNil(), "time %d:\n%s", i, describe(o))
		w.Expect(times[i].Time).NotTo(BeTemporally("<", times[i-1].Time), "time %d before the one before it:\n%s", i, describe(o))
	}
}

type snapshotObject = snapshotv1.VolumeSnapshot

func (w *world) snapshotNamed(name string) *snapshotObject {
	return &snapshotObject{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}}
}

func (w *world) snapshot(name string) *snapshotObject {
	w.Helper()
	s := w.snapshotNamed(name)
	w.Expect(api.Get(w.Context(), keyOf(s), s)).To(Succeed())
	return s
}

func (w *world) snapshotNames() []string {
	w.Helper()
	var list snapshotv1.VolumeSnapshotList
	w.Expect(api.List(w.Context(), &list, client.InNamespace(w.ns))).To(Succeed())
	var out []string
	for _, s := range list.Items {
		out = append(out, s.Name)
	}
	return out
}

// nextSecond returns in the next whole second.
func (w *world) nextSecond() {
	now := time.Now()
	<-time.After(now.Truncate(time.Second).Add(time.Second).Sub(now))
}
