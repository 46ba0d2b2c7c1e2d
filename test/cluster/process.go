// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/stillpoint-operator/stillpoint/test/process"
)

// running is a component's process, as it was started.
type running struct {
	process.Process
	Argv     []string
	Env      []string
	Launched time.Time
}

func (c *Cluster) recordOf(name string) string { return c.path("run", name+".json") }

// processOf returns the process of a component; ok is false if it does not run.
func (c *Cluster) processOf(name string) (p running, ok bool, err error) {
	err = readJSON(c.recordOf(name), &p)
	if errors.Is(err, fs.ErrNotExist) {
		return p, false, nil
	}
	return p, err == nil && p.Alive(), err
}

// launch starts a component in the cluster's network namespace and remembers which process it is.
func (c *Cluster) launch(comp component) error {
	bin, err := c.resolve(comp.argv[0])
	if err != nil {
		return err
	}
	argv := append([]string{bin}, comp.argv[1:]...)
	// nsenter becomes the program, so process id and start time stay
	cmd := exec.Command("nsenter", append([]string{"--net=" + netnsPath, "--"}, argv...)...)
	cmd.Env = append(c.baseEnv(), comp.env...)
	cmd.Dir = c.opts.StateDir
	p, err := process.Launch(cmd, c.LogFile(comp.name))
	if errors.Is(err, process.ErrEnded) {
		return fmt.Errorf("%s ended at once; the end of %s:\n%s", comp.name, c.LogFile(comp.name), c.logTail(comp.name))
	}
	if err != nil {
		return fmt.Errorf("starting %s: %w", comp.name, err)
	}
	return writeJSON(c.recordOf(comp.name), running{p, argv, comp.env, time.Now()})
}

// ensure leaves a component alone if it runs with this command line, and (re)starts it otherwise.
func (c *Cluster) ensure(comp component) (started bool, err error) {
	p, ok, err := c.processOf(comp.name)
	if err != nil {
		return false, err
	}
	if ok {
		bin, err := c.resolve(comp.argv[0])
		if err != nil {
			return false, err
		}
		if slices.Equal(p.Argv, append([]string{bin}, comp.argv[1:]...)) && slices.Equal(p.Env, comp.env) {
			return false, p.Signal(syscall.SIGCONT)
		}
		if err := p.End(stopGrace); err != nil {
			return false, err
		}
	}
	return true, c.launch(comp)
}

// baseEnv holds no proxy settings: every address that the components talk to is on this machine.
func (c *Cluster) baseEnv() []string {
	return []string{
		"PATH=" + c.BinDir() + ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
		"HOME=/root", "LC_ALL=C.UTF-8",
	}
}

func (c *Cluster) logTail(name string) string {
	b, err := os.ReadFile(c.LogFile(name))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return strings.Join(lines[max(0, len(lines)-8):], "\n")
}

// StopComponent ends a component as an administrator would: SIGTERM, and SIGKILL after ten seconds.
func (c *Cluster) StopComponent(name string) error { return c.endComponent(name, stopGrace) }

// KillComponent ends a component as a crash would: SIGKILL. It returns when the process is gone.
func (c *Cluster) KillComponent(name string) error { return c.endComponent(name, 0) }

const (
	stopGrace = 10 * time.Second
	pollEvery = 50 * time.Millisecond
)

func (c *Cluster) endComponent(name string, grace time.Duration) error {
	p, ok, err := c.find(name)
	if err != nil || !ok {
		return err
	}
	return p.End(grace)
}

func (c *Cluster) find(name string) (running, bool, error) {
	if !slices.Contains(ComponentNames(), name) {
		return running{}, false, fmt.Errorf("there is no component %q: the components are %s", name, strings.Join(ComponentNames(), ", "))
	}
	return c.processOf(name)
}

// StartComponent starts a component with the cluster's options, unless it runs, and waits until it serves.
func (c *Cluster) StartComponent(ctx context.Context, name string) error {
	if _, _, err := c.find(name); err != nil {
		return err
	}
	for _, comp := range c.components() {
		if comp.name != name {
			continue
		}
		if _, err := c.ensure(comp); err != nil {
			return err
		}
		return c.waitReady(ctx, comp)
	}
	return nil
}

// Pause freezes a component (SIGSTOP): it keeps its connections and answers nothing.
func (c *Cluster) Pause(name string) error { return c.signalComponent(name, syscall.SIGSTOP) }

// Resume lets a frozen component go on.
func (c *Cluster) Resume(name string) error { return c.signalComponent(name, syscall.SIGCONT) }

func (c *Cluster) signalComponent(name string, s syscall.Signal) error {
	p, ok, err := c.find(name)
	if err != nil {
		return err
	}
	if !ok {
		return fmt.Errorf("%s does not run", name)
	}
	return p.Signal(s)
}

// strays finds processes of this cluster that no record knows: those started just before a crash, and the shims
// that containerd starts. It asks for both, a program of this cluster's cache and a mention of its state directory,
// so neither an envtest that uses the same programs nor a pager on one of the logs is meant.
func (c *Cluster) strays() ([]process.Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	cache := filepath.Join(c.opts.CacheDir, "bin") + "/"
	if real, err := filepath.EvalSymlinks(cache); err == nil {
		cache = real + "/"
	}
	var found []process.Process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
		if err != nil || !strings.HasPrefix(exe, cache) {
			continue
		}
		if base := filepath.Base(exe); base == "kubectl" || base == "ctr" {
			continue
		}
		if !strings.Contains(process.CommandLine(pid)+" ", c.opts.StateDir+"/") {
			continue
		}
		if p, ok := process.Of(pid); ok {
			found = append(found, p)
		}
	}
	return found, nil
}
