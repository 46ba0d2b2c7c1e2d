// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"
)

// get asks the API server as admin. into may be nil.
func (c *Cluster) get(ctx context.Context, path string, into any) error {
	cert, err := tls.LoadX509KeyPair(c.path("pki", "admin.crt"), c.path("pki", "admin.key"))
	if err != nil {
		return err
	}
	ca, err := os.ReadFile(c.path("pki", "ca.crt"))
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	// Proxy stays unset: the address is on this machine, whatever the environment says
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots, Certificates: []tls.Certificate{cert}},
	}}
	defer client.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, ServerURL+path, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s: %.300s", path, resp.Status, body)
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(body, into)
}

func (c *Cluster) apiReady(ctx context.Context) error { return c.get(ctx, "/readyz", nil) }

type conditions struct {
	Metadata struct{ Name string }
	Status   struct {
		Conditions []condition
	}
}

type condition struct {
	Type, Status, Reason, Message string
	LastHeartbeatTime             time.Time // nodes have it
}

func (o conditions) find(kind string) (condition, error) {
	for _, c := range o.Status.Conditions {
		if c.Type == kind {
			return c, nil
		}
	}
	return condition{}, fmt.Errorf("%s has no condition %s yet", o.Metadata.Name, kind)
}

// is answers nil if the condition is True, and else what it says.
func (o conditions) is(kind string) error {
	c, err := o.find(kind)
	if err == nil && c.Status != "True" {
		err = fmt.Errorf("%s is not %s: %s: %s", o.Metadata.Name, kind, c.Reason, c.Message)
	}
	return err
}

// nodeReady wants the word of the kubelet that runs now: the API server still has what an earlier one said. It also
// looks at the driver: a node can be Ready before its kubelet knows the CSI driver.
func (c *Cluster) nodeReady(ctx context.Context) error {
	var node conditions
	if err := c.get(ctx, "/api/v1/nodes/"+NodeName, &node); err != nil {
		return err
	}
	if err := node.is("Ready"); err != nil {
		return err
	}
	kubelet, _, err := c.processOf("kubelet")
	if err != nil {
		return err
	}
	if r, err := node.find("Ready"); err != nil || r.LastHeartbeatTime.Before(kubelet.Launched.Truncate(time.Second)) {
		return errors.New("the kubelet has not reported since it was started")
	}
	var info struct {
		Spec struct{ Drivers []struct{ Name string } }
	}
	if err := c.get(ctx, "/apis/storage.k8s.io/v1/csinodes/"+NodeName, &info); err != nil {
		return err
	}
	for _, d := range info.Spec.Drivers {
		if d.Name == DriverName {
			return nil
		}
	}
	return fmt.Errorf("the kubelet does not know the CSI driver %s yet", DriverName)
}

func (c *Cluster) crdsEstablished(ctx context.Context) error {
	var list struct{ Items []conditions }
	if err := c.get(ctx, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", &list); err != nil {
		return err
	}
	if len(list.Items) == 0 {
		return errors.New("there are no CustomResourceDefinitions")
	}
	for _, crd := range list.Items {
		if strings.HasSuffix(crd.Metadata.Name, ".storage.k8s.io") {
			if err := crd.is("Established"); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Cluster) serviceAccountReady(ctx context.Context) error {
	return c.get(ctx, "/api/v1/namespaces/default/serviceaccounts/default", nil)
}

func (c *Cluster) containerdReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return quiet(ctx, c.ctr("version")...)
}

func (c *Cluster) ctr(args ...string) []string {
	return append([]string{c.Bin("ctr"), "--address", c.containerdSocket(), "--namespace", "k8s.io"}, args...)
}

func socketServes(path string) error {
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err != nil {
		return err
	}
	return conn.Close()
}

// kubectl runs kubectl as admin, free of the caller's proxy settings.
func (c *Cluster) kubectl(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, c.Bin("kubectl"), args...)
	cmd.Env = append(c.baseEnv(), "KUBECONFIG="+c.Kubeconfig())
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}

// waitReady waits until a component serves. It fails at once if the process is gone.
func (c *Cluster) waitReady(ctx context.Context, comp component) error {
	if comp.ready == nil {
		return nil
	}
	return c.wait(ctx, comp.name+" to be ready", 90*time.Second, func(ctx context.Context) error {
		if _, ok, err := c.processOf(comp.name); err != nil {
			return errFatal{err}
		} else if !ok {
			return errFatal{fmt.Errorf("%s ended; the end of %s:\n%s", comp.name, c.LogFile(comp.name), c.logTail(comp.name))}
		}
		return comp.ready(ctx)
	})
}

// errFatal ends a wait at once.
type errFatal struct{ error }

func (e errFatal) Unwrap() error { return e.error }

// wait asks again and again until the answer is nil. After the limit, the last answer is the reason.
func (c *Cluster) wait(ctx context.Context, what string, limit time.Duration, ask func(context.Context) error) error {
	for deadline := time.Now().Add(limit); ; {
		err := ask(ctx)
		if err == nil {
			return nil
		}
		var fatal errFatal
		if errors.As(err, &fatal) {
			return fatal.error
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("waited %s for %s, in vain (logs are in %s): %w", limit, what, c.path("log"), err)
		}
		if err := sleep(ctx, 100*time.Millisecond); err != nil {
			return err
		}
	}
}
