// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

const (
	labelApp = "app"
	// perNamespace is how many schedules live in one namespace, as the applications of a team do.
	perNamespace = 10
)

// each calls do with 0..n-1, some at a time, and returns the first thing that went wrong; then it begins nothing more.
func each(n int, do func(i int) error) error { return eachOf(setupWriters, n, do) }

func eachOf(limit, n int, do func(i int) error) error {
	var g errgroup.Group
	g.SetLimit(limit)
	var failed atomic.Bool
	for i := range n {
		if failed.Load() {
			break
		}
		g.Go(func() error {
			err := do(i)
			if err != nil {
				failed.Store(true)
			}
			return err
		})
	}
	return g.Wait()
}

// fleet is a number of applications: a schedule each, with its claims and perhaps a pod.
type fleet struct {
	*world
	prefix    string // of its namespaces
	schedules int
	claims    int // of each schedule
	hooks     bool
}

func (f *fleet) namespace(i int) string { return fmt.Sprintf("%s-%d", f.prefix, i/perNamespace) }
func app(i int) string                  { return fmt.Sprintf("app-%d", i) }
func claimName(i, j int) string         { return fmt.Sprintf("data-%d-%d", i, j) }

// build the namespaces, claims and pods.
func (f *fleet) build(ctx context.Context) error {
	err := each((f.schedules+perNamespace-1)/perNamespace, func(i int) error {
		return f.admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: f.namespace(i * perNamespace)}})
	})
	if err != nil {
		return err
	}
	err = each(f.schedules*f.claims, func(n int) error {
		i, j := n/f.claims, n%f.claims
		return f.claim(ctx, f.namespace(i), claimName(i, j), app(i))
	})
	if err != nil || !f.hooks {
		return err
	}
	return each(f.schedules, func(i int) error { return f.pod(ctx, f.namespace(i), app(i)) })
}

// claim that is bound.
func (w *world) claim(ctx context.Context, namespace, name, app string) error {
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{labelApp: app},
			Annotations: map[string]string{"volume.kubernetes.io/storage-provisioner": driver}},
		Spec: claimSpec("pv-" + namespace + "-" + name),
	}
	if err := w.admin.Create(ctx, c); err != nil {
		return err
	}
	c.Status.Phase = corev1.ClaimBound
	return w.admin.Status().Update(ctx, c)
}

func claimSpec(volume string) corev1.PersistentVolumeClaimSpec {
	return corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr.To(className), VolumeName: volume,
		Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: *resource.NewQuantity(1<<30, resource.BinarySI)}}}
}

// pod whose container runs, as far as anybody can see.
func (w *world) pod(ctx context.Context, namespace, name string) error {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{labelApp: name}},
		Spec: corev1.PodSpec{NodeName: nodeName, Containers: []corev1.Container{{Name: "db", Image: "db"}}}}
	if err := w.admin.Create(ctx, p); err != nil {
		return err
	}
	p.Status.Phase = corev1.PodRunning
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "db", Image: "db", ImageID: "db", ContainerID: "test://" + string(p.UID),
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}}}
	return w.admin.Status().Update(ctx, p)
}

// schedule of an application.
func (f *fleet) schedule(i int, cron string) *v1.SnapshotSchedule {
	selector := metav1.LabelSelector{MatchLabels: map[string]string{labelApp: app(i)}}
	s := &v1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: f.namespace(i), Name: app(i)},
		Spec: v1.SnapshotScheduleSpec{Schedule: cron, ClaimSelector: selector}}
	if f.hooks {
		hook := v1.Hook{PodSelector: &selector, Command: []string{"true"}}
		s.Spec.PreHooks = []v1.PreHook{{Hook: hook}}
		s.Spec.PostHooks = []v1.PostHook{{Hook: hook}}
	}
	return s
}

// plan gives every application its schedule, and waits until the operator has taken note of it.
func (f *fleet) plan(ctx context.Context, cron string) error {
	if err := each(f.schedules, func(i int) error { return f.admin.Create(ctx, f.schedule(i, cron)) }); err != nil {
		return err
	}
	return f.noted(ctx)
}

// noted waits until the operator has taken note of every schedule.
func (f *fleet) noted(ctx context.Context) error {
	return poll(ctx, time.Second, func() (bool, error) {
		var list v1.SnapshotScheduleList
		if err := f.admin.List(ctx, &list, cached); err != nil {
			return false, err
		}
		for i := range list.Items {
			if list.Items[i].Status.NextSnapshotTime == nil {
				return false, nil
			}
		}
		return len(list.Items) == f.schedules, nil
	})
}

// cached answers of the API server are cheap, and late by milliseconds.
var cached = &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: "0"}}

// clear away what runs have left, and the schedules first. The operator may be at work.
func (w *world) clear(ctx context.Context) error {
	for _, kind := range []client.Object{&v1.SnapshotSchedule{}, &v1.SnapshotRun{}, &snapshotv1.VolumeSnapshot{}} {
		if err := w.clearKind(ctx, kind); err != nil {
			return err
		}
	}
	return nil
}

// clearKind deletes the objects of a kind and waits until none is left.
func (w *world) clearKind(ctx context.Context, kind client.Object, which ...client.ListOption) error {
	gvk, err := w.admin.GroupVersionKindFor(kind)
	if err != nil {
		return err
	}
	return poll(ctx, 200*time.Millisecond, func() (bool, error) {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(gvk)
		if err := w.admin.List(ctx, list, which...); err != nil {
			return false, err
		}
		return len(list.Items) == 0, each(len(list.Items), func(i int) error {
			o := &list.Items[i]
			if len(o.Finalizers) > 0 {
				patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
				if err := client.IgnoreNotFound(w.admin.Patch(ctx, o.DeepCopy(), patch)); err != nil {
					return err
				}
			}
			return client.IgnoreNotFound(w.admin.Delete(ctx, o, client.GracePeriodSeconds(0)))
		})
	})
}

// demolish what build made.
func (f *fleet) demolish(ctx context.Context) error {
	for _, kind := range []client.Object{&corev1.Pod{}, &corev1.PersistentVolumeClaim{}} {
		if err := f.clearKind(ctx, kind); err != nil {
			return err
		}
	}
	return nil
}
