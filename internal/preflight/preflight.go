// SPDX-License-Identifier: Apache-2.0

// Package preflight asks an API server whether an installation has what it needs: served kinds, rights, a snapshot class, an operator that
// holds the lease. It changes nothing.
package preflight

import (
	"context"
	"fmt"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// Installation is what to look at.
type Installation struct {
	// Namespaces that the operator works in; none: all.
	Namespaces []string
	// Hooks are switched on.
	Hooks bool
	// LeaseNamespace and Lease of the operator that works.
	LeaseNamespace, Lease string
}

// Finding is the answer to one question, in words for an operator.
type Finding struct {
	OK   bool
	Text string
}

type right struct{ verb, group, resource, subresource string }

var (
	kinds = map[string][]string{
		"snapscheduler.backube/v1":   {"snapshotschedules", "snapshotruns"},
		"snapshot.storage.k8s.io/v1": {"volumesnapshots", "volumesnapshotclasses"},
	}
	snapshotRights = []right{
		{"watch", "snapscheduler.backube", "snapshotschedules", ""}, {"patch", "snapscheduler.backube", "snapshotschedules", "status"},
		{"create", "snapscheduler.backube", "snapshotruns", ""}, {"patch", "snapscheduler.backube", "snapshotruns", "status"},
		{"create", "snapshot.storage.k8s.io", "volumesnapshots", ""}, {"delete", "snapshot.storage.k8s.io", "volumesnapshots", ""},
		{"list", "", "persistentvolumeclaims", ""},
	}
	hookRights = []right{{"list", "", "pods", ""}, {"get", "", "pods", "exec"}, {"create", "", "pods", "exec"}}
)

// Check asks everything, as whoever client is. An error means that the API server did not answer.
func Check(ctx context.Context, client kubernetes.Interface, in Installation, now time.Time) ([]Finding, error) {
	var out []Finding
	for _, group := range []string{"snapscheduler.backube/v1", "snapshot.storage.k8s.io/v1"} {
		list, err := client.Discovery().ServerResourcesForGroupVersion(group)
		if err != nil && !apierrors.IsNotFound(err) {
			return nil, fmt.Errorf("asking which kinds of %s the API server serves: %w", group, err)
		}
		served := map[string]bool{}
		if list != nil {
			for i := range list.APIResources {
				served[list.APIResources[i].Name] = true
			}
		}
		for _, kind := range kinds[group] {
			out = append(out, Finding{served[kind], fmt.Sprintf("the API server serves %s of %s", kind, group)})
		}
	}
	rights := snapshotRights
	if in.Hooks {
		rights = append(rights[:len(rights):len(rights)], hookRights...)
	}
	namespaces := in.Namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	for _, ns := range namespaces {
		for _, r := range rights {
			f, err := may(ctx, client, ns, r)
			if err != nil {
				return nil, err
			}
			out = append(out, f)
		}
	}
	f, err := leads(ctx, client, in, now)
	if err != nil {
		return nil, err
	}
	return append(out, f), nil
}

func may(ctx context.Context, client kubernetes.Interface, namespace string, r right) (Finding, error) {
	review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
		Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: r.verb, Group: r.group, Resource: r.resource, Subresource: r.subresource}},
	}, metav1.CreateOptions{})
	name, where := r.resource, "every namespace"
	if r.subresource != "" {
		name += "/" + r.subresource
	}
	if namespace != metav1.NamespaceAll {
		where = "namespace " + namespace
	}
	if err != nil {
		return Finding{}, fmt.Errorf("asking for the right to %s %s: %w", r.verb, name, err)
	}
	return Finding{review.Status.Allowed, fmt.Sprintf("this account may %s %s in %s", r.verb, name, where)}, nil
}

func leads(ctx context.Context, client kubernetes.Interface, in Installation, now time.Time) (Finding, error) {
	lease, err := client.CoordinationV1().Leases(in.LeaseNamespace).Get(ctx, in.Lease, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return Finding{false, fmt.Sprintf("an operator holds lease %s/%s: it does not exist", in.LeaseNamespace, in.Lease)}, nil
	}
	if err != nil {
		return Finding{}, fmt.Errorf("reading lease %s/%s: %w", in.LeaseNamespace, in.Lease, err)
	}
	holder := ptr.Deref(lease.Spec.HolderIdentity, "")
	duration := time.Duration(ptr.Deref(lease.Spec.LeaseDurationSeconds, 0)) * time.Second
	alive := holder != "" && lease.Spec.RenewTime != nil && now.Before(lease.Spec.RenewTime.Add(duration))
	return Finding{alive, fmt.Sprintf("an operator holds lease %s/%s: %q", in.LeaseNamespace, in.Lease, holder)}, nil
}
