// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"strings"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/naming"
)

// kube is a connection to a cluster and the namespace that was asked for.
type kube struct {
	client.WithWatch
	clientset *kubernetes.Clientset
	namespace string
}

var (
	scheduleKind = v1.GroupVersion.WithKind("SnapshotSchedule")
	runKind      = v1.GroupVersion.WithKind("SnapshotRun")
)

// scheme of all kinds that this program reads or writes.
func scheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{corev1.AddToScheme, appsv1.AddToScheme, storagev1.AddToScheme, snapshotv1.AddToScheme, groupv1.AddToScheme, v1.AddToScheme} {
		if err := add(s); err != nil {
			return nil, fmt.Errorf("registering API types: %w", err)
		}
	}
	return s, nil
}

// mapper of these kinds. It is fixed, so that no command begins with a discovery of everything that the cluster knows.
func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	namespaced := []schema.GroupVersionKind{scheduleKind, runKind, snapshotv1.SchemeGroupVersion.WithKind("VolumeSnapshot"),
		corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), corev1.SchemeGroupVersion.WithKind("Pod"),
		appsv1.SchemeGroupVersion.WithKind("StatefulSet"), appsv1.SchemeGroupVersion.WithKind("Deployment")}
	for _, kind := range namespaced {
		m.Add(kind, meta.RESTScopeNamespace)
	}
	for _, kind := range []schema.GroupVersionKind{snapshotv1.SchemeGroupVersion.WithKind("VolumeSnapshotClass"), snapshotv1.SchemeGroupVersion.WithKind("VolumeSnapshotContent"),
		groupv1.SchemeGroupVersion.WithKind("VolumeGroupSnapshotClass"),
		corev1.SchemeGroupVersion.WithKind("PersistentVolume"), corev1.SchemeGroupVersion.WithKind("Namespace"), storagev1.SchemeGroupVersion.WithKind("StorageClass")} {
		m.Add(kind, meta.RESTScopeRoot)
	}
	return m
}

// connect to the cluster that the flags and the kubeconfig name.
func (p *program) connect() (*kube, error) {
	if p.kube != nil {
		return p.kube, nil
	}
	cfg, err := p.flags.ToRESTConfig()
	if err != nil {
		return nil, fmt.Errorf("finding the cluster: %w", err)
	}
	cfg.QPS = -1 // a person waits
	cfg.UserAgent = "kubectl-stillpoint/" + p.Version.Version
	namespace, err := p.namespace()
	if err != nil {
		return nil, err
	}
	known, err := scheme()
	if err != nil {
		return nil, err
	}
	http, err := client.NewWithWatch(cfg, client.Options{Scheme: known, Mapper: mapper()})
	if err != nil {
		return nil, fmt.Errorf("setting up a client: %w", err)
	}
	clientset, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("setting up a client: %w", err)
	}
	p.kube = &kube{WithWatch: http, clientset: clientset, namespace: namespace}
	return p.kube, nil
}

// namespace that was asked for, else the context's, else default.
func (p *program) namespace() (string, error) {
	namespace, _, err := p.flags.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", fmt.Errorf("reading the kubeconfig: %w", err)
	}
	return namespace, nil
}

func (k *kube) key(name string) client.ObjectKey {
	return client.ObjectKey{Namespace: k.namespace, Name: name}
}

// scheduleName of an argument: kubectl's users also write kind/name.
func scheduleName(arg string) string {
	for _, prefix := range []string{"snapshotschedule/", "snapshotschedules/", "snapshotschedule." + v1.GroupVersion.Group + "/"} {
		arg = strings.TrimPrefix(arg, prefix)
	}
	return arg
}

// schedule by name. One that does not exist is an error that names those that do.
func (k *kube) schedule(ctx context.Context, name string) (*v1.SnapshotSchedule, error) {
	name = scheduleName(name)
	var s v1.SnapshotSchedule
	err := k.Get(ctx, k.key(name), &s)
	if isMissing(err) {
		return nil, notFound("SnapshotSchedule", name, k.namespace, k.scheduleNames(ctx))
	}
	if err != nil {
		return nil, fmt.Errorf("reading SnapshotSchedule %s/%s: %w", k.namespace, name, err)
	}
	return &s, nil
}

// isMissing: the object does not exist, and its kind does.
func isMissing(err error) bool {
	var status apierrors.APIStatus
	return apierrors.IsNotFound(err) && errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Name != ""
}

// errNotFound is for those who have something else to try.
var errNotFound = errors.New("not found")

func notFound(kind, name, namespace string, others []string) error {
	hint := "none is there; -n NAMESPACE chooses another namespace, and kubectl stillpoint list -A shows all"
	if len(others) > 0 {
		hint = "there are: " + strings.Join(others, ", ")
	}
	return fmt.Errorf("%s %s does not exist in namespace %s (%s)%w", kind, name, namespace, hint, silent{errNotFound})
}

// silent is an error that can be asked for and says nothing.
type silent struct{ error }

func (silent) Error() string   { return "" }
func (s silent) Unwrap() error { return s.error }

// scheduleNames of the namespace, as far as they can be read.
func (k *kube) scheduleNames(ctx context.Context) []string {
	var list v1.SnapshotScheduleList
	if err := k.List(ctx, &list, client.InNamespace(k.namespace)); err != nil {
		return nil // a hint that cannot be given
	}
	var out []string
	for i := range list.Items {
		out = append(out, list.Items[i].Name)
	}
	return out
}

// runs of a schedule.
func (k *kube) runs(ctx context.Context, schedule string) ([]v1.SnapshotRun, error) {
	var list v1.SnapshotRunList
	if err := k.List(ctx, &list, client.InNamespace(k.namespace)); err != nil {
		return nil, fmt.Errorf("listing SnapshotRuns of namespace %s: %w", k.namespace, err)
	}
	var out []v1.SnapshotRun
	for i := range list.Items {
		if list.Items[i].Spec.ScheduleName == schedule {
			out = append(out, list.Items[i])
		}
	}
	return out, nil
}

// snapshots of a schedule: those that carry its label.
func (k *kube) snapshots(ctx context.Context, schedule string) ([]snapshotv1.VolumeSnapshot, error) {
	var list snapshotv1.VolumeSnapshotList
	if err := k.List(ctx, &list, client.InNamespace(k.namespace), client.MatchingLabels{v1.LabelSchedule: naming.ScheduleLabel(schedule)}); err != nil {
		return nil, fmt.Errorf("listing the VolumeSnapshots of schedule %s/%s: %w", k.namespace, schedule, err)
	}
	return list.Items, nil
}

// claims of the namespace.
func (k *kube) claims(ctx context.Context) ([]corev1.PersistentVolumeClaim, error) {
	var list corev1.PersistentVolumeClaimList
	if err := k.List(ctx, &list, client.InNamespace(k.namespace)); err != nil {
		return nil, fmt.Errorf("listing the PersistentVolumeClaims of namespace %s: %w", k.namespace, err)
	}
	return list.Items, nil
}

// newRun of a schedule, by hand.
func newRun(s *v1.SnapshotSchedule, mode v1.RunMode, infix string) *v1.SnapshotRun {
	return &v1.SnapshotRun{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.Namespace, GenerateName: s.Name + infix,
			Labels: map[string]string{v1.LabelSchedule: naming.ScheduleLabel(s.Name), v1.LabelVeleroExclude: "true"},
			// Not as its controller: what a person started is not one of its slots.
			OwnerReferences: []metav1.OwnerReference{{APIVersion: v1.GroupVersion.String(), Kind: scheduleKind.Kind, Name: s.Name, UID: s.UID}},
		},
		Spec: v1.SnapshotRunSpec{ScheduleName: s.Name, Mode: mode},
	}
}
