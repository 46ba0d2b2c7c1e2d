// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"context"
	"fmt"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
)

// Account is the ServiceAccount that a command runs as. The zero Account is the operator itself.
type Account struct {
	Namespace string
	Name      string
}

// username is the name that the API server knows the account by.
func (a Account) username() string {
	return "system:serviceaccount:" + a.Namespace + ":" + a.Name
}

// groups are those that the API server gives every token of the account.
func (a Account) groups() []string {
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + a.Namespace, "system:authenticated"}
}

// Rights asks the API server what accounts may do.
type Rights struct {
	client authorizationv1client.AuthorizationV1Interface
}

// NewRights returns a Rights that asks through client, for instance a clientset's AuthorizationV1().
func NewRights(client authorizationv1client.AuthorizationV1Interface) *Rights {
	return &Rights{client: client}
}

// Check says whether the account may exec into pods of the namespace: create and get on pods/exec, because one exec protocol opens with
// a POST and the other with a GET. When it may not, reason is one line for an operator. An error means that nothing is known: ask again, unless it is Forbidden: then whoever asks may not even ask.
//
// The answer is about now. Rights can go at any time, so a later Forbidden must still be expected.
func (r *Rights) Check(ctx context.Context, namespace string, account Account) (allowed bool, reason string, err error) {
	for _, verb := range []string{"create", "get"} {
		allowed, why, err := r.review(ctx, account, &authorizationv1.ResourceAttributes{
			Namespace: namespace, Verb: verb, Resource: "pods", Subresource: "exec",
		})
		if err != nil {
			return false, "", err
		}
		if !allowed {
			who := "the operator"
			if account != (Account{}) {
				who = "ServiceAccount " + account.Namespace + "/" + account.Name
			}
			reason := fmt.Sprintf("%s may not %s pods/exec in namespace %s", who, verb, namespace)
			if why != "" {
				reason += ": " + why
			}
			return false, line(reason), nil
		}
	}
	return true, "", nil
}

// review asks for one right.
func (r *Rights) review(ctx context.Context, account Account, attributes *authorizationv1.ResourceAttributes) (bool, string, error) {
	var status authorizationv1.SubjectAccessReviewStatus
	if account == (Account{}) {
		review, err := r.client.SelfSubjectAccessReviews().Create(ctx, &authorizationv1.SelfSubjectAccessReview{
			Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes},
		}, metav1.CreateOptions{})
		if err != nil {
			return false, "", fmt.Errorf("creating SelfSubjectAccessReview: %w", err)
		}
		status = review.Status
	} else {
		// The local review needs no right that reaches beyond the namespace.
		review, err := r.client.LocalSubjectAccessReviews(attributes.Namespace).Create(ctx, &authorizationv1.LocalSubjectAccessReview{
			ObjectMeta: metav1.ObjectMeta{Namespace: attributes.Namespace},
			Spec: authorizationv1.SubjectAccessReviewSpec{
				User: account.username(), Groups: account.groups(), ResourceAttributes: attributes,
			},
		}, metav1.CreateOptions{})
		if err != nil {
			return false, "", fmt.Errorf("creating LocalSubjectAccessReview for %s: %w", account.username(), err)
		}
		status = review.Status
	}
	why := status.Reason
	if status.EvaluationError != "" {
		if why != "" {
			why += "; "
		}
		why += status.EvaluationError
	}
	return status.Allowed && !status.Denied, why, nil
}
