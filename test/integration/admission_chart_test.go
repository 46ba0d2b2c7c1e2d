// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func policyOf(objects []*unstructured.Unstructured) (policy, binding map[string]any) {
	for _, o := range objects {
		spec, _, _ := unstructured.NestedMap(o.Object, "spec")
		switch o.GetKind() {
		case policyKind:
			policy = spec
		case bindingKind:
			binding = spec
		}
	}
	return policy, binding
}

// operatorOf a policy: the condition that leaves the operator out.
func operatorOf(g *WithT, policy map[string]any) string {
	conditions, _, err := unstructured.NestedSlice(policy, "matchConditions")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(conditions).To(HaveLen(1))
	return conditions[0].(map[string]any)["expression"].(string)
}

func TestConfigAndChartHaveTheSamePolicy(t *testing.T) {
	g := NewWithT(t)
	policy, binding := policyOf(kustomized(t))
	fromChart, bindingFromChart := policyOf(charted(t))
	g.Expect(policy).To(HaveKeyWithValue("failurePolicy", "Fail"))
	g.Expect(binding).To(Equal(map[string]any{"policyName": "stillpoint", "validationActions": []any{"Deny"}}))
	g.Expect(fromChart).To(Equal(policy))
	g.Expect(bindingFromChart).To(Equal(binding))
}

func TestTheChartsPolicyKnowsTheOperator(t *testing.T) {
	g := NewWithT(t)
	for account, args := range map[string][]string{
		"system:serviceaccount:snapshots:stillpoint":         {"--namespace", "snapshots"},
		"system:serviceaccount:stillpoint-system:own":        {"--set", "serviceAccount.name=own"},
		"system:serviceaccount:stillpoint-system:default":    {"--set", "serviceAccount.create=false"},
		"system:serviceaccount:stillpoint-system:other-name": {"--set", "fullnameOverride=other-name"},
	} {
		policy, binding := policyOf(charted(t, args...))
		g.Expect(operatorOf(g, policy)).To(Equal("request.userInfo.username != '"+account+"'"), "%v", args)
		g.Expect(binding).NotTo(BeNil())
	}
}

// A kustomization that installs into another namespace, as config/admission/kustomization.yaml tells.
func TestAnotherNamespaceIsReplacedInThePolicy(t *testing.T) {
	g := NewWithT(t)
	dir := t.TempDir()
	here, err := filepath.Abs(filepath.Join("..", "..", "config", "default"))
	g.Expect(err).NotTo(HaveOccurred())
	base, err := filepath.Rel(dir, here)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(`
namespace: snapshots
resources: [`+base+`]
replacements:
- source: {kind: ServiceAccount, name: stillpoint, fieldPath: metadata.namespace}
  targets:
  - select: {kind: ValidatingAdmissionPolicy, name: stillpoint}
    fieldPaths: ["spec.matchConditions.[name=not-the-operator].expression"]
    options: {delimiter: ":", index: 2}
`), 0o600)).To(Succeed())
	policy, _ := policyOf(tool(t, "kustomize", "build", dir))
	g.Expect(operatorOf(g, policy)).To(Equal("request.userInfo.username != 'system:serviceaccount:snapshots:stillpoint'"))
}

func TestTheChartInstallsThePolicyWhereItIsServed(t *testing.T) {
	const served, notThis = "admissionregistration.k8s.io/v1/ValidatingAdmissionPolicy", "admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration"
	tests := map[string]struct {
		args []string
		want int
	}{
		"no cluster is asked":                {nil, 2},
		"the cluster serves it":              {[]string{"--api-versions", notThis, "--api-versions", served}, 2},
		"the cluster does not serve it":      {[]string{"--api-versions", notThis}, 0},
		"it is switched off":                 {[]string{"--set", "admissionPolicy.enabled=false", "--api-versions", served}, 0},
		"the oldest Kubernetes, without one": {[]string{"--kube-version", "1.30.0"}, 2},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(ofKind(charted(t, tt.args...), policyKind, bindingKind)).To(HaveLen(tt.want))
		})
	}
}

func TestAnInstallationForSomeNamespacesHasAPolicyForThoseOnly(t *testing.T) {
	g := NewWithT(t)
	one := ofKind(charted(t, "--set", "watchNamespaces={a,b}"), policyKind, bindingKind)
	other := ofKind(charted(t, "--set", "watchNamespaces={c}", "--namespace", "other"), policyKind, bindingKind)
	for i := range one {
		g.Expect(one[i].GetName()).To(Equal("stillpoint-stillpoint-system"))
		g.Expect(other[i].GetName()).To(Equal("stillpoint-other"))
	}
	_, binding := policyOf(one)
	g.Expect(binding).To(HaveKeyWithValue("policyName", "stillpoint-stillpoint-system"))
	selector, _, err := unstructured.NestedSlice(binding, "matchResources", "namespaceSelector", "matchExpressions")
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(selector).To(Equal([]any{map[string]any{"key": "kubernetes.io/metadata.name", "operator": "In", "values": []any{"a", "b"}}}))
}
