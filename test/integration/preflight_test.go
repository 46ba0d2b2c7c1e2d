// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/stillpoint-operator/stillpoint/internal/preflight"
)

func TestThePreflightTellsWhatAnInstallationHasAndLacks(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	ns := Namespace(t)
	now := time.Now()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "lease"}, Spec: coordinationv1.LeaseSpec{
		HolderIdentity: ptr.To("pod-1"), LeaseDurationSeconds: ptr.To[int32](15), RenewTime: ptr.To(metav1.NewMicroTime(now))}}
	g.Expect(api.Create(t.Context(), lease)).To(Succeed())
	administrator, err := kubernetes.NewForConfig(Env())
	g.Expect(err).NotTo(HaveOccurred())
	nobody, err := env.AddUser(envtest.User{Name: "nobody-" + ns}, nil)
	g.Expect(err).NotTo(HaveOccurred())
	powerless, err := kubernetes.NewForConfig(nobody.Config())
	g.Expect(err).NotTo(HaveOccurred())
	in := preflight.Installation{Hooks: true, LeaseNamespace: ns, Lease: "lease"}

	good, err := preflight.Check(t.Context(), administrator, in, now)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(good).To(HaveEach(HaveField("OK", true)))
	g.Expect(good).To(ContainElements(
		preflight.Finding{OK: true, Text: "the API server serves snapshotruns of snapscheduler.backube/v1"},
		preflight.Finding{OK: true, Text: "this account may create pods/exec in every namespace"},
		preflight.Finding{OK: true, Text: `an operator holds lease ` + ns + `/lease: "pod-1"`}))

	_, err = preflight.Check(t.Context(), powerless, in, now)
	g.Expect(err).To(MatchError(ContainSubstring("reading lease " + ns + "/lease")))

	in.Namespaces, in.Hooks, in.Lease = []string{ns}, false, "none"
	bad, err := preflight.Check(t.Context(), administrator, in, now)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(bad).To(ContainElement(preflight.Finding{OK: false, Text: "an operator holds lease " + ns + "/none: it does not exist"}))
	g.Expect(bad).NotTo(ContainElement(HaveField("Text", ContainSubstring("exec"))), "hooks are off")
	in.Lease = "lease"
	bad, err = preflight.Check(t.Context(), administrator, in, now.Add(time.Minute))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(bad[len(bad)-1].OK).To(BeFalse(), "its holder is dead")
}
