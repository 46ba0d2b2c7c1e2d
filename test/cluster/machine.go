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

	"github.com/stillpoint-operator/stillpoint/test/process"
)

const (
	// runDir keeps what must be known even if the state directory was deleted by hand. It goes with a reboot, as do
	// the things that it remembers.
	runDir   = "/run/stillpoint-cluster"
	lockFile = "/run/stillpoint-cluster.lock"
)

// machineRecord says what the machine was like before the cluster changed it.
type machineRecord struct {
	StateDir string
	BootID   string
	Netns    uint64            // inode of the network namespace
	Sysctls  map[string]string // by path below /proc/sys
	MadeDirs []string          // directories outside the state directory that were not there before
}

// kubeletSysctls are what the kubelet sets for the whole machine.
var kubeletSysctls = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

// outsideDirs are written to by components whose paths cannot be configured.
var outsideDirs = []string{"/run/containerd", "/var/lib/cni", "/var/lib/kubelet", "/var/log/containers", "/opt/cni", "/etc/cni", "/run/netns"}

func machineRecordFile() string { return filepath.Join(runDir, "machine.json") }

// readMachineRecord returns nil if no cluster left a record since the machine was started.
func readMachineRecord() (*machineRecord, error) {
	var r machineRecord
	err := readJSON(machineRecordFile(), &r)
	if errors.Is(err, fs.ErrNotExist) || (err == nil && r.BootID != process.BootID()) {
		return nil, nil //nolint:nilnil // no record is no error
	}
	return &r, err
}

// rememberMachine writes the record, once: what a second call would find is what the first one changed.
func rememberMachine(stateDir string) error {
	old, err := readMachineRecord()
	if err != nil {
		return err
	}
	if old != nil {
		if old.StateDir == stateDir {
			return nil
		}
		old.StateDir = stateDir
		return writeJSON(machineRecordFile(), old)
	}
	r := machineRecord{StateDir: stateDir, BootID: process.BootID(), Sysctls: map[string]string{}}
	for _, name := range kubeletSysctls {
		if v, err := readSysctl(name); err == nil {
			r.Sysctls[name] = v
		}
	}
	for _, dir := range outsideDirs {
		if !fileExists(dir) {
			r.MadeDirs = append(r.MadeDirs, dir)
		}
	}
	if err := os.MkdirAll(runDir, 0o755); err != nil {
		return err
	}
	return writeJSON(machineRecordFile(), r)
}

// rememberNetns adds which namespace is ours: by that, a process in it is found even when its name is gone.
func rememberNetns() error {
	r, err := readMachineRecord()
	if err != nil || r == nil || r.Netns == netnsInode() {
		return err
	}
	r.Netns = netnsInode()
	return writeJSON(machineRecordFile(), r)
}

func forgetMachine() error { return os.RemoveAll(runDir) }

// changedSysctls lists what differs from the record.
func (r *machineRecord) changedSysctls() []string {
	var changed []string
	for _, name := range kubeletSysctls {
		was, known := r.Sysctls[name]
		if now, err := readSysctl(name); known && err == nil && now != was {
			changed = append(changed, name)
		}
	}
	return changed
}

func (r *machineRecord) restoreSysctls() error {
	var errs []error
	for _, name := range r.changedSysctls() {
		if err := os.WriteFile(filepath.Join("/proc/sys", name), []byte(r.Sysctls[name]), 0o644); err != nil {
			errs = append(errs, fmt.Errorf("restoring the sysctl %s: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func readSysctl(name string) (string, error) {
	b, err := os.ReadFile(filepath.Join("/proc/sys", name))
	return strings.TrimSpace(string(b)), err
}

// removeOutsideFiles removes what the components left in outsideDirs: links to logs, and notes of CNI about pods.
func removeOutsideFiles(stateDir string) error {
	var errs []error
	logs, err := filepath.Glob("/var/log/containers/*.log")
	errs = append(errs, err)
	for _, link := range logs {
		if target, err := os.Readlink(link); err == nil && strings.HasPrefix(target, stateDir+"/") {
			errs = append(errs, os.Remove(link))
		}
	}
	const results = "/var/lib/cni/results/"
	ours, err := filepath.Glob(results + cniNetwork + "-*-eth0")
	errs = append(errs, err)
	for _, file := range ours {
		pod := strings.TrimSuffix(strings.TrimPrefix(file, results+cniNetwork+"-"), "-eth0")
		errs = append(errs, os.Remove(file))
		if lo := results + "cni-loopback-" + pod + "-lo"; fileExists(lo) {
			errs = append(errs, os.Remove(lo))
		}
	}
	// the kubelet's socket for device plugins is where it is, whatever its root directory
	const socket = "/var/lib/kubelet/device-plugins/kubelet.sock"
	if fileExists(socket) && socketServes(socket) != nil {
		errs = append(errs, os.Remove(socket))
	}
	return errors.Join(errs...)
}

// removeMadeDirs removes the directories that the components made, where nothing but empty directories is in them.
func removeMadeDirs(ctx context.Context, dirs []string) {
	for _, dir := range dirs {
		if entries, err := os.ReadDir(dir); err == nil && len(entries) == 0 {
			_ = quiet(ctx, "umount", dir) // ip mounts /run/netns on itself
		}
		var inside []string
		_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				inside = append(inside, path)
			}
			return nil
		})
		slices.Reverse(inside)
		for _, d := range inside {
			_ = os.Remove(d) // Leftovers names what stays
		}
	}
}
