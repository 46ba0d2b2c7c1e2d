// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// kubeVersion is what the parts of Kubernetes say they are; it must match build/kube/go.mod.
const kubeVersion = "v1.37.2"

// unit is what is built and cached together.
type unit struct {
	name     string
	module   string // directory under build/ that pins its upstream
	packages []string
	ldflags  string
	sources  string // directory of own sources in the module; "" if there are none
	expect   string // how long a first build takes on two cores
	// manifests are copied into manifests/ of the unit as they are upstream, by name.
	manifests map[string]manifestSource
}

// manifestSource is a file, or all files that a pattern matches, in an upstream module.
type manifestSource struct{ module, pattern string }

const stripped = "-s -w"

func kubeFlags() string {
	minor := strings.Split(kubeVersion, ".")[1]
	f := []string{stripped, "-X k8s.io/client-go/pkg/version.gitVersion=" + kubeVersion}
	for _, kv := range []string{"gitVersion=" + kubeVersion, "gitMajor=1", "gitMinor=" + minor, "gitTreeState=clean"} {
		f = append(f, "-X k8s.io/component-base/version."+kv)
	}
	return strings.Join(f, " ")
}

func units() []unit {
	const (
		snapshotter = "github.com/kubernetes-csi/external-snapshotter/v8"
		crds        = "github.com/kubernetes-csi/external-snapshotter/client/v8"
		provisioner = "github.com/kubernetes-csi/external-provisioner/v6"
		containerd  = "github.com/containerd/containerd/v2/cmd/"
		plugins     = "github.com/containernetworking/plugins/plugins/"
		kube        = "k8s.io/kubernetes/cmd/"
	)
	return []unit{
		{name: "etcd", module: "etcd", packages: []string{"go.etcd.io/etcd/server/v3"}, ldflags: stripped, expect: "1 min"},
		{
			name: "apiserver", module: "kube", packages: []string{kube + "kube-apiserver", kube + "kubectl"},
			ldflags: kubeFlags(), expect: "6 min",
		},
		{
			name: "kube", module: "kube", ldflags: kubeFlags(), expect: "3 min",
			packages: []string{kube + "kube-controller-manager", kube + "kube-scheduler", kube + "kubelet", kube + "kube-proxy"},
		},
		{name: "testcsi", module: "kube", packages: []string{"./cmd/testcsi"}, ldflags: stripped, sources: "cmd/testcsi", expect: "10 s"},
		{
			name: "sidecars", module: "sidecars", ldflags: stripped, expect: "4 min",
			packages: []string{snapshotter + "/cmd/snapshot-controller", snapshotter + "/cmd/csi-snapshotter", provisioner + "/cmd/csi-provisioner"},
			manifests: map[string]manifestSource{
				"10-crd-":                          {crds, "config/crd/*.storage.k8s.io_*.yaml"},
				"20-rbac-snapshot-controller.yaml": {snapshotter, "deploy/kubernetes/snapshot-controller/rbac-snapshot-controller.yaml"},
				"20-rbac-csi-snapshotter.yaml":     {snapshotter, "deploy/kubernetes/csi-snapshotter/rbac-csi-snapshotter.yaml"},
				"20-rbac-csi-provisioner.yaml":     {provisioner, "deploy/kubernetes/rbac.yaml"},
			},
		},
		{
			name: "containerd", module: "containerd", ldflags: stripped, expect: "1 min",
			packages: []string{containerd + "containerd", containerd + "containerd-shim-runc-v2", containerd + "ctr"},
		},
		{
			name: "cni", module: "cni", ldflags: stripped, expect: "10 s",
			packages: []string{plugins + "main/bridge", plugins + "main/loopback", plugins + "ipam/host-local"},
		},
		{name: "pause", module: "pause", packages: []string{"."}, ldflags: stripped, sources: ".", expect: "5 s"},
	}
}

// assetUnits are enough for an API server without nodes.
var assetUnits = []string{"etcd", "apiserver"}

// programs are the names of the files that the unit's packages become.
func (u unit) programs() []string {
	var names []string
	for _, p := range u.packages {
		name := filepath.Base(p)
		switch {
		case p == "go.etcd.io/etcd/server/v3":
			name = "etcd"
		case p == ".":
			name = u.name
		}
		names = append(names, name)
	}
	return names
}

// hash names everything that the unit's result depends on: pins, own sources, command and compiler.
func (u unit) hash(buildDir, goVersion string) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, u.name, goVersion, runtime.GOOS, runtime.GOARCH, u.ldflags, u.packages, u.manifests)
	dir := filepath.Join(buildDir, u.module)
	files := []string{filepath.Join(dir, "go.mod")}
	if sum := filepath.Join(dir, "go.sum"); fileExists(sum) {
		files = append(files, sum)
	}
	if u.sources != "" {
		more, err := filepath.Glob(filepath.Join(dir, u.sources, "*.go"))
		if err != nil {
			return "", err
		}
		slices.Sort(more)
		files = append(files, more...)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			return "", fmt.Errorf("reading what %s is built from: %w", u.name, err)
		}
		fmt.Fprintf(h, "%s %d\n", filepath.Base(f), len(b))
		h.Write(b)
	}
	return hex.EncodeToString(h.Sum(nil))[:12], nil
}

// copyManifests takes the unit's manifests out of the module cache, unchanged.
func (u unit) copyManifests(moduleDir, target string) error {
	if len(u.manifests) == 0 {
		return nil
	}
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	for name, src := range u.manifests {
		out, err := goCommand(moduleDir, "list", "-m", "-f", "{{.Dir}}", src.module).Output()
		if err != nil {
			return fmt.Errorf("finding module %s: %w", src.module, commandError(err))
		}
		pattern := filepath.Join(strings.TrimSpace(string(out)), src.pattern)
		files, err := filepath.Glob(pattern)
		if err != nil {
			return err
		}
		if len(files) == 0 {
			return fmt.Errorf("module %s has no file %s: its layout changed, correct it in unit.go", src.module, src.pattern)
		}
		for _, f := range files {
			to := name
			if strings.HasSuffix(name, "-") {
				to += filepath.Base(f)
			}
			if err := copyFile(f, filepath.Join(target, to), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// goCommand runs the go tool in a module, free of the caller's workspace and flags.
func goCommand(dir string, args ...string) *exec.Cmd {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off", "GOFLAGS=-mod=readonly")
	return cmd
}

// commandError adds what a program said on standard error.
func commandError(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exit.Stderr)))
	}
	return err
}

func fileExists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func copyFile(from, to string, mode fs.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return fmt.Errorf("copying %s: %w", from, err)
	}
	if err := out.Chmod(mode); err != nil { // whatever the umask says
		out.Close()
		return err
	}
	return out.Close()
}
