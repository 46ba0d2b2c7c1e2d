// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/test/cluster"
)

// What all tests share, set by TestMain.
var (
	local  *cluster.Cluster
	config *rest.Config
	scheme = runtime.NewScheme()
	api    client.WithWatch
	pods   kubernetes.Interface
	binary string
	// operatorKubeconfig is for the user that config/rbac binds the operator's role to.
	operatorKubeconfig string
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "stillpoint-e2e-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	down, err := attach(ctx)
	defer func() {
		if err := down(); err != nil {
			fmt.Fprintln(os.Stderr, "stopping the cluster:", err)
			code = 1
		}
	}()
	if err == nil {
		err = prepare(ctx, dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "preparing the tests:", err)
		return 1
	}
	defer stopShared()
	return m.Run()
}

// attach to the cluster that runs, or start one; down takes away what attach started. One that runs in part is completed and left running.
func attach(ctx context.Context) (down func() error, err error) {
	down = func() error { return nil }
	running, total := 0, 1
	if local, err = cluster.Attach(""); err == nil {
		running, total = parts()
	}
	if running == total {
		return down, nil
	}
	local, err = cluster.Up(ctx, cluster.Options{Out: os.Stderr})
	if running > 0 {
		return down, err
	}
	return func() error {
		if local == nil {
			return nil
		}
		return local.Down(ctx, false)
	}, err
}

// parts of the cluster that run, and all.
func parts() (running, total int) {
	all, err := local.Status()
	if err != nil {
		return 0, 1
	}
	for _, c := range all {
		if c.PID != 0 && !c.Paused {
			running++
		}
	}
	return running, len(all)
}

func prepare(ctx context.Context, dir string) error {
	for _, name := range []string{"NO_PROXY", "no_proxy"} {
		if err := os.Setenv(name, strings.Trim(os.Getenv(name)+",198.18.0.0/15", ",")); err != nil {
			return err
		}
	}
	var err error
	if config, err = clientcmd.BuildConfigFromFlags("", local.Kubeconfig()); err != nil {
		return err
	}
	config.QPS = -1
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), snapshotv1.AddToScheme(scheme), groupv1.AddToScheme(scheme), v1.AddToScheme(scheme)); err != nil {
		return err
	}
	if api, err = client.NewWithWatch(config, client.Options{Scheme: scheme}); err != nil {
		return err
	}
	if pods, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	binary = filepath.Join(dir, "stillpoint")
	if err := command(ctx, "go", "build", "-o", binary, "../.."); err != nil {
		return err
	}
	if operatorKubeconfig, err = accountKubeconfig(operatorNamespace, "stillpoint"); err != nil {
		return err
	}
	kubectl := func(args ...string) error {
		return command(ctx, local.Bin("kubectl"), append([]string{"--kubeconfig", local.Kubeconfig()}, args...)...)
	}
	return errors.Join(
		kubectl("apply", "--server-side", "--force-conflicts", "-f", "../../config/crd"),
		kubectl("wait", "--for=condition=Established", "-f", "../../config/crd", "--timeout=30s"),
		local.ResetKnobs(),
		makeOperatorNamespace(ctx),
		kubectl("apply", "--server-side", "--force-conflicts", "-k", "../../config/rbac"),
	)
}

// accountKubeconfig makes one for a user whom the API server cannot tell from a ServiceAccount.
func accountKubeconfig(namespace, name string) (string, error) {
	return local.CreateUserKubeconfig("system:serviceaccount:"+namespace+":"+name, "system:serviceaccounts", "system:serviceaccounts:"+namespace)
}

func command(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s %s: %w\n%s", filepath.Base(name), strings.Join(args, " "), err, out)
	}
	return nil
}
