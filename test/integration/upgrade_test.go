// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// upgraded is the group in which the upgrade happens. It is not the real one, so that no other test sees it; the
// schemas are.
const upgraded = "upgrade.snapscheduler.backube"

// predecessor is what snapscheduler's definition says: nothing is required, and a schedule is any text. (Its own
// pattern for schedules refuses some of what is below, and other releases had other patterns.)
const predecessor = `
type: object
properties:
  apiVersion: {type: string}
  kind: {type: string}
  metadata: {type: object}
  spec:
    type: object
    properties:
      claimSelector:
        type: object
        properties:
          matchLabels: {type: object, additionalProperties: {type: string}}
          matchExpressions:
            type: array
            items:
              type: object
              required: [key, operator]
              properties:
                key: {type: string}
                operator: {type: string}
                values: {type: array, items: {type: string}}
      disabled: {type: boolean}
      retention:
        type: object
        properties:
          expires: {type: string, pattern: '^\d+(h|m|s)$'}
          maxCount: {type: integer, format: int32, minimum: 1}
      schedule: {type: string}
      snapshotTemplate:
        type: object
        properties:
          labels: {type: object, additionalProperties: {type: string}}
          snapshotClassName: {type: string}
  status:
    type: object
    properties:
      conditions:
        type: array
        items:
          type: object
          required: [status, type]
          properties:
            type: {type: string}
            status: {type: string}
            reason: {type: string}
            message: {type: string}
            lastTransitionTime: {type: string, format: date-time}
      lastSnapshotTime: {type: string, format: date-time}
      nextSnapshotTime: {type: string, format: date-time}
`

// Objects that an old cluster may hold.
var old = map[string]struct {
	spec   string // "" for none at all
	status string
	// mistaken: the schedule would be refused today.
	mistaken bool
}{
	"a good one": {
		spec:   `{schedule: "0 * * * *", disabled: false, claimSelector: {matchLabels: {app: db}}, retention: {expires: 168h, maxCount: 10}, snapshotTemplate: {labels: {team: shop}, snapshotClassName: fast}}`,
		status: `{conditions: [{type: Reconciled, status: "True", reason: ReconcileComplete, message: Reconcile complete, lastTransitionTime: "2025-12-01T10:00:00Z"}], lastSnapshotTime: "2026-01-10T09:00:00Z", nextSnapshotTime: "2026-01-10T10:00:00Z"}`,
	},
	"a macro":                {spec: `{schedule: "@weekly", retention: {maxCount: 3}}`},
	"a zone before it":       {spec: `{schedule: "CRON_TZ=Europe/Vienna 0 5 * * *", retention: {expires: 48h}}`},
	"Sunday as 7":            {spec: `{schedule: "0 0 * * 7"}`},
	"both limits":            {spec: `{schedule: "@daily", retention: {expires: 168h, maxCount: 1}}`},
	"selecting all":          {spec: `{schedule: "@daily", claimSelector: {}}`},
	"a minute 60":            {spec: `{schedule: "60 * * * *", retention: {expires: 168h, maxCount: 10}}`, mistaken: true},
	"six fields":             {spec: `{schedule: "0 0 5 * * *"}`, mistaken: true},
	"a macro with letters":   {spec: `{schedule: "@hourlyfoo"}`, mistaken: true},
	"an empty schedule":      {spec: `{schedule: "", retention: {maxCount: 10}}`, mistaken: true},
	"no schedule":            {spec: `{disabled: true, retention: {expires: 1h}}`, mistaken: true},
	"an empty spec":          {spec: `{}`, mistaken: true},
	"no spec":                {mistaken: true},
	"30 February":            {spec: `{schedule: "0 0 30 2 *"}`, mistaken: true},
	"the operator's zone":    {spec: `{schedule: "CRON_TZ=Local 0 5 * * *"}`, mistaken: true},
	"a range that runs back": {spec: `{schedule: "0 22-6 * * *"}`, mistaken: true},
	"a very long schedule":   {spec: `{schedule: "0 0 * * 1` + strings.Repeat(",1", 300) + `"}`, mistaken: true},
	"a very long expires":    {spec: `{schedule: "@daily", retention: {expires: 00000000000000000000168h}}`},
	"a very long class":      {spec: `{schedule: "@daily", snapshotTemplate: {snapshotClassName: ` + strings.Repeat("c", 300) + `}}`},
	"a failing one": {
		spec:     `{schedule: "60 * * * *"}`,
		status:   `{conditions: [{type: Reconciled, status: "False", reason: ReconcileError, message: "cannot parse", lastTransitionTime: "2025-12-01T10:00:00Z"}]}`,
		mistaken: true,
	},
	"a condition without words": {
		spec:   `{schedule: "@daily"}`,
		status: `{conditions: [{type: Reconciled, status: "True"}], nextSnapshotTime: "2026-01-10T10:00:00Z"}`,
	},
}

func TestObjectsOfSnapschedulerStayValid(t *testing.T) {
	g := NewWithT(t)
	namespace := Namespace(t)
	install(t)

	written := map[string]*unstructured.Unstructured{}
	for name, tt := range old {
		fields := map[string]any{}
		if tt.spec != "" {
			fields["spec"] = parsed(t, tt.spec)
		}
		o := &unstructured.Unstructured{Object: fields}
		o.SetAPIVersion(upgraded + "/v1")
		o.SetKind(scheduleKind)
		o.SetNamespace(namespace)
		o.SetGenerateName("old-")
		g.Expect(api.Create(t.Context(), o)).To(Succeed(), name)
		if tt.status != "" {
			o.Object["status"] = parsed(t, tt.status)
			g.Expect(api.Status().Update(t.Context(), o)).To(Succeed(), name)
		}
		written[name] = o
	}

	upgrade(t, namespace)

	for name, tt := range old {
		t.Run(name, func(t *testing.T) {
			was := written[name]
			again := func() *unstructured.Unstructured { return fetch(t, was) }
			patch := func(text string) error {
				return api.Patch(t.Context(), again(), client.RawPatch(types.MergePatchType, []byte(text)))
			}
			has := func(field string) bool {
				_, found, _ := unstructured.NestedFieldNoCopy(again().Object, "spec", field)
				return found
			}
			steps := []struct {
				it string
				is func(*WithT)
			}{
				{"is read as it was", func(g *WithT) {
					g.Expect(again().Object).To(Equal(was.Object))
				}},
				{"is labelled by a patch", func(g *WithT) {
					g.Expect(patch(`{"metadata":{"labels":{"team":"shop"}}}`)).To(Succeed())
				}},
				{"is annotated by an update", func(g *WithT) {
					o := again()
					o.SetAnnotations(map[string]string{"contact": "somebody"})
					g.Expect(api.Update(t.Context(), o)).To(Succeed())
				}},
				{"is given another owner by server-side apply", func(g *WithT) {
					o := &unstructured.Unstructured{}
					o.SetGroupVersionKind(was.GroupVersionKind())
					o.SetName(was.GetName())
					o.SetNamespace(namespace)
					o.SetLabels(map[string]string{"applied": "yes"})
					g.Expect(api.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(o), client.FieldOwner("test"))).To(Succeed())
				}},
				{"has its status written by this operator", func(g *WithT) {
					typed := &v1.SnapshotSchedule{}
					g.Expect(runtime.DefaultUnstructuredConverter.FromUnstructured(again().Object, typed)).To(Succeed())
					slot := metav1.NewTime(time.Date(2026, 1, 10, 11, 0, 0, 0, time.UTC))
					typed.Status.NextSnapshotTime = &slot
					typed.Status.ObservedGeneration = typed.Generation
					typed.Status.Conditions = []metav1.Condition{
						{Type: v1.ConditionReconciled, Status: metav1.ConditionFalse, Reason: v1.ReasonReconcileError, Message: "see Ready", LastTransitionTime: slot},
						{Type: v1.ConditionReady, Status: metav1.ConditionFalse, Reason: v1.ReasonInvalidSchedule, Message: "no", LastTransitionTime: slot},
					}
					o := &unstructured.Unstructured{Object: asFields(t, typed)}
					g.Expect(api.Status().Update(t.Context(), o)).To(Succeed())
					next, _, _ := unstructured.NestedString(again().Object, "status", "nextSnapshotTime")
					g.Expect(next).To(Equal("2026-01-10T11:00:00Z"))
					g.Expect(again().GetGeneration()).To(Equal(was.GetGeneration()), "the spec is as it was")
				}},
				{"has its status written by the old one, while both are there", func(g *WithT) {
					g.Expect(api.Status().Patch(t.Context(), again(), client.RawPatch(types.MergePatchType,
						[]byte(`{"status":{"lastSnapshotTime":"2026-01-10T11:00:00Z","nextSnapshotTime":"2026-01-10T12:00:00Z"}}`)))).To(Succeed())
				}},
				{"has the rest of its spec edited by a patch", func(g *WithT) {
					g.Expect(patch(`{"spec":{"retention":{"maxCount":5},"disabled":true,"snapshotTemplate":{"labels":{"team":"shop"}}}}`)).To(Succeed())
				}},
				{"has the rest of its spec edited by an update", func(g *WithT) {
					o := again()
					g.Expect(unstructured.SetNestedField(o.Object, int64(3), "spec", "retention", "keepLast")).To(Succeed())
					g.Expect(unstructured.SetNestedSlice(o.Object, []any{map[string]any{"podSelector": map[string]any{}, "command": []any{"sync"}}}, "spec", "preHooks")).To(Succeed())
					g.Expect(api.Update(t.Context(), o)).To(Succeed())
				}},
				{"is checked where it is edited", func(g *WithT) {
					expectRefused(t, patch(`{"spec":{"retention":{"maxCount":0}}}`), "maxCount", "spec.retention.maxCount")
					expectRefused(t, patch(`{"spec":{"retention":{"expires":"7d"}}}`), "expires", "spec.retention.expires")
					expectRefused(t, patch(`{"spec":{"postHooks":[{"podSelector":{}}]}}`), "postHooks", "spec.postHooks[0].command")
				}},
				{"does not get another mistaken schedule", func(g *WithT) {
					for _, bad := range []string{"61 * * * *", "0 0 6 * * *", "@dailyfoo", "0 0 31 2 *"} {
						expectRefused(t, patch(`{"spec":{"schedule":"`+bad+`"}}`), bad, "spec.schedule")
					}
					if tt.spec != `{schedule: "", retention: {maxCount: 10}}` {
						expectRefused(t, patch(`{"spec":{"schedule":""}}`), "empty", "spec.schedule")
					}
				}},
				{"does not lose a schedule that says something", func(g *WithT) {
					text, _, _ := unstructured.NestedString(again().Object, "spec", "schedule")
					if text == "" {
						g.Expect(patch(`{"spec":{"schedule":null}}`)).To(Succeed(), "a Go program leaves an empty schedule out")
					} else {
						expectRefused(t, patch(`{"spec":{"schedule":null}}`), "null", "spec.schedule: Required value")
					}
				}},
				{"gets a good schedule", func(g *WithT) {
					g.Expect(patch(`{"spec":{"schedule":"0 5 * * MON"}}`)).To(Succeed())
					g.Expect(has("schedule")).To(BeTrue())
				}},
				{"and then no mistaken one again", func(g *WithT) {
					if tt.mistaken {
						back, _, _ := unstructured.NestedString(was.Object, "spec", "schedule")
						expectRefused(t, patch(`{"spec":{"schedule":"`+back+`"}}`), "back", "spec.schedule")
					}
					expectRefused(t, patch(`{"spec":{"schedule":null}}`), "null", "spec.schedule: Required value")
				}},
				{"is deleted", func(g *WithT) {
					g.Expect(api.Delete(t.Context(), again())).To(Succeed())
				}},
			}
			for _, step := range steps {
				if !t.Run(step.it, func(t *testing.T) { step.is(NewWithT(t)) }) {
					break // what follows builds on it
				}
			}
		})
	}

	for name, tt := range old {
		if tt.mistaken {
			t.Run("today nobody writes "+name, func(t *testing.T) {
				o := &unstructured.Unstructured{Object: map[string]any{}}
				o.SetGroupVersionKind(written[name].GroupVersionKind())
				o.SetNamespace(namespace)
				o.SetGenerateName("new-")
				if tt.spec != "" {
					o.Object["spec"] = parsed(t, tt.spec)
				}
				expectRefused(t, api.Create(t.Context(), o), name, "spec.schedule")
			})
		}
	}
}

// install defines schedules as snapscheduler did.
func install(t *testing.T) {
	t.Helper()
	g := NewWithT(t)
	schema := &apiextensionsv1.JSONSchemaProps{}
	g.Expect(yaml.UnmarshalStrict([]byte(predecessor), schema)).To(Succeed())
	crd := definition(t)
	crd.Spec.Versions[0].Schema.OpenAPIV3Schema = schema
	crd.Spec.Versions[0].AdditionalPrinterColumns = nil
	_, err := envtest.InstallCRDs(Env(), envtest.CRDInstallOptions{CRDs: []*apiextensionsv1.CustomResourceDefinition{crd}, MaxTime: soon})
	g.Expect(err).NotTo(HaveOccurred())
	t.Cleanup(func() {
		g.Expect(api.Delete(context.Background(), crd)).To(Succeed())
		g.Eventually(func() bool {
			return apierrors.IsNotFound(api.Get(context.Background(), client.ObjectKeyFromObject(crd), crd.DeepCopy()))
		}, soon).Should(BeTrue())
	})
}

// upgrade replaces the definition by that of this project, and returns when the API server goes by it.
func upgrade(t *testing.T, namespace string) {
	t.Helper()
	g := NewWithT(t)
	found, crd := &apiextensionsv1.CustomResourceDefinition{}, definition(t)
	g.Expect(api.Get(t.Context(), client.ObjectKeyFromObject(crd), found)).To(Succeed())
	found.Spec = crd.Spec
	g.Expect(api.Update(t.Context(), found)).To(Succeed())
	g.Eventually(func() error {
		probe := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"schedule": "never"}}}
		probe.SetAPIVersion(upgraded + "/v1")
		probe.SetKind(scheduleKind)
		probe.SetNamespace(namespace)
		probe.SetGenerateName("probe-")
		return api.Create(t.Context(), probe, client.DryRunAll)
	}, soon).Should(MatchError(apierrors.IsInvalid, "the new rules hold"))
}

// definition is this project's definition of schedules, moved to the group of the upgrade.
func definition(t *testing.T) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	ours := &apiextensionsv1.CustomResourceDefinition{}
	NewWithT(t).Expect(api.Get(t.Context(), client.ObjectKey{Name: "snapshotschedules.snapscheduler.backube"}, ours)).To(Succeed())
	crd := &apiextensionsv1.CustomResourceDefinition{Spec: *ours.Spec.DeepCopy()}
	crd.Spec.Group = upgraded
	crd.Name = "snapshotschedules." + upgraded
	return crd
}

func parsed(t *testing.T, text string) map[string]any {
	t.Helper()
	fields := map[string]any{}
	NewWithT(t).Expect(yaml.UnmarshalStrict([]byte(text), &fields)).To(Succeed())
	return numbersAsRead(t, fields).(map[string]any)
}
