// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// Installations other than the default one, with exactly the rights that the chart gives them.

// install renders the chart's roles for a release of the test's name in the test's namespace, applies them, and returns the kubeconfig
// of the operator's account.
func (w *world) install(namespace string, values ...string) string {
	w.Helper()
	args := []string{"tool", "-modfile=hack/tools/helm/go.mod", "helm", "template", "stillpoint-" + w.ns, "helm/stillpoint", "--namespace", namespace, "--set", "manageCRDs=false"}
	for _, v := range values {
		args = append(args, "--set", v)
	}
	render := exec.CommandContext(w.Context(), "go", append(args, "--show-only", "templates/rbac.yaml")...)
	render.Dir = "../.."
	objects, err := render.Output()
	w.Expect(err).NotTo(HaveOccurred(), "rendering the chart")
	file := filepath.Join(w.TempDir(), "rbac.yaml")
	w.Expect(os.WriteFile(file, objects, 0o600)).To(Succeed())
	kubectl := func(ctx context.Context, args ...string) error {
		return command(ctx, local.Bin("kubectl"), append([]string{"--kubeconfig", local.Kubeconfig()}, args...)...)
	}
	w.Expect(kubectl(w.Context(), "apply", "-f", file)).To(Succeed())
	w.Cleanup(func() {
		if err := kubectl(context.Background(), "delete", "--ignore-not-found", "-f", file); err != nil {
			w.Error(err)
		}
	})
	kubeconfig, err := accountKubeconfig(namespace, "stillpoint-"+w.ns)
	w.Expect(err).NotTo(HaveOccurred())
	return kubeconfig
}

// runAs starts an operator of an installation and waits until it works. It ends with the test.
func (w *world) runAs(kubeconfig string, flags ...string) *operator {
	w.Helper()
	o, err := launchAs(kubeconfig, flags...)
	w.Expect(err).NotTo(HaveOccurred())
	w.Cleanup(func() {
		if w.Failed() {
			w.Logf("log of operator %v:\n%s", flags, o.log.tail())
		}
		o.kill()
	})
	o.awaitLog(w.T, working)
	return o
}

func TestTwoNamespacedInstallationsWorkSideBySideWithRolesAlone(t *testing.T) {
	stopShared()
	a, b, none := settle(t), settle(t), settle(t)
	apps := map[*world]*app{}
	for _, w := range []*world{a, b} {
		apps[w] = w.app("db")
		kubeconfig := w.install(w.ns, "watchNamespaces={"+w.ns+"}")
		o := w.runAs(kubeconfig, "--leader-election-namespace="+w.ns, "--watch-namespaces="+w.ns)
		w.Cleanup(func() {
			if strings.Contains(o.log.tail(), "forbidden") {
				w.Errorf("something was refused:\n%s", o.log.tail())
			}
		})
	}
	var bindings rbacv1.ClusterRoleBindingList
	a.Expect(api.List(t.Context(), &bindings)).To(Succeed())
	for _, binding := range bindings.Items {
		for _, s := range binding.Subjects {
			a.Expect(s.Namespace).NotTo(Or(Equal(a.ns), Equal(b.ns)), "binding %s", binding.Name)
		}
	}

	foreign := none.schedule("hourly", func(s *v1.SnapshotScheduleSpec) { s.RunOnCreate = true })
	for _, w := range []*world{a, b} {
		w.mayExec("snapshots")
		plain := w.ends(w.start(w.schedule("own", freezing(apps[w]))), v1.ResultSucceeded)
		w.expectLabels(plain, map[string]string{"db": application})
		tenant := w.schedule("tenant", freezing(apps[w]), func(s *v1.SnapshotScheduleSpec) { s.ServiceAccountName = "snapshots" })
		w.ends(w.start(tenant), v1.ResultSucceeded)
		apps[w].expectFree()
	}
	beyond := a.schedule("beyond", freezing(apps[a]), func(s *v1.SnapshotScheduleSpec) {
		s.ServiceAccountName, s.PreHooks[0].Namespace = "snapshots", none.ns
	})
	o := a.ends(a.start(beyond), v1.ResultFailed)
	a.expectReason(o, "freeze", v1.ReasonForbidden, "the operator itself has no rights there")
	none.Expect(api.Get(t.Context(), keyOf(foreign), foreign)).To(Succeed())
	none.Expect(foreign.Status).To(Equal(v1.SnapshotScheduleStatus{}), "nobody works there")
}

func TestAnInstallationWithoutHooksHasNoRightToExecAndTakesSnapshotsAllTheSame(t *testing.T) {
	stopShared()
	w := settle(t)
	db := w.app("db")
	kubeconfig := w.install(operatorNamespace, "hooks.enabled=false")
	account := "system:serviceaccount:" + operatorNamespace + ":stillpoint-" + w.ns
	for _, verb := range []string{"get", "create"} {
		w.untilAllowed(account, authorizationv1.ResourceAttributes{Namespace: w.ns, Verb: verb, Resource: "pods", Subresource: "exec"}, false)
	}
	w.Cleanup(dropLease)
	w.runAs(kubeconfig, "--leader-election-namespace="+operatorNamespace, "--enable-hooks=false")

	w.ends(w.start(w.schedule("plain", taking(db))), v1.ResultSucceeded)
	hooked := w.schedule("hooked", freezing(db))
	await(w, hooked, "saying that hooks are switched off", func(s *v1.SnapshotSchedule) bool {
		c := meta.FindStatusCondition(s.Status.Conditions, v1.ConditionReady)
		return c != nil && c.Status == metav1.ConditionFalse && c.Reason == v1.ReasonHooksDisabled
	})
	o := w.ends(w.start(hooked), v1.ResultFailed)
	w.Expect(o.Status.Message).To(ContainSubstring("--enable-hooks=false"))
	w.expectLabels(o, map[string]string{})
}

func TestMetricsAreServedOverTLSToWhoeverMayReadThem(t *testing.T) {
	address := freeAddress(t)
	startOperator(t, "--metrics-bind-address="+address)
	w := settle(t)
	get := func(path, token string) (int, string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+path, nil)
		w.Expect(err).NotTo(HaveOccurred())
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		// The certificate is the operator's own.
		c := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}}
		defer c.CloseIdleConnections()
		answer, err := c.Do(r)
		w.Expect(err).NotTo(HaveOccurred())
		defer answer.Body.Close()
		w.Expect(answer.ProtoMajor).To(Equal(1), "HTTP/2 is off")
		body, err := io.ReadAll(answer.Body)
		w.Expect(err).NotTo(HaveOccurred())
		return answer.StatusCode, string(body)
	}
	w.Eventually(func() error {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return err
	}, patience, "50ms").Should(Succeed())
	code, body := get("/metrics", "")
	w.Expect(code).To(Equal(http.StatusUnauthorized), body)
	code, body = get("/metrics", w.token("stranger"))
	w.Expect(code).To(Equal(http.StatusForbidden), body)
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: w.ns}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "stillpoint-metrics-reader"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.ns, Name: "prometheus"}}}
	w.Expect(api.Create(t.Context(), binding)).To(Succeed())
	t.Cleanup(func() { _ = api.Delete(context.Background(), binding) })
	token := w.token("prometheus")
	w.Eventually(func() error { // the API server has seen the binding; a refusal is remembered for half a minute
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:" + w.ns + ":prometheus",
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}}}
		if err := api.Create(t.Context(), review); err != nil || !review.Status.Allowed {
			return fmt.Errorf("not allowed yet (%w)", err)
		}
		return nil
	}, patience, "50ms").Should(Succeed())
	code, body = get("/metrics", token)
	w.Expect(code).To(Equal(http.StatusOK), body)
	w.Expect(body).To(ContainSubstring("controller_runtime_"))
	code, _ = get("/debug/pprof/", token)
	w.Expect(code).To(Equal(http.StatusNotFound), "profiling is off")

	plain, err := net.Dial("tcp", address)
	w.Expect(err).NotTo(HaveOccurred())
	defer plain.Close()
	_, err = fmt.Fprintf(plain, "GET /metrics HTTP/1.0\r\n\r\n")
	w.Expect(err).NotTo(HaveOccurred())
	answer, err := io.ReadAll(plain)
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(string(answer)).To(ContainSubstring("400 Bad Request"), "nothing is served without TLS")
}

// token of a new account of the test's namespace.
func (w *world) token(account string) string {
	w.Helper()
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}
	w.create(sa)
	request := &authenticationv1.TokenRequest{}
	w.Expect(api.SubResource("token").Create(w.Context(), sa, request)).To(Succeed())
	return request.Status.Token
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}
