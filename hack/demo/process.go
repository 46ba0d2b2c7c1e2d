// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process identifies a process for good: ids are used again, pairs of id and start time are not.
type process struct {
	PID     int
	Start   uint64 // in clock ticks since the boot
	Boot    string
	Health  string // address of /healthz and /readyz
	Metrics string // address of /metrics
}

// statOf reads when a process was started. A dead one that nobody collected yet counts as gone.
func statOf(pid int) (start uint64, alive bool) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, false
	}
	// the second field is the name, in parentheses, and may hold anything
	f := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(f) < 20 || f[0] == "Z" || f[0] == "X" {
		return 0, false
	}
	start, err = strconv.ParseUint(f[19], 10, 64)
	return start, err == nil
}

func bootID() string {
	b, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // without one, every boot is the same
	return strings.TrimSpace(string(b))
}

func (p process) alive() bool {
	start, alive := statOf(p.PID)
	return alive && p.PID > 1 && start == p.Start && p.Boot == bootID()
}

// launch starts a program that outlives this one: in its own session, with a log file for its output.
func launch(cmd *exec.Cmd, logFile string) (process, error) {
	log, err := os.OpenFile(logFile, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return process{}, err
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr, cmd.Dir = log, log, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return process{}, err
	}
	start, alive := statOf(cmd.Process.Pid)
	p := process{PID: cmd.Process.Pid, Start: start, Boot: bootID()}
	go func() { _ = cmd.Wait() }() // collects it when it dies while this program lives
	if !alive {
		return process{}, errors.New("it ended at once")
	}
	return p, nil
}

// end asks the process to end, waits for it, and kills it after the grace.
func (p process) end(grace time.Duration) error {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		if !p.alive() {
			return nil
		}
		if err := syscall.Kill(p.PID, s); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("sending %s to process %d: %w", s, p.PID, err)
		}
		for deadline := time.Now().Add(grace); p.alive() && time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		}
	}
	if p.alive() {
		return fmt.Errorf("process %d does not end", p.PID)
	}
	return nil
}

// readProcess returns the recorded process; without a record, one that does not run.
func readProcess(file string) (process, error) {
	var p process
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(b, &p); err != nil {
		return p, fmt.Errorf("reading %s: %w", file, err)
	}
	return p, nil
}

func (p process) record(file string) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := os.WriteFile(file+".tmp", append(b, '\n'), 0o644); err != nil {
		return err
	}
	return os.Rename(file+".tmp", file)
}
