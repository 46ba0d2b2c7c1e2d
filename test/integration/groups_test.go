// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	pluginof "github.com/stillpoint-operator/stillpoint/cmd/kubectl-stillpoint/command"
)

// Here tests play the snapshot controller and the storage for group snapshots, step by step.

// groupClass of the operator's driver, named like its namespace.
func (o *operator) groupClass() {
	o.t.Helper()
	k := &groupv1.VolumeGroupSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: o.namespace}, Driver: o.driver, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete}
	o.Expect(api.Create(o.t.Context(), k)).To(Succeed())
	o.t.Cleanup(func() {
		if err := api.Delete(context.Background(), k); err != nil {
			o.t.Errorf("deleting group class %s: %v", k.Name, err)
		}
	})
}

// grouped is a schedule of all claims that takes a group, with more in its spec.
func (o *operator) grouped(more string) string {
	return `{schedule: "0 * * * *", claimSelector: {matchLabels: {app: db}}, snapshotTemplate: {groupSnapshotClassName: ` + o.namespace + `, labels: {team: shop}}` + more + `}`
}

const aroundTheGroup = `, preHooks: [{podSelector: {matchLabels: {app: db}}, command: ["quiesce"]}], postHooks: [{podSelector: {matchLabels: {app: db}}, command: ["release"]}]`

func (o *operator) groups() []groupv1.VolumeGroupSnapshot {
	o.t.Helper()
	var list groupv1.VolumeGroupSnapshotList
	o.Expect(api.List(o.t.Context(), &list, client.InNamespace(o.namespace))).To(Succeed())
	return list.Items
}

func (o *operator) groupNames() []string {
	o.t.Helper()
	names := []string{}
	for _, g := range o.groups() {
		names = append(names, g.Name)
	}
	return names
}

// group waits for a group to be created.
func (o *operator) group(name string) *groupv1.VolumeGroupSnapshot {
	o.t.Helper()
	g := &groupv1.VolumeGroupSnapshot{}
	o.will(func() error { return api.Get(o.t.Context(), client.ObjectKey{Namespace: o.namespace, Name: name}, g) }).Should(Succeed())
	return g
}

// cutGroup as the storage does: ready at once, without members.
func (o *operator) cutGroup(g *groupv1.VolumeGroupSnapshot, at time.Time) {
	o.t.Helper()
	before := g.DeepCopy()
	g.Status = &groupv1.VolumeGroupSnapshotStatus{BoundVolumeGroupSnapshotContentName: ptr.To("content-" + g.Name), ReadyToUse: ptr.To(true),
		CreationTime: ptr.To(metav1.NewTime(at.Truncate(time.Second)))}
	o.Expect(api.Status().Patch(o.t.Context(), g, client.MergeFrom(before))).To(Succeed())
}

// members of a group appear, one for each of the claims.
func (o *operator) members(g *groupv1.VolumeGroupSnapshot, at time.Time, claims ...string) {
	o.t.Helper()
	for i, claim := range claims {
		s := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: fmt.Sprintf("snapshot-%s-%d", g.UID, i),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: groupv1.SchemeGroupVersion.String(), Kind: "VolumeGroupSnapshot", Name: g.Name, UID: g.UID}}},
			Spec: snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: ptr.To(claim)}}}
		o.Expect(api.Create(o.t.Context(), s)).To(Succeed())
		status := readySince(s.Name, at)
		status.VolumeGroupSnapshotName = ptr.To(g.Name)
		o.writeStatus(s, status)
	}
}

// member of a claim in the group of that name.
func (o *operator) member(group, claim string) *snapshotv1.VolumeSnapshot {
	o.t.Helper()
	for _, s := range o.snapshots() {
		if s.Status != nil && ptr.Deref(s.Status.VolumeGroupSnapshotName, "") == group && ptr.Deref(s.Spec.Source.PersistentVolumeClaimName, "") == claim {
			return &s
		}
	}
	o.t.Fatalf("group %s has no member of claim %s", group, claim)
	return nil
}

func (o *operator) phaseOf(run string) func() v1.RunPhase {
	return func() v1.RunPhase { return o.run(run).Status.Phase }
}

func TestOneGroupSnapshotForAllClaimsOfARun(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	o.groupClass()
	data, wal := o.claim("data"), o.claim("wal")
	o.claim("other", func(c *corev1.PersistentVolumeClaim) { c.Labels = nil })
	o.pod("db-0")
	o.start()
	o.schedule("hourly", o.grouped(aroundTheGroup))
	o.at(o.hour(0))
	name := "hourly-" + when(o.hour(0))

	g := o.group(name)
	o.Expect(g.Spec.Source.Selector).To(Equal(&metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}))
	o.Expect(g.Spec.VolumeGroupSnapshotClassName).To(HaveValue(Equal(o.namespace)))
	o.Expect(g.Labels).To(And(HaveKeyWithValue(v1.LabelSchedule, "hourly"), HaveKeyWithValue("team", "shop")))
	o.Expect(o.run(name).Status.Phase).To(Equal(v1.PhaseSnapshotting), "the application waits for the cut")
	o.cutGroup(g, o.clock.Now())
	o.will(o.phaseOf(name)).Should(Equal(v1.PhaseAwaitingReady), "the members are not waited for while the application is quiesced")
	o.Expect(o.run(name).Status.Snapshots[0]).To(And(HaveField("Name", ""), HaveField("State", v1.SnapshotCut)))

	o.members(g, o.clock.Now(), "data", "wal")
	o.idle()
	run := o.run(name)
	o.Expect(run.Status.Result).To(Equal(v1.ResultSucceeded), run.Status.Message)
	o.Expect(o.claimsTaken()).To(Equal("data wal"), "no single snapshot beside the group")
	for i, c := range []*corev1.PersistentVolumeClaim{data, wal} {
		s := o.member(name, c.Name)
		o.Expect(s.Labels).To(And(HaveKeyWithValue(v1.LabelSchedule, "hourly"), HaveKeyWithValue(v1.LabelWhen, when(o.hour(0))), HaveKeyWithValue("team", "shop"),
			HaveKeyWithValue(v1.LabelConsistency, v1.ConsistencyApplication)))
		o.Expect(s.Annotations).To(And(HaveKeyWithValue(v1.AnnotationRun, name), HaveKeyWithValue(v1.AnnotationRunUID, string(run.UID)),
			HaveKeyWithValue(v1.AnnotationClaimUID, string(c.UID))))
		o.Expect(run.Status.Snapshots[i]).To(And(HaveField("Claim", c.Name), HaveField("Name", s.Name), HaveField("State", v1.SnapshotReady)))
	}
	o.Expect(o.condition("hourly", v1.ConditionReady).Status).To(Equal(metav1.ConditionTrue))
	for _, claim := range []string{"data", "wal"} {
		o.Expect(o.metric("snapscheduler_snapshot_create_total", map[string]string{"pvc_name": claim})).To(Equal(1.0), claim)
	}
}

func TestAGroupSnapshotIsAdoptedAfterACrash(t *testing.T) {
	t.Parallel()
	for name, hooks := range map[string]string{"with hooks": aroundTheGroup, "without": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := prepare(t)
			o.groupClass()
			o.claim("data")
			o.pod("db-0")
			first := o.start()
			o.schedule("hourly", o.grouped(hooks))
			o.at(o.hour(0))
			name := "hourly-" + when(o.hour(0))
			g := o.group(name)
			o.halt(first)
			o.cutGroup(g, o.clock.Now())
			second := o.start()
			o.will(o.phaseOf(name)).Should(Equal(v1.PhaseAwaitingReady))
			o.halt(second)
			o.members(g, o.clock.Now(), "data")
			o.start()
			o.idle()
			o.Expect(o.run(name).Status.Result).To(Equal(v1.ResultSucceeded), o.run(name).Status.Message)
			o.Expect(o.groups()).To(HaveExactElements(HaveField("UID", g.UID)))
			o.Expect(o.member(name, "data").Labels).To(HaveKeyWithValue(v1.LabelSchedule, "hourly"))
		})
	}
}

func TestAGroupSnapshotThatIsNotCutLeavesNothing(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	o.groupClass()
	o.claim("data")
	o.start()
	o.schedule("hourly", o.grouped(`, snapshotTimeoutSeconds: 60`))
	o.at(o.hour(0))
	name := "hourly-" + when(o.hour(0))
	o.group(name)
	o.at(o.hour(0).Add(61 * time.Second))
	o.idle()
	o.Expect(o.run(name).Status.Result).To(Equal(v1.ResultFailed))
	o.Expect(o.run(name).Status.Message).To(ContainSubstring("CSIVolumeGroupSnapshot"))
	o.will(o.groupNames).Should(BeEmpty())
	o.Expect(o.run(name).Finalizers).To(BeEmpty())
}

func TestRetentionDeletesAGroupSnapshotWhole(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	o.groupClass()
	o.claim("data")
	o.claim("wal")
	o.start()
	o.schedule("hourly", o.grouped(`, retention: {maxCount: 2}`))
	var names []string
	take := func(n int) {
		o.at(o.hour(n))
		name := "hourly-" + when(o.hour(n))
		names = append(names, name)
		g := o.group(name)
		o.cutGroup(g, o.hour(n))
		o.members(g, o.hour(n), "data", "wal")
		o.idle()
		o.Expect(o.run(name).Status.Result).To(Equal(v1.ResultSucceeded), o.run(name).Status.Message)
	}
	take(0)
	take(1)
	o.Expect(o.groupNames()).To(ConsistOf(names[0], names[1]))
	kept := o.member(names[0], "wal")
	o.patch(&snapshotv1.VolumeSnapshot{}, kept.Name, `{"metadata":{"labels":{"`+v1.LabelRetention+`":"keep"}}}`)
	o.settle()

	take(2)
	o.Expect(o.groupNames()).To(ConsistOf(names), "a member that is kept keeps its group")
	o.patch(&snapshotv1.VolumeSnapshot{}, kept.Name, `{"metadata":{"labels":{"`+v1.LabelRetention+`":null}}}`)
	o.settle()
	o.will(o.groupNames).Should(ConsistOf(names[1], names[2]))
	for _, claim := range []string{"data", "wal"} {
		// Nobody collects garbage here: that it exists says that it was not deleted by itself.
		o.Expect(o.member(names[0], claim).DeletionTimestamp).To(BeNil())
	}
	o.Expect(o.eventsOf(v1.EventSnapshotExpired)).To(HaveLen(2))
}

func TestAGroupThatCannotBeExpressedIsRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec   string // beside the schedule
		claim  func(*corev1.PersistentVolumeClaim)
		reason string
		says   string
		ready  bool // nothing in the schedule itself is wrong
	}{
		"expressions": {spec: `claimSelector: {matchExpressions: [{key: app, operator: Exists}]}, snapshotTemplate: {groupSnapshotClassName: CLASS}`,
			reason: v1.ReasonInvalidGroup, says: "matchLabels"},
		"two classes": {spec: `snapshotTemplate: {groupSnapshotClassName: CLASS, snapshotClassName: gold}`, reason: v1.ReasonInvalidGroup, says: "remove one of the two"},
		"no class":    {spec: `snapshotTemplate: {groupSnapshotClassName: none}`, reason: v1.ReasonGroupsUnavailable, says: "VolumeGroupSnapshotClass none", ready: true},
		"an excluded claim": {spec: `snapshotTemplate: {groupSnapshotClassName: CLASS}`, claim: annotated(v1.AnnotationExclude, "true"),
			reason: v1.ReasonInvalidGroup, says: "claim second is annotated", ready: true},
		"another StorageClass": {spec: `storageClassNames: [fast], snapshotTemplate: {groupSnapshotClassName: CLASS}`,
			claim:  func(c *corev1.PersistentVolumeClaim) { c.Spec.StorageClassName = ptr.To("slow") },
			reason: v1.ReasonInvalidGroup, says: "claim second is of no StorageClass", ready: true},
		"a claim that is not bound": {spec: `snapshotTemplate: {groupSnapshotClassName: CLASS}`,
			claim:  func(c *corev1.PersistentVolumeClaim) { c.Spec.VolumeName, c.Status.Phase = "", corev1.ClaimPending },
			reason: v1.ReasonInvalidGroup, says: "claim second is not bound", ready: true},
		"another driver": {spec: `snapshotTemplate: {groupSnapshotClassName: CLASS}`, claim: annotated(annotationDriver, "other.csi.example.com"),
			reason: v1.ReasonInvalidGroup, says: "claim second is of driver other.csi.example.com", ready: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			o := prepare(t)
			o.groupClass()
			o.claim("first")
			if c.claim != nil {
				o.claim("second", c.claim)
			}
			o.start()
			o.schedule("hourly", `{schedule: "0 * * * *", `+strings.ReplaceAll(c.spec, "CLASS", o.namespace)+`}`)
			o.tick(o.hour(0))
			run := o.runs("hourly")[0]
			o.Expect(run.Status.Result).To(Equal(v1.ResultFailed))
			o.Expect(run.Status.Message).To(ContainSubstring(c.says))
			o.Expect(meta.FindStatusCondition(run.Status.Conditions, v1.ConditionComplete).Reason).To(Equal(c.reason))
			o.Expect(o.groupNames()).To(BeEmpty())
			o.Expect(o.snapshotNames()).To(BeEmpty())
			if ready := o.condition("hourly", v1.ConditionReady); !c.ready {
				o.Expect(ready).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", c.reason), HaveField("Message", ContainSubstring(c.says))))
			} else {
				o.Expect(ready.Status).To(Equal(metav1.ConditionTrue))
			}
		})
	}
}

// withoutGroups is the way to an API server that does not serve group snapshots for now.
type withoutGroups struct {
	next  http.RoundTripper
	lacks *atomic.Bool
}

func (w withoutGroups) RoundTrip(r *http.Request) (*http.Response, error) {
	switch {
	case !w.lacks.Load():
	case strings.HasPrefix(r.URL.Path, "/apis/"+groupv1.GroupName):
		return &http.Response{Status: "404 Not Found", StatusCode: http.StatusNotFound, Header: http.Header{"Content-Type": {"text/plain"}},
			Body: io.NopCloser(strings.NewReader("404 page not found")), Request: r, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}, nil
	case r.URL.Path == "/apis":
		return w.listGroups(r)
	}
	return w.next.RoundTrip(r)
}

// listGroups of the API server, but for this one.
func (w withoutGroups) listGroups(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Accept", "application/json")
	answer, err := w.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	var list metav1.APIGroupList
	if err := json.NewDecoder(answer.Body).Decode(&list); err != nil {
		return nil, err
	}
	list.Groups = slices.DeleteFunc(list.Groups, func(g metav1.APIGroup) bool { return g.Name == groupv1.GroupName })
	text, err := json.Marshal(list)
	answer.Body, answer.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	answer.Header.Del("Content-Length")
	return answer, err
}

func TestAClusterWithoutGroupSnapshots(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	o.groupClass()
	o.lacksGroups = &atomic.Bool{}
	o.lacksGroups.Store(true)
	o.claim("data")
	o.start()
	o.schedule("hourly", o.grouped(""))
	o.schedule("single", hourlyOfAll)
	o.tick(o.hour(0))
	ready := o.condition("hourly", v1.ConditionReady)
	o.Expect(ready).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", v1.ReasonGroupsUnavailable),
		HaveField("Message", ContainSubstring("remove the field to take one snapshot per claim"))))
	o.Expect(o.runs("hourly")[0].Status).To(And(HaveField("Result", v1.ResultFailed), HaveField("Message", ready.Message)))
	o.Expect(o.runs("single")[0].Status.Result).To(Equal(v1.ResultSucceeded), "others are taken as ever")
	o.Expect(o.groupNames()).To(BeEmpty())

	// The CRDs are installed: nobody has to restart the operator.
	o.lacksGroups.Store(false)
	o.at(o.hour(1))
	name := "hourly-" + when(o.hour(1))
	g := o.group(name)
	o.cutGroup(g, o.hour(1))
	o.members(g, o.hour(1), "data")
	o.idle()
	o.Expect(o.run(name).Status.Result).To(Equal(v1.ResultSucceeded), o.run(name).Status.Message)
	o.Expect(o.condition("hourly", v1.ConditionReady).Status).To(Equal(metav1.ConditionTrue))
}

// A group of that name that somebody else made is neither taken for the run's nor deleted with what the run makes.
func TestAGroupSnapshotOfSomebodyElseIsLeftAlone(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	o.groupClass()
	o.claim("data")
	name := "hourly-" + when(o.hour(0))
	theirs := &groupv1.VolumeGroupSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: name},
		Spec: groupv1.VolumeGroupSnapshotSpec{Source: groupv1.VolumeGroupSnapshotSource{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}}}}
	o.Expect(api.Create(t.Context(), theirs)).To(Succeed())
	o.start()
	o.schedule("hourly", o.grouped(`, snapshotTimeoutSeconds: 60`))
	o.at(o.hour(0))
	o.will(o.groupNames).Should(HaveLen(2))
	o.at(o.hour(0).Add(61 * time.Second))
	o.idle()
	o.will(o.groupNames).Should(ConsistOf(name))
	o.Expect(apierrors.IsNotFound(api.Get(t.Context(), client.ObjectKeyFromObject(theirs), theirs))).To(BeFalse())
	o.Expect(o.run(name).Status.GroupSnapshot.Name).NotTo(Equal(name))
}

func TestPluginPlansAGroupSnapshot(t *testing.T) {
	t.Parallel()
	o := operate(t)
	p := o.plugin()
	o.claim("data")
	o.schedule("s", o.grouped(""))
	plan, _ := p.planOf("s")
	p.Expect(plan.Outcome).To(Equal("Failed"))
	p.Expect(plan.Message).To(HavePrefix("VolumeGroupSnapshotClass " + o.namespace + " of spec.snapshotTemplate.groupSnapshotClassName does not exist"))

	o.groupClass()
	plan, code := p.planOf("s")
	p.Expect(code).To(Equal(0))
	p.Expect(plan.Outcome).To(Equal("Planned"))
	p.Expect(plan.Claims).To(Equal([]pluginof.PlannedClaim{{Claim: "data", Snapshot: "a member of group s-" + when(o.hour(0)), Class: o.namespace, Driver: o.driver}}))

	o.claim("excluded", annotated(v1.AnnotationExclude, "true"))
	plan, _ = p.planOf("s")
	p.Expect(plan.Outcome).To(Equal("Failed"))
	p.Expect(plan.Message).To(ContainSubstring("claim excluded is annotated"))
	p.Expect(o.groupNames()).To(BeEmpty())
}
