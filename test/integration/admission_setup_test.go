// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

const (
	policyKind  = "ValidatingAdmissionPolicy"
	bindingKind = "ValidatingAdmissionPolicyBinding"

	operatorNamespace = "stillpoint-system"
	operatorAccount   = "stillpoint"

	// tenants is where the users of these tests have their rights, others is a namespace of somebody else.
	tenants, others = "tenants", "others"
)

// guarded is a control plane of its own with RBAC and the admission policy; on the one of the other tests, administrators write status.
type guarded struct {
	*WithT
	t   *testing.T
	env *envtest.Environment
	// root is a member of system:masters: no right is missing, and the policy asks it all the same.
	root client.Client
	// as holds the clients of the users by name.
	as map[string]client.Client
}

func guard(t *testing.T) *guarded {
	t.Helper()
	own := false
	g := &guarded{WithT: NewWithT(t), t: t, as: map[string]client.Client{}, env: &envtest.Environment{
		Scheme: env.Scheme, UseExistingCluster: &own, BinaryAssetsDirectory: env.BinaryAssetsDirectory, CRDDirectoryPaths: env.CRDDirectoryPaths,
		ErrorIfCRDPathMissing: true, ControlPlaneStartTimeout: env.ControlPlaneStartTimeout, ControlPlaneStopTimeout: env.ControlPlaneStopTimeout,
	}}
	cfg, err := g.env.Start()
	t.Cleanup(func() {
		if err := g.env.Stop(); err != nil {
			t.Errorf("stopping the control plane: %v", err)
		}
	})
	g.Expect(err).NotTo(HaveOccurred())
	g.root = g.client(cfg)
	for _, ns := range []string{tenants, others, operatorNamespace, "flux-system"} {
		g.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}})
	}
	return g
}

func (g *guarded) client(cfg *rest.Config) client.Client {
	g.t.Helper()
	cfg = rest.CopyConfig(cfg)
	cfg.QPS = -1
	c, err := client.New(cfg, client.Options{Scheme: env.Scheme})
	g.Expect(err).NotTo(HaveOccurred())
	return c
}

func (g *guarded) create(o client.Object) {
	g.t.Helper()
	g.Expect(g.root.Create(g.t.Context(), o)).To(Succeed())
}

// user with a client certificate.
func (g *guarded) user(name string, groups ...string) {
	g.t.Helper()
	u, err := g.env.AddUser(envtest.User{Name: name, Groups: groups}, nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.as[name] = g.client(u.Config())
}

// account is a ServiceAccount with a token of its own.
func (g *guarded) account(namespace, name string) {
	g.t.Helper()
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	if err := g.root.Create(g.t.Context(), sa); !apierrors.IsAlreadyExists(err) {
		g.Expect(err).NotTo(HaveOccurred())
	}
	token := &authenticationv1.TokenRequest{}
	g.Expect(g.root.SubResource("token").Create(g.t.Context(), sa, token)).To(Succeed())
	cfg := rest.AnonymousClientConfig(g.env.Config)
	cfg.BearerToken = token.Status.Token
	g.as[username(namespace, name)] = g.client(cfg)
}

func username(namespace, account string) string {
	return "system:serviceaccount:" + namespace + ":" + account
}

// right is a rule of a role: what may be done to resources ("pods/exec") of a group, of these names only if there are any.
func right(group string, resource string, verbs []string, names ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs, ResourceNames: names}
}

// may gives a user rights in a namespace, "" is everywhere, and returns once the API server goes by them.
func (g *guarded) may(user, namespace string, rules ...rbacv1.PolicyRule) {
	g.t.Helper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}, Rules: rules}
	g.create(role)
	g.bind(user, namespace, role.Name)
	for _, r := range rules {
		g.holds(user, namespace, r)
	}
}

func (g *guarded) holds(user, namespace string, r rbacv1.PolicyRule) {
	g.t.Helper()
	resource, subresource, _ := strings.Cut(r.Resources[0], "/")
	for _, verb := range r.Verbs {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user,
			ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: namespace, Verb: verb, Group: r.APIGroups[0], Resource: resource,
				Subresource: subresource, Name: strings.Join(r.ResourceNames, "")}}}
		g.Eventually(func() bool {
			asked := review.DeepCopy()
			g.Expect(g.root.Create(g.t.Context(), asked)).To(Succeed())
			return asked.Status.Allowed
		}, soon, pollInterval).Should(BeTrue(), "%s may not %s %s", user, verb, r.Resources[0])
	}
}

// bind a ClusterRole to a user in a namespace; "" is everywhere.
func (g *guarded) bind(user, namespace, role string) {
	g.t.Helper()
	subject := rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: user}
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
	meta := metav1.ObjectMeta{GenerateName: "test-", Namespace: namespace}
	if namespace == "" {
		g.create(&rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: []rbacv1.Subject{subject}})
		return
	}
	g.create(&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: ref, Subjects: []rbacv1.Subject{subject}})
}

// bindAggregated binds every ClusterRole that joins the cluster's role of that name: the controller that joins them does not run here.
func (g *guarded) bindAggregated(user, namespace, role string) {
	g.t.Helper()
	var list rbacv1.ClusterRoleList
	g.Expect(g.root.List(g.t.Context(), &list, client.MatchingLabels{"rbac.authorization.k8s.io/aggregate-to-" + role: "true"})).To(Succeed())
	names := []string{}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
		g.bind(user, namespace, list.Items[i].Name)
	}
	g.Expect(names).To(ContainElements("system:aggregate-to-"+role, "stillpoint-"+role))
}

// tool runs one of the pinned tools at the root of the project and returns the objects that it prints.
func tool(t *testing.T, name string, args ...string) []*unstructured.Unstructured {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"tool", "-modfile=hack/tools/" + name + "/go.mod", name}, args...)...)
	cmd.Dir = filepath.Join("..", "..")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v", name, strings.Join(args, " "), err)
	}
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(out), 4096)
	for {
		o := &unstructured.Unstructured{}
		if err := decoder.Decode(o); err != nil {
			return objects
		}
		if o.GetKind() != "" {
			objects = append(objects, o)
		}
	}
}

// kustomized are the objects of config/default, charted those of the chart.
func kustomized(t *testing.T) []*unstructured.Unstructured {
	return tool(t, "kustomize", "build", "config/default")
}

func charted(t *testing.T, args ...string) []*unstructured.Unstructured {
	return tool(t, "helm", append([]string{"template", "stillpoint", "helm/stillpoint", "--namespace", operatorNamespace}, args...)...)
}

func ofKind(objects []*unstructured.Unstructured, kinds ...string) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, o := range objects {
		for _, kind := range kinds {
			if o.GetKind() == kind {
				out = append(out, o)
			}
		}
	}
	return out
}

// install applies objects as they are.
func (g *guarded) install(objects []*unstructured.Unstructured) {
	g.t.Helper()
	for _, o := range objects {
		o = o.DeepCopy()
		if err := g.root.Create(g.t.Context(), o); !apierrors.IsAlreadyExists(err) {
			g.Expect(err).NotTo(HaveOccurred(), "%s %s", o.GetKind(), o.GetName())
		}
	}
}

// enforce installs the policy of some rendering until the test ends, and returns once the API server goes by it.
func (g *guarded) enforce(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	policy := ofKind(objects, policyKind, bindingKind)
	g.Expect(policy).To(HaveLen(2))
	refused := func() bool {
		probe := &v1.SnapshotRun{ObjectMeta: metav1.ObjectMeta{GenerateName: "probe-", Namespace: tenants}, Spec: v1.SnapshotRunSpec{ScheduleName: "none"}}
		err := g.as["writer"].Create(t.Context(), probe, client.DryRunAll)
		return apierrors.IsForbidden(err) && strings.Contains(err.Error(), policyKind)
	}
	g.install(policy)
	t.Cleanup(func() {
		for _, o := range policy {
			if err := g.root.Delete(context.Background(), o.DeepCopy()); err != nil {
				t.Errorf("removing %s %s: %v", o.GetKind(), o.GetName(), err)
			}
		}
		NewWithT(t).Eventually(refused, soon, pollInterval).Should(BeFalse())
	})
	NewWithT(t).Eventually(refused, soon, pollInterval).Should(BeTrue())
}

// hookIn is a hook in a namespace; "" is the schedule's own.
func hookIn(namespace string) v1.Hook {
	return v1.Hook{PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}, Namespace: namespace, Command: []string{"sync"}}
}

// hookedSchedule has one post hook for each of the namespaces, and one pre hook.
func hookedSchedule(account string, namespaces ...string) *v1.SnapshotSchedule {
	s := plainSchedule()
	s.Spec.ServiceAccountName = account
	s.Spec.PreHooks = []v1.PreHook{{Hook: hookIn("")}}
	for _, ns := range namespaces {
		s.Spec.PostHooks = append(s.Spec.PostHooks, v1.PostHook{Hook: hookIn(ns)})
	}
	return s
}

func plainSchedule() *v1.SnapshotSchedule {
	return &v1.SnapshotSchedule{TypeMeta: metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: scheduleKind},
		ObjectMeta: metav1.ObjectMeta{GenerateName: "s-", Namespace: tenants}, Spec: v1.SnapshotScheduleSpec{Schedule: "@hourly"}}
}

// namespaces are n names.
func namespaces(n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("ns-%d", i))
	}
	return out
}
