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
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// restorable is an operator that has taken two claims at its first hour: the run's name is returned.
func restorable(t *testing.T) (*plugin, string) {
	t.Helper()
	o := operate(t)
	o.claim("data")
	o.claim("log")
	o.stores(func(s *snapshotv1.VolumeSnapshot) *snapshotv1.VolumeSnapshotStatus {
		st := o.ready(s)
		st.RestoreSize = resource.NewQuantity(2<<30, resource.BinarySI)
		return st
	})
	o.schedule("s", `{schedule: "0 * * * *", claimSelector: {matchLabels: {app: db}}}`)
	o.tick(o.hour(0))
	return o.plugin(), "s-" + when(o.hour(0))
}

func (o *operator) pvc(name string) *corev1.PersistentVolumeClaim {
	o.t.Helper()
	var c corev1.PersistentVolumeClaim
	o.Expect(api.Get(o.t.Context(), client.ObjectKey{Namespace: o.namespace, Name: name}, &c)).To(Succeed())
	return &c
}

func (o *operator) pvcNames() []string {
	o.t.Helper()
	var list corev1.PersistentVolumeClaimList
	o.Expect(api.List(o.t.Context(), &list, client.InNamespace(o.namespace))).To(Succeed())
	names := []string{}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

// bind a claim, as the provisioner does when its data is there.
func (o *operator) bind(name string) {
	o.t.Helper()
	c := o.pvc(name)
	before := c.DeepCopy()
	c.Status.Phase = corev1.ClaimBound
	o.Expect(api.Status().Patch(o.t.Context(), c, client.MergeFrom(before))).To(Succeed())
}

func (o *operator) storageClass(name string, mode storagev1.VolumeBindingMode) {
	o.t.Helper()
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: o.driver, VolumeBindingMode: &mode}
	o.Expect(api.Create(o.t.Context(), class)).To(Succeed())
	o.t.Cleanup(func() { o.Expect(api.Delete(context.Background(), class)).To(Succeed()) })
}

// kept are the snapshots that are protected from retention: name, and the claims that are made from them.
func (o *operator) kept() []string {
	o.t.Helper()
	out := []string{}
	for _, s := range o.snapshots() {
		if s.Labels[v1.LabelRetention] == v1.RetentionKeep {
			out = append(out, strings.TrimSuffix(s.Name+" "+s.Annotations[v1.AnnotationRestoring], " "))
		}
	}
	return out
}

func TestPluginRestore(t *testing.T) {
	p, run := restorable(t)
	data := p.pvc("data")
	before := p.everything()
	dry := p.do("restore", "s", "--dry-run")
	p.Expect(dry.code).To(Equal(0), dry.err)
	p.Expect(dry.out).To(MatchRegexp(`(?m)^data +data-restored +2Gi +fast +ReadWriteOnce +data-s-` + when(p.hour(0)) + `$`))
	p.Expect(dry.err).To(ContainSubstring("from run " + run))
	p.Expect(dry.err).To(ContainSubstring("nothing was changed"))
	p.Expect(p.ok("restore", "s", "--dry-run", "-o", "yaml")).To(ContainSubstring("kind: PersistentVolumeClaim"))
	p.Expect(p.everything()).To(Equal(before))

	r := p.begin("restore", "s", "--wait")
	p.will(p.pvcNames).Should(ConsistOf("data", "log", "data-restored", "log-restored"))
	p.will(r.said).Should(ContainSubstring("claim log-restored: Pending"))
	p.Expect(p.kept()).To(ConsistOf("data-s-"+when(p.hour(0))+" data-restored", "log-s-"+when(p.hour(0))+" log-restored"), "protected while it works")
	c := p.pvc("data-restored")
	p.Expect(c.Spec.DataSource).To(Equal(&corev1.TypedLocalObjectReference{APIGroup: ptr.To("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: "data-s-" + when(p.hour(0))}))
	p.Expect(*c.Spec.StorageClassName).To(Equal("fast"))
	p.Expect(c.Spec.AccessModes).To(Equal([]corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}))
	p.Expect(c.Spec.Resources.Requests.Storage().String()).To(Equal("2Gi"))
	p.Expect(c.Labels).To(Equal(map[string]string{"app": "db"}))
	p.bind("data-restored")
	p.bind("log-restored")
	end := r.end()
	p.Expect(end.code).To(Equal(0), end.err)
	p.Expect(end.out).To(Equal("persistentvolumeclaim/data-restored created\npersistentvolumeclaim/log-restored created\n"))
	p.Expect(end.err).To(ContainSubstring("Next:\n1. Look at the data before you trust it: mount data-restored, log-restored in a pod."))
	p.Expect(end.err).NotTo(ContainSubstring("unkeep"))
	p.Expect(p.kept()).To(BeEmpty(), "the label that it set is taken off again")
	p.Expect(p.pvc("data").ResourceVersion).To(Equal(data.ResourceVersion), "the original is not touched")

	// A second time nothing is done: the names are taken.
	before = p.everything()
	p.fails(1, "nothing was created, because existing claims are never touched: claim data-restored exists (restored from snapshot data-s-"+when(p.hour(0)), "restore", "s")
	p.fails(1, "claim log-restored exists", "restore", "s", "--claims", "data,log", "--into", "fresh,log-restored")
	p.Expect(p.everything()).To(Equal(before))
}

func TestPluginRestoreThatIsNotWaitedForLeavesTheSnapshotsProtected(t *testing.T) {
	p, _ := restorable(t)
	snapshot := "data-s-" + when(p.hour(0))
	r := p.do("restore", "s", "--claims", "data", "--into", "copy")
	p.Expect(r.code).To(Equal(0))
	p.Expect(p.kept()).To(ConsistOf(snapshot + " copy"))
	p.Expect(r.err).To(ContainSubstring("kubectl stillpoint -n " + p.namespace + " unkeep " + snapshot))
	p.Expect(p.ok("unkeep", snapshot)).To(ContainSubstring("given back"))
	p.Expect(p.kept()).To(BeEmpty())

	// Neither do --timeout and Ctrl-C.
	p.fails(5, "--timeout is over; the claims are being made", "restore", "s", "--claims", "data", "--into", "copy2", "--wait", "--timeout", "1s")
	p.Expect(p.kept()).To(ConsistOf(snapshot + " copy2"))
	ctx, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	interrupted := p.doUntil(ctx, "restore", "s", "--claims", "data", "--into", "copy3", "--wait")
	p.Expect(interrupted.code).To(Equal(130), interrupted.err)
	p.Expect(p.kept()).To(ConsistOf(snapshot + " copy2,copy3"))

	// A person's own label stays, and nothing is said about taking it off.
	p.ok("keep", snapshot)
	r = p.do("restore", "s", "--claims", "data", "--into", "copy4")
	p.Expect(r.err).NotTo(ContainSubstring("unkeep"))
	p.Expect(p.kept()).To(ConsistOf(snapshot))
}

func TestPluginRestoreWaitsForNoPod(t *testing.T) {
	p, _ := restorable(t)
	class := p.namespace + "-late"
	p.storageClass(class, storagev1.VolumeBindingWaitForFirstConsumer)
	r := p.do("restore", "s", "--claims", "data", "--storage-class", class, "--wait")
	p.Expect(r.code).To(Equal(0), r.err)
	p.Expect(r.err).To(ContainSubstring("the claims wait for their first pod"))
	p.Expect(p.kept()).To(HaveLen(1), "until then the snapshot is needed")
}

func TestPluginRestoreOfARunThatIsNotComplete(t *testing.T) {
	p, first := restorable(t)
	p.stores(func(s *snapshotv1.VolumeSnapshot) *snapshotv1.VolumeSnapshotStatus {
		if strings.HasPrefix(s.Name, "log") {
			return p.broken(s)
		}
		return p.ready(s)
	})
	p.tick(p.hour(1))
	second := "s-" + when(p.hour(1))
	p.Expect(p.run(second).Status.Result).To(Equal(v1.ResultPartiallyFailed))
	before := p.everything()
	r := p.fails(1, "cannot be restored: claim log: snapshot log-s-"+when(p.hour(1))+" is not ready: the array is full", "restore", "s", "--at", second)
	p.Expect(r.err).To(ContainSubstring("to restore of run " + second + " only what can be restored: --at " + second + " --claims data"))
	p.Expect(p.everything()).To(Equal(before))
	r = p.do("restore", "s", "--dry-run")
	p.Expect(r.code).To(Equal(0))
	p.Expect(r.err).To(ContainSubstring("passed over: run " + second))
	p.Expect(r.err).To(ContainSubstring("from run " + first))
	p.Expect(p.ok("restore", "s", "--at", second, "--claims", "data", "--dry-run")).To(ContainSubstring("data-s-" + when(p.hour(1))))
	p.Expect(p.ok("restore", "s", "--at", p.hour(0).Format(time.RFC3339), "--dry-run")).To(ContainSubstring("log-s-" + when(p.hour(0))))
	p.fails(1, "is not application-consistent", "restore", "s", "--consistency", "application")
	p.fails(1, "neither a time nor a run", "restore", "s", "--at", "yesterday")
}

func TestPluginRestoreIsNotDeceivedByLabels(t *testing.T) {
	p, run := restorable(t)
	record := p.run(run)
	forge := func(s *snapshotv1.VolumeSnapshot) {
		s.Annotations = map[string]string{v1.AnnotationRun: run, v1.AnnotationRunUID: string(record.UID)}
		s.Labels[v1.LabelWhen] = when(p.hour(0))
		s.Labels[v1.LabelConsistency] = v1.ConsistencyApplication
	}
	forged := p.made("forged", "s", "secret", "", -time.Minute, forge).Name
	r := p.do("restore", "s", "--dry-run")
	p.Expect(r.code).To(Equal(0))
	p.Expect(r.out).NotTo(ContainSubstring(forged))
	p.Expect(r.err).To(ContainSubstring("snapshot " + forged + " carries this run's mark and is not in its record: it is left alone"))
	p.fails(1, "is not in its record: somebody else made it", "restore", "s", "--at", forged)
	// The run's own snapshots, labelled better than they are.
	for _, name := range []string{"data-s-" + when(p.hour(0)), "log-s-" + when(p.hour(0))} {
		p.patch(&snapshotv1.VolumeSnapshot{}, name, fmt.Sprintf(`{"metadata":{"labels":{%q:"application"}}}`, v1.LabelConsistency))
	}
	p.fails(1, "is not application-consistent", "restore", "s", "--at", run, "--consistency", "application")
	// One of them replaced by another of the same name.
	doomed := p.snapshot("log-s-" + when(p.hour(0)))
	p.Expect(api.Delete(t.Context(), doomed)).To(Succeed())
	p.made("log-s-"+when(p.hour(0)), "s", "log", "", 0, func(s *snapshotv1.VolumeSnapshot) { s.Labels[v1.LabelWhen] = when(p.hour(0)) })
	p.fails(1, "snapshot log-s-"+when(p.hour(0))+" of this run does not exist (any more)", "restore", "s", "--at", run)
}

func TestPluginRestoreOfSnapscheduler(t *testing.T) {
	o := prepare(t)
	p := o.plugin()
	o.claim("data")
	for i, at := range []time.Time{o.hour(-3), o.hour(-2)} {
		for _, claim := range []string{"data", "gone"} {
			if i == 1 && claim == "gone" {
				continue
			}
			o.made(claim+"-old-"+when(at), "old", claim, "", o.clock.Now().Sub(at))
		}
	}
	r := p.do("restore", "old", "--at", when(o.hour(-3)), "--claims", "data", "--dry-run")
	p.Expect(r.code).To(Equal(0), r.err)
	p.Expect(r.out).To(MatchRegexp(`(?m)^data +data-restored +1Gi +fast +ReadWriteOnce +data-old-` + when(o.hour(-3)) + `$`))
	p.Expect(r.err).To(ContainSubstring("the run's record is no longer kept"))
	r = p.fails(1, "nothing was created: --storage-class NAME is needed: the original of gone does not exist any more", "restore", "old", "--at", when(o.hour(-3)))
	p.Expect(r.err).To(ContainSubstring("--access-modes ReadWriteOnce is needed"))
	p.Expect(r.err).To(ContainSubstring("--size 10Gi is needed"))
	out := p.ok("restore", "old", "--at", when(o.hour(-3)), "--storage-class", "slow", "--access-modes", "ReadWriteOncePod", "--size", "3Gi", "--to-suffix", "-x")
	p.Expect(out).To(Equal("persistentvolumeclaim/data-x created\npersistentvolumeclaim/gone-x created\n"))
	c := p.pvc("gone-x")
	p.Expect(*c.Spec.StorageClassName).To(Equal("slow"))
	p.Expect(c.Spec.AccessModes).To(Equal([]corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}))
	p.Expect(c.Spec.Resources.Requests.Storage().String()).To(Equal("3Gi"))
	p.fails(1, "SnapshotSchedule never does not exist", "restore", "never")
}

func TestPluginRestoreOfAStatefulSet(t *testing.T) {
	o := operate(t)
	p := o.plugin()
	for _, name := range []string{"data-web-0", "data-web-1", "log-web-0", "data-my-web-0", "other"} {
		o.claim(name)
	}
	set := func(name string, templates ...string) {
		s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: name}, Spec: appsv1.StatefulSetSpec{ServiceName: name, Replicas: ptr.To(int32(2)),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a": name}}, Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": name}},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}}}
		for _, template := range templates {
			s.Spec.VolumeClaimTemplates = append(s.Spec.VolumeClaimTemplates, corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: template}, Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: *gibibyte()}}}})
		}
		o.Expect(api.Create(t.Context(), s)).To(Succeed())
	}
	set("web", "data", "log")
	set("my-web", "data")
	o.schedule("s", hourlyOfAll)
	o.tick(o.hour(0))
	r := p.do("restore", "s", "--statefulset", "web=web2", "-o", "name")
	p.Expect(r.code).To(Equal(0), r.err)
	p.Expect(r.out).To(Equal("persistentvolumeclaim/data-web2-0\npersistentvolumeclaim/data-web2-1\npersistentvolumeclaim/log-web2-0\n"))
	p.Expect(r.err).To(ContainSubstring("StatefulSet web2 with the volumeClaimTemplates of web takes the new claims by their names"))
	p.fails(1, "no snapshot of this schedule is of a claim of StatefulSet db", "restore", "s", "--statefulset", "db=db2")
	p.fails(1, "write OLD=NEW", "restore", "s", "--statefulset", "db")
	p.fails(1, "exclude each other", "restore", "s", "--statefulset", "web=x", "--to-suffix", "-x")
}

func TestPluginRestoreThatIsCutShort(t *testing.T) {
	p, _ := restorable(t)
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "q"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourcePersistentVolumeClaims: resource.MustParse("3")}}}
	p.Expect(api.Create(t.Context(), quota)).To(Succeed())
	quota.Status = corev1.ResourceQuotaStatus{Hard: quota.Spec.Hard, Used: corev1.ResourceList{corev1.ResourcePersistentVolumeClaims: resource.MustParse("2")}}
	p.Expect(api.Status().Update(t.Context(), quota)).To(Succeed())
	// Until the quota is seen, a third claim could be followed by a fourth.
	p.will(func() error {
		probe := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: "probe"}, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To("fast"),
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: *gibibyte()}}}}
		p.Expect(api.Create(t.Context(), probe)).To(Succeed())
		var seen corev1.ResourceQuota
		p.Expect(api.Get(t.Context(), client.ObjectKeyFromObject(quota), &seen)).To(Succeed())
		p.removeClaim(probe)
		if used := seen.Status.Used[corev1.ResourcePersistentVolumeClaims]; used.Value() != 3 {
			return fmt.Errorf("used: %s", used.String())
		}
		seen.Status.Used = quota.Status.Used
		return api.Status().Update(t.Context(), &seen)
	}).Should(Succeed())
	r := p.fails(3, "1 of 2 claims were made: data-restored", "restore", "s", "--wait")
	p.Expect(r.err).To(ContainSubstring("exceeded quota"))
	p.Expect(r.err).To(ContainSubstring("to begin again: kubectl -n " + p.namespace + " delete pvc data-restored && kubectl stillpoint -n " + p.namespace + " unkeep data-s-" + when(p.hour(0))))
	p.Expect(p.kept()).To(ConsistOf("data-s-"+when(p.hour(0))+" data-restored"), "what nothing depends on is given back")
}

func TestPluginRestoreNeedsTheRightToProtectTheSnapshots(t *testing.T) {
	p, _ := restorable(t)
	p.grant("reader", rbacv1.Subject{Kind: "User", Name: "reader"},
		rbacv1.PolicyRule{APIGroups: []string{v1.GroupVersion.Group}, Resources: []string{"snapshotschedules", "snapshotruns"}, Verbs: []string{"get", "list"}},
		rbacv1.PolicyRule{APIGroups: []string{snapshotv1.GroupName}, Resources: []string{"volumesnapshots"}, Verbs: []string{"get", "list"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"persistentvolumeclaims"}, Verbs: []string{"get", "list", "create"}})
	p.will(func() int { return p.do("restore", "s", "--dry-run", "--as", "reader").code }).Should(Equal(0)) // the rights have come
	before := p.everything()
	p.fails(1, "nothing was created, because a snapshot could not be protected from retention", "restore", "s", "--as", "reader")
	p.fails(1, "you (reader) may not patch volumesnapshots.snapshot.storage.k8s.io in namespace "+p.namespace, "restore", "s", "--as", "reader")
	p.Expect(p.everything()).To(Equal(before))
}

// Somebody deletes the snapshot in the moment between the choice and the first label.
func TestPluginRestoreOfASnapshotThatVanishes(t *testing.T) {
	p, _ := restorable(t)
	s := p.snapshot("data-s-" + when(p.hour(0)))
	p.patch(&snapshotv1.VolumeSnapshot{}, s.Name, `{"metadata":{"finalizers":["test.example.com/hold"]}}`)
	p.Expect(api.Delete(t.Context(), s)).To(Succeed())
	p.fails(1, "snapshot "+s.Name+" is being deleted", "restore", "s", "--at", "s-"+when(p.hour(0)))
	p.Expect(api.Patch(t.Context(), s, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
	p.Expect(p.pvcNames()).To(ConsistOf("data", "log"))
}

func TestPluginRestorePrintsObjects(t *testing.T) {
	p, _ := restorable(t)
	var list struct {
		Kind  string
		Items []corev1.PersistentVolumeClaim
	}
	p.Expect(json.Unmarshal([]byte(p.ok("restore", "s", "-o", "json")), &list)).To(Succeed())
	p.Expect(list.Items).To(HaveLen(2))
	p.Expect(list.Items[0].UID).NotTo(BeEmpty(), "as they were created")
}
