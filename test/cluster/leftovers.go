// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/stillpoint-operator/stillpoint/test/process"
)

// Leftovers fails if anything of the cluster is on the machine, and names it. Files of the state directory and of
// the cache do not count.
func (c *Cluster) Leftovers(ctx context.Context) error {
	r, err := readMachineRecord()
	if err != nil {
		return err
	}
	var left []string
	seen := map[int]bool{}
	add := func(format string, args ...any) { left = append(left, fmt.Sprintf(format, args...)) }

	for _, find := range []func(*machineRecord) ([]process.Process, error){
		func(*machineRecord) ([]process.Process, error) { return c.strays() },
		func(*machineRecord) ([]process.Process, error) { return cgroupProcesses() },
		processesInNetns,
	} {
		procs, err := find(r)
		if err != nil {
			return err
		}
		for _, p := range procs {
			if !seen[p.PID] {
				add("process %d (%.100s)", p.PID, process.CommandLine(p.PID))
			}
			seen[p.PID] = true
		}
	}
	mounts, err := mountsUnder(c.opts.StateDir)
	if err != nil {
		return err
	}
	for _, m := range mounts {
		add("mount %s", m)
	}
	loops, err := c.loops(ctx)
	if err != nil {
		return err
	}
	for dev, file := range loops {
		add("loop device %s of %s", dev, file)
	}
	if fileExists(netnsPath) {
		add("network namespace %s", netnsName)
	}
	if fileExists(filepath.Join("/sys/class/net", hostLink)) {
		add("network link %s", hostLink)
	}
	groups, err := cgroupDirs()
	if err != nil {
		return err
	}
	for _, g := range groups {
		if filepath.Base(g) == cgroupName {
			add("control group %s", g)
		}
	}
	if r != nil {
		for _, name := range r.changedSysctls() {
			add("sysctl %s, which was %s", strings.ReplaceAll(name, "/", "."), r.Sysctls[name])
		}
		for _, dir := range r.MadeDirs {
			if fileExists(dir) {
				add("directory %s", dir)
			}
		}
	}
	if len(left) == 0 {
		return nil
	}
	return fmt.Errorf("%d things of the cluster are on this machine (localcluster down takes them away):\n  %s",
		len(left), strings.Join(left, "\n  "))
}

// processesInNetns finds the processes in the cluster's network namespace, also when its name is gone.
func processesInNetns(r *machineRecord) ([]process.Process, error) {
	ns := netnsInode()
	if r != nil && r.Netns != 0 {
		ns = r.Netns
	}
	if ns == 0 {
		return nil, nil
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []process.Process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || inode(filepath.Join("/proc", e.Name(), "ns/net")) != ns {
			continue
		}
		if p, ok := process.Of(pid); ok {
			found = append(found, p)
		}
	}
	return found, nil
}
