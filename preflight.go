// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/stillpoint-operator/stillpoint/internal/preflight"
)

// namespaceFile tells a pod its namespace.
const namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"

// checkInstallation prints what the installation has and lacks. What it lacks is an error.
func checkInstallation(ctx context.Context, cfg *rest.Config, o *options, now time.Time, out io.Writer) error {
	namespaces, err := o.namespaces()
	if err != nil {
		return err
	}
	in := preflight.Installation{Namespaces: namespaces, Hooks: o.enableHooks, LeaseNamespace: o.leaderNamespace, Lease: leaseName}
	if in.LeaseNamespace == "" {
		own, err := os.ReadFile(namespaceFile)
		if err != nil {
			return fmt.Errorf("finding the operator's namespace (outside of a pod: --leader-election-namespace): %w", err)
		}
		in.LeaseNamespace = strings.TrimSpace(string(own))
	}
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return fmt.Errorf("setting up a client: %w", err)
	}
	findings, err := preflight.Check(ctx, client, in, now)
	if err != nil {
		return err
	}
	lacking := 0
	for _, f := range findings {
		word := "yes"
		if !f.OK {
			word = "NO "
			lacking++
		}
		fmt.Fprintln(out, word, f.Text)
	}
	if lacking > 0 {
		return errors.New("the installation lacks what is marked with NO; a role of config/rbac or of the chart, or a CRD, is missing or older than the operator")
	}
	return nil
}
