// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// table asks for a list as kubectl get does.
func table(t *testing.T, namespace, resource string) *metav1.Table {
	t.Helper()
	g := NewWithT(t)
	known := runtime.NewScheme()
	metav1.AddToGroupVersion(known, v1.GroupVersion)
	g.Expect(metav1.AddMetaToScheme(known)).To(Succeed())
	config := Env()
	config.APIPath = "/apis"
	config.GroupVersion = &v1.GroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(known).WithoutConversion()
	server, err := rest.RESTClientFor(config)
	g.Expect(err).NotTo(HaveOccurred())
	found := &metav1.Table{}
	g.Expect(server.Get().Namespace(namespace).Resource(resource).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(t.Context()).Into(found)).To(Succeed())
	return found
}

// headings are the columns that are always shown, and those that -o wide adds.
func headings(found *metav1.Table) (shown, wide []string) {
	for _, column := range found.ColumnDefinitions {
		if column.Priority == 0 {
			shown = append(shown, column.Name)
		} else {
			wide = append(wide, column.Name)
		}
	}
	return shown, wide
}

func cells(g *WithT, found *metav1.Table) []string {
	g.Expect(found.Rows).To(HaveLen(1))
	var texts []string
	for _, cell := range found.Rows[0].Cells {
		texts = append(texts, fmt.Sprint(cell))
	}
	return texts
}

func TestColumns(t *testing.T) {
	slot := metav1.NewTime(time.Date(2026, 1, 10, 10, 0, 0, 0, time.UTC))
	five := []string{"Name", "Schedule", "Max age", "Max num", "Disabled", "Next snapshot"}

	t.Run("of schedules: snapscheduler's five first", func(t *testing.T) {
		g := NewWithT(t)
		namespace, count := Namespace(t), int32(7)
		schedule := &v1.SnapshotSchedule{
			ObjectMeta: metav1.ObjectMeta{Name: "hourly", Namespace: namespace},
			Spec:       v1.SnapshotScheduleSpec{Schedule: "@hourly", Disabled: true, Retention: v1.SnapshotRetentionSpec{Expires: "168h", MaxCount: &count}},
		}
		g.Expect(api.Create(t.Context(), schedule)).To(Succeed())
		later := metav1.NewTime(slot.Add(time.Hour))
		schedule.Status = v1.SnapshotScheduleStatus{LastSnapshotTime: &slot, NextSnapshotTime: &later, Conditions: []metav1.Condition{
			{Type: v1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1.ReasonDisabled, LastTransitionTime: slot},
			{Type: v1.ConditionLastRunSucceeded, Status: metav1.ConditionFalse, Reason: v1.ReasonPartiallyFailed, LastTransitionTime: slot},
		}}
		g.Expect(api.Status().Update(t.Context(), schedule)).To(Succeed())

		found := table(t, namespace, "snapshotschedules")
		shown, wide := headings(found)
		g.Expect(shown).To(Equal(append(five, "Last snapshot", "Last result", "Age")))
		g.Expect(wide).To(BeEmpty())
		g.Expect(cells(g, found)).To(HaveExactElements(
			"hourly", "@hourly", "168h", "7", "true", "2026-01-10T11:00:00Z", "2026-01-10T10:00:00Z", "PartiallyFailed", MatchRegexp("^[0-9]+s$")))
	})

	t.Run("of a schedule about which nothing is known yet", func(t *testing.T) {
		g := NewWithT(t)
		namespace := Namespace(t)
		g.Expect(api.Create(t.Context(), object(t, scheduleKind, namespace, `{metadata: {name: new}, spec: {schedule: "@daily"}}`))).To(Succeed())
		g.Expect(cells(g, table(t, namespace, "snapshotschedules"))).To(HaveExactElements(
			"new", "@daily", "<nil>", "<nil>", "<nil>", "<nil>", "<nil>", "<nil>", MatchRegexp("^[0-9]+s$")))
	})

	t.Run("of runs", func(t *testing.T) {
		g := NewWithT(t)
		namespace := Namespace(t)
		run := &v1.SnapshotRun{
			ObjectMeta: metav1.ObjectMeta{Name: "hourly-1", Namespace: namespace},
			Spec:       v1.SnapshotRunSpec{ScheduleName: "hourly", Mode: v1.RunTestHooks},
		}
		g.Expect(api.Create(t.Context(), run)).To(Succeed())
		run.Status = v1.SnapshotRunStatus{Phase: v1.PhaseCompleted, Result: v1.ResultSucceeded, QuiescedFor: "1.5s", Message: "all as asked"}
		g.Expect(api.Status().Update(t.Context(), run)).To(Succeed())

		found := table(t, namespace, "snapshotruns")
		shown, wide := headings(found)
		g.Expect(shown).To(Equal([]string{"Name", "Schedule", "Phase", "Result", "Quiesced", "Age"}))
		g.Expect(wide).To(Equal([]string{"Mode", "Message"}))
		g.Expect(cells(g, found)).To(HaveExactElements("hourly-1", "hourly", "TestHooks", "Completed", "Succeeded", "1.5s", MatchRegexp("^[0-9]+s$"), "all as asked"))
	})
}
