// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/test/cluster"
)

const (
	// release has a name of its own, and so have the cluster-wide roles of it.
	release       = "charted"
	operatorImage = "stillpoint.test/operator:e2e"
	// previousChart is the chart as of the release before this one.
	previousChart = "testdata/stillpoint-0.1.0.tgz"
)

// project runs a command in the project's root.
func project(ctx context.Context, name string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, name, args...)
	c.Dir = "../.."
	c.Env = append(os.Environ(), "KUBECONFIG="+local.Kubeconfig(), "STORAGE_DRIVER=vfs")
	out, err := c.CombinedOutput()
	return string(out), err
}

// loadOperatorImage builds the image as make image does, and gives it to the node.
func loadOperatorImage(t *testing.T) {
	t.Helper()
	must := func(name string, args ...string) {
		t.Helper()
		if out, err := project(t.Context(), name, args...); err != nil {
			t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
		}
	}
	if _, err := exec.LookPath("buildah"); err != nil {
		if err := cluster.InstallPackages(t.Context(), os.Stderr, "buildah"); err != nil {
			t.Fatal(err)
		}
	}
	// The builder makes a directory that the local cluster takes for its own.
	if _, err := os.Stat("/etc/cni"); os.IsNotExist(err) {
		t.Cleanup(func() {
			if err := os.RemoveAll("/etc/cni"); err != nil {
				t.Errorf("removing what the image's builder left: %v", err)
			}
		})
	}
	archive := filepath.Join(t.TempDir(), "image.tar")
	must("make", "image", "IMAGE="+operatorImage, "BUILDER=buildah")
	t.Cleanup(func() {
		if out, err := project(context.Background(), "buildah", "rmi", "--all", "--force"); err != nil {
			t.Errorf("removing the image: %v\n%s", err, out)
		}
	})
	must("buildah", "push", operatorImage, "docker-archive:"+archive+":"+operatorImage)
	if err := local.LoadImage(t.Context(), archive); err != nil {
		t.Fatal(err)
	}
}

// The operator as a pod of its own image, from the chart: upgraded from the version before, tested, used, and uninstalled.
func TestTheChart(t *testing.T) {
	stopShared()
	loadOperatorImage(t)
	w := settle(t)
	helm := func(args ...string) string {
		t.Helper()
		out, err := project(t.Context(), "go", append([]string{"tool", "-modfile=hack/tools/helm/go.mod", "helm"}, args...)...)
		if err != nil {
			t.Fatalf("helm %s: %v\n%s\n%s", strings.Join(args, " "), err, out, w.podLogs())
		}
		return out
	}
	uninstalled := false
	t.Cleanup(func() {
		if !uninstalled {
			_, _ = project(context.Background(), "go", "tool", "-modfile=hack/tools/helm/go.mod", "helm", "uninstall", release, "--namespace", w.ns, "--wait")
		}
		// What other tests stand on.
		if out, err := project(context.Background(), local.Bin("kubectl"), "apply", "--server-side", "--force-conflicts", "-f", "config/crd"); err != nil {
			t.Errorf("restoring the CRDs: %v\n%s", err, out)
		}
	})
	// The CRDs are those of the other tests; the release takes them over, as it does snapscheduler's.
	settings := []string{"--namespace", w.ns, "--set", "image.image=" + operatorImage, "--set", "image.pullPolicy=Never", "--wait", "--timeout", "2m", "--take-ownership", "--force-conflicts"}

	helm(append([]string{"install", release, "test/e2e/" + previousChart}, settings...)...)
	db := w.app("db")
	s := w.schedule("hourly", freezing(db))
	w.ends(w.start(s), v1.ResultSucceeded)

	helm(append([]string{"upgrade", release, "helm/stillpoint"}, settings...)...)
	t.Log(helm("test", release, "--namespace", w.ns, "--logs"))
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: release + "-stillpoint"}}
	w.Expect(api.Get(t.Context(), keyOf(d), d)).To(Succeed())
	w.Expect(d.Status.ReadyReplicas).To(BeEquivalentTo(1))
	w.Expect(d.Spec.Template.Spec.Containers[0].Image).To(Equal(operatorImage))
	o := w.ends(w.startLater(s), v1.ResultSucceeded)
	w.expectLabels(o, map[string]string{"db": application})
	db.expectFree()
	if out, err := project(t.Context(), local.Bin("kubectl"), "--namespace", w.ns, "exec", "deploy/"+release+"-stillpoint", "--", "/bin/sh", "-c", "true"); err == nil {
		t.Errorf("there is a shell in the image: %s", out)
	}
	out, err := project(t.Context(), local.Bin("kubectl"), "--namespace", w.ns, "exec", "deploy/"+release+"-stillpoint", "--", "/stillpoint", "--version")
	w.Expect(err).NotTo(HaveOccurred(), out)
	w.Expect(out).To(MatchRegexp(`^stillpoint \S+ \(commit [0-9a-f]+, \d{4}-\d\d-\d\dT`))

	before := &v1.SnapshotSchedule{}
	w.Expect(api.Get(t.Context(), keyOf(s), before)).To(Succeed())
	helm("uninstall", release, "--namespace", w.ns, "--wait")
	uninstalled = true
	after := &v1.SnapshotSchedule{}
	w.Expect(api.Get(t.Context(), keyOf(s), after)).To(Succeed(), "uninstalling deletes no schedule")
	w.Expect(after.UID).To(Equal(before.UID))
	w.Expect(w.snapshotNames()).To(HaveLen(2))
}

// startLater starts a run in the next minute: runs of one minute share their snapshots' names.
func (w *world) startLater(s *v1.SnapshotSchedule) *v1.SnapshotRun {
	w.Helper()
	now := time.Now()
	<-time.After(now.Truncate(time.Minute).Add(time.Minute).Sub(now))
	return w.start(s)
}

// podLogs are the logs of all pods of the namespace, for a failure.
func (w *world) podLogs() string {
	var list corev1.PodList
	if err := api.List(context.Background(), &list, client.InNamespace(w.ns)); err != nil {
		return err.Error()
	}
	var b strings.Builder
	for i := range list.Items {
		text, err := pods.CoreV1().Pods(w.ns).GetLogs(list.Items[i].Name, &corev1.PodLogOptions{}).DoRaw(context.Background())
		b.WriteString(list.Items[i].Name + ": " + string(text) + "\n" + describe(&list.Items[i]))
		if err != nil {
			b.WriteString(err.Error() + "\n")
		}
	}
	return b.String()
}
