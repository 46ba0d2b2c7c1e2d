// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

func TestHooksRunWithTheRightsOfTheirAccountOverBothProtocols(t *testing.T) {
	for _, protocol := range []string{"websocket", "spdy"} {
		t.Run(protocol, func(t *testing.T) {
			startOperator(t, "--exec-protocol="+protocol)
			w := settle(t)
			db := w.app("db")
			w.create(&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "snapshots"}})
			s := w.schedule("hourly", freezing(db), func(s *v1.SnapshotScheduleSpec) { s.ServiceAccountName = "snapshots" })

			o := w.ends(w.start(s), v1.ResultFailed)
			w.expectReason(o, "freeze", v1.ReasonForbidden, "snapshots", "pods/exec")
			w.expectCondition(o.Status.Conditions, v1.ConditionPreHooksSucceeded, metav1.ConditionFalse, v1.ReasonPreflightFailed)
			w.expectCondition(o.Status.Conditions, v1.ConditionMayBeQuiesced, metav1.ConditionFalse, v1.ReasonNothingQuiesced)
			w.expectLabels(o, map[string]string{})
			w.Expect([]int{db.noted("pre"), db.noted("post")}).To(Equal([]int{0, 0}))

			w.create(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "hooks"}, Rules: []rbacv1.PolicyRule{
				{APIGroups: []string{""}, Resources: []string{"pods/exec"}, Verbs: []string{"get", "create"}},
			}})
			w.create(&rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: "hooks"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "hooks"},
				Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "snapshots"}},
			})
			o = w.ends(w.start(s), v1.ResultSucceeded)
			w.expectLabels(o, map[string]string{"db": application})
			w.Expect([]int{db.noted("pre"), db.noted("post")}).To(Equal([]int{1, 1}))
			db.expectFree()

			failing := w.schedule("failing", hooked(db, "fsfreeze --freeze /data; echo no; exit 9", thaw))
			o = w.ends(w.start(failing), v1.ResultFailed)
			w.expectReason(o, "quiesce", v1.ReasonNonZeroExit, "code 9")
			w.Expect(target(hookOf(o, "quiesce")).Output).To(ContainSubstring("no"))
			db.expectFree()

			slow := w.schedule("missing", hooked(db, "exec no-such-program", thaw), func(s *v1.SnapshotScheduleSpec) { s.PreHooks[0].Command = []string{"no-such-program"} })
			o = w.ends(w.start(slow), v1.ResultFailed)
			w.expectReason(o, "quiesce", v1.ReasonCommandNotFound)
		})
	}
}

func TestASnapshotThatTheAPIServerRefusesDoesNotStopTheOthers(t *testing.T) {
	w := begin(t)
	good, bad := w.app("good"), w.app("bad")
	w.refuseSnapshotsOf("bad")
	s := w.schedule("hourly", freezing(good), before(hook(bad, "freeze-bad", freeze)), after(hook(bad, "thaw-bad", thaw)),
		func(s *v1.SnapshotScheduleSpec) { s.ClaimSelector = metav1.LabelSelector{} })

	o := w.ends(w.start(s), v1.ResultPartiallyFailed)

	w.Expect(o.Status.Message).To(And(ContainSubstring("bad"), ContainSubstring("the budget is used up")))
	w.expectCondition(o.Status.Conditions, v1.ConditionSnapshotsCut, metav1.ConditionFalse, v1.ReasonNotAllCut)
	w.Expect(o.Status.Snapshots).To(ContainElement(And(HaveField("Claim", "bad"), HaveField("State", v1.SnapshotFailed))))
	w.Expect(o.Status.Snapshots).To(ContainElement(And(HaveField("Claim", "good"), HaveField("State", v1.SnapshotReady))))
	w.expectLabels(o, map[string]string{"good": application})
	w.expectEvent(o, "SnapshotNotCreated", "the budget is used up")
	good.expectFree()
	bad.expectFree()
}

// refuseSnapshotsOf a claim by an admission policy, and wait until it counts.
func (w *world) refuseSnapshotsOf(claim string) {
	w.Helper()
	name := w.ns + "-budget"
	policy := &admissionv1.ValidatingAdmissionPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicySpec{
			MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
				RuleWithOperations: admissionv1.RuleWithOperations{
					Operations: []admissionv1.OperationType{admissionv1.Create},
					Rule:       admissionv1.Rule{APIGroups: []string{"snapshot.storage.k8s.io"}, APIVersions: []string{"*"}, Resources: []string{"volumesnapshots"}},
				},
			}}},
			Validations: []admissionv1.Validation{{
				Expression: "object.spec.source.persistentVolumeClaimName != '" + claim + "'", Message: "the budget is used up",
			}},
		},
	}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
			PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
			MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": w.ns}}},
		},
	}
	for _, o := range []client.Object{policy, binding} {
		w.Expect(api.Create(w.Context(), o)).To(Succeed())
		w.Cleanup(func() {
			if err := api.Delete(context.Background(), o); err != nil {
				w.Errorf("deleting %s: %v", o.GetName(), err)
			}
		})
	}
	w.Eventually(func() error {
		s := w.snapshotNamed("probe")
		s.Spec.Source.PersistentVolumeClaimName = ptr.To(claim)
		return api.Create(w.Context(), s, client.DryRunAll)
	}, patience, "100ms").Should(MatchError(ContainSubstring("the budget is used up")))
}
