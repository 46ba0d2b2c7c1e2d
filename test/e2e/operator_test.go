// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	operatorNamespace = "stillpoint-system" // as in config/
	leaseName         = "cd2d8e9f.backube"
	working           = "Starting workers" // what an operator logs once it leads
)

func makeOperatorNamespace(ctx context.Context) error {
	return client.IgnoreAlreadyExists(api.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: operatorNamespace}}))
}

// operator is one process of the real binary.
type operator struct {
	cmd  *exec.Cmd
	log  *logBuffer
	done chan struct{}
}

// shared is the operator with default flags that tests leave running for the next one; nil: none runs.
var shared *operator

// launch starts an operator with exactly the rights of config/rbac; it may have to wait for the lease.
func launch(flags ...string) (*operator, error) {
	return launchAs(operatorKubeconfig, append([]string{"--leader-election-namespace=" + operatorNamespace}, flags...)...)
}

// launchAs starts an operator as the user of a kubeconfig.
func launchAs(kubeconfig string, flags ...string) (*operator, error) {
	o := &operator{log: &logBuffer{}, done: make(chan struct{})}
	args := append([]string{"--metrics-bind-address=0", "--health-probe-bind-address=0"}, flags...)
	o.cmd = exec.Command(binary, args...)
	o.cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	o.cmd.Stdout, o.cmd.Stderr = o.log, o.log
	o.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := o.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = o.cmd.Wait()
		close(o.done)
	}()
	return o, nil
}

// startOperator starts an operator with flags of its own, instead of the shared one, and waits until it leads. It ends with the test.
func startOperator(t testing.TB, flags ...string) *operator {
	t.Helper()
	stopShared()
	o := addOperator(t, flags...)
	o.awaitLog(t, working)
	return o
}

// addOperator starts an operator beside others, and does not wait until it leads.
func addOperator(t testing.TB, flags ...string) *operator {
	t.Helper()
	o, err := launch(flags...)
	if err != nil {
		t.Fatalf("starting the operator: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of operator %v:\n%s", flags, o.log.tail())
		}
		o.kill()
		dropLease()
	})
	return o
}

// useShared makes sure that the shared operator runs.
func useShared(t testing.TB) {
	t.Helper()
	if shared != nil && shared.runs() {
		return
	}
	o, err := launch()
	if err != nil {
		t.Fatalf("starting the operator: %v", err)
	}
	shared = o
	o.awaitLog(t, working)
}

// stopShared lets the shared operator hand over its lease.
func stopShared() {
	if shared == nil {
		return
	}
	shared.signal(syscall.SIGINT)
	shared.signal(syscall.SIGINT) // a second signal: at once
	select {
	case <-shared.done:
	case <-time.After(10 * time.Second):
		shared.kill()
	}
	shared = nil
	dropLease()
}

// dropLease frees the lease of an operator that is surely dead, so that the next one need not wait until it runs out.
func dropLease() {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: operatorNamespace, Name: leaseName}}
	if err := client.IgnoreNotFound(api.Delete(context.Background(), lease)); err != nil {
		fmt.Fprintln(os.Stderr, "freeing the lease:", err)
	}
}

func (o *operator) runs() bool {
	select {
	case <-o.done:
		return false
	default:
		return true
	}
}

func (o *operator) signal(s syscall.Signal) { _ = o.cmd.Process.Signal(s) }

// kill ends the process as a crash would, and returns when it is gone.
func (o *operator) kill() {
	o.signal(syscall.SIGKILL)
	<-o.done
}

func (o *operator) awaitLog(t testing.TB, text string) {
	t.Helper()
	select {
	case <-o.log.sees(text):
	case <-o.done:
		t.Fatalf("the operator ended before it said %q:\n%s", text, o.log.tail())
	case <-time.After(40 * time.Second):
		t.Fatalf("the operator did not say %q:\n%s", text, o.log.tail())
	}
}

// logBuffer keeps what a process says and tells who waits for a text.
type logBuffer struct {
	mu      sync.Mutex
	all     bytes.Buffer
	waiting map[string]chan struct{}
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	n, err := l.all.Write(p)
	for text, seen := range l.waiting {
		if strings.Contains(l.all.String(), text) {
			close(seen)
			delete(l.waiting, text)
		}
	}
	return n, err
}

func (l *logBuffer) sees(text string) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if seen, ok := l.waiting[text]; ok {
		return seen
	}
	seen := make(chan struct{})
	if strings.Contains(l.all.String(), text) {
		close(seen)
		return seen
	}
	if l.waiting == nil {
		l.waiting = map[string]chan struct{}{}
	}
	l.waiting[text] = seen
	return seen
}

// tail is the end of it.
func (l *logBuffer) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.all.Bytes()
	return string(b[max(0, len(b)-16<<10):])
}

func (l *logBuffer) whole() []byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	return bytes.Clone(l.all.Bytes())
}

// about returns the lines that name a namespace.
func (l *logBuffer) about(ns string) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var out strings.Builder
	for line := range strings.Lines(l.all.String()) {
		if strings.Contains(line, ns) {
			out.WriteString(line)
		}
	}
	return out.String()
}
