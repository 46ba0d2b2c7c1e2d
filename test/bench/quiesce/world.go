// SPDX-License-Identifier: Apache-2.0

package quiesce

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/test/cluster"
)

const (
	systemNamespace = "stillpoint-system" // as in config/
	scheduleName    = "measured"
	// never: runs are started by hand.
	never = "0 0 29 2 *"
)

// world is the local cluster with an operator.
type world struct {
	options  Options
	local    *cluster.Cluster
	api      client.WithWatch
	operator *process
}

// attach starts a cluster and an operator. If it fails, what it returns is still to be left.
func attach(ctx context.Context, o Options) (*world, error) {
	if c, err := cluster.Attach(""); err == nil {
		return nil, fmt.Errorf("a local cluster is in %s already, and its sidecars would be restarted: stop it with make cluster-down", c.StateDir())
	}
	w := &world{options: o}
	for _, name := range []string{"NO_PROXY", "no_proxy"} { // see Cluster.Kubeconfig
		if err := os.Setenv(name, strings.Trim(os.Getenv(name)+",198.18.0.0/15", ",")); err != nil {
			return w, err
		}
	}
	if err := w.sidecars(ctx, o.SidecarQPS[0]); err != nil {
		return w, err
	}
	config, err := clientcmd.BuildConfigFromFlags("", w.local.Kubeconfig())
	if err != nil {
		return w, err
	}
	config.QPS = -1
	known := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(known), snapshotv1.AddToScheme(known), v1.AddToScheme(known)); err != nil {
		return w, err
	}
	if w.api, err = client.NewWithWatch(config, client.Options{Scheme: known}); err != nil {
		return w, err
	}
	crds, rbac := filepath.Join(o.Root, "config", "crd"), filepath.Join(o.Root, "config", "rbac")
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: systemNamespace}}
	for _, step := range []func() error{
		func() error { return w.kubectl(ctx, "apply", "--server-side", "-f", crds) },
		func() error {
			return w.kubectl(ctx, "wait", "--for=condition=Established", "-f", crds, "--timeout=30s")
		},
		func() error { return w.api.Create(ctx, namespace) },
		func() error { return w.kubectl(ctx, "apply", "--server-side", "-k", rbac) },
	} {
		if err := step(); err != nil {
			return w, err
		}
	}
	w.operator, err = w.startOperator()
	return w, err
}

func (w *world) leave(ctx context.Context) error {
	var err error
	if w.operator != nil {
		w.operator.end()
	}
	if w.local != nil {
		err = w.local.Down(context.WithoutCancel(ctx), false)
	}
	return err
}

func (w *world) kubectl(ctx context.Context, args ...string) error {
	out, err := exec.CommandContext(ctx, w.local.Bin("kubectl"), append([]string{"--kubeconfig", w.local.Kubeconfig()}, args...)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// process is the operator's, and what it says.
type process struct {
	cmd *exec.Cmd
	out bytes.Buffer // read after the process has ended, or when the measurement has failed anyway
}

// startOperator starts it as the user to whom config/rbac gives its rights, with the flags that it ships with.
func (w *world) startOperator() (*process, error) {
	account := "system:serviceaccount:" + systemNamespace
	kubeconfig, err := w.local.CreateUserKubeconfig(account+":stillpoint", "system:serviceaccounts", "system:serviceaccounts:"+systemNamespace)
	if err != nil {
		return nil, fmt.Errorf("making the operator's kubeconfig: %w", err)
	}
	p := &process{cmd: exec.Command(w.options.Operator, "--leader-election-namespace="+systemNamespace,
		"--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0")}
	p.cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the operator: %w", err)
	}
	return p, nil
}

func (p *process) end() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // it was killed
}

// said is the end of the operator's log. The process is ended by it.
func (p *process) said() string {
	p.end()
	text := p.out.String()
	return text[max(0, len(text)-2000):]
}

// application is a pod with claims and a schedule of its own.
type application struct {
	*world
	namespace string
	claims    []string
}

// application with so many claims, bound, and a pod that runs.
func (w *world) application(ctx context.Context, claims int) (*application, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "quiesce-"}}
	if err := w.api.Create(ctx, ns); err != nil {
		return nil, err
	}
	a := &application{world: w, namespace: ns.Name}
	labels := map[string]string{"app": "db"}
	for i := range claims {
		a.claims = append(a.claims, fmt.Sprintf("data-%02d", i))
		err := w.api.Create(ctx, &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: a.claims[i], Labels: labels},
			Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("64Mi")}}}})
		if err != nil {
			return nil, err
		}
	}
	err := w.api.Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "db", Labels: labels}, Spec: corev1.PodSpec{
		TerminationGracePeriodSeconds: ptr.To[int64](0),
		Containers: []corev1.Container{{Name: "db", Image: cluster.ToolsImage, ImagePullPolicy: corev1.PullNever,
			Command: []string{"sleep", "1000000"}}},
	}})
	if err != nil {
		return nil, err
	}
	hook := v1.Hook{PodSelector: &metav1.LabelSelector{MatchLabels: labels}, Command: []string{"true"}}
	s := &v1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: scheduleName}}
	s.Spec.Schedule, s.Spec.ClaimSelector.MatchLabels = never, labels
	s.Spec.PreHooks, s.Spec.PostHooks = []v1.PreHook{{Hook: hook}}, []v1.PostHook{{Hook: hook}}
	if err := w.api.Create(ctx, s); err != nil {
		return nil, err
	}
	return a, a.settled(ctx)
}

// settled: every claim is bound and the pod is ready.
func (a *application) settled(ctx context.Context) error {
	pods, err := a.api.Watch(ctx, &corev1.PodList{}, client.InNamespace(a.namespace))
	if err != nil {
		return err
	}
	defer pods.Stop()
	err = follow(pods, func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	if err != nil {
		return fmt.Errorf("waiting for the pod: %w", err)
	}
	claims, err := a.api.Watch(ctx, &corev1.PersistentVolumeClaimList{}, client.InNamespace(a.namespace))
	if err != nil {
		return err
	}
	defer claims.Stop()
	bound := map[string]bool{}
	err = follow(claims, func(c *corev1.PersistentVolumeClaim) bool {
		bound[c.Name] = c.Status.Phase == corev1.ClaimBound
		return count(bound) == len(a.claims)
	})
	if err != nil {
		return fmt.Errorf("waiting for %d claims to be bound: %w", len(a.claims), err)
	}
	return nil
}

// remove all of it, and return when nothing is left that would keep the cluster busy.
func (a *application) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 3*patience)
	defer cancel()
	for {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: a.namespace}}
		contents := &snapshotv1.VolumeSnapshotContentList{}
		err := client.IgnoreNotFound(a.api.Delete(ctx, ns))
		gone := a.api.Get(ctx, client.ObjectKeyFromObject(ns), ns)
		if err == nil {
			err = a.api.List(ctx, contents)
		}
		if err != nil && ctx.Err() != nil {
			return fmt.Errorf("removing namespace %s: %w", a.namespace, err)
		}
		if client.IgnoreNotFound(gone) == nil && gone != nil && len(contents.Items) == 0 {
			return nil
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return fmt.Errorf("removing namespace %s: %w", a.namespace, ctx.Err())
		}
	}
}
