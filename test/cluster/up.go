// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

//go:embed manifests/*.yaml
var ownManifests embed.FS

// Up makes the cluster run as o says, whatever state it is in. It builds the programs if they are not in the cache,
// which takes about 15 minutes on two cores; afterwards a start takes seconds, and none at all if everything runs.
//
// If it fails or ctx ends, what was started keeps running: call Up again to go on, or Down to clean up.
func Up(ctx context.Context, o Options) (*Cluster, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, err
	}
	if runtime.GOOS != "linux" {
		return nil, fmt.Errorf("the cluster needs Linux, and this is %s", runtime.GOOS)
	}
	if os.Geteuid() != 0 {
		return nil, errors.New("the cluster needs root (namespaces, mounts, containers): run it with sudo -E env PATH=\"$PATH\"")
	}
	if err := EnsurePrograms(ctx, o.Out); err != nil {
		return nil, err
	}
	bins, err := build(ctx, o.CacheDir, o.Out, nil)
	if err != nil {
		return nil, err
	}
	unlock, err := lock(ctx, lockFile, o.Out, "another up or down")
	if err != nil {
		return nil, err
	}
	defer unlock()
	c := &Cluster{opts: o, bins: bins}
	u := &upRun{Cluster: c, begin: time.Now()}
	if err := u.run(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

// upRun is one call of Up. The lock is held.
type upRun struct {
	*Cluster
	begin   time.Time
	started []string // components that this call started
}

func (u *upRun) say(format string, args ...any) {
	fmt.Fprintf(u.opts.Out, "%6.1fs  %s\n", time.Since(u.begin).Seconds(), fmt.Sprintf(format, args...))
}

func (u *upRun) run(ctx context.Context) error {
	if err := u.clearRemains(ctx); err != nil {
		return err
	}
	if !fileExists(u.path("etcd")) {
		if err := checkSpace(u.opts.StateDir, freeForRunning, "the state of the cluster"); err != nil {
			return err
		}
	}
	fresh := !fileExists(u.path("options.json"))
	if err := u.prepare(ctx); err != nil {
		return err
	}
	if fresh {
		u.say("keys, network and the volumes' file system are there")
	}
	if err := u.startAll(ctx); err != nil {
		return err
	}
	if len(u.started) == 0 {
		u.say("everything runs already")
	} else {
		u.say("up")
	}
	return nil
}

// clearRemains cleans up after a cluster that is dead: one whose namespace is gone, or one with another state directory.
func (u *upRun) clearRemains(ctx context.Context) error {
	r, err := readMachineRecord()
	if err != nil {
		return err
	}
	alive := false
	for _, name := range ComponentNames() {
		_, ok, err := u.processOf(name)
		if err != nil {
			return err
		}
		alive = alive || ok
	}
	if r == nil && !alive { // a new machine, or a boot since
		if !fileExists(u.path("run")) {
			return nil
		}
		u.say("cleaning up after an earlier cluster; its data stays")
		return u.teardown(ctx)
	}
	if r != nil && r.StateDir != u.opts.StateDir {
		other := &Cluster{opts: u.opts}
		other.opts.StateDir = r.StateDir
		for _, name := range ComponentNames() {
			if _, ok, _ := other.processOf(name); ok {
				return fmt.Errorf("a cluster with the state directory %s runs on this machine, and there can be only one: stop it with localcluster down --state %s",
					r.StateDir, r.StateDir)
			}
		}
		u.say("cleaning up after an earlier cluster in %s; its data stays", r.StateDir)
		return other.teardown(ctx)
	}
	if r != nil && (r.Netns != 0 && r.Netns != netnsInode() || !alive) {
		u.say("cleaning up after an earlier cluster; its data stays")
		return u.teardown(ctx)
	}
	return nil
}

// prepare writes the files that components read, and makes network, control groups and the volumes' file system.
func (u *upRun) prepare(ctx context.Context) error {
	for _, dir := range []string{"log", "run", "csi", "pool", "bin", "images", "containerd"} {
		if err := os.MkdirAll(u.path(dir), 0o755); err != nil {
			return err
		}
	}
	if err := writeJSON(u.path("options.json"), u.opts); err != nil {
		return err
	}
	if err := writeJSON(u.path("units.json"), u.bins); err != nil {
		return err
	}
	for _, unit := range units() {
		if err := linkPrograms(u.BinDir(), u.bins[unit.name], unit.programs()); err != nil {
			return err
		}
	}
	if err := writePKI(u.path("pki"), ServerURL, time.Now()); err != nil {
		return fmt.Errorf("making keys and certificates: %w", err)
	}
	if err := rememberMachine(u.opts.StateDir); err != nil {
		return fmt.Errorf("remembering the machine's settings: %w", err)
	}
	if err := ensureNetwork(ctx); err != nil {
		return err
	}
	if err := rememberNetns(); err != nil {
		return err
	}
	if err := ensureCgroups(); err != nil {
		return err
	}
	if err := u.writeNodeConfig(); err != nil {
		return err
	}
	return u.ensurePool(ctx)
}

// ensurePool makes and mounts the file system that holds the volumes.
func (u *upRun) ensurePool(ctx context.Context) error {
	pool, image := u.path("pool"), u.path("pool.img")
	if quiet(ctx, "mountpoint", "-q", pool) == nil {
		return nil
	}
	if !fileExists(image) {
		tmp := image + ".tmp"
		if err := os.RemoveAll(tmp); err != nil {
			return err
		}
		if err := growFile(tmp, u.opts.PoolSize); err != nil {
			return fmt.Errorf("making the volumes' file system: %w", err)
		}
		if err := quiet(ctx, "mkfs.btrfs", "-q", tmp); err != nil {
			return err
		}
		if err := os.Rename(tmp, image); err != nil {
			return err
		}
	}
	if err := quiet(ctx, "mount", "-t", "btrfs", "-o", "loop", image, pool); err != nil {
		return fmt.Errorf("mounting the volumes' file system (are loop devices and btrfs in this kernel?): %w", err)
	}
	return nil
}

func growFile(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Truncate(size)
}

func (u *upRun) startAll(ctx context.Context) error {
	// containerd needs nobody, and its images can be loaded while the API server starts
	begun := make(chan error, 1)
	containerdStarted := false
	go func() {
		var err error
		containerdStarted, err = u.startContainerd(ctx)
		begun <- err
	}()
	err := u.startControlPlane(ctx)
	if err := errors.Join(err, <-begun); err != nil {
		return err
	}
	if containerdStarted {
		u.started = append(u.started, "containerd")
		u.say("containerd serves, with its images")
	}
	if err := u.start(ctx, "testcsi", "snapshot-controller", "csi-snapshotter", "csi-provisioner"); err != nil {
		return err
	}
	if u.did("testcsi") {
		u.say("the CSI driver serves, its sidecars run")
	}
	if err := u.start(ctx, "kube-proxy", "kubelet"); err != nil {
		return err
	}
	if u.did("kubelet") {
		u.say("node %s is Ready", NodeName)
	}
	return nil
}

func (u *upRun) startContainerd(ctx context.Context) (started bool, err error) {
	comp := u.component("containerd")
	if started, err = u.ensure(comp); err != nil {
		return started, err
	}
	loaded := u.path("images", "loaded")
	if err := u.waitReady(ctx, comp); err != nil || (!started && fileExists(loaded)) {
		return started, err
	}
	tars, err := u.writeStandardImages(ctx)
	if err != nil {
		return started, err
	}
	for _, t := range tars {
		if err := u.LoadImage(ctx, t); err != nil {
			return started, err
		}
	}
	return started, writeFile(loaded, nil, 0o644)
}

func (u *upRun) startControlPlane(ctx context.Context) error {
	if err := u.start(ctx, "etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"); err != nil {
		return err
	}
	if u.did("kube-apiserver") {
		u.say("the API server is ready")
	}
	if err := u.applyManifests(ctx); err != nil {
		return err
	}
	return u.wait(ctx, "the default service account", time.Minute, u.serviceAccountReady)
}

// start starts components in turn, each after the one before serves.
func (u *upRun) start(ctx context.Context, names ...string) error {
	for _, name := range names {
		comp := u.component(name)
		started, err := u.ensure(comp)
		if err != nil {
			return err
		}
		if started {
			u.started = append(u.started, name)
		}
		if err := u.waitReady(ctx, comp); err != nil {
			return err
		}
	}
	return nil
}

func (u *upRun) did(name string) bool { return slices.Contains(u.started, name) }

func (c *Cluster) component(name string) component {
	all := c.components()
	i := slices.IndexFunc(all, func(comp component) bool { return comp.name == name })
	return all[i]
}

// applyManifests applies the definitions first: the classes are objects of theirs. What etcd holds already is skipped.
func (u *upRun) applyManifests(ctx context.Context) error {
	own, err := fs.Sub(ownManifests, "manifests")
	if err != nil {
		return err
	}
	want, err := manifestsVersion(u.bins["sidecars"], own)
	if err != nil {
		return err
	}
	if have, err := os.ReadFile(u.path("applied")); err == nil && string(have) == want {
		return nil
	}
	dir := u.path("manifests")
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	upstream := filepath.Join(u.bins["sidecars"], "manifests")
	if err := os.CopyFS(dir, os.DirFS(upstream)); err != nil {
		return fmt.Errorf("copying upstream's manifests: %w", err)
	}
	if err := os.CopyFS(dir, own); err != nil {
		return err
	}
	crds, err := filepath.Glob(filepath.Join(dir, "10-crd-*.yaml"))
	if err != nil {
		return err
	}
	args := []string{"apply", "--server-side", "--force-conflicts"}
	if err := u.kubectl(ctx, append(slices.Clone(args), "-f", strings.Join(crds, ","))...); err != nil {
		return err
	}
	if err := u.wait(ctx, "the snapshot definitions to be established", time.Minute, u.crdsEstablished); err != nil {
		return err
	}
	// the API server serves a new definition a moment after it is established
	err = u.wait(ctx, "the manifests to be accepted", 30*time.Second, func(ctx context.Context) error {
		return u.kubectl(ctx, append(slices.Clone(args), "-f", dir)...)
	})
	if err != nil {
		return err
	}
	u.say("definitions, roles and classes are there")
	return writeFile(u.path("applied"), []byte(want), 0o644)
}

func manifestsVersion(upstream string, own fs.FS) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, upstream)
	err := fs.WalkDir(own, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := fs.ReadFile(own, path)
		h.Write(b)
		return err
	})
	return hex.EncodeToString(h.Sum(nil)), err
}
