// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	lua "github.com/yuin/gopher-lua"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/cli-utils/pkg/kstatus/status"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// health of an object as Argo CD computes it with the script that ships.
func health(t *testing.T, o *unstructured.Unstructured) string {
	t.Helper()
	script, err := os.ReadFile(filepath.Join("..", "..", "config", "gitops", "argocd-health.lua"))
	if err != nil {
		t.Fatal(err)
	}
	l := lua.NewState()
	defer l.Close()
	l.SetGlobal("obj", toLua(l, o.Object))
	if err := l.DoString(string(script)); err != nil {
		t.Fatalf("the health script: %v", err)
	}
	return lua.LVAsString(l.GetField(l.Get(-1), "status"))
}

func toLua(l *lua.LState, v any) lua.LValue {
	switch v := v.(type) {
	case map[string]any:
		t := l.NewTable()
		for k, e := range v {
			t.RawSetString(k, toLua(l, e))
		}
		return t
	case []any:
		t := l.NewTable()
		for _, e := range v {
			t.Append(toLua(l, e))
		}
		return t
	case string:
		return lua.LString(v)
	case bool:
		return lua.LBool(v)
	case int64:
		return lua.LNumber(v)
	case float64:
		return lua.LNumber(v)
	}
	return lua.LNil
}

func (o *operator) unstructured(kind, name string) *unstructured.Unstructured {
	o.t.Helper()
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(v1.GroupVersion.WithKind(kind))
	u.SetNamespace(o.namespace)
	u.SetName(name)
	return fetch(o.t, u)
}

func TestGitOpsToolsSeeAScheduleAsItIs(t *testing.T) {
	t.Parallel()
	o := operate(t)
	says := func(name string) (string, string) {
		u := o.unstructured(scheduleKind, name)
		result, err := status.Compute(u)
		o.Expect(err).NotTo(HaveOccurred())
		return result.Status.String(), health(t, u)
	}
	expect := func(name, kstatus, argo string) {
		t.Helper()
		k, a := says(name)
		o.Expect([]string{k, a}).To(Equal([]string{kstatus, argo}), "schedule %s", name)
	}
	o.claim("data")
	o.schedule("fresh", hourlyOfAll)
	expect("fresh", "Current", "Healthy")

	o.pod("db")
	o.schedule("failing", `{schedule: "0 * * * *", preHooks: [{name: quiesce, podSelector: {matchLabels: {app: none}}, command: [freeze]}]}`)
	o.tick(o.hour(0))
	expect("fresh", "Current", "Healthy")
	expect("failing", "Current", "Degraded") // it shows, and a sync is not blocked
	o.Expect(health(t, o.unstructured(runKind, o.runs("failing")[0].Name))).To(Equal("Degraded"))
	o.Expect(health(t, o.unstructured(runKind, o.runs("fresh")[0].Name))).To(Equal("Healthy"))

	o.edit("fresh", `{"disabled": true}`)
	o.settle()
	expect("fresh", "Current", "Suspended")
	o.edit("fresh", `{"disabled": false, "schedule": "TZ=Nowhere/AtAll 0 * * * *"}`)
	_, before := says("fresh")
	o.Expect(before).To(Or(Equal("Progressing"), Equal("Degraded")), "the edit is not taken for good before it was looked at")
	o.settle()
	expect("fresh", "Failed", "Degraded")
}

func TestServerSideApplyNeverConflictsWithTheOperator(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	apply := func(spec string) error {
		u := object(t, scheduleKind, o.namespace, "{metadata: {name: hourly}, spec: "+spec+"}")
		u.SetAPIVersion(v1.GroupVersion.String())
		u.SetKind(scheduleKind)
		return api.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("gitops"))
	}
	o.Expect(apply(hourlyOfAll)).To(Succeed())
	o.settle()
	o.tick(o.hour(0))
	o.Expect(o.runs("hourly")).To(HaveLen(1))
	o.Expect(apply(`{schedule: "0 * * * *", retention: {maxCount: 3}}`)).To(Succeed())
	o.tick(o.hour(1))
	o.Expect(apply(`{schedule: "30 * * * *"}`)).To(Succeed())
	o.settle()
	u := o.unstructured(scheduleKind, "hourly")
	o.Expect(u.Object["spec"]).To(Equal(map[string]any{"schedule": "30 * * * *"}), "what git no longer says is gone, and nothing else is there")
	for _, f := range u.GetManagedFields() {
		if f.Manager != "gitops" && f.Manager != "integration.test" {
			o.Expect(f.Subresource).To(Equal("status"), "manager %s", f.Manager)
		}
	}
}
