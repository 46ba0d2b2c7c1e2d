// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/naming"
)

// never is a schedule whose slot no test reaches: in half a year.
var never = fmt.Sprintf(`schedule: "0 0 1 %d *"`, time.Now().AddDate(0, 6, 0).Month())

const (
	annotationDriver       = "volume.kubernetes.io/storage-provisioner"
	annotationDefaultClass = "snapshot.storage.kubernetes.io/is-default-class"
	hourlyOfAll            = `{schedule: "0 * * * *"}`
)

// storage plays the snapshot controller and the driver.
type storage struct {
	client.Client
	o *operator
}

func (r storage) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var s snapshotv1.VolumeSnapshot
	if err := r.Get(ctx, req.NamespacedName, &s); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	r.o.mu.Lock()
	decide := r.o.storage
	r.o.mu.Unlock()
	if s.Status != nil || s.DeletionTimestamp != nil || decide == nil || s.Annotations[v1.AnnotationRun] == "" {
		return ctrl.Result{}, nil // what a test made, it also finishes
	}
	status := decide(&s)
	if status == nil {
		return ctrl.Result{}, nil
	}
	before := s.DeepCopy()
	s.Status = status
	return ctrl.Result{}, client.IgnoreNotFound(api.Status().Patch(ctx, &s, client.MergeFrom(before)))
}

// ready: cut now and ready at once.
func (o *operator) ready(s *snapshotv1.VolumeSnapshot) *snapshotv1.VolumeSnapshotStatus {
	return readySince(s.Name, o.clock.Now())
}

func readySince(name string, t time.Time) *snapshotv1.VolumeSnapshotStatus {
	return &snapshotv1.VolumeSnapshotStatus{BoundVolumeSnapshotContentName: ptr.To("content-" + name), ReadyToUse: ptr.To(true),
		CreationTime: ptr.To(metav1.NewTime(t.Truncate(time.Second)))}
}

// cutOnly: cut now, and still being copied.
func (o *operator) cutOnly(s *snapshotv1.VolumeSnapshot) *snapshotv1.VolumeSnapshotStatus {
	status := o.ready(s)
	status.ReadyToUse = ptr.To(false)
	return status
}

// broken: the driver refuses.
func (o *operator) broken(*snapshotv1.VolumeSnapshot) *snapshotv1.VolumeSnapshotStatus {
	return &snapshotv1.VolumeSnapshotStatus{ReadyToUse: ptr.To(false),
		Error: &snapshotv1.VolumeSnapshotError{Time: ptr.To(metav1.Now()), Message: ptr.To("the array is full")}}
}

// stores sets what becomes of new snapshots.
func (o *operator) stores(f func(*snapshotv1.VolumeSnapshot) *snapshotv1.VolumeSnapshotStatus) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.storage = f
}

// refuses sets which snapshots cannot be created.
func (o *operator) refuses(f func(*snapshotv1.VolumeSnapshot) error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.refuse = f
}

func forbidden(s *snapshotv1.VolumeSnapshot) error {
	return apierrors.NewForbidden(snapshotv1.Resource("volumesnapshots"), s.Name, nil)
}

// finish makes every snapshot that is not ready so.
func (o *operator) finish() {
	o.t.Helper()
	for _, s := range o.snapshots() {
		if s.Status == nil || !ptr.Deref(s.Status.ReadyToUse, false) {
			o.writeStatus(&s, readySince(s.Name, o.clock.Now()))
		}
	}
}

func (o *operator) writeStatus(s *snapshotv1.VolumeSnapshot, status *snapshotv1.VolumeSnapshotStatus) {
	o.t.Helper()
	before := s.DeepCopy()
	s.Status = status
	o.Expect(api.Status().Patch(o.t.Context(), s, client.MergeFrom(before))).To(Succeed())
}

// snapshotClass of a driver; cluster-wide, so its name should hold the namespace.
func (o *operator) snapshotClass(name, driver string, isDefault bool) {
	o.t.Helper()
	k := &snapshotv1.VolumeSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Driver: driver, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete}
	if isDefault {
		k.Annotations = map[string]string{annotationDefaultClass: "true"}
	}
	o.Expect(api.Create(o.t.Context(), k)).To(Succeed())
	o.t.Cleanup(func() {
		if err := api.Delete(context.Background(), k); err != nil {
			o.t.Errorf("deleting class %s: %v", name, err)
		}
	})
}

// claim that is bound, with what the test changes about it.
func (o *operator) claim(name string, changes ...func(*corev1.PersistentVolumeClaim)) *corev1.PersistentVolumeClaim {
	o.t.Helper()
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: name, Labels: map[string]string{"app": "db"}, Annotations: map[string]string{annotationDriver: o.driver}},
		Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: ptr.To("fast"), VolumeName: "pv-" + name,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: *gibibyte()}}},
	}
	c.Status.Phase = corev1.ClaimBound
	for _, change := range changes {
		change(c)
	}
	phase := c.Status.Phase
	o.Expect(api.Create(o.t.Context(), c)).To(Succeed())
	c.Status.Phase = phase
	o.Expect(api.Status().Update(o.t.Context(), c)).To(Succeed())
	return c
}

// pod that runs, as far as anybody can see.
func (o *operator) pod(name string) {
	o.t.Helper()
	o.podIn(o.namespace, name)
}

func (o *operator) podIn(namespace, name string) {
	o.t.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": "db"}},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "db", Image: "db"}}}}
	o.Expect(api.Create(o.t.Context(), p)).To(Succeed())
	p.Status.Phase = corev1.PodRunning
	p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "db", Image: "db", ImageID: "db", ContainerID: "test://" + name,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.Now()}}}}
	o.Expect(api.Status().Update(o.t.Context(), p)).To(Succeed())
}

func annotated(key, value string) func(*corev1.PersistentVolumeClaim) {
	return func(c *corev1.PersistentVolumeClaim) { metav1.SetMetaDataAnnotation(&c.ObjectMeta, key, value) }
}

// removeClaim, as the cluster does once no pod uses it.
func (o *operator) removeClaim(c *corev1.PersistentVolumeClaim) {
	o.t.Helper()
	o.Expect(api.Delete(o.t.Context(), c)).To(Succeed())
	c.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"))
	free(o.t, c)
	o.will(func() bool { return apierrors.IsNotFound(api.Get(o.t.Context(), client.ObjectKeyFromObject(c), c)) }).Should(BeTrue())
}

// schedule creates one.
func (o *operator) schedule(name, spec string) *v1.SnapshotSchedule {
	o.t.Helper()
	s := object(o.t, scheduleKind, o.namespace, "{metadata: {name: "+name+"}, spec: "+spec+"}")
	o.Expect(api.Create(o.t.Context(), s)).To(Succeed())
	if len(o.instances) > 0 {
		o.settle()
	}
	return o.read(name)
}

func (o *operator) read(name string) *v1.SnapshotSchedule {
	o.t.Helper()
	var s v1.SnapshotSchedule
	o.Expect(api.Get(o.t.Context(), client.ObjectKey{Namespace: o.namespace, Name: name}, &s)).To(Succeed())
	return &s
}

// edit the spec of a schedule.
func (o *operator) edit(name, patch string) {
	o.t.Helper()
	o.patch(&v1.SnapshotSchedule{}, name, `{"spec":`+patch+`}`)
	o.settle()
}

func (o *operator) patch(kind client.Object, name, patch string) {
	o.t.Helper()
	kind.SetNamespace(o.namespace)
	kind.SetName(o.called(name))
	o.Expect(api.Patch(o.t.Context(), kind, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
}

// condition of a schedule; a zero one if it has none.
func (o *operator) condition(name, typ string) metav1.Condition {
	o.t.Helper()
	return ptr.Deref(meta.FindStatusCondition(o.read(name).Status.Conditions, typ), metav1.Condition{})
}

// runs of a schedule by name; "" is of all.
func (o *operator) runs(schedule string) []v1.SnapshotRun {
	o.t.Helper()
	var list v1.SnapshotRunList
	o.Expect(api.List(o.t.Context(), &list, client.InNamespace(o.namespace))).To(Succeed())
	return slices.DeleteFunc(list.Items, func(r v1.SnapshotRun) bool { return schedule != "" && r.Spec.ScheduleName != schedule })
}

func (o *operator) run(name string) *v1.SnapshotRun {
	o.t.Helper()
	var r v1.SnapshotRun
	o.Expect(api.Get(o.t.Context(), client.ObjectKey{Namespace: o.namespace, Name: name}, &r)).To(Succeed())
	return &r
}

func (o *operator) runNames(schedule string) []string {
	o.t.Helper()
	names := []string{}
	for _, r := range o.runs(schedule) {
		names = append(names, r.Name)
	}
	return names
}

// manual run of a schedule.
func (o *operator) manual(schedule, name string) *v1.SnapshotRun {
	o.t.Helper()
	r := &v1.SnapshotRun{ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: name}, Spec: v1.SnapshotRunSpec{ScheduleName: schedule}}
	o.Expect(api.Create(o.t.Context(), r)).To(Succeed())
	return r
}

// snapshots of the namespace, whoever made them.
func (o *operator) snapshots() []snapshotv1.VolumeSnapshot {
	o.t.Helper()
	var list snapshotv1.VolumeSnapshotList
	o.Expect(api.List(o.t.Context(), &list, client.InNamespace(o.namespace))).To(Succeed())
	return list.Items
}

func (o *operator) snapshot(name string) *snapshotv1.VolumeSnapshot {
	o.t.Helper()
	var s snapshotv1.VolumeSnapshot
	o.Expect(api.Get(o.t.Context(), client.ObjectKey{Namespace: o.namespace, Name: o.called(name)}, &s)).To(Succeed())
	return &s
}

func (o *operator) snapshotNames() []string {
	o.t.Helper()
	names := []string{}
	for _, s := range o.snapshots() {
		names = append(names, o.nickname(s.Name))
	}
	return names
}

// called is the name of a snapshot that the test knows by a nickname.
func (o *operator) called(nick string) string {
	for name, n := range o.nicknames {
		if n == nick {
			return name
		}
	}
	return nick
}

// nickname by which the test knows a snapshot.
func (o *operator) nickname(name string) string {
	if nick, ok := o.nicknames[name]; ok {
		return nick
	}
	return name
}

// claimsTaken by the snapshots that exist, sorted, once per snapshot.
func (o *operator) claimsTaken() string {
	o.t.Helper()
	var names []string
	for _, s := range o.snapshots() {
		names = append(names, ptr.Deref(s.Spec.Source.PersistentVolumeClaimName, "?"))
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// made puts a snapshot of an earlier day into the namespace: of a schedule and claim, cut that long ago, ready. uid is the
// claim's as it was then; "" is how snapscheduler made it. It has the name that the schedule gave it; the test may call it something shorter.
func (o *operator) made(name, schedule, claim, uid string, age time.Duration, changes ...func(*snapshotv1.VolumeSnapshot)) *snapshotv1.VolumeSnapshot {
	o.t.Helper()
	cut := o.clock.Now().Add(-age)
	if !fullName.MatchString(name) {
		// Some of one moment differ: names are those of minutes long ago.
		called := naming.Snapshot(claim, schedule, o.base.AddDate(-1, 0, 0).Add(time.Duration(len(o.nicknames))*time.Minute))
		o.nicknames[called] = name
		name = called
	}
	s := &snapshotv1.VolumeSnapshot{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: name, Labels: map[string]string{v1.LabelSchedule: schedule, v1.LabelWhen: when(cut)}},
		Spec:       snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: ptr.To(claim)}},
		Status:     readySince(name, cut),
	}
	if uid != "" {
		s.Annotations = map[string]string{v1.AnnotationClaimUID: uid}
	}
	for _, change := range changes {
		change(s)
	}
	status := s.Status
	if status == nil {
		status = &snapshotv1.VolumeSnapshotStatus{} // says nothing
	}
	o.Expect(api.Create(o.t.Context(), s)).To(Succeed())
	o.writeStatus(s, status)
	return s
}

var fullName = regexp.MustCompile(`-[0-9]{12}$`)

func when(t time.Time) string { return t.UTC().Format("200601021504") }

func (o *operator) patchStatus(schedule, patch string) {
	o.t.Helper()
	s := &v1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: schedule}}
	o.Expect(api.Status().Patch(o.t.Context(), s, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
}

// metric is the sum of the series that carry these labels in the operator's namespace.
func (o *operator) metric(name string, labels map[string]string) float64 {
	o.t.Helper()
	families, err := metrics.Registry.Gather()
	o.Expect(err).NotTo(HaveOccurred())
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			has := map[string]string{}
			for _, l := range m.GetLabel() {
				has[l.GetName()] = l.GetValue()
			}
			matches := has["schedule_namespace"] == o.namespace
			for k, v := range labels {
				matches = matches && has[k] == v
			}
			if matches {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	return sum
}

func gibibyte() *resource.Quantity { return resource.NewQuantity(1<<30, resource.BinarySI) }
