// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/hooks"
	"github.com/stillpoint-operator/stillpoint/internal/run"
)

const hookedHourly = `{schedule: "0 * * * *", claimSelector: {matchLabels: {app: db}},
	preHooks: [{name: quiesce, podSelector: {matchLabels: {app: db}}, command: [freeze]}],
	postHooks: [{name: release, podSelector: {matchLabels: {app: db}}, command: [thaw]}]}`

func TestAnOperatorWithoutHooksSaysSoAndTakesNoUnquiescedSnapshot(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	o.rules = run.HookRules{Off: "this operator runs none (--enable-hooks=false)"}
	o.start()
	o.claim("data")
	o.pod("db")
	o.schedule("hooked", hookedHourly)
	o.schedule("plain", hourlyOfAll)
	o.at(o.hour(0).Add(-1))
	o.will(func() *metav1.Condition {
		return meta.FindStatusCondition(o.read("hooked").Status.Conditions, v1.ConditionReady)
	}).Should(HaveField("Reason", v1.ReasonHooksDisabled))
	o.tick(o.hour(0))
	o.Expect(o.runs("hooked")).To(HaveLen(1))
	failed := o.runs("hooked")[0]
	o.Expect(failed.Status.Result).To(Equal(v1.ResultFailed))
	o.Expect(failed.Status.Message).To(ContainSubstring("the schedule has hooks, and this operator runs none (--enable-hooks=false)"))
	o.Expect(o.runs("plain")[0].Status.Result).To(Equal(v1.ResultSucceeded))
	o.Expect(o.snapshots()).To(HaveLen(1), "only the schedule without hooks takes snapshots")
	o.Expect(o.accounts).To(BeEmpty())
}

func TestADefaultAccountLeavesNoHookToTheOperatorItself(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	o.rules = run.HookRules{DefaultAccount: "snapshots"}
	o.start()
	o.claim("data")
	o.pod("db")
	o.schedule("hourly", hookedHourly)
	o.tick(o.hour(0))
	refused := o.runs("hourly")[0]
	o.Expect(refused.Status.Result).To(Equal(v1.ResultFailed), refused.Status.Message)
	o.Expect(refused.Status.Message).To(ContainSubstring("ServiceAccount %s/snapshots may not create pods/exec", o.namespace))
	o.Expect(o.accounts).NotTo(HaveKey(hooks.Account{}), "its post hook is tried once, and as the account")

	o.mayExec("snapshots", o.namespace)
	o.tick(o.hour(1))
	o.Expect(o.runs("hourly")).To(ContainElement(And(HaveField("Status.Result", v1.ResultSucceeded), HaveField("Status.Plan.ServiceAccountName", "snapshots"))))
	o.Expect(o.accounts).To(HaveLen(1))
	o.Expect(o.accounts).To(HaveKey(hooks.Account{Namespace: o.namespace, Name: "snapshots"}))
}

// What an operator without the flag has planned is not carried on as the operator itself by one with it.
func TestADefaultAccountHoldsForRunsThatWerePlannedWithoutIt(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	o.claim("data")
	o.pod("db")
	o.stores(nil) // never cut: the run stays quiesced
	before := o.start()
	o.schedule("hourly", hookedHourly)
	o.at(o.hour(0))
	o.will(func() v1.RunPhase { return o.runs("hourly")[0].Status.Phase }).Should(Equal(v1.PhaseSnapshotting))
	o.halt(before)
	o.mu.Lock()
	o.accounts = nil
	o.mu.Unlock()
	o.rules = run.HookRules{DefaultAccount: "snapshots"}
	o.stores(o.ready)
	o.finish()
	o.start()
	o.idle()
	o.Expect(o.accounts).To(HaveKey(hooks.Account{Namespace: o.namespace, Name: "snapshots"}))
	o.Expect(o.accounts).To(HaveLen(1))
}

func TestHooksInOtherNamespacesNeedAnAccountOrTheFlag(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	before := o.start()
	elsewhere := Namespace(t)
	o.claim("data")
	o.podIn(elsewhere, "db")
	o.schedule("hourly", fmt.Sprintf(`{schedule: "0 * * * *", preHooks: [{name: quiesce, namespace: %s, podSelector: {matchLabels: {app: db}}, command: [freeze]}]}`, elsewhere))
	o.tick(o.hour(0))
	o.Expect(o.runs("hourly")[0].Status.Message).To(ContainSubstring("a hook in another namespace needs spec.serviceAccountName"))
	o.Expect(o.accounts).To(BeEmpty())
	o.halt(before)
	o.rules = run.HookRules{CrossNamespace: true}
	o.start()
	o.tick(o.hour(1))
	o.Expect(o.runs("hourly")).To(ContainElement(HaveField("Status.Result", v1.ResultSucceeded)))
	o.Expect(o.accounts).To(HaveLen(1))
	o.Expect(o.accounts).To(HaveKey(hooks.Account{}))
}

// The operator may list pods everywhere. What it sees must not reach people who may not.
func TestAScheduleLearnsNothingOfPodsThatItsAccountMayNotExecInto(t *testing.T) {
	t.Parallel()
	o := operate(t)
	elsewhere := Namespace(t)
	o.claim("data")
	o.podIn(elsewhere, "hidden-pod")
	o.schedule("hourly", fmt.Sprintf(`{schedule: "0 * * * *", serviceAccountName: curious,
		preHooks: [{name: present, namespace: %[1]s, podSelector: {}, command: [id]},
			{name: missing, namespace: %[1]s, podSelector: {}, container: none, command: [id]}],
		postHooks: [{name: after, namespace: %[1]s, podSelector: {}, command: [id]}]}`, elsewhere))
	o.tick(o.hour(0))
	o.Expect(o.runs("hourly")[0].Status.Message).To(ContainSubstring("may not create pods/exec in namespace " + elsewhere))
	for _, mode := range []string{"TestHooks", "Release"} {
		asked := object(t, runKind, o.namespace, "spec: {scheduleName: hourly, mode: "+mode+"}")
		o.Expect(api.Create(t.Context(), asked)).To(Succeed())
	}
	o.will(func() []v1.SnapshotRun { return o.runs("hourly") }).Should(And(HaveLen(3), HaveEach(
		HaveField("Status.Release", Not(BeNil())))))
	for _, asked := range o.runs("hourly") {
		if asked.Spec.Mode == v1.RunRelease {
			o.will(func() string {
				o.Expect(api.Get(t.Context(), client.ObjectKeyFromObject(&asked), &asked)).To(Succeed())
				return asked.Status.Message
			}).Should(ContainSubstring("may not create pods/exec"), "it says what it waits for")
		}
	}
	o.Expect(fmt.Sprintf("%+v", o.runs("hourly"))).NotTo(ContainSubstring("hidden-pod"))
	o.Expect(fmt.Sprintf("%+v", o.read("hourly"))).NotTo(ContainSubstring("hidden-pod"))
	o.Expect(fmt.Sprintf("%+v", o.eventsOf(""))).NotTo(ContainSubstring("hidden-pod"))
}

func TestOutputThatIsNotToBeRecordedIsJudgedAndForgotten(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	o.output = "ready, and the password is hunter2"
	o.forgetOutput = true
	o.start()
	o.claim("data")
	o.pod("db")
	o.schedule("hourly", `{schedule: "0 * * * *", preHooks: [{name: quiesce, podSelector: {matchLabels: {app: db}}, expectOutput: "ready, and", command: [freeze]}]}`)
	o.schedule("wrong", `{schedule: "0 * * * *", preHooks: [{name: quiesce, podSelector: {matchLabels: {app: db}}, expectOutput: "never said", command: [freeze]}]}`)
	o.tick(o.hour(0))
	good, bad := o.runs("hourly")[0], o.runs("wrong")[0]
	o.Expect(good.Status.Result).To(Equal(v1.ResultSucceeded), good.Status.Message)
	o.Expect(bad.Status.Hooks[0].Targets[0].Reason).To(Equal(v1.ReasonOutputMissing))
	for _, seen := range []any{good, bad, o.read("hourly"), o.read("wrong"), o.eventsOf(""), o.loggedErrors()} {
		o.Expect(fmt.Sprintf("%+v", seen)).NotTo(ContainSubstring("hunter2"))
	}
}

func TestOutputReachesTheRunsStatusAndNothingElse(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	o.output = "the password is hunter2"
	o.start()
	o.claim("data")
	o.pod("db")
	o.schedule("wrong", `{schedule: "0 * * * *", preHooks: [{name: quiesce, podSelector: {matchLabels: {app: db}}, expectOutput: "never said", command: [freeze, hunter3]}]}`)
	o.tick(o.hour(0))
	o.Expect(o.runs("wrong")[0].Status.Hooks[0].Targets[0].Output).To(ContainSubstring("hunter2"))
	for _, seen := range []any{o.read("wrong").Status, o.eventsOf(""), o.loggedErrors(), gathered(t)} {
		o.Expect(fmt.Sprintf("%+v", seen)).NotTo(Or(ContainSubstring("hunter2"), ContainSubstring("hunter3")))
	}
}

// gathered are all metrics, with their labels.
func gathered(t *testing.T) string {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(families)
}

// mayExec lets a ServiceAccount of the operator's namespace run commands in the pods of a namespace.
func (o *operator) mayExec(account, namespace string) {
	o.t.Helper()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "exec"},
		Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"pods/exec"}, Verbs: []string{"get", "create"}}}}
	o.Expect(api.Create(o.t.Context(), role)).To(Succeed())
	o.Expect(api.Create(o.t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "exec"},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: o.namespace, Name: account}}})).To(Succeed())
}

func TestAPodThatLosesItsLabelWhileItIsQuiescedIsReleased(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	o.claim("data")
	o.pod("db")
	relabel := sync.OnceFunc(func() {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: "db"}}
		if err := api.Patch(t.Context(), p, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"app":"other"}}}`))); err != nil {
			t.Errorf("relabelling the pod: %v", err)
		}
	})
	o.hook = func(context.Context) { relabel() }
	o.start()
	o.schedule("hourly", hookedHourly)
	o.tick(o.hour(0))
	done := o.runs("hourly")[0]
	o.Expect(done.Status.Hooks[1].Targets).To(HaveExactElements(And(HaveField("Pod", "db"), HaveField("Reason", v1.ReasonHookCompleted))), done.Status.Message)
	o.Expect(meta.IsStatusConditionFalse(done.Status.Conditions, v1.ConditionMayBeQuiesced)).To(BeTrue())
}
