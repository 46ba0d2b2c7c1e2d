// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/stillpoint-operator/stillpoint/test/process"
)

const (
	operatorNamespace = "stillpoint-system"
	leaseName         = "cd2d8e9f.backube"
	// drain is how long the operator may take to release what is quiesced before it stops.
	drain = 30 * time.Second
	// leaseWait covers the lease of an operator that was killed: 15 s, and some for a busy machine.
	leaseWait = 60 * time.Second
)

func (d *demo) operatorLog() string    { return d.cluster.LogFile("stillpoint") }
func (d *demo) operatorRecord() string { return filepath.Join(d.dir(), "operator.json") }

// operatorUp builds the operator and starts it as a process of this machine. It has the identity of the ServiceAccount
// that it would have as a pod: what config/rbac grants, and nothing else.
func (d *demo) operatorUp(ctx context.Context) error {
	d.say("the operator: building it")
	binary := filepath.Join(d.dir(), "stillpoint")
	build := exec.CommandContext(ctx, "go", "build", "-buildvcs=false", "-o", binary+".new", ".")
	build.Dir = d.root
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	build.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if out, err := build.CombinedOutput(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("go build failed: %w\n%s", err, strings.TrimSpace(string(out)))
	}
	if err := d.operatorDown(); err != nil {
		return err
	}
	if err := os.Rename(binary+".new", binary); err != nil {
		return err
	}

	d.say("the operator: applying config/crd and config/rbac")
	apply := []string{"apply", "--server-side", "--force-conflicts"}
	if _, err := d.kubectl(ctx, "", append(apply, "-f", "config/crd", "-f", "config/manager/namespace.yaml")...); err != nil {
		return err
	}
	if _, err := d.kubectl(ctx, "", "wait", "--for=condition=Established", "--timeout=30s", "-f", "config/crd"); err != nil {
		return err
	}
	if _, err := d.kubectl(ctx, "", append(apply, "-k", "config/rbac")...); err != nil {
		return err
	}
	kubeconfig, err := d.cluster.CreateUserKubeconfig("system:serviceaccount:"+operatorNamespace+":stillpoint",
		"system:serviceaccounts", "system:serviceaccounts:"+operatorNamespace)
	if err != nil {
		return fmt.Errorf("making its kubeconfig: %w", err)
	}
	return d.startOperator(ctx, binary, kubeconfig)
}

func (d *demo) startOperator(ctx context.Context, binary, kubeconfig string) error {
	ports, err := freePorts(2)
	if err != nil {
		return fmt.Errorf("finding free ports: %w", err)
	}
	cmd := exec.Command(binary, "--leader-election-namespace="+operatorNamespace, "--drain-timeout="+drain.String(),
		"--health-probe-bind-address="+ports[0], "--metrics-bind-address="+ports[1], "--metrics-secure=false")
	cmd.Env = append(environ(), "KUBECONFIG="+kubeconfig)
	cmd.Dir = "/"
	started, err := process.Launch(cmd, d.operatorLog())
	if err != nil {
		return fmt.Errorf("%w; the end of %s:\n%s", err, d.operatorLog(), tail(d.operatorLog()))
	}
	p := operator{started, ports[0], ports[1]}
	if err := p.record(d.operatorRecord()); err != nil {
		return errors.Join(err, p.End(time.Second))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, leaseWait, errors.New("too late"))
	defer cancel()
	for begin := time.Now(); !p.leads(ctx); {
		if !p.Alive() {
			return fmt.Errorf("it ended after %.0f s; the end of %s:\n%s", time.Since(begin).Seconds(), d.operatorLog(), tail(d.operatorLog()))
		}
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			if time.Since(begin) >= leaseWait {
				return fmt.Errorf("it did not get the lease %s/%s within %s: does another operator run on this cluster? The end of %s:\n%s",
					operatorNamespace, leaseName, leaseWait, d.operatorLog(), tail(d.operatorLog()))
			}
			return err
		}
	}
	d.say("the operator: runs as ServiceAccount %s/stillpoint, process %d, log %s", operatorNamespace, p.PID, d.operatorLog())
	return nil
}

// leads asks the process itself whether it has the lease; until then it serves and does nothing.
func (p operator) leads(ctx context.Context) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.Metrics+"/metrics", nil)
	if err != nil {
		return false
	}
	resp, err := (&http.Client{Timeout: 2 * time.Second}).Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	return err == nil && strings.Contains(string(b), `leader_election_master_status{name="`+leaseName+`"} 1`)
}

// operatorDown stops the operator of this or an earlier demo. It releases what is quiesced before it ends.
func (d *demo) operatorDown() error {
	p, err := readOperator(d.operatorRecord())
	if err != nil {
		return err
	}
	if p.Alive() {
		d.say("the operator: stopping process %d", p.PID)
		if err := p.End(drain + 10*time.Second); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(d.operatorRecord()); err != nil {
		return err
	}
	return nil
}

// operatorDied is nil while the operator runs.
func (d *demo) operatorDied() error {
	p, err := readOperator(d.operatorRecord())
	if err != nil || p.Alive() {
		return err
	}
	return fmt.Errorf("the operator's process has ended; the end of its log %s:\n%s", d.operatorLog(), tail(d.operatorLog()))
}

func freePorts(n int) ([]string, error) {
	var addresses []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close() // all stay open until every one is chosen, so that they differ
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
}

func tail(file string) string {
	b, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	return "  " + strings.Join(lines[max(0, len(lines)-5):], "\n  ")
}
