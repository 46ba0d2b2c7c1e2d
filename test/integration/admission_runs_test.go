// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// contextOfCleanup outlives a test's own.
var contextOfCleanup = context.Background()

func aRun(schedule string, mode v1.RunMode) *v1.SnapshotRun {
	return &v1.SnapshotRun{TypeMeta: metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: runKind},
		ObjectMeta: metav1.ObjectMeta{GenerateName: "r-", Namespace: tenants}, Spec: v1.SnapshotRunSpec{ScheduleName: schedule, Mode: mode}}
}

func creatingAndChangingRuns(g *guarded, t *testing.T) {
	// Whoever may exec could not write these hooks, which run as an account. They may be started: they do what somebody who may wrote there.
	hooked := existing(g, t, hookedSchedule("hooks", others))
	plain := existing(g, t, plainSchedule())
	slot := aRun(hooked.Name, "")
	slot.Spec.Slot = ptr.To(metav1.Now())
	slot.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(hooked, v1.GroupVersion.WithKind(scheduleKind))}
	slot.Annotations = map[string]string{v1.AnnotationRetry: "1"}
	for name, r := range map[string]*v1.SnapshotRun{
		"snapshots": aRun(hooked.Name, ""), "snapshots, in words": aRun(hooked.Name, v1.RunSnapshot), "a test of the hooks": aRun(hooked.Name, v1.RunTestHooks),
		"a release": aRun(hooked.Name, v1.RunRelease), "of a schedule without hooks": aRun(plain.Name, ""), "of no schedule": aRun("none", ""), "for a slot": slot,
	} {
		t.Run("created: "+name, func(t *testing.T) {
			g.attempt(t, creations(r), needsExec, writer, gitops)
			g.attempt(t, creations(r), "", execer, podder, everywhere, editor, theOperator)
		})
	}

	written := aRun(hooked.Name, "")
	written.Finalizers = []string{v1.FinalizerRelease}
	annotated := written.DeepCopy()
	annotated.Annotations = map[string]string{v1.AnnotationRelease: "1"}
	type change struct {
		from *v1.SnapshotRun
		do   func(*v1.SnapshotRun)
	}
	annotate := func(key, value string) func(*v1.SnapshotRun) {
		return func(r *v1.SnapshotRun) { metav1.SetMetaDataAnnotation(&r.ObjectMeta, key, value) }
	}
	for name, tt := range map[string]change{
		"sent to its release":       {written, annotate(v1.AnnotationRelease, "now")},
		"sent to its release again": {annotated, annotate(v1.AnnotationRelease, "2")},
		"release taken back":        {annotated, func(r *v1.SnapshotRun) { r.Annotations = nil }},
		"without its finalizer":     {written, func(r *v1.SnapshotRun) { r.Finalizers = nil }},
		"with another finalizer":    {written, func(r *v1.SnapshotRun) { r.Finalizers = []string{"example.com/mine"} }},
		"with the finalizer":        {aRun(hooked.Name, ""), func(r *v1.SnapshotRun) { r.Finalizers = []string{v1.FinalizerRelease} }},
		"released, among other things": {written, func(r *v1.SnapshotRun) {
			r.Labels = map[string]string{"a": "b"}
			annotate(v1.AnnotationRelease, "now")(r)
		}},
	} {
		t.Run("changed: "+name, func(t *testing.T) {
			before := existing(g, t, tt.from.DeepCopy())
			after := before.DeepCopy()
			tt.do(after)
			g.attempt(t, changes(before, after), needsExec, writer, gitops)
			g.attempt(t, changes(before, after), "", execer, editor)
			g.attempt(t, changes(before, after)[1:2], "", theOperator) // it merges
		})
	}
	for name, do := range map[string]func(*v1.SnapshotRun){
		"nothing":            func(*v1.SnapshotRun) {},
		"a label":            func(r *v1.SnapshotRun) { r.Labels = map[string]string{"team": "shop"} },
		"another annotation": annotate("example.com/note", "seen"),
		"how often its slot was tried, which is told and not believed": annotate(v1.AnnotationRetry, "-1"),
		"one more finalizer": func(r *v1.SnapshotRun) { r.Finalizers = append(r.Finalizers, "example.com/mine") },
		"an owner": func(r *v1.SnapshotRun) {
			r.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "a", UID: "b"}}
		},
	} {
		t.Run("changed by anybody: "+name, func(t *testing.T) {
			before := existing(g, t, annotated.DeepCopy())
			after := before.DeepCopy()
			do(after)
			g.attempt(t, changes(before, after), "", writer, gitops, execer, editor)
		})
	}

	t.Run("deleted by anybody: it goes to its release", func(t *testing.T) {
		e := NewWithT(t)
		one, more := existing(g, t, aRun(hooked.Name, "")), existing(g, t, written.DeepCopy())
		e.Expect(g.as[writer].Delete(t.Context(), one)).To(Succeed())
		e.Expect(g.as[writer].DeleteAllOf(t.Context(), &v1.SnapshotRun{}, client.InNamespace(tenants))).To(Succeed())
		e.Expect(apierrors.IsNotFound(g.root.Get(t.Context(), client.ObjectKeyFromObject(one), one))).To(BeTrue())
		e.Expect(g.root.Get(t.Context(), client.ObjectKeyFromObject(more), more)).To(Succeed())
		e.Expect(more.DeletionTimestamp).NotTo(BeNil())
	})
}

func writingStatus(g *guarded, t *testing.T) {
	schedule := existing(g, t, plainSchedule())
	r := existing(g, t, aRun(schedule.Name, ""))
	ways := func(o client.Object, status string, change func(client.Object)) []way {
		return []way{
			{"merge patch", func(ctx context.Context, c client.Client) error {
				return c.Status().Patch(ctx, o.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(`{"status":`+status+`}`)))
			}},
			{"JSON patch", func(ctx context.Context, c client.Client) error {
				return c.Status().Patch(ctx, o.DeepCopyObject().(client.Object), client.RawPatch(types.JSONPatchType, []byte(`[{"op":"add","path":"/status","value":`+status+`}]`)))
			}},
			{"apply", func(ctx context.Context, c client.Client) error {
				body := `{"apiVersion":"` + v1.GroupVersion.String() + `","kind":"` + o.GetObjectKind().GroupVersionKind().Kind + `","status":` + status + `}`
				return c.Status().Patch(ctx, o.DeepCopyObject().(client.Object), client.RawPatch(types.ApplyPatchType, []byte(body)), client.FieldOwner("somebody"), client.ForceOwnership)
			}},
			{"update", func(ctx context.Context, c client.Client) error {
				o := o.DeepCopyObject().(client.Object)
				if err := g.root.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
					return err
				}
				change(o)
				return c.Status().Update(ctx, o)
			}},
			{"nothing but labels", func(ctx context.Context, c client.Client) error {
				return c.Status().Patch(ctx, o.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`)))
			}},
		}
	}
	schedule.SetGroupVersionKind(v1.GroupVersion.WithKind(scheduleKind))
	r.SetGroupVersionKind(v1.GroupVersion.WithKind(runKind))
	g.as["root"] = g.root
	for name, w := range map[string][]way{
		"of a schedule": ways(schedule, `{"activeRun":"other"}`, func(o client.Object) { o.(*v1.SnapshotSchedule).Status.ActiveRun = "other" }),
		"of a run":      ways(r, `{"phase":"Completed"}`, func(o client.Object) { o.(*v1.SnapshotRun).Status.Phase = v1.PhaseCompleted }),
	} {
		t.Run(name, func(t *testing.T) {
			g.attempt(t, w, statusIsOurs, writer, gitops, execer, everywhere, "root")
			g.attempt(t, w[:2], "", theOperator) // it patches
		})
	}

	t.Run("through the object itself nothing of it is written", func(t *testing.T) {
		e := NewWithT(t)
		fresh := existing(g, t, aRun(schedule.Name, ""))
		e.Expect(g.as[writer].Patch(t.Context(), fresh, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}},"status":{"phase":"Completed"}}`)))).To(Succeed())
		e.Expect(fresh.Status).To(BeZero())
	})
}

// The operator's ServiceAccount with the operator's role does what the operator does.
func theOperatorWorks(g *guarded, t *testing.T) {
	e := NewWithT(t)
	c := g.as[theOperator]
	schedule := existing(g, t, hookedSchedule("hooks", namespaces(2)...))
	r := aRun(schedule.Name, "")
	r.Finalizers = []string{v1.FinalizerRelease}
	r.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(schedule, v1.GroupVersion.WithKind(scheduleKind))}
	e.Expect(c.Create(t.Context(), r)).To(Succeed())
	e.Expect(c.Status().Patch(t.Context(), r, client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Completed"}}`)))).To(Succeed())
	e.Expect(c.Patch(t.Context(), r, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
	e.Expect(c.Delete(t.Context(), r)).To(Succeed())
	e.Expect(c.Status().Patch(t.Context(), schedule, client.RawPatch(types.MergePatchType, []byte(`{"status":{"activeRun":"a"}}`)))).To(Succeed())
}

// Who may impersonate the operator writes status. docs/security.md names this way.
func actingAsTheOperator(g *guarded, t *testing.T) {
	e := NewWithT(t)
	r := existing(g, t, aRun("none", ""))
	cfg := rest.CopyConfig(g.env.Config)
	cfg.Impersonate.UserName = theOperator
	c := g.client(cfg)
	e.Expect(c.Status().Patch(t.Context(), r, client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Completed"}}`)))).To(Succeed())
	e.Expect(r.Status.Phase).To(Equal(v1.PhaseCompleted))
}
