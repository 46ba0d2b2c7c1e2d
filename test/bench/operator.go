// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
)

const (
	leaseName    = "cd2d8e9f.backube" // as main.go names it, and the program that it replaces
	leaderWithin = time.Minute
)

// operator is a process that serves schedules.
type operator struct {
	cmd  *osexec.Cmd
	log  string        // its file
	done chan struct{} // closed when it has ended
}

// launch the operator and wait until it leads. config is how it connects; its address may be a proxy's.
func (w *world) launch(ctx context.Context, config *rest.Config) (*operator, error) {
	before, err := w.leader(ctx)
	if err != nil {
		return nil, err
	}
	o, err := w.spawn(config)
	if err != nil {
		return nil, err
	}
	if err := o.leads(ctx, w, before); err != nil {
		return nil, errors.Join(err, o.stop())
	}
	return o, nil
}

// leads waits until somebody else leads than before.
func (o *operator) leads(ctx context.Context, w *world, before string) error {
	ctx, cancel := context.WithTimeout(ctx, leaderWithin)
	defer cancel()
	err := poll(ctx, 20*time.Millisecond, func() (bool, error) {
		if err := o.alive(); err != nil {
			return false, err
		}
		now, err := w.leader(ctx)
		return now != "" && now != before, err
	})
	if err != nil {
		return fmt.Errorf("waiting until the operator leads: %w", err)
	}
	return nil
}

// spawn starts an operator, which may have to wait for another one to end.
func (w *world) spawn(config *rest.Config) (*operator, error) {
	kubeconfig := filepath.Join(w.dir, "operator.kubeconfig")
	if err := writeKubeconfig(kubeconfig, config); err != nil {
		return nil, err
	}
	args := strings.Fields(w.options.command)
	if len(args) == 0 {
		args = []string{filepath.Join(w.dir, "stillpoint"), "--leader-election-namespace=" + systemNamespace, "--metrics-bind-address=127.0.0.1:0",
			"--health-probe-bind-address=127.0.0.1:0"}
		if w.options.pprof != "" {
			args = append(args, "--pprof-bind-address="+w.options.pprof)
		}
	}
	log, err := os.CreateTemp(w.dir, "operator-*.log")
	if err != nil {
		return nil, err
	}
	defer log.Close()
	o := &operator{cmd: osexec.Command(args[0], args[1:]...), log: log.Name(), done: make(chan struct{})}
	o.cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	o.cmd.Stdout, o.cmd.Stderr = log, log
	o.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	if err := o.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the operator: %w", err)
	}
	go func() {
		defer close(o.done)
		_ = o.cmd.Wait() // cmd.ProcessState says how it ended
	}()
	return o, nil
}

// leader is who holds the lease; empty: nobody.
func (w *world) leader(ctx context.Context) (string, error) {
	var leases coordinationv1.LeaseList
	if err := w.admin.List(ctx, &leases); err != nil {
		return "", err
	}
	for _, l := range leases.Items {
		if l.Name == leaseName {
			return ptr.Deref(l.Spec.HolderIdentity, ""), nil
		}
	}
	return "", nil
}

// alive fails with the end of the log if the process has ended.
func (o *operator) alive() error {
	select {
	case <-o.done:
		text, _ := os.ReadFile(o.log)
		lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
		return fmt.Errorf("the operator ended (%s): %s", o.cmd.ProcessState, bytes.Join(lines[max(0, len(lines)-5):], []byte("\n")))
	default:
		return nil
	}
}

// stop asks it to end, as the kubelet would.
func (o *operator) stop() error {
	_ = o.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-o.done:
		return nil
	case <-time.After(40 * time.Second): // its drain-timeout is 30 s
		_ = o.cmd.Process.Kill()
		<-o.done
		return errors.New("the operator did not end in time")
	}
}

// memory that the process holds, in bytes.
func (o *operator) memory() (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", o.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmRSS:" {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			return kib << 10, err
		}
	}
	return 0, errors.New("the kernel does not say how much memory the process holds")
}

// cpu is the processor time that the process has used.
func (o *operator) cpu() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", o.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	user, err1 := strconv.ParseInt(f[11], 10, 64)
	system, err2 := strconv.ParseInt(f[12], 10, 64)
	return time.Duration(user+system) * (time.Second / 100), errors.Join(err1, err2)
}

func writeKubeconfig(path string, config *rest.Config) error {
	c := clientcmdapi.NewConfig()
	c.Clusters["bench"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	c.AuthInfos["bench"] = &clientcmdapi.AuthInfo{ClientCertificateData: config.CertData, ClientKeyData: config.KeyData}
	c.Contexts["bench"] = &clientcmdapi.Context{Cluster: "bench", AuthInfo: "bench"}
	c.CurrentContext = "bench"
	return clientcmd.WriteToFile(*c, path)
}

// poll for what nothing signals.
func poll(ctx context.Context, every time.Duration, met func() (bool, error)) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		ok, err := met()
		if ok || (err != nil && !apierrors.IsNotFound(err)) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
