// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/test/cluster"
)

const (
	// systemNamespace, operatorName and driver are those of the shipped manifests, and of nothing real.
	systemNamespace = "stillpoint-system"
	operatorName    = "system:serviceaccount:" + systemNamespace + ":stillpoint"
	driver          = "bench.csi.stillpoint.test"
	className       = "bench"

	// setupWriters is how many requests the harness has in flight while it makes or removes objects.
	setupWriters = 32
)

// world is a control plane, and what the harness plays around it.
type world struct {
	env    *envtest.Environment
	scheme *runtime.Scheme
	root   string           // of the repository
	dir    string           // of files that live as long as this program
	admin  client.WithWatch // for all that is not measured
	// user is what the operator and the baselines connect as: the ServiceAccount that config/ binds the operator's role to. An administrator would
	// pass by the API server's priority and fairness.
	user *rest.Config

	options options
	node    *node
	storage *storage
}

func start(ctx context.Context, o options) (*world, error) {
	w := &world{root: o.root, options: o, scheme: runtime.NewScheme()}
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, snapshotv1.AddToScheme, v1.AddToScheme} {
		if err := add(w.scheme); err != nil {
			return nil, err
		}
	}
	assets, err := cluster.Assets(ctx, cluster.Options{Out: os.Stderr})
	if err != nil {
		return nil, err
	}
	crds, err := snapshotDefinitions(ctx)
	if err != nil {
		return nil, err
	}
	if w.dir, err = os.MkdirTemp("", "bench"); err != nil {
		return nil, err
	}
	w.node = startNode()
	own := false // never a cluster that somebody uses
	w.env = &envtest.Environment{
		Scheme: w.scheme, UseExistingCluster: &own, BinaryAssetsDirectory: assets,
		CRDDirectoryPaths: append([]string{filepath.Join(o.root, "config", "crd")}, crds...), ErrorIfCRDPathMissing: true,
		ControlPlaneStartTimeout: 2 * time.Minute, ControlPlaneStopTimeout: time.Minute,
	}
	w.env.ControlPlane.GetAPIServer().Configure().Append("kubelet-preferred-address-types", "InternalIP")
	if err := w.begin(ctx); err != nil {
		return nil, errors.Join(err, w.stop())
	}
	return w, nil
}

func (w *world) begin(ctx context.Context) error {
	config, err := w.env.Start()
	if err != nil {
		return fmt.Errorf("starting the control plane: %w", err)
	}
	config.QPS = -1
	if w.admin, err = client.NewWithWatch(config, client.Options{Scheme: w.scheme}); err != nil {
		return err
	}
	user, err := w.env.AddUser(envtest.User{Name: operatorName, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + systemNamespace}}, nil)
	if err != nil {
		return err
	}
	w.user = user.Config()
	w.user.QPS = -1
	if err := w.install(ctx); err != nil {
		return fmt.Errorf("installing the operator's rights and a snapshot class: %w", err)
	}
	w.storage, err = startStorage(ctx, config, w.scheme)
	return err
}

// install what an operator finds: its rights as they ship, a storage class, a snapshot class and a node.
func (w *world) install(ctx context.Context) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: systemNamespace}}
	if err := w.admin.Create(ctx, ns); err != nil {
		return err
	}
	for _, name := range []string{"role", "role_binding", "leader_election_role", "leader_election_role_binding"} {
		text, err := os.ReadFile(filepath.Join(w.root, "config", "rbac", name+".yaml"))
		if err != nil {
			return err
		}
		var meta metav1.TypeMeta
		if err := yaml.Unmarshal(text, &meta); err != nil {
			return err
		}
		o, err := w.scheme.New(meta.GroupVersionKind())
		if err != nil {
			return err
		}
		if err := yaml.UnmarshalStrict(text, o); err != nil {
			return err
		}
		if err := w.admin.Create(ctx, o.(client.Object)); err != nil {
			return err
		}
	}
	return errors.Join(
		w.admin.Create(ctx, &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: className}, Provisioner: driver}),
		w.admin.Create(ctx, &snapshotv1.VolumeSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: className, Annotations: map[string]string{
			"snapshot.storage.kubernetes.io/is-default-class": "true"}}, Driver: driver, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete}),
		w.node.register(ctx, w.admin),
	)
}

// trust the operator's user with everything: what another program needs, its own manifests say.
func (w *world) trust(ctx context.Context) error {
	return w.admin.Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "bench"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: operatorName}}})
}

func (w *world) stop() error {
	var err error
	if w.storage != nil {
		w.storage.stop()
	}
	if w.env != nil {
		err = w.env.Stop()
	}
	if w.node != nil {
		w.node.stop()
	}
	return errors.Join(err, os.RemoveAll(w.dir))
}

// snapshotDefinitions are the files of the CRDs of VolumeSnapshots, as the module that brings their types publishes them.
func snapshotDefinitions(ctx context.Context) ([]string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/kubernetes-csi/external-snapshotter/client/v8").Output()
	if err != nil {
		return nil, fmt.Errorf("finding the CRDs of VolumeSnapshots: %w", err)
	}
	return filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "config", "crd", "snapshot.storage.k8s.io_*.yaml"))
}

// connect is a client of the operator's user with a connection of its own, as a bare program would have.
func (w *world) connect() (client.WithWatch, error) {
	return client.NewWithWatch(rest.CopyConfig(w.user), client.Options{Scheme: w.scheme})
}
