// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// snapscheduler: pending and terminating claims are snapshotted.
func TestOnlyBoundClaimsThatAreWantedAreTaken(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("bound")
	o.claim("excluded", annotated(v1.AnnotationExclude, "true"))
	o.claim("pending", func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimPending })
	o.claim("lost", func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimLost })
	o.claim("other", func(c *corev1.PersistentVolumeClaim) { c.Labels["app"] = "cache" })
	leaving := o.claim("terminating", func(c *corev1.PersistentVolumeClaim) { c.Finalizers = []string{"example.com/in-use"} })
	o.Expect(api.Delete(t.Context(), leaving)).To(Succeed())
	o.schedule("hourly", `{schedule: "0 * * * *", claimSelector: {matchLabels: {app: db}}}`)
	o.tick(o.hour(0))
	o.Expect(o.claimsTaken()).To(Equal("bound"))
	o.Expect(o.runs("")[0].Status.Result).To(Equal(v1.ResultSucceeded))
}

// snapscheduler#283
func TestClaimsThatCannotBeSnapshottedAreReportedAndDoNotFailTheOthers(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("good")
	o.claim("in-tree", func(c *corev1.PersistentVolumeClaim) { c.Annotations = nil; c.Spec.VolumeName = "pv-" + o.namespace })
	o.volume("pv-"+o.namespace, corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}})
	o.claim("classless", annotated(annotationDriver, o.namespace+".other.example.com"))
	o.schedule("hourly", hourlyOfAll)
	o.tick(o.hour(0))
	o.Expect(o.claimsTaken()).To(Equal("good"))
	run := o.run("hourly-" + when(o.hour(0)))
	o.Expect(run.Status.Result).To(Equal(v1.ResultSucceeded))
	// Once, by event and status.
	said := fmt.Sprintf("%+v", o.eventsOf(""))
	o.Expect(said).To(And(ContainSubstring("claim in-tree"), ContainSubstring("claim classless")))
	o.Expect(asFields(t, run)).To(HaveKeyWithValue("status", WithTransform(func(v any) string { return fmt.Sprint(v) },
		And(ContainSubstring("in-tree"), ContainSubstring("classless")))))
	events := len(o.eventsOf(""))
	o.settle()
	o.Expect(o.eventsOf("")).To(HaveLen(events))
}

func TestARunWithoutAClaimIsSkippedAndSaysWhy(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("classless", annotated(annotationDriver, o.namespace+".other.example.com"))
	o.schedule("hourly", hourlyOfAll)
	o.tick(o.hour(0))
	run := o.runs("")[0]
	o.Expect(run.Status.Result).To(Equal(v1.ResultSkipped))
	o.Expect(run.Status.Message).To(And(ContainSubstring("classless"), ContainSubstring("no default VolumeSnapshotClass")))
	o.Expect(o.condition("hourly", v1.ConditionLastRunSucceeded).Status).To(Equal(metav1.ConditionUnknown))
	o.Expect(o.condition("hourly", v1.ConditionReady).Status).To(Equal(metav1.ConditionTrue))
}

func TestAVolumeThatWasBoundByHandIsTakenByItsDriver(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("static", func(c *corev1.PersistentVolumeClaim) { c.Annotations = nil; c.Spec.VolumeName = "pv-" + o.namespace })
	o.volume("pv-"+o.namespace, corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: o.driver, VolumeHandle: "v"}})
	o.schedule("hourly", hourlyOfAll)
	o.tick(o.hour(0))
	o.Expect(o.claimsTaken()).To(Equal("static"))
}

// snapscheduler#21
func TestTheClassIsTheClaimsElseTheSchedulesElseTheDefaultOfTheDriver(t *testing.T) {
	t.Parallel()
	o := operate(t)
	other := o.namespace + ".other.example.com"
	o.snapshotClass(o.namespace+"-of-schedule", o.driver, false)
	o.snapshotClass(o.namespace+"-of-claim", o.driver, false)
	o.snapshotClass(o.namespace+"-of-other", other, true)
	o.claim("plain")
	o.claim("annotated", annotated(v1.AnnotationSnapshotClass, o.namespace+"-of-claim"))
	o.claim("other-driver", annotated(annotationDriver, other))
	o.claim("wrong", annotated(v1.AnnotationSnapshotClass, o.namespace+"-of-other"))
	o.claim("missing", annotated(v1.AnnotationSnapshotClass, "nowhere"))
	o.schedule("default", hourlyOfAll)
	o.schedule("named", `{schedule: "0 * * * *", snapshotTemplate: {snapshotClassName: `+o.namespace+`-of-schedule}}`)
	o.schedule("unknown", `{schedule: "0 * * * *", snapshotTemplate: {snapshotClassName: nowhere}}`)
	o.tick(o.hour(0))
	classes := map[string]string{}
	for _, s := range o.snapshots() {
		classes[s.Labels[v1.LabelSchedule]+" "+*s.Spec.Source.PersistentVolumeClaimName] = ptr.Deref(s.Spec.VolumeSnapshotClassName, "")
	}
	o.Expect(classes).To(Equal(map[string]string{
		"default plain": "", "default annotated": o.namespace + "-of-claim", "default other-driver": "",
		"named plain": o.namespace + "-of-schedule", "named annotated": o.namespace + "-of-claim", "named other-driver": "",
		"unknown annotated": o.namespace + "-of-claim",
	}))
}

// snapscheduler#676
func TestClaimsAreSelectedByStorageClass(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("fast")
	o.claim("slow", func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = ptr.To("slow") })
	o.claim("none", func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = nil })
	o.schedule("hourly", `{schedule: "0 * * * *", storageClassNames: [fast, faster]}`)
	o.tick(o.hour(0))
	o.Expect(o.claimsTaken()).To(Equal("fast"))
}

// snapscheduler#235
func TestTheTemplatesLabelsAndAnnotationsAreOnEverySnapshot(t *testing.T) {
	t.Parallel()
	o := operate(t)
	claim := o.claim("data")
	o.schedule("hourly", `{schedule: "0 * * * *", snapshotTemplate: {labels: {team: shop, `+v1.LabelSchedule+`: mine, `+v1.LabelWhen+`: never},
		annotations: {note: "a b", `+v1.AnnotationClaimUID+`: forged}}}`)
	o.tick(o.hour(0))
	s := o.snapshots()[0]
	o.Expect(s.Labels).To(Equal(map[string]string{"team": "shop", v1.LabelSchedule: "hourly", v1.LabelWhen: when(o.hour(0))}))
	o.Expect(s.Annotations).To(And(HaveKeyWithValue("note", "a b"), HaveKeyWithValue(v1.AnnotationClaimUID, string(claim.UID))))
}

// snapscheduler#359
func TestTheSchedulesOwnerReferencePolicyGoesBeforeTheFlag(t *testing.T) {
	t.Parallel()
	for flag, owned := range map[bool][]string{false: {"owning"}, true: {"owning", "default"}} {
		o := prepare(t)
		o.ownerReferences = flag
		o.start()
		o.claim("data")
		o.schedule("default", hourlyOfAll)
		o.schedule("owning", `{schedule: "0 * * * *", snapshotTemplate: {ownerReferencePolicy: Schedule}}`)
		o.schedule("free", `{schedule: "0 * * * *", snapshotTemplate: {ownerReferencePolicy: None}}`)
		o.tick(o.hour(0))
		found := []string{}
		for _, s := range o.snapshots() {
			if len(s.OwnerReferences) > 0 {
				name := s.Labels[v1.LabelSchedule]
				o.Expect(s.OwnerReferences).To(ConsistOf(And(HaveField("UID", o.read(name).UID), HaveField("Kind", scheduleKind), HaveField("Name", name))))
				found = append(found, name)
			}
		}
		o.Expect(found).To(ConsistOf(owned), "--enable-owner-references=%t", flag)
	}
}

// snapscheduler: one rejected claim blocks every later one of the schedule.
func TestARefusedClaimDoesNotBlockTheOthersAndIsTriedAgain(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("a")
	o.claim("b")
	o.claim("c")
	allow := o.deny("a")
	o.schedule("hourly", hourlyOfAll)
	o.at(o.hour(0))
	o.will(o.claimsTaken).Should(Equal("b c"))
	run := "hourly-" + when(o.hour(0))
	o.will(func() string { return o.run(run).Status.Message + fmt.Sprint(o.run(run).Status.Snapshots) }).Should(ContainSubstring("not today"))
	o.Expect(o.eventsOf("SnapshotNotCreated")).To(HaveLen(1))

	allow()
	o.clock.SetTime(o.hour(0).Add(2 * time.Minute)) // still within the slot
	o.idle()
	o.Expect(o.claimsTaken()).To(Equal("a b c"))
	o.Expect(o.run(run).Status.Result).To(Equal(v1.ResultSucceeded))
}

func TestARefusedClaimCostsTheOthersNoSlot(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("a")
	o.claim("b")
	o.refuses(func(s *snapshotv1.VolumeSnapshot) error {
		if *s.Spec.Source.PersistentVolumeClaimName == "a" {
			return forbidden(s)
		}
		return nil
	})
	o.clock.SetTime(o.hour(0).Add(-time.Second))
	o.schedule("often", `{schedule: "* * * * *"}`)
	for n := range 3 {
		minute := o.hour(0).Add(time.Duration(n) * time.Minute)
		o.at(minute)
		o.will(func() v1.RunPhase { return o.run("often-" + when(minute)).Status.Phase }).Should(Equal(v1.PhaseAwaitingReady))
		o.settle()
	}
	o.will(o.claimsTaken).Should(Equal("b b b"))
	o.Expect(o.read("often").Status.LastMissed).To(BeNil())
}

func TestAClaimThatStaysRefusedFailsOnlyItself(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("a")
	o.claim("b")
	o.refuses(func(s *snapshotv1.VolumeSnapshot) error {
		if *s.Spec.Source.PersistentVolumeClaimName == "a" {
			return forbidden(s)
		}
		return nil
	})
	o.schedule("hourly", hourlyOfAll)
	o.at(o.hour(0))
	o.will(o.claimsTaken).Should(Equal("b"))
	run := "hourly-" + when(o.hour(0))
	o.will(func() v1.RunPhase { return o.run(run).Status.Phase }).Should(Equal(v1.PhaseAwaitingReady))
	o.clock.SetTime(o.hour(0).Add(6 * time.Minute))
	o.idle()
	o.Expect(o.run(run).Status.Result).To(Equal(v1.ResultPartiallyFailed))
	o.Expect(o.run(run).Status.Message).To(And(ContainSubstring("claim a"), ContainSubstring("forbidden")))
	o.Expect(o.condition("hourly", v1.ConditionLastRunSucceeded)).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", "PartiallyFailed")))
	o.Expect(o.eventsOf("SnapshotNotCreated")).To(HaveLen(1))
	o.Expect(o.eventsOf("RunPartiallyFailed")).To(HaveLen(1))
}

// volume is a PersistentVolume.
func (o *operator) volume(name string, source corev1.PersistentVolumeSource) {
	o.t.Helper()
	pv := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PersistentVolumeSpec{PersistentVolumeSource: source,
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Capacity: corev1.ResourceList{corev1.ResourceStorage: *gibibyte()}}}
	o.Expect(api.Create(o.t.Context(), pv)).To(Succeed())
}

// deny snapshots of a claim with a ValidatingAdmissionPolicy, until the function that is returned is called.
func (o *operator) deny(claim string) (allow func()) {
	o.t.Helper()
	name := o.namespace + "-deny"
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: o.namespace}},
			ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule: admissionv1.Rule{APIGroups: []string{snapshotv1.GroupName}, APIVersions: []string{"v1"}, Resources: []string{"volumesnapshots"}}}}}},
		Validations: []admissionv1.Validation{{Expression: fmt.Sprintf("object.spec.source.persistentVolumeClaimName != %q", claim), Message: "not today"}}}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: name, ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny}}}
	o.Expect(api.Create(o.t.Context(), policy)).To(Succeed())
	o.Expect(api.Create(o.t.Context(), binding)).To(Succeed())
	probe := func() error {
		return api.Create(o.t.Context(), &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: "probe"},
			Spec: snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: ptr.To(claim)}}}, client.DryRunAll)
	}
	o.will(probe).Should(MatchError(ContainSubstring("not today")))
	return func() {
		o.t.Helper()
		o.Expect(api.Delete(o.t.Context(), binding)).To(Succeed())
		o.Expect(api.Delete(o.t.Context(), policy)).To(Succeed())
		o.will(probe).Should(Succeed())
	}
}
