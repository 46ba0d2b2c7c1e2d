// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	pluginof "github.com/stillpoint-operator/stillpoint/cmd/kubectl-stillpoint/command"
)

// grant rights in the namespace to a user or a ServiceAccount.
func (o *operator) grant(name string, subject rbacv1.Subject, rules ...rbacv1.PolicyRule) {
	o.t.Helper()
	o.Expect(api.Create(o.t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: name}, Rules: rules})).To(Succeed())
	o.Expect(api.Create(o.t.Context(), &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: name}, Subjects: []rbacv1.Subject{subject},
		RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name}})).To(Succeed())
}

func (p *plugin) planOf(args ...string) (pluginof.Plan, int) {
	p.t.Helper()
	r := p.do(append([]string{"plan", "-o", "json"}, args...)...)
	var plan pluginof.Plan
	p.Expect(json.Unmarshal([]byte(r.out), &plan)).To(Succeed(), r.out+r.err)
	return plan, r.code
}

func TestPluginPlanIsWhatTheOperatorDoes(t *testing.T) {
	o := operate(t)
	p := o.plugin()
	o.claim("data")
	o.claim("log", annotated(v1.AnnotationSnapshotClass, o.class))
	o.claim("unbound", func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimPending })
	o.pod("db-0")
	o.pod("db-1")
	o.grant("hooks", rbacv1.Subject{Kind: "ServiceAccount", Name: "snapshots", Namespace: o.namespace}, rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods/exec"}, Verbs: []string{"get", "create"}})
	o.schedule("s", strings.Replace(quiescing, "{schedule", "{timeZone: Europe/Vienna, serviceAccountName: snapshots, retention: {maxCount: 2}, schedule", 1))
	before := p.everything()
	plan, code := p.planOf("s")
	p.Expect(code).To(Equal(0))
	p.Expect(plan.Outcome).To(Equal("Planned"))
	p.Expect(plan.Unknown).To(BeEmpty())
	p.Expect(plan.TimeZone).To(Equal("Europe/Vienna"))
	p.Expect(plan.Slots).To(HaveLen(5))
	p.Expect(plan.Slots[0].Slot).To(BeTemporally("==", o.hour(0)))
	p.Expect(plan.Slots[4].Slot).To(BeTemporally("==", o.hour(4)))
	p.Expect(plan.Claims).To(Equal([]pluginof.PlannedClaim{
		{Claim: "data", Snapshot: "data-s-" + when(o.hour(0)), Driver: o.driver},
		{Claim: "log", Snapshot: "log-s-" + when(o.hour(0)), Class: o.class, Driver: o.driver},
	}))
	p.Expect(plan.LeftOut).To(Equal([]string{"claim unbound is not bound"}))
	p.Expect(plan.Hooks).To(HaveLen(2))
	p.Expect(plan.Hooks[0].Containers).To(Equal([]string{o.namespace + "/db-0/db", o.namespace + "/db-1/db"}))
	p.Expect(plan.Account.Rights).To(Equal([]pluginof.PlannedRight{{Namespace: o.namespace, Allowed: true}}))

	said := p.ok("plan", "s")
	p.Expect(said).To(ContainSubstring("A run would take 2 snapshots with 2 hooks."))
	p.Expect(said).To(MatchRegexp(`NEXT SLOTS\n  \w{3} \d{4}-\d\d-\d\d \d\d:00:00 CES?T \(\d\d:00:00 UTC\), in 30m\n`))
	p.Expect(said).To(MatchRegexp(`(?m)^  data +\(default\) +` + o.driver))
	p.Expect(said).To(MatchRegexp(`(?m)^  pre  freeze  \(all pods of namespace ` + o.namespace + ` with app=db, 5m0s\)\n         in ` + o.namespace + `/db-0/db$`))
	p.Expect(said).To(ContainSubstring("as ServiceAccount " + o.namespace + "/snapshots\n         may run commands in pods of namespace " + o.namespace))
	p.Expect(said).NotTo(ContainSubstring("[freeze]"), "no arguments of commands")
	p.Expect(p.everything()).To(Equal(before), "a plan changes nothing")

	// And then the operator does just that.
	o.tick(o.hour(0))
	var names []string
	for _, s := range o.run("s-" + when(o.hour(0))).Status.Snapshots {
		names = append(names, s.Name)
	}
	p.Expect(names).To(Equal([]string{plan.Claims[0].Snapshot, plan.Claims[1].Snapshot}))
}

func TestPluginPlanOfRetention(t *testing.T) {
	o := prepare(t) // no operator deletes anything here
	p := o.plugin()
	o.schedule("s", `{schedule: "0 * * * *", retention: {maxCount: 2, expires: 168h}}`)
	uid := string(o.claim("data").UID)
	for i := range 5 {
		o.made(fmt.Sprintf("s%d", i), "s", "data", uid, time.Duration(-i)*time.Second)
	}
	o.made("pinned", "s", "data", uid, time.Duration(-9)*time.Second, func(s *snapshotv1.VolumeSnapshot) { s.Labels[v1.LabelRetention] = v1.RetentionKeep })
	o.clock.SetTime(o.clock.Now().Add(time.Minute))
	before := p.everything()
	plan, code := p.planOf("s")
	p.Expect(code).To(Equal(0))
	var gone []string
	for _, d := range plan.Retention.Delete {
		gone = append(gone, o.nickname(d.Snapshot)+" "+d.Rule)
	}
	p.Expect(gone).To(Equal([]string{"s2 BeyondMaxCount", "s1 BeyondMaxCount", "s0 BeyondMaxCount"}))
	said := p.ok("plan", "s")
	p.Expect(said).To(ContainSubstring("RETENTION  expires 168h, maxCount 2\n  deletes 3 snapshots now, keeps 3:\n    " + o.called("s2") + ": 2 newer ready snapshots of its claim exist (maxCount)\n"))
	p.Expect(p.ok("plan", "s", "-o", "wide")).To(ContainSubstring("  keeps:\n    " + o.called("pinned") + ": it is labelled snapscheduler.backube/retention=keep\n"))
	p.Expect(p.everything()).To(Equal(before))
}

func TestPluginPlanThatWouldFail(t *testing.T) {
	o := prepare(t)
	p := o.plugin()
	o.schedule("none", hourlyOfAll)
	p.fails(4, "A run would be skipped: no claim to take", "plan", "none")
	o.claim("data")
	o.schedule("s", quiescing)
	p.fails(2, "A run would fail before it quiesces anything: hook freeze: no running pod in namespace "+o.namespace+" matches app=db", "plan", "s")
	o.pod("db-0")
	o.schedule("account", strings.Replace(quiescing, "{schedule", "{serviceAccountName: snapshots, schedule", 1))
	p.fails(2, "may not run commands in pods of namespace "+o.namespace, "plan", "account")
	p.fails(0, "UNKNOWN\n  whether the operator's own account may run the hooks: its pods were not found", "plan", "s")
	o.schedule("wrong", `{schedule: "0 * * * *", timeZone: Europe/Nowhere}`)
	p.fails(0, "none: the schedule cannot be read", "plan", "wrong")
	p.Expect(o.runs("")).To(BeEmpty())
}

func TestPluginPlanOfAFile(t *testing.T) {
	o := prepare(t)
	p := o.plugin()
	o.claim("data")
	const text = `apiVersion: snapscheduler.backube/v1
kind: SnapshotSchedule
metadata: {name: new}
spec:
  schedule: "0 3 * * *"
`
	before := p.everything()
	plan, code := p.planOf("-f", p.text("new.yaml", text))
	p.Expect(code).To(Equal(0))
	p.Expect(plan.Namespace).To(Equal(o.namespace))
	p.Expect(plan.Claims).To(HaveLen(1))
	p.Expect(plan.Claims[0].Snapshot).To(MatchRegexp(`^data-new-\d{8}0300$`))
	p.Expect(p.everything()).To(Equal(before))
	p.stdin = text
	p.Expect(p.ok("plan", "-f", "-")).To(ContainSubstring("A run would take 1 snapshot."))
	p.fails(2, "the API server would refuse", "plan", "-f", p.text("bad.yaml", strings.Replace(text, "0 3", "0 33", 1)))
	p.fails(1, "is for namespace other and -n says "+o.namespace, "plan", "-f", p.text("other.yaml", strings.Replace(text, "name: new", "name: new, namespace: other", 1)), "-n", o.namespace)
	p.fails(1, "needs the name of a schedule, or -f FILE", "plan")
	p.fails(1, "needs the name of a schedule, or -f FILE", "plan", "x", "-f", "y")
}

// A user who may read the schedule and its claims, and not the cluster's classes, learns what is unknown for want of which right.
func TestPluginPlanWithFewRights(t *testing.T) {
	o := prepare(t)
	p := o.plugin()
	o.claim("data")
	o.schedule("s", hourlyOfAll)
	o.grant("reader", rbacv1.Subject{Kind: "User", Name: "reader"},
		rbacv1.PolicyRule{APIGroups: []string{v1.GroupVersion.Group}, Resources: []string{"snapshotschedules", "snapshotruns"}, Verbs: []string{"get", "list"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims"}, Verbs: []string{"get", "list"}})
	r := p.fails(1, "with which VolumeSnapshotClass claims would be taken: you may not", "plan", "s", "--as", "reader")
	p.Expect(r.out).To(ContainSubstring("What a run would do is not known."))
	p.Expect(r.out).To(ContainSubstring("what retention would delete: you may not"))
	p.Expect(r.out).To(ContainSubstring("NEXT SLOTS\n  "), "what can be told is told")
}

// The operator's account is found by its pods.
func TestPluginPlanFindsTheOperator(t *testing.T) {
	o := prepare(t)
	p := o.plugin()
	o.claim("data")
	o.pod("db-0")
	o.schedule("s", quiescing)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: "stillpoint-0", Labels: map[string]string{"app.kubernetes.io/name": "stillpoint", "app.kubernetes.io/component": "operator"}},
		Spec: corev1.PodSpec{ServiceAccountName: "stillpoint", Containers: []corev1.Container{{Name: "operator", Image: "x"}}}}
	o.Expect(api.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: "stillpoint"}})).To(Succeed())
	o.Expect(api.Create(t.Context(), pod)).To(Succeed())
	t.Cleanup(func() {
		o.Expect(client.IgnoreNotFound(api.Delete(context.Background(), pod, client.GracePeriodSeconds(0)))).To(Succeed())
	})
	p.fails(2, "as the operator's own, ServiceAccount "+o.namespace+"/stillpoint\n         may not run commands", "plan", "s")
}
