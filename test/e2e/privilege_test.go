// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/test/cluster"
)

const operatorUser = "system:serviceaccount:" + operatorNamespace + ":stillpoint"

// Every operator of these tests has the rights of config/rbac and no more; test/integration shows of the other rights that they are needed.
func TestEveryRightToExecIsNeeded(t *testing.T) {
	for _, c := range []struct {
		verb, group, resource, subresource string
		protocol                           string
		account                            bool
	}{
		{verb: "get", resource: "pods", subresource: "exec", protocol: "websocket"},
		{verb: "create", resource: "pods", subresource: "exec", protocol: "spdy"},
		{verb: "impersonate:serviceaccount", group: "authentication.k8s.io", resource: "serviceaccounts", protocol: "websocket", account: true},
		{verb: "impersonate-on:serviceaccount:get", resource: "pods", subresource: "exec", protocol: "websocket", account: true},
		{verb: "impersonate-on:serviceaccount:create", resource: "pods", subresource: "exec", protocol: "spdy", account: true},
	} {
		t.Run(c.verb, func(t *testing.T) {
			startOperator(t, "--exec-protocol="+c.protocol)
			w := settle(t)
			db := w.app("db")
			s := w.schedule("hourly", freezing(db), func(s *v1.SnapshotScheduleSpec) {
				if c.account {
					s.ServiceAccountName = "snapshots"
				}
			})
			w.mayExec("snapshots")
			without := c.resource
			if c.subresource != "" {
				without += "/" + c.subresource
			}
			w.withoutRight(without, c.verb, authorizationv1.ResourceAttributes{Namespace: w.ns, Verb: c.verb, Group: c.group, Resource: c.resource, Subresource: c.subresource})

			o := w.ends(w.start(s), v1.ResultFailed)

			w.expectReason(o, "freeze", v1.ReasonForbidden)
			w.Expect(db.noted("pre")).To(BeZero())
			db.expectFree()
		})
	}
}

// withoutRight takes one right from the operator until the test ends.
func (w *world) withoutRight(resource, verb string, right authorizationv1.ResourceAttributes) {
	w.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "stillpoint"}}
	w.Expect(api.Get(w.Context(), keyOf(role), role)).To(Succeed())
	shipped := slices.Clone(role.Rules)
	w.Cleanup(func() {
		ctx := context.Background() // the test's own is over
		w.Expect(api.Get(ctx, keyOf(role), role)).To(Succeed())
		role.Rules = shipped
		w.Expect(api.Update(ctx, role)).To(Succeed())
		w.untilAllowed(operatorUser, right, true)
	})
	found := false
	change(w, role, func(r *rbacv1.ClusterRole) {
		for i := range r.Rules {
			rule := r.Rules[i].DeepCopy()
			if slices.Contains(rule.Resources, resource) && slices.Contains(rule.Verbs, verb) {
				found = true
				rule.Verbs = slices.DeleteFunc(rule.Verbs, func(v string) bool { return v == verb })
				if len(rule.Verbs) == 0 {
					rule.Verbs = []string{"none"}
				}
			}
			r.Rules[i] = *rule
		}
	})
	w.Expect(found).To(BeTrue(), "the shipped role has no right to %s %s", verb, resource)
	w.untilAllowed(operatorUser, right, false)
}

// untilAllowed waits until the API server answers so about a user.
func (w *world) untilAllowed(user string, right authorizationv1.ResourceAttributes, allowed bool) {
	w.Helper()
	w.Eventually(func() (bool, error) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &right}}
		err := api.Create(context.Background(), review)
		return review.Status.Allowed, err
	}, patience, "50ms").Should(Equal(allowed))
}

// mayExec lets an account of the test's namespace run commands in its pods.
func (w *world) mayExec(account string) *rbacv1.RoleBinding {
	w.Helper()
	w.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}})
	w.create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "hooks"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"pods/exec"}, Verbs: []string{"get", "create"}},
	}})
	binding := w.binding(account)
	w.create(binding)
	return binding
}

func (w *world) binding(account string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "hooks"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "hooks"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account}},
	}
}

// quiescedWithoutRights is a run that has frozen its application and then lost its account's rights.
func (w *world) quiescedWithoutRights() (*app, *v1.SnapshotSchedule, *v1.SnapshotRun) {
	w.Helper()
	db := w.app("db")
	binding := w.mayExec("snapshots")
	s := w.schedule("hourly", freezing(db), func(s *v1.SnapshotScheduleSpec) { s.ServiceAccountName = "snapshots" })
	w.knobs(cluster.Knobs{CutDelay: 20 * time.Second})
	o := w.reaches(w.start(s), v1.PhaseSnapshotting)
	w.remove(binding)
	w.remove(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "snapshots"}})
	w.untilAllowed("system:serviceaccount:"+w.ns+":snapshots",
		authorizationv1.ResourceAttributes{Namespace: w.ns, Verb: "create", Resource: "pods", Subresource: "exec"}, false)
	w.Expect(local.ResetKnobs()).To(Succeed())
	w.remove(o) // to its release
	return db, s, await(w, o, "refused at its release", func(o *v1.SnapshotRun) bool { return target(hookOf(o, "thaw")).Reason == v1.ReasonForbidden })
}

func TestRightsLostWhileQuiescedAreSaidAndTheReleaseGoesOnWhenTheyAreBack(t *testing.T) {
	w := begin(t)
	db, s, o := w.quiescedWithoutRights()
	w.Expect(db.frozen()).To(BeTrue())
	w.expectCondition(o.Status.Conditions, v1.ConditionMayBeQuiesced, metav1.ConditionTrue, v1.ReasonReleasing)
	await(w, s, "saying that the application may be quiesced", func(s *v1.SnapshotSchedule) bool {
		return meta.IsStatusConditionTrue(s.Status.Conditions, v1.ConditionMayBeQuiesced)
	})

	w.create(w.binding("snapshots")) // the account itself is but a name to RBAC

	awaitGone(w, o)
	db.expectFree()
	await(w, s, "saying that it is released", func(s *v1.SnapshotSchedule) bool {
		return meta.IsStatusConditionFalse(s.Status.Conditions, v1.ConditionMayBeQuiesced)
	})
}

func TestRightsLostForLongerThanTheReleaseDeadlineRaiseTheAlarm(t *testing.T) {
	startOperator(t, "--release-deadline=4s")
	w := settle(t)
	db, s, o := w.quiescedWithoutRights()
	await(w, s, "alarmed", func(s *v1.SnapshotSchedule) bool {
		c := meta.FindStatusCondition(s.Status.Conditions, v1.ConditionMayBeQuiesced)
		return c != nil && c.Status == metav1.ConditionTrue && c.Reason == v1.ReasonGivenUp
	})
	w.expectEvent(o, "ReleaseGivenUp", "mode: Release")
	w.Expect(db.frozen()).To(BeTrue())

	w.create(w.binding("snapshots"))
	w.ends(w.start(s, v1.RunRelease), v1.ResultSucceeded)
	db.expectFree()
	await(w, s, "no longer alarmed", func(s *v1.SnapshotSchedule) bool {
		return meta.IsStatusConditionFalse(s.Status.Conditions, v1.ConditionMayBeQuiesced)
	})
}
