// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"errors"
	"reflect"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
)

func TestRights(t *testing.T) {
	snapshots := Account{Namespace: "shop", Name: "snapshots"}
	for name, tc := range map[string]struct {
		account Account
		allowed []string
		want    bool
		reason  string
	}{
		"the operator itself": {Account{}, []string{"create", "get"}, true, ""},
		"an account":          {snapshots, []string{"create", "get"}, true, ""},
		"create alone is not enough": {
			snapshots, []string{"create"}, false,
			"ServiceAccount shop/snapshots may not get pods/exec in namespace db: no rule",
		},
		"get alone is not enough": {
			snapshots, []string{"get"}, false,
			"ServiceAccount shop/snapshots may not create pods/exec in namespace db: no rule",
		},
		"the operator has no rights": {Account{}, nil, false, "the operator may not create pods/exec in namespace db: no rule"},
	} {
		t.Run(name, func(t *testing.T) {
			client := fake.NewClientset()
			answer := func(a *authorizationv1.ResourceAttributes) authorizationv1.SubjectAccessReviewStatus {
				if a.Namespace != "db" || a.Resource != "pods" || a.Subresource != "exec" || a.Group != "" || a.Name != "" {
					t.Errorf("asked about %+v", a)
				}
				for _, verb := range tc.allowed {
					if a.Verb == verb {
						return authorizationv1.SubjectAccessReviewStatus{Allowed: true}
					}
				}
				return authorizationv1.SubjectAccessReviewStatus{Reason: "no rule"}
			}
			client.PrependReactor("create", "*", func(action k8stesting.Action) (bool, runtime.Object, error) {
				switch review := action.(k8stesting.CreateAction).GetObject().(type) {
				case *authorizationv1.SelfSubjectAccessReview:
					if tc.account != (Account{}) {
						t.Error("asked about the operator")
					}
					review.Status = answer(review.Spec.ResourceAttributes)
					return true, review, nil
				case *authorizationv1.LocalSubjectAccessReview:
					if action.GetNamespace() != "db" || review.Namespace != "db" || review.Spec.User != "system:serviceaccount:shop:snapshots" || !reflect.DeepEqual(review.Spec.Groups,
						[]string{"system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated"}) {
						t.Errorf("asked about %+v", review.Spec)
					}
					review.Status = answer(review.Spec.ResourceAttributes)
					return true, review, nil
				}
				return false, nil, nil
			})
			allowed, reason, err := NewRights(client.AuthorizationV1()).Check(t.Context(), "db", tc.account)
			if err != nil || allowed != tc.want || reason != tc.reason {
				t.Fatalf("got %v, %q, %v", allowed, reason, err)
			}
		})
	}
}

func TestWhoeverMayNotEvenAskIsToldSo(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("create", "localsubjectaccessreviews", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(authorizationv1.Resource("localsubjectaccessreviews"), "", errors.New("no rule"))
	})
	allowed, _, err := NewRights(client.AuthorizationV1()).Check(t.Context(), "db", Account{Namespace: "shop", Name: "snapshots"})
	if allowed || !apierrors.IsForbidden(err) {
		t.Errorf("got %v, %v", allowed, err)
	}
}

func TestAnUnansweredReviewIsNoAnswer(t *testing.T) {
	client := fake.NewClientset()
	client.PrependReactor("create", "*", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, errors.New("out of order")
	})
	for _, account := range []Account{{}, {Namespace: "shop", Name: "snapshots"}} {
		if allowed, _, err := NewRights(client.AuthorizationV1()).Check(t.Context(), "db", account); err == nil || allowed {
			t.Errorf("%+v: got %v, %v", account, allowed, err)
		}
	}
}
