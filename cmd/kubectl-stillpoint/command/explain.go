// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"
)

const nobodyKnows = "no cluster is configured: set KUBECONFIG, or use --kubeconfig"

// explain an error to somebody who is tired: what happened, and what to type next.
func (p *program) explain(err error) string {
	text := err.Error()
	var status apierrors.APIStatus
	var dns *net.DNSError
	var dial *net.OpError
	var unreachable *url.Error
	switch {
	case errors.Is(err, context.Canceled) && errors.Unwrap(err) == nil:
		return "interrupted"
	case clientcmd.IsEmptyConfig(err):
		return nobodyKnows
	case clientcmd.IsContextNotFound(err):
		return text + "\nthe contexts that there are: kubectl config get-contexts"
	case apierrors.IsForbidden(err):
		return text + p.mayNot(text)
	case apierrors.IsUnauthorized(err):
		return text + "\nthe cluster does not accept your credentials; they may have run out: log in again, or choose another context with --context"
	case apierrors.IsNotFound(err) && errors.As(err, &status) && (status.Status().Details == nil || status.Status().Details.Name == ""):
		return text + "\nthe cluster does not know these objects: Stillpoint or the CSI snapshot controller is not installed there, or it is another cluster than you mean" + p.where()
	case (errors.As(err, &dial) || errors.As(err, &unreachable)) && p.unconfigured():
		return nobodyKnows
	case errors.As(err, &dns), errors.As(err, &dial), errors.As(err, &unreachable):
		return text + "\nthe API server cannot be reached" + p.where()
	}
	return text
}

var forbidden = regexp.MustCompile(`User "([^"]*)" cannot (\S+) resource "([^"]+)" in API group "([^"]*)"(?: in the namespace "([^"]+)")?`)

// mayNot says which right is missing and how to ask for it.
func (p *program) mayNot(text string) string {
	m := forbidden.FindStringSubmatch(text)
	if m == nil {
		return "\nyou lack the right; ask whoever administers the cluster"
	}
	user, verb, resource, group, namespace := m[1], m[2], m[3], m[4], m[5]
	if group != "" {
		resource += "." + group
	}
	scope := "in all namespaces"
	flag := " -A"
	if namespace != "" {
		scope = "in namespace " + namespace
		flag = " -n " + namespace
	}
	return fmt.Sprintf("\nyou (%s) may not %s %s %s. Ask whoever administers it, and see: kubectl auth can-i %s %s%s", user, verb, resource, scope, verb, resource, flag)
}

// unconfigured: no kubeconfig names a cluster, and no flag does.
func (p *program) unconfigured() bool {
	raw, err := p.flags.ToRawKubeConfigLoader().RawConfig()
	cfg, cfgErr := p.flags.ToRESTConfig()
	return err == nil && cfgErr == nil && len(raw.Clusters) == 0 && strings.HasSuffix(cfg.Host, "localhost:8080")
}

// where the command looked.
func (p *program) where() string {
	raw, err := p.flags.ToRawKubeConfigLoader().RawConfig()
	if err != nil {
		return ""
	}
	name := raw.CurrentContext
	if p.flags.Context != nil && *p.flags.Context != "" {
		name = *p.flags.Context
	}
	var parts []string
	if name != "" {
		parts = append(parts, "context "+name)
	}
	if cfg, err := p.flags.ToRESTConfig(); err == nil {
		parts = append(parts, "server "+cfg.Host)
	}
	if len(parts) == 0 {
		return ""
	}
	return " (" + strings.Join(parts, ", ") + ")"
}
