// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/go-logr/logr"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/yaml"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/test/cluster"
)

const (
	// soon is how long Eventually waits for what the API server does by itself.
	soon = 20 * time.Second

	scheduleKind = "SnapshotSchedule"
	runKind      = "SnapshotRun"
)

var (
	env *envtest.Environment
	api client.Client
)

// Env returns a connection to the control plane, as cluster administrator.
func Env() *rest.Config {
	return rest.CopyConfig(env.Config)
}

// Client returns a client of the control plane. It knows Kubernetes' own kinds, CRDs and this project's, and
// refuses fields that the API server does not know.
func Client() client.Client {
	return api
}

// Namespace returns a new namespace. When the test ends, its schedules and runs are removed.
func Namespace(t testing.TB) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	if err := api.Create(t.Context(), ns); err != nil {
		t.Fatalf("creating a namespace: %v", err)
	}
	t.Cleanup(func() {
		for _, kind := range []client.Object{&v1.SnapshotSchedule{}, &v1.SnapshotRun{}} {
			if err := api.DeleteAllOf(context.Background(), kind, client.InNamespace(ns.Name)); err != nil {
				t.Errorf("emptying namespace %s: %v", ns.Name, err)
			}
		}
	})
	return ns.Name
}

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	if err := start(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "starting the control plane:", err)
		stop()
		os.Exit(1)
	}
	code := m.Run()
	if wrong, err := unusedRights(); code == 0 && (err != nil || len(wrong) > 0) {
		fmt.Fprintf(os.Stderr, "FAIL: config/rbac/role.yaml: %s %v\n", strings.Join(wrong, "\n"), err)
		code = 1
	}
	if !stop() && code == 0 {
		code = 1
	}
	os.Exit(code)
}

func start(ctx context.Context) error {
	assets, err := cluster.Assets(ctx, cluster.Options{Out: os.Stderr})
	if err != nil {
		return err
	}
	known := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensionsv1.AddToScheme, snapshotv1.AddToScheme, groupv1.AddToScheme, v1.AddToScheme} {
		if err := add(known); err != nil {
			return err
		}
	}
	snapshotCRDs, err := snapshotDefinitions(ctx)
	if err != nil {
		return err
	}
	own := false // never a cluster that somebody uses
	env = &envtest.Environment{
		Scheme:                   known,
		UseExistingCluster:       &own,
		BinaryAssetsDirectory:    assets,
		CRDDirectoryPaths:        append([]string{filepath.Join("..", "..", "config", "crd")}, snapshotCRDs...),
		ErrorIfCRDPathMissing:    true,
		ControlPlaneStartTimeout: 2 * time.Minute,
		ControlPlaneStopTimeout:  time.Minute,
	}
	config, err := env.Start()
	if err != nil {
		return err
	}
	plain, err := client.New(config, client.Options{Scheme: known})
	if err != nil {
		return err
	}
	api = client.WithFieldValidation(plain, metav1.FieldValidationStrict)
	return grantOperator(ctx)
}

// snapshotDefinitions are the files of the CRDs of VolumeSnapshots, as the module that brings their types publishes them.
func snapshotDefinitions(ctx context.Context) ([]string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/kubernetes-csi/external-snapshotter/client/v8").Output()
	if err != nil {
		return nil, fmt.Errorf("finding the CRDs of VolumeSnapshots: %w", err)
	}
	return filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "config", "crd", "*snapshot.storage.k8s.io_*.yaml"))
}

func stop() bool {
	if env == nil {
		return true
	}
	if err := env.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, "stopping the control plane:", err)
		return false
	}
	return true
}

// object reads YAML, gives it a kind of this project and a name that nobody has, and puts it into the namespace.
func object(t testing.TB, kind, namespace, text string) *unstructured.Unstructured {
	t.Helper()
	fields := map[string]any{}
	if err := yaml.UnmarshalStrict([]byte(text), &fields); err != nil {
		t.Fatalf("the test's own YAML: %v\n%s", err, text)
	}
	o := &unstructured.Unstructured{Object: fields}
	o.SetGroupVersionKind(v1.GroupVersion.WithKind(kind))
	o.SetNamespace(namespace)
	if o.GetName() == "" {
		o.SetGenerateName("case-")
	}
	return o
}

// fetch reads an object anew.
func fetch(t testing.TB, o client.Object) *unstructured.Unstructured {
	t.Helper()
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(o.GetObjectKind().GroupVersionKind())
	if err := api.Get(t.Context(), client.ObjectKeyFromObject(o), found); err != nil {
		t.Fatalf("reading %s: %v", o.GetName(), err)
	}
	return found
}

// merge applies a JSON merge patch to an object that was read.
func merge(o *unstructured.Unstructured, patch string) error {
	before, err := o.MarshalJSON()
	if err != nil {
		return err
	}
	after, err := jsonpatch.MergePatch(before, []byte(patch))
	if err != nil {
		return err
	}
	return o.UnmarshalJSON(after)
}

// free takes the finalizers off an object, as nobody else does it here.
func free(t testing.TB, o client.Object) {
	t.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))
	if err := client.IgnoreNotFound(api.Patch(context.Background(), o, patch)); err != nil {
		t.Errorf("freeing %s: %v", o.GetName(), err)
	}
}

// asFields returns a value as the API server sees it.
func asFields(t testing.TB, value any) map[string]any {
	t.Helper()
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(value)
	if err != nil {
		t.Fatal(err)
	}
	return fields
}
