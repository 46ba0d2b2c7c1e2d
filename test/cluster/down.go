// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/stillpoint-operator/stillpoint/test/process"
)

// Down stops everything and removes the state, whatever state the cluster is in. With keep, the data stays: the
// next Up finds it as after a reboot of the machine. It fails, naming it, if anything is left on the machine.
func (c *Cluster) Down(ctx context.Context, keep bool) error {
	if os.Geteuid() != 0 {
		return errors.New("stopping the cluster needs root: run it with sudo -E env PATH=\"$PATH\"")
	}
	unlock, err := lock(ctx, lockFile, c.opts.Out, "another up or down")
	if err != nil {
		return err
	}
	defer unlock()
	if err := c.teardown(ctx); err != nil {
		return fmt.Errorf("stopping the cluster (it can be tried again): %w", err)
	}
	if !keep {
		if err := os.RemoveAll(c.opts.StateDir); err != nil {
			return fmt.Errorf("removing the state: %w", err)
		}
	}
	if err := c.Leftovers(ctx); err != nil {
		return err
	}
	return forgetMachine()
}

// teardown takes everything off the machine but the state directory's files. It goes on after an error where that
// makes sense, so that one thing that does not let go keeps as little as possible.
func (c *Cluster) teardown(ctx context.Context) error {
	r, err := readMachineRecord()
	if err != nil {
		return err
	}
	// first of all: a process that waits for a frozen file system cannot be killed
	if err := c.thaw(ctx); err != nil {
		return err
	}
	sockets := c.shimSockets()
	if err := c.endAll(); err != nil {
		return err
	}
	errs := []error{c.unmountAll(ctx), removeNetwork(ctx), removeCgroups()}
	if r != nil {
		errs = append(errs, r.restoreSysctls())
	}
	for _, s := range sockets {
		if err := os.Remove(s); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	errs = append(errs, removeOutsideFiles(c.opts.StateDir))
	if r != nil {
		removeMadeDirs(ctx, r.MadeDirs)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	// what only a running cluster means anything by
	for _, dir := range []string{"run", "containerd/state", "runc", "cni-ipam"} {
		if err := os.RemoveAll(c.path(dir)); err != nil {
			return err
		}
	}
	return nil
}

// endAll ends the kubelet first, since it would start pods again, and etcd last.
func (c *Cluster) endAll() error {
	if err := c.endComponents(3*time.Second, "kubelet"); err != nil {
		return err
	}
	if err := endPods(); err != nil {
		return err
	}
	var rest []string
	for _, name := range ComponentNames() {
		if name != "etcd" {
			rest = append(rest, name)
		}
	}
	if err := c.endComponents(3*time.Second, rest...); err != nil {
		return err
	}
	if err := c.endComponents(5*time.Second, "etcd"); err != nil {
		return err
	}
	strays, err := c.strays()
	if err != nil {
		return err
	}
	for _, p := range strays {
		err = errors.Join(err, p.End(0))
	}
	return errors.Join(err, endPods())
}

func (c *Cluster) endComponents(grace time.Duration, names ...string) error {
	errs := make([]error, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		p, ok, err := c.processOf(name)
		if err != nil || !ok {
			errs[i] = err
			continue
		}
		wg.Go(func() { errs[i] = p.End(grace) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// endPods kills every process in the pods' control groups, again until no new one appears.
func endPods() error {
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(pollEvery) {
		procs, err := cgroupProcesses()
		if err != nil || len(procs) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d of a pod (%s) does not die of SIGKILL", procs[0].PID, process.CommandLine(procs[0].PID))
		}
		for _, p := range procs {
			if err := p.Signal(syscall.SIGKILL); err != nil {
				return err
			}
		}
	}
}

// mountsUnder lists the mount points below a directory, the newest first.
func mountsUnder(dir string) ([]string, error) {
	lines, err := readLines("/proc/mounts")
	if err != nil {
		return nil, err
	}
	unescape := strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`)
	var mounts []string
	for _, line := range lines {
		f := strings.Fields(line)
		if len(f) < 3 {
			continue
		}
		if p := unescape.Replace(f[1]); strings.HasPrefix(p, dir+"/") {
			mounts = append(mounts, p)
		}
	}
	slices.Reverse(mounts)
	return mounts, nil
}

func (c *Cluster) thaw(ctx context.Context) error {
	mounts, err := mountsUnder(c.opts.StateDir)
	if err != nil {
		return err
	}
	for _, m := range mounts {
		if strings.HasPrefix(m, c.path("kubelet")+"/") {
			// an error says that it was not frozen
			_ = quiet(ctx, "fsfreeze", "--unfreeze", m)
		}
	}
	return nil
}

// unmountAll unmounts the volumes, then frees their loop devices, and then unmounts the pool that holds their files.
func (c *Cluster) unmountAll(ctx context.Context) error {
	mounts, err := mountsUnder(c.opts.StateDir)
	if err != nil {
		return err
	}
	pool := c.path("pool")
	var errs []error
	for _, m := range mounts {
		if m != pool {
			errs = append(errs, unmount(ctx, m))
		}
	}
	loops, err := c.loops(ctx)
	if err != nil {
		return err
	}
	for dev, file := range loops {
		if file != c.path("pool.img") { // that one frees itself
			errs = append(errs, c.thawUnmounted(ctx, dev), quiet(ctx, "losetup", "-d", dev))
		}
	}
	if slices.Contains(mounts, pool) {
		errs = append(errs, unmount(ctx, pool))
	}
	return errors.Join(errs...)
}

// thawUnmounted thaws a file system that was unmounted while it was frozen. It lives on without a mount, and its loop device with
// it; only a new mount can thaw it.
func (c *Cluster) thawUnmounted(ctx context.Context, dev string) error {
	if !fileExists("/sys/fs/ext4/" + filepath.Base(dev)) {
		return nil
	}
	dir, err := os.MkdirTemp("", "stillpoint-thaw-")
	if err != nil {
		return err
	}
	defer os.Remove(dir)
	if err := quiet(ctx, "mount", "-t", "ext4", dev, dir); err != nil {
		return fmt.Errorf("mounting %s, whose file system was unmounted while it was frozen, to thaw it: %w", dev, err)
	}
	// an error says that it was not frozen
	_ = quiet(ctx, "fsfreeze", "--unfreeze", dir)
	return unmount(ctx, dir)
}

// unmount waits a moment for whoever is still busy, and then takes the mount out of sight: it ends with its last user.
func unmount(ctx context.Context, path string) error {
	for range 10 {
		if quiet(ctx, "umount", path) == nil {
			return nil
		}
		if mounted := quiet(ctx, "mountpoint", "-q", path) == nil; !mounted {
			return nil
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
	return quiet(ctx, "umount", "--lazy", path)
}

// loops lists the loop devices whose files are in the state directory.
func (c *Cluster) loops(ctx context.Context) (map[string]string, error) {
	lines, err := output(ctx, "losetup", "--list", "--noheadings", "--raw", "--output", "NAME,BACK-FILE")
	if err != nil {
		return nil, err
	}
	found := map[string]string{}
	for _, line := range lines {
		dev, file, _ := strings.Cut(line, " ")
		if strings.HasPrefix(file, c.opts.StateDir+"/") {
			found[dev] = strings.TrimSuffix(strings.TrimSuffix(file, " (deleted)"), `\x20(deleted)`)
		}
	}
	return found, nil
}

func removeCgroups() error {
	var err error
	for range 20 { // a group can be busy for a moment after its last process
		var dirs []string
		if dirs, err = cgroupDirs(); err != nil || len(dirs) == 0 {
			return err
		}
		err = nil
		for _, d := range dirs {
			if e := os.Remove(d); e != nil && !errors.Is(e, fs.ErrNotExist) {
				err = e
			}
		}
		time.Sleep(pollEvery)
	}
	if err != nil {
		return fmt.Errorf("removing the pods' control groups: %w", err)
	}
	return nil
}

// shimSockets lists the sockets that containerd's shims made outside the state directory.
func (c *Cluster) shimSockets() []string {
	tasks := c.path("containerd", "state", "io.containerd.runtime.v2.task", "k8s.io")
	entries, err := os.ReadDir(tasks)
	if err != nil {
		return nil
	}
	var sockets []string
	for _, e := range entries {
		var boot struct {
			Address string `json:"address"`
		}
		if readJSON(filepath.Join(tasks, e.Name(), "bootstrap.json"), &boot) != nil {
			continue
		}
		if path, ok := strings.CutPrefix(boot.Address, "unix://"); ok && strings.HasPrefix(path, "/run/containerd/s/") {
			sockets = append(sockets, path)
		}
	}
	return sockets
}
