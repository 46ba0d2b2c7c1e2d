// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"

	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stillpoint-operator/stillpoint/test/cluster"
)

// prometheus is a process of its own.
type prometheus struct{ address string }

// prometheus scrapes an operator's metrics every second, with the account monitor, and evaluates the alerts as often and without their patience.
func (w *world) prometheus(metrics string) *prometheus {
	w.Helper()
	w.Expect(cluster.InstallPackages(w.Context(), os.Stderr, "prometheus")).To(Succeed())
	dir := w.TempDir()
	rules, err := os.ReadFile("../../helm/stillpoint/files/alerts.yaml")
	w.Expect(err).NotTo(HaveOccurred())
	write := func(name, text string) {
		w.Expect(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)).To(Succeed())
	}
	write("alerts.yaml", regexp.MustCompile(`(?m)^    for: .*$`).ReplaceAllString(string(rules), "    for: 0s"))
	write("token", w.maySeeMetrics("monitor"))
	write("prometheus.yaml", `
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 1s}
rule_files: [alerts.yaml]
scrape_configs:
- job_name: stillpoint
  scheme: https
  authorization: {credentials_file: token}
  tls_config: {insecure_skip_verify: true}
  static_configs: [{targets: ["`+metrics+`"]}]
`)
	p := &prometheus{address: freeAddress(w.T)}
	log := &logBuffer{}
	cmd := exec.Command("prometheus", "--config.file="+filepath.Join(dir, "prometheus.yaml"), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+p.address)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	w.Expect(cmd.Start()).To(Succeed())
	w.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if w.Failed() {
			w.Logf("log of Prometheus:\n%s", log.tail())
		}
	})
	w.Eventually(func() error {
		up, err := p.query(`up{job="stillpoint"} == 1`)
		if err == nil && len(up) != 1 {
			err = fmt.Errorf("the operator is not scraped: %v", up)
		}
		return err
	}, patience, "200ms").Should(Succeed())
	return p
}

// get an answer of Prometheus's API.
func (p *prometheus) get(path string, query map[string]string, into any) error {
	values := url.Values{}
	for k, v := range query {
		values.Set(k, v)
	}
	resp, err := http.Get("http://" + p.address + path + "?" + values.Encode())
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var answer struct {
		Status string          `json:"status"`
		Error  string          `json:"error"`
		Data   json.RawMessage `json:"data"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil {
		return fmt.Errorf("%s: %w", resp.Status, err)
	}
	if answer.Status != "success" {
		return fmt.Errorf("%s: %s", answer.Status, answer.Error)
	}
	return json.Unmarshal(answer.Data, into)
}

// maySeeMetrics makes an account that may, and returns its token.
func (w *world) maySeeMetrics(account string) string {
	w.Helper()
	binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: w.ns}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "stillpoint-metrics-reader"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.ns, Name: account}}}
	w.Expect(api.Create(w.Context(), binding)).To(Succeed())
	w.Cleanup(func() {
		if err := api.Delete(context.Background(), binding); err != nil {
			w.Errorf("deleting ClusterRoleBinding %s: %v", binding.Name, err)
		}
	})
	token := w.token(account)
	w.Eventually(func() bool { // the operator remembers a refusal for half a minute
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:" + w.ns + ":" + account,
			NonResourceAttributes: &authorizationv1.NonResourceAttributes{Path: "/metrics", Verb: "get"}}}
		w.Expect(api.Create(w.Context(), review)).To(Succeed())
		return review.Status.Allowed
	}, patience, "50ms").Should(BeTrue())
	return token
}
