// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

const storyDriver = "story.csi.example.com"

// storyClass is the default class of the driver of all stories.
func storyClass() *snapshotv1.VolumeSnapshotClass {
	return &snapshotv1.VolumeSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: "story", Annotations: map[string]string{annotationDefaultClass: "true"}},
		Driver: storyDriver, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete}
}

// newStory is what the cluster looks like when the operator starts a minute before the slot: the claims, their pods, and what the run of an
// hour ago has left.
func newStory(t testing.TB, p plot, l lag) *story {
	t.Helper()
	if err := createStoryClass(); err != nil {
		t.Fatalf("creating the class of the stories' driver: %v", err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "story-"}}
	if err := api.Create(t.Context(), ns); err != nil {
		t.Fatalf("creating a namespace: %v", err)
	}
	clk := clocktesting.NewFakeClock(noon.Add(-time.Minute))
	h := &story{plot: p, t: t, namespace: ns.Name, clock: clk, server: newServer(clk), apps: map[string]*pod{}, unknown: map[string]string{},
		cuts: map[string]bool{}, claims: map[string]types.UID{}, old: map[string]types.UID{}}
	h.view = &view{server: h.server, shown: map[objectKey]client.Object{}}
	h.server.wrote = func() {
		h.moves++
		h.view.follow()
	}
	h.prepare()
	// Only what the story itself writes is seen late.
	h.view.lag = l
	h.view.changed = func(key objectKey, o client.Object) { h.process.changed(key, o) }
	return h
}

func (h *story) create(t time.Time, o client.Object) {
	h.t.Helper()
	o.SetNamespace(h.namespace)
	if err := h.server.createdAt(h.t.Context(), t, o); err != nil {
		h.t.Fatalf("creating %s: %v", o.GetName(), err)
	}
}

// update a status as it was set before the object was created.
func (h *story) update(o client.Object) {
	h.t.Helper()
	if err := h.server.Client.Status().Update(h.t.Context(), o); err != nil {
		h.t.Fatalf("writing the status of %s: %v", o.GetName(), err)
	}
	h.server.dress(o)
	h.server.note(o, false)
}

func (h *story) prepare() {
	for _, name := range h.claimNames() {
		c := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{annotationDriver: storyDriver}},
			Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr.To("fast"),
				VolumeName: "pv-" + name, Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: *gibibyte()}}},
		}
		h.create(noon.Add(-24*time.Hour), c)
		h.claims[name] = c.UID
		c.Status.Phase = corev1.ClaimBound
		h.update(c)
	}
	for _, name := range []string{"db-0", "db-1"}[:h.plot.pods] {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": "db"}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "db", Image: "db"}}}}
		h.create(noon.Add(-24*time.Hour), p)
		p.Status.Phase = corev1.PodRunning
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "db", Image: "db", ImageID: "db", ContainerID: "test://" + name,
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(noon.Add(-24 * time.Hour))}}}}
		h.update(p)
		h.apps[name] = &pod{name: name, starts: map[string]int{}}
	}
	for _, name := range h.schedules {
		h.schedule(name)
	}
	h.create(noon.Add(-2*time.Hour), &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Name: "theirs", Labels: map[string]string{v1.LabelSchedule: "another"}}, Spec: sourceOf("a")})
	h.create(noon.Add(-2*time.Hour), &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Name: "by-hand"}, Spec: sourceOf("a")})
}

func sourceOf(claim string) snapshotv1.VolumeSnapshotSpec {
	return snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: ptr.To(claim)}}
}

// schedule, with the run and the snapshots of an hour ago, and one that somebody wants to keep.
func (h *story) schedule(name string) {
	s := &v1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := yaml.UnmarshalStrict([]byte(strings.ReplaceAll(h.spec, "NAME", name)), &s.Spec); err != nil {
		h.t.Fatal(err)
	}
	h.create(noon.Add(-24*time.Hour), s)
	before := noon.Add(-time.Hour)
	r := &v1.SnapshotRun{
		ObjectMeta: metav1.ObjectMeta{Name: oldRun(name), Labels: map[string]string{v1.LabelSchedule: name},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s, v1.GroupVersion.WithKind(scheduleKind))}},
		Spec: v1.SnapshotRunSpec{ScheduleName: name, Slot: ptr.To(metav1.NewTime(before))},
	}
	h.create(before, r)
	h.old[r.Name] = r.UID
	then := ptr.To(metav1.NewMicroTime(before))
	r.Status = v1.SnapshotRunStatus{Phase: v1.PhaseCompleted, Result: v1.ResultSucceeded, StartTime: then, SnapshottingTime: then, CompletionTime: then}
	h.update(r)
	for _, claim := range h.claimNames() {
		snapshot := &snapshotv1.VolumeSnapshot{
			ObjectMeta: metav1.ObjectMeta{Name: claim + "-" + r.Name, Labels: map[string]string{v1.LabelSchedule: name, v1.LabelWhen: when(before)},
				Annotations: map[string]string{v1.AnnotationRun: r.Name, v1.AnnotationRunUID: string(r.UID), v1.AnnotationClaimUID: string(h.claims[claim])}},
			Spec: sourceOf(claim),
		}
		if h.hooked {
			snapshot.Labels[v1.LabelConsistency] = v1.ConsistencyApplication
		}
		h.create(before, snapshot)
		h.writeStatus(snapshot, readySince(snapshot.Name, before))
	}
	h.create(noon.Add(-3*time.Hour), &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Name: "keep-" + name, Labels: map[string]string{v1.LabelSchedule: name, v1.LabelRetention: v1.RetentionKeep},
			Annotations: map[string]string{v1.AnnotationClaimUID: string(h.claims["a"])}}, Spec: sourceOf("a")})
}

func oldRun(schedule string) string { return schedule + "-" + when(noon.Add(-time.Hour)) }

// runNamed is the run of the story's slot.
func (h *story) runNamed(schedule string) string { return schedule + "-" + when(noon) }

func (h *story) claimNames() []string {
	if h.held || len(h.schedules) > 1 {
		return []string{"a"}
	}
	return []string{"a", "b"}
}

// sorted are the names of the objects of a kind that exist.
func (h *story) sorted(kind string) []string {
	var names []string
	for key := range maps.Keys(h.server.newest) {
		if key.kind == kind {
			names = append(names, key.name)
		}
	}
	slices.Sort(names)
	return names
}

// createStoryClass once for all.
var createStoryClass = sync.OnceValue(func() error { return api.Create(context.Background(), storyClass()) })
