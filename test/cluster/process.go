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
)

// process identifies a process for good: process ids are used again, pairs of id and start time are not.
type process struct {
	PID      int
	Start    uint64 // in clock ticks since the boot
	Argv     []string
	Env      []string
	Launched time.Time
	Boot     string // the boot that Start counts from; "" is this one
}

const pollEvery = 50 * time.Millisecond

// statOf reads state and start time of a process. A dead one that nobody collected yet counts as gone.
func statOf(pid int) (start uint64, alive bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	// the second field is the name, in parentheses, and may hold anything
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(f) < 20 || f[0] == "X" {
		return 0, false
	}
	if f[0] == "Z" {
		// the main thread has ended; while others have not, the process holds its ports and files
		if tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid)); err != nil || len(tasks) <= 1 {
			return 0, false
		}
	}
	start, err = strconv.ParseUint(f[19], 10, 64)
	return start, err == nil
}

func (p process) alive() bool {
	if p.Boot != "" && p.Boot != bootID() {
		return false
	}
	start, alive := statOf(p.PID)
	return alive && p.PID > 1 && start == p.Start
}

// signal sends a signal if the process is still the one that was started.
func (p process) signal(s syscall.Signal) error {
	if !p.alive() {
		return nil
	}
	if err := syscall.Kill(p.PID, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("sending %s to process %d: %w", s, p.PID, err)
	}
	return nil
}

// end asks the process to end, and after the grace kills it.
func (p process) end(grace time.Duration) error {
	if grace > 0 {
		if err := p.signal(syscall.SIGTERM); err != nil {
			return err
		}
		// a frozen process takes no notice of SIGTERM
		if err := p.signal(syscall.SIGCONT); err != nil {
			return err
		}
		if p.gone(grace) {
			return nil
		}
	}
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	if !p.gone(5 * time.Second) {
		return fmt.Errorf("process %d (%s) does not die of SIGKILL: it waits for a device or a frozen file system", p.PID, cmdline(p.PID))
	}
	return nil
}

func (p process) gone(within time.Duration) bool {
	for deadline := time.Now().Add(within); p.alive(); time.Sleep(pollEvery) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

func cmdline(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(strings.ReplaceAll(string(b), "\x00", " "))
}

func (c *Cluster) recordOf(name string) string { return c.path("run", name+".json") }

// running returns the process of a component; ok is false if it does not run.
func (c *Cluster) running(name string) (p process, ok bool, err error) {
	err = readJSON(c.recordOf(name), &p)
	if errors.Is(err, fs.ErrNotExist) {
		return p, false, nil
	}
	return p, err == nil && p.alive(), err
}

// launch starts a component in the cluster's network namespace and remembers which process it is.
func (c *Cluster) launch(comp component) error {
	bin, err := c.resolve(comp.argv[0])
	if err != nil {
		return err
	}
	argv := append([]string{bin}, comp.argv[1:]...)
	log, err := os.OpenFile(c.LogFile(comp.name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	// nsenter becomes the program, so process id and start time stay
	cmd := exec.Command("nsenter", append([]string{"--net=" + netnsPath, "--"}, argv...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(c.baseEnv(), comp.env...)
	cmd.Dir = c.opts.StateDir
	// its own session: an interrupt meant for the caller does not reach it
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	inheritNothing()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", comp.name, err)
	}
	start, alive := statOf(cmd.Process.Pid)
	p := process{PID: cmd.Process.Pid, Start: start, Argv: argv, Env: comp.env, Launched: time.Now(), Boot: bootID()}
	go func() { _ = cmd.Wait() }() // collects it when it dies while this program lives
	if !alive {
		return fmt.Errorf("%s ended at once; the end of %s:\n%s", comp.name, c.LogFile(comp.name), c.logTail(comp.name))
	}
	return writeJSON(c.recordOf(comp.name), p)
}

// inheritNothing keeps what the caller's caller left open, a lock for instance, from the components: they outlive it.
func inheritNothing() {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, e := range entries {
		if fd, err := strconv.Atoi(e.Name()); err == nil && fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
}

// ensure leaves a component alone if it runs with this command line, and (re)starts it otherwise.
func (c *Cluster) ensure(comp component) (started bool, err error) {
	p, ok, err := c.running(comp.name)
	if err != nil {
		return false, err
	}
	if ok {
		bin, err := c.resolve(comp.argv[0])
		if err != nil {
			return false, err
		}
		if slices.Equal(p.Argv, append([]string{bin}, comp.argv[1:]...)) && slices.Equal(p.Env, comp.env) {
			return false, p.signal(syscall.SIGCONT)
		}
		if err := p.end(stopGrace); err != nil {
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

const stopGrace = 10 * time.Second

func (c *Cluster) endComponent(name string, grace time.Duration) error {
	p, ok, err := c.find(name)
	if err != nil || !ok {
		return err
	}
	return p.end(grace)
}

func (c *Cluster) find(name string) (process, bool, error) {
	if !slices.Contains(ComponentNames(), name) {
		return process{}, false, fmt.Errorf("there is no component %q: the components are %s", name, strings.Join(ComponentNames(), ", "))
	}
	return c.running(name)
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
	return p.signal(s)
}

// strays finds processes of this cluster that no record knows: those started just before a crash, and the shims
// that containerd starts. It asks for both, a program of this cluster's cache and a mention of its state directory,
// so neither an envtest that uses the same programs nor a pager on one of the logs is meant.
func (c *Cluster) strays() ([]process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	cache := filepath.Join(c.opts.CacheDir, "bin") + "/"
	if real, err := filepath.EvalSymlinks(cache); err == nil {
		cache = real + "/"
	}
	var found []process
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
		if !strings.Contains(cmdline(pid)+" ", c.opts.StateDir+"/") {
			continue
		}
		if start, alive := statOf(pid); alive {
			found = append(found, process{PID: pid, Start: start})
		}
	}
	return found, nil
}
