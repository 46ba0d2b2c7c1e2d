// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"
)

// command is the cluster's own kubectl as admin. It runs in a process group of its own: Ctrl-C stops it through ctx, and
// not at all while things are put in order.
func (d *demo) command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, d.cluster.Bin("kubectl"), args...)
	cmd.Env = append(environ(), "KUBECONFIG="+d.cluster.Kubeconfig())
	cmd.Dir = d.root
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second
	return cmd
}

// environ is this program's environment without what would lead clients of the local cluster elsewhere.
func environ() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return strings.HasSuffix(strings.ToUpper(name), "_PROXY") || name == "KUBECONFIG"
	})
}

// kubectl runs one command and returns what it printed. Its error says in one sentence what kubectl said.
func (d *demo) kubectl(ctx context.Context, stdin string, args ...string) (string, error) {
	cmd := d.command(ctx, args...)
	var out, said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &said
	err := cmd.Run()
	if ctx.Err() != nil {
		return "", context.Cause(ctx)
	}
	if err != nil {
		words := strings.Join(args[:min(len(args), 5)], " ")
		if text := strings.TrimSpace(said.String()); text != "" {
			return "", fmt.Errorf("kubectl %s ...: %s", words, strings.ReplaceAll(text, "\n", "; "))
		}
		return "", fmt.Errorf("kubectl %s ...: %w", words, err)
	}
	return out.String(), nil
}

// get reads an object or a list.
func (d *demo) get(ctx context.Context, into any, args ...string) error {
	out, err := d.kubectl(ctx, "", append(append([]string{"get"}, args...), "-o", "json")...)
	if err != nil {
		return err
	}
	if err := json.Unmarshal([]byte(out), into); err != nil {
		return fmt.Errorf("reading what kubectl get %s printed: %w", strings.Join(args, " "), err)
	}
	return nil
}

// sleep returns early, with the cause, when ctx ends.
func sleep(ctx context.Context, t time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(t):
		return nil
	}
}
