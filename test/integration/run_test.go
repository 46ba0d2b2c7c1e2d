// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

const specCannotChange = "spec of a SnapshotRun cannot be changed: create a new SnapshotRun"

func TestTheSpecOfARunCannotBeChanged(t *testing.T) {
	namespace := Namespace(t)
	const (
		byHand    = `spec: {scheduleName: hourly}`
		scheduled = `spec: {scheduleName: hourly, slot: "2026-01-10T10:00:00Z", mode: TestHooks}`
	)
	tests := map[string]struct{ before, patch string }{
		"another schedule":                 {scheduled, `{"spec":{"scheduleName":"daily"}}`},
		"a slot is added":                  {byHand, `{"spec":{"slot":"2026-01-10T10:00:00Z"}}`},
		"another slot":                     {scheduled, `{"spec":{"slot":"2026-01-10T11:00:00Z"}}`},
		"the slot is removed":              {scheduled, `{"spec":{"slot":null}}`},
		"a mode is added":                  {byHand, `{"spec":{"mode":"Release"}}`},
		"the mode that is meant without":   {byHand, `{"spec":{"mode":"Snapshot"}}`},
		"another mode":                     {scheduled, `{"spec":{"mode":"Release"}}`},
		"the mode is removed":              {scheduled, `{"spec":{"mode":null}}`},
		"a label comes with the new slot":  {byHand, `{"metadata":{"labels":{"a":"b"}},"spec":{"slot":"2026-01-10T10:00:00Z"}}`},
		"everything but the schedule goes": {scheduled, `{"spec":{"slot":null,"mode":null}}`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			run := object(t, runKind, namespace, tt.before)
			g.Expect(api.Create(t.Context(), run)).To(Succeed())
			before := fetch(t, run)

			patch := client.RawPatch(types.MergePatchType, []byte(tt.patch))
			expectRefused(t, api.Patch(t.Context(), run.DeepCopy(), patch), "patch", "spec: Invalid value", specCannotChange)

			changed := fetch(t, run)
			g.Expect(merge(changed, tt.patch)).To(Succeed())
			expectRefused(t, api.Update(t.Context(), changed), "update", "spec: Invalid value", specCannotChange)

			g.Expect(fetch(t, run)).To(Equal(before))
		})
	}

	t.Run("the spec is removed", func(t *testing.T) {
		g := NewWithT(t)
		run := object(t, runKind, namespace, byHand)
		g.Expect(api.Create(t.Context(), run)).To(Succeed())
		unstructured.RemoveNestedField(run.Object, "spec")
		expectRefused(t, api.Update(t.Context(), run), "update", "spec: Required value")
	})
}

func TestTheRestOfARunCanBeChanged(t *testing.T) {
	namespace := Namespace(t)
	tests := map[string]string{
		"a label":                          `{"metadata":{"labels":{"team":"shop"}}}`,
		"the annotation that releases":     `{"metadata":{"annotations":{"` + v1.AnnotationRelease + `":"now"}}}`,
		"the finalizer is removed":         `{"metadata":{"finalizers":null}}`,
		"a finalizer is added":             `{"metadata":{"finalizers":["` + v1.FinalizerRelease + `","example.com/other"]}}`,
		"the same spec and a label":        `{"metadata":{"labels":{"team":"shop"}},"spec":{"scheduleName":"hourly"}}`,
		"an owner":                         `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"a","uid":"b"}]}}`,
		"nothing":                          `{}`,
		"the status, which stays as it is": `{"status":{"phase":"Completed"}}`,
	}
	for name, patch := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			run := object(t, runKind, namespace, `{metadata: {finalizers: [`+v1.FinalizerRelease+`]}, spec: {scheduleName: hourly, slot: "2026-01-10T10:00:00Z"}}`)
			g.Expect(api.Create(t.Context(), run)).To(Succeed())
			t.Cleanup(func() { free(t, run) })

			changed := fetch(t, run)
			g.Expect(merge(changed, patch)).To(Succeed())
			g.Expect(api.Update(t.Context(), changed)).To(Succeed())
			g.Expect(api.Patch(t.Context(), run, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
			g.Expect(run.Object).To(HaveKeyWithValue("spec", map[string]any{"scheduleName": "hourly", "slot": "2026-01-10T10:00:00Z"}))
			g.Expect(run.Object).NotTo(HaveKey("status"))
			g.Expect(run.GetGeneration()).To(BeEquivalentTo(1))
		})
	}
}

func TestTheStatusIsWrittenApart(t *testing.T) {
	namespace := Namespace(t)
	now := metav1.NewMicroTime(time.Date(2026, 1, 10, 10, 0, 0, 123456000, time.UTC))
	slot := metav1.NewTime(time.Date(2026, 1, 10, 10, 0, 0, 0, time.UTC))
	condition := func(kind string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: v1.ReasonSucceeded, Message: "done", LastTransitionTime: slot}
	}

	t.Run("of a run, with the whole journal", func(t *testing.T) {
		g := NewWithT(t)
		run := &v1.SnapshotRun{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "case-", Namespace: namespace},
			Spec:       v1.SnapshotRunSpec{ScheduleName: "hourly"},
			Status:     v1.SnapshotRunStatus{Phase: v1.PhaseCompleted},
		}
		g.Expect(api.Create(t.Context(), run)).To(Succeed())
		g.Expect(run.Status).To(BeZero(), "creating writes no status")

		code, once := int32(1), int32(0)
		status := v1.SnapshotRunStatus{
			Phase: v1.PhasePostHooks, Result: v1.ResultFailed, Message: "one hook failed",
			Plan: &v1.RunPlan{
				Version: 1, ScheduleUID: "uid", ScheduleGeneration: 3, At: slot,
				PreHooks: []v1.PlannedHook{{
					Name: "pre-0", PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}, Namespace: namespace,
					TargetPolicy: v1.TargetAll, Command: []string{"sync"}, TimeoutSeconds: 300, BackoffLimit: &once, OnError: v1.OnErrorFail, Mode: v1.ModeRun,
				}},
				PostHooks: []v1.PlannedHook{{
					Name: "post-0", Namespace: namespace, TargetPolicy: v1.TargetOne, Command: []string{"sync"}, TimeoutSeconds: 300, ExecutionPolicy: v1.ExecuteAlways,
				}},
			},
			StartTime: &now, QuiescedTime: &now, ReleaseTime: &now, QuiescedFor: "1.5s",
			Release:     &v1.ReleaseStatus{Pass: 1, PassTime: now, Reason: v1.ReasonHookFailed},
			Consistency: &v1.ConsistencyStatus{Verdict: v1.ConsistencyCrash, Reason: v1.ReasonHookFailed},
			Hooks: []v1.HookStatus{{
				Stage: v1.StagePre, Name: "pre-0", Conditions: []metav1.Condition{condition(v1.ConditionSucceeded)},
				Targets: []v1.TargetStatus{{
					Namespace: namespace, Pod: "db-0", PodUID: "uid", Container: "db", Attempts: 1, Reason: v1.ReasonNonZeroExit, ExitCode: &code,
					Claim: &v1.AttemptClaim{Process: "p", Time: now}, StartTime: &now, EndTime: &now, Output: "no\n",
				}},
			}},
			Snapshots:  []v1.SnapshotStatus{{Claim: "data-db-0", ClaimUID: "uid", Name: "data-db-0-hourly-202601101000", State: v1.SnapshotPending, CreationTime: &slot}},
			Conditions: []metav1.Condition{condition(v1.ConditionPreHooksSucceeded), condition(v1.ConditionMayBeQuiesced)},
		}
		status.DeepCopyInto(&run.Status)
		run.Labels = map[string]string{"written": "no"}
		run.Spec.Mode = v1.RunRelease
		g.Expect(api.Status().Update(t.Context(), run)).To(Succeed(), "with a spec that could not be changed, and is not")

		found := &v1.SnapshotRun{}
		g.Expect(api.Get(t.Context(), client.ObjectKeyFromObject(run), found)).To(Succeed())
		g.Expect(found.Spec).To(Equal(v1.SnapshotRunSpec{ScheduleName: "hourly"}))
		g.Expect(found.Labels).To(BeEmpty())
		g.Expect(found.Generation).To(BeEquivalentTo(1))
		g.Expect(asFields(t, &found.Status)).To(Equal(asFields(t, &status)), "nothing of the status is lost")
	})

	t.Run("of a schedule", func(t *testing.T) {
		g := NewWithT(t)
		schedule := &v1.SnapshotSchedule{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "case-", Namespace: namespace},
			Spec:       v1.SnapshotScheduleSpec{Schedule: "@hourly"},
			Status:     v1.SnapshotScheduleStatus{ActiveRun: "hourly-1"},
		}
		g.Expect(api.Create(t.Context(), schedule)).To(Succeed())
		g.Expect(schedule.Status).To(BeZero(), "creating writes no status")

		status := v1.SnapshotScheduleStatus{
			ObservedGeneration: 1, LastSnapshotTime: &slot, NextSnapshotTime: &slot, LastSuccessTime: &slot, ActiveRun: "hourly-1",
			LastMissed: &v1.MissedSlot{Slot: slot, Reason: v1.MissedOverlap, Count: 2},
			Hooks:      []v1.ScheduleHookStatus{{Stage: v1.StagePost, Name: "post-0", Conditions: []metav1.Condition{condition(v1.ConditionSucceeded)}}},
			Conditions: []metav1.Condition{condition(v1.ConditionReconciled), condition(v1.ConditionReady)},
		}
		status.DeepCopyInto(&schedule.Status)
		schedule.Spec.Schedule = "never"
		g.Expect(api.Status().Update(t.Context(), schedule)).To(Succeed(), "with a spec that would be refused, and is not written")

		found := &v1.SnapshotSchedule{}
		g.Expect(api.Get(t.Context(), client.ObjectKeyFromObject(schedule), found)).To(Succeed())
		g.Expect(found.Spec.Schedule).To(Equal("@hourly"))
		g.Expect(asFields(t, &found.Status)).To(Equal(asFields(t, &status)), "nothing of the status is lost")

		found.Spec.Disabled = true
		found.Status = v1.SnapshotScheduleStatus{}
		g.Expect(api.Update(t.Context(), found)).To(Succeed())
		g.Expect(asFields(t, &found.Status)).To(Equal(asFields(t, &status)), "writing the spec leaves the status")
		g.Expect(found.Generation).To(BeEquivalentTo(2))
	})

	t.Run("words that are no phase, result, state or stage are refused", func(t *testing.T) {
		g := NewWithT(t)
		run := object(t, runKind, namespace, "spec: {scheduleName: hourly}")
		g.Expect(api.Create(t.Context(), run)).To(Succeed())
		for status, field := range map[string]string{
			`{"phase":"Somewhere"}`:                     "status.phase",
			`{"result":"Great"}`:                        "status.result",
			`{"hooks":[{"stage":"Middle","name":"a"}]}`: "status.hooks[0].stage",
			`{"snapshots":[{"claim":"a","claimUID":"b","name":"c","state":"Developing"}]}`: "status.snapshots[0].state",
		} {
			patch := client.RawPatch(types.MergePatchType, []byte(`{"status":`+status+`}`))
			expectRefused(t, api.Status().Patch(t.Context(), run.DeepCopy(), patch), status, field+": Unsupported value")
		}
	})
}
