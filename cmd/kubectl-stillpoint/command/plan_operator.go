// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stillpoint-operator/stillpoint/hooks"
	"github.com/stillpoint-operator/stillpoint/internal/run"
)

// operatorFacts are what the flags of the operator that works in a namespace say. Without an operator they are the flags' defaults.
type operatorFacts struct {
	account         hooks.Account // zero: not known
	rules           run.HookRules
	releaseDeadline time.Duration
	readyTimeout    time.Duration
	namespaces      []string // that it works in; empty: all
}

// operator that works in a namespace, as its pods say. An error says why it was not found; the facts are then the defaults.
func (k *kube) operator(ctx context.Context, namespace string) (operatorFacts, error) {
	defaults := factsOf(nil)
	var pods corev1.PodList
	if err := k.List(ctx, &pods, client.MatchingLabels{"app.kubernetes.io/name": "stillpoint", "app.kubernetes.io/component": "operator"}); err != nil {
		return defaults, err
	}
	var found []operatorFacts
	for i := range pods.Items {
		pod := &pods.Items[i]
		for j := range pod.Spec.Containers {
			facts := factsOf(pod.Spec.Containers[j].Args)
			facts.account = hooks.Account{Namespace: pod.Namespace, Name: pod.Spec.ServiceAccountName}
			if len(facts.namespaces) > 0 && !slices.Contains(facts.namespaces, namespace) {
				continue // it works elsewhere
			}
			if !slices.ContainsFunc(found, func(f operatorFacts) bool { return f.account == facts.account }) {
				found = append(found, facts)
			}
		}
	}
	if len(found) != 1 {
		return defaults, fmt.Errorf("%d operators have pods labelled app.kubernetes.io/name=stillpoint and work in namespace %s", len(found), namespace)
	}
	return found[0], nil
}

// factsOf the arguments of an operator. Flags that do not matter here are passed over, and so are values that cannot be read.
func factsOf(args []string) operatorFacts {
	var f operatorFacts
	var namespaces string
	enabled := true
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.StringVar(&f.rules.DefaultAccount, "default-hook-service-account", "", "")
	flags.BoolVar(&f.rules.CrossNamespace, "allow-cross-namespace-hooks", false, "")
	flags.BoolVar(&enabled, "enable-hooks", true, "")
	flags.StringVar(&namespaces, "watch-namespaces", "", "")
	flags.DurationVar(&f.releaseDeadline, "release-deadline", time.Hour, "")
	flags.DurationVar(&f.readyTimeout, "ready-timeout", 24*time.Hour, "")
	for i, a := range args {
		if len(a) > 2 && a[0] == '-' && a[1] != '-' {
			args[i] = "-" + a // Go's flags take one dash as well as two
		}
	}
	if err := flags.Parse(args); err != nil {
		return factsOf(nil)
	}
	for _, n := range strings.Split(namespaces, ",") {
		if n = strings.TrimSpace(n); n != "" {
			f.namespaces = append(f.namespaces, n)
		}
	}
	if !enabled {
		f.rules.Off = "this operator runs none (--enable-hooks=false)"
	}
	return f
}
