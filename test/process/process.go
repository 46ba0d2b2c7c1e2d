// SPDX-License-Identifier: Apache-2.0

// Package process knows processes of this machine that outlive the program that started them, and ends no other one.
package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Process identifies a process for good: process ids are used again, pairs of id and start time are not.
type Process struct {
	PID   int
	Start uint64 // in clock ticks since the boot
	Boot  string // the boot that Start counts from
}

const pollEvery = 50 * time.Millisecond

// Of a process id; ok is false if no such process runs. A dead one that nobody collected yet does not run.
func Of(pid int) (p Process, ok bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Process{}, false
	}
	// the second field is the name, in parentheses, and may hold anything
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(f) < 20 || f[0] == "X" {
		return Process{}, false
	}
	if f[0] == "Z" {
		// the main thread has ended; while others have not, the process holds its ports and files
		if tasks, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid)); err != nil || len(tasks) <= 1 {
			return Process{}, false
		}
	}
	start, err := strconv.ParseUint(f[19], 10, 64)
	return Process{PID: pid, Start: start, Boot: BootID()}, err == nil
}

// BootID tells one boot of this machine from another.
func BootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // without one, every boot is the same
	return strings.TrimSpace(string(b))
}

// Alive reports whether the process still runs.
func (p Process) Alive() bool {
	now, ok := Of(p.PID)
	return ok && p.PID > 1 && now == p
}

// Signal sends a signal if the process is still the one that was started.
func (p Process) Signal(s syscall.Signal) error {
	if !p.Alive() {
		return nil
	}
	if err := syscall.Kill(p.PID, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("sending %s to process %d: %w", s, p.PID, err)
	}
	return nil
}

// End asks the process to end, and after the grace kills it; without a grace, at once. It returns when the process is gone.
func (p Process) End(grace time.Duration) error {
	if grace > 0 {
		if err := p.Signal(syscall.SIGTERM); err != nil {
			return err
		}
		// a frozen process takes no notice of SIGTERM
		if err := p.Signal(syscall.SIGCONT); err != nil {
			return err
		}
		if p.gone(grace) {
			return nil
		}
	}
	if err := p.Signal(syscall.SIGKILL); err != nil {
		return err
	}
	if !p.gone(5 * time.Second) {
		return fmt.Errorf("process %d (%s) does not die of SIGKILL: it waits for a device or a frozen file system", p.PID, CommandLine(p.PID))
	}
	return nil
}

func (p Process) gone(within time.Duration) bool {
	for deadline := time.Now().Add(within); p.Alive(); time.Sleep(pollEvery) {
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// CommandLine of a process id, with spaces between its words; empty: there is none.
func CommandLine(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(strings.ReplaceAll(string(b), "\x00", " "))
}

// ErrEnded is returned by Launch for a program that ended at once.
var ErrEnded = errors.New("it ended at once")

// Launch starts a program that outlives this one: in its own session, so that an interrupt meant for this program does not reach it, and with its
// output added to a log file.
func Launch(cmd *exec.Cmd, logFile string) (Process, error) {
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return Process{}, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	inheritNothing()
	if err := cmd.Start(); err != nil {
		return Process{}, err
	}
	p, ok := Of(cmd.Process.Pid)
	go func() { _ = cmd.Wait() }() // collects it when it dies while this program lives
	if !ok {
		return Process{}, ErrEnded
	}
	return p, nil
}

// inheritNothing keeps what the caller's caller left open, a lock for instance, from the program: it outlives both.
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
