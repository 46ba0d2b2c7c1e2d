// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/test/cluster"
)

// world is what one test owns: a namespace and everything in it.
type world struct {
	*testing.T
	*WithT
	ns string
}

// begin a test that the shared operator serves.
func begin(t *testing.T) *world {
	t.Helper()
	useShared(t)
	o, w := shared, settle(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of the operator about namespace %s:\n%s", w.ns, o.log.about(w.ns))
		}
	})
	return w
}

// settle makes the namespace of a test. When it ends, everything is thawed, so that its pods can end, and deleted.
func settle(t *testing.T) *world {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "e2e-"}}
	if err := api.Create(t.Context(), ns); err != nil {
		t.Fatalf("creating a namespace: %v", err)
	}
	t.Cleanup(func() {
		ctx := context.Background()
		if err := local.ResetKnobs(); err != nil {
			t.Errorf("resetting the driver's knobs: %v", err)
		}
		// Without an operator nobody would take the finalizers away.
		releaseRuns(ctx, t, ns.Name)
		thawAll()
		if err := api.Delete(ctx, ns); err != nil {
			t.Errorf("deleting namespace %s: %v", ns.Name, err)
		}
	})
	return &world{T: t, WithT: NewWithT(t), ns: ns.Name}
}

// within is the same world as seen by a subtest.
func (w *world) within(t *testing.T) *world { return &world{T: t, WithT: NewWithT(t), ns: w.ns} }

// releaseRuns deletes what a test left: first schedules, so that no run is added.
func releaseRuns(ctx context.Context, t testing.TB, ns string) {
	for _, kind := range []client.Object{&v1.SnapshotSchedule{}, &v1.SnapshotRun{}} {
		if err := api.DeleteAllOf(ctx, kind, client.InNamespace(ns)); err != nil {
			t.Errorf("emptying namespace %s: %v", ns, err)
		}
	}
	var runs v1.SnapshotRunList
	if err := api.List(ctx, &runs, client.InNamespace(ns)); err != nil {
		t.Errorf("listing runs: %v", err)
	}
	for i := range runs.Items {
		o := &runs.Items[i]
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`))
		if err := client.IgnoreNotFound(api.Patch(ctx, o, patch)); err != nil {
			t.Errorf("taking the finalizer of %s: %v", o.Name, err)
		}
	}
}

// thawAll thaws every volume of the cluster from outside: a process that waits on a frozen file system cannot be killed.
func thawAll() {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(mounts)) {
		f := strings.Fields(line)
		if strings.HasPrefix(f[0], "/dev/loop") && strings.HasPrefix(f[1], local.StateDir()) && strings.HasSuffix(f[1], "globalmount") {
			_ = exec.Command("fsfreeze", "--unfreeze", f[1]).Run() // fails for all that are not frozen
		}
	}
}

func (w *world) knobs(k cluster.Knobs) {
	w.Helper()
	if err := local.SetKnobs(k); err != nil {
		w.Fatalf("setting the driver's knobs: %v", err)
	}
}

func (w *world) create(o client.Object) {
	w.Helper()
	o.SetNamespace(w.ns)
	if err := api.Create(w.Context(), o); err != nil {
		w.Fatalf("creating %T %s: %v", o, o.GetName(), err)
	}
}

// change writes an object again, changed, however often others write it meanwhile.
func change[T client.Object](w *world, o T, edit func(T)) {
	w.Helper()
	w.Eventually(func() error {
		if err := api.Get(w.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		edit(o)
		return api.Update(w.Context(), o)
	}, patience, "50ms").Should(Succeed())
}

func (w *world) remove(o client.Object, options ...client.DeleteOption) {
	w.Helper()
	if err := api.Delete(w.Context(), o, options...); err != nil {
		w.Fatalf("deleting %T %s: %v", o, o.GetName(), err)
	}
}

// apply creates what a manifest holds, in the test's namespace.
func (w *world) apply(path string) {
	w.Helper()
	err := command(w.Context(), local.Bin("kubectl"), "--kubeconfig", local.Kubeconfig(), "--namespace", w.ns, "apply", "-f", path)
	if err != nil {
		w.Fatal(err)
	}
}

func keyOf(o client.Object) client.ObjectKey { return client.ObjectKeyFromObject(o) }

// describe an object as it is now, with its events.
func describe(o client.Object) string {
	ctx := context.Background()
	var b strings.Builder
	if err := api.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
		fmt.Fprintf(&b, "%T %s: %v; last seen:\n", o, o.GetName(), err)
	}
	o.SetManagedFields(nil)
	text, err := yaml.Marshal(o)
	if err != nil {
		return err.Error()
	}
	b.Write(text)
	for _, e := range eventsOf(ctx, o) {
		fmt.Fprintf(&b, "event %s %s: %s\n", e.Type, e.Reason, e.Note)
	}
	return b.String()
}

func eventsOf(ctx context.Context, o client.Object) []eventsv1.Event {
	var list eventsv1.EventList
	if err := api.List(ctx, &list, client.InNamespace(o.GetNamespace())); err != nil {
		return nil
	}
	var out []eventsv1.Event
	for _, e := range list.Items {
		if e.Regarding.Name == o.GetName() && (o.GetUID() == "" || e.Regarding.UID == o.GetUID()) {
			out = append(out, e)
		}
	}
	return out
}

// forceDelete a pod that would take its time.
func (w *world) forceDelete(p client.Object) {
	if err := client.IgnoreNotFound(api.Delete(context.Background(), p, client.GracePeriodSeconds(0))); err != nil {
		w.Errorf("deleting %s: %v", p.GetName(), err)
	}
}
