// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"k8s.io/client-go/kubernetes"
)

// machine that the numbers are of. It has no name: only what they depend on.
type machine struct {
	Cores      int    `json:"cores"`
	Processor  string `json:"processor"`
	MemoryGiB  int    `json:"memoryGiB"`
	Kernel     string `json:"kernel"`
	Go         string `json:"go"`
	Kubernetes string `json:"kubernetes"`
	Etcd       string `json:"etcd"`
	Commit     string `json:"commit"`
}

// record is what is committed.
type record struct {
	Machine machine   `json:"machine"`
	Rounds  int       `json:"rounds"`
	Scale   float64   `json:"scale"`
	Results []*result `json:"results"`
}

func (w *world) describe(ctx context.Context) (machine, error) {
	m := machine{Cores: runtime.NumCPU(), Go: runtime.Version()}
	cs, err := kubernetes.NewForConfig(w.env.Config)
	if err != nil {
		return m, err
	}
	version, err := cs.Discovery().ServerVersion()
	if err != nil {
		return m, fmt.Errorf("asking the API server for its version: %w", err)
	}
	m.Kubernetes = version.GitVersion
	etcd, err1 := first(exec.CommandContext(ctx, filepath.Join(w.env.ControlPlane.APIServer.Path, "..", "etcd"), "--version"))
	m.Etcd = strings.TrimPrefix(etcd, "etcd Version: ")
	commit := exec.CommandContext(ctx, "git", "rev-parse", "--short=12", "HEAD")
	commit.Dir = w.root
	var err2 error
	m.Commit, err2 = first(commit)
	kernel, err3 := os.ReadFile("/proc/sys/kernel/osrelease")
	// The third part of a kernel's release is its builder's.
	m.Kernel = strings.Join(strings.SplitN(strings.TrimSpace(string(kernel)), ".", 3)[:2], ".")
	cpu, err4 := field("/proc/cpuinfo", "model name")
	m.Processor = cpu
	memory, err5 := field("/proc/meminfo", "MemTotal")
	kib, err6 := strconv.ParseFloat(strings.TrimSuffix(memory, " kB"), 64)
	m.MemoryGiB = int(kib/(1<<20) + 0.5)
	return m, errors.Join(err1, err2, err3, err4, err5, err6)
}

// first line of what a program says.
func first(cmd *exec.Cmd) (string, error) {
	out, err := cmd.Output()
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(line), err
}

// field of a file of the kernel's.
func field(file, name string) (string, error) {
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if key, value, ok := strings.Cut(lines.Text(), ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value), nil
		}
	}
	return "", fmt.Errorf("%s does not tell the %s", file, name)
}

func folder(root string) string { return filepath.Join(root, "docs", "performance") }

// read what is committed; nothing, if nothing is.
func read(root string) (*record, error) {
	r := &record{}
	text, err := os.ReadFile(filepath.Join(folder(root), "results.json"))
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err != nil {
		return nil, err
	}
	return r, json.Unmarshal(text, r)
}

// with the newer results in the place of those of the same scenarios.
func (r *record) with(newer *record) *record {
	fresh := map[string]bool{}
	for _, x := range newer.Results {
		fresh[x.Scenario] = true
	}
	by := map[string][]*result{}
	for _, x := range r.Results {
		if !fresh[x.Scenario] {
			by[x.Scenario] = append(by[x.Scenario], x)
		}
	}
	for _, x := range newer.Results {
		by[x.Scenario] = append(by[x.Scenario], x)
	}
	out := &record{Machine: newer.Machine, Rounds: newer.Rounds, Scale: newer.Scale}
	for _, s := range scenarios() { // in their order; those that are no more are dropped
		out.Results = append(out.Results, by[s.name]...)
	}
	return out
}

// save as JSON and as a picture.
func (r *record) save(root string) error {
	if err := os.MkdirAll(folder(root), 0o755); err != nil {
		return err
	}
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetIndent("", "  ")
	e.SetEscapeHTML(false)
	if err := e.Encode(r); err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(folder(root), "results.json"), text.Bytes(), 0o644),
		os.WriteFile(filepath.Join(folder(root), "ratios.svg"), plot(r), 0o644),
	)
}
