// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"strings"
	"testing"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/test/cluster"
)

// together takes the claims of apps as one group.
func (w *world) together(apps ...*app) shape {
	w.Helper()
	for _, a := range apps {
		c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: a.name}}
		change(w, c, func(c *corev1.PersistentVolumeClaim) { c.Labels["set"] = "together" })
	}
	return func(s *v1.SnapshotScheduleSpec) {
		s.ClaimSelector = metav1.LabelSelector{MatchLabels: map[string]string{"set": "together"}}
		s.SnapshotTemplate = &v1.SnapshotTemplateSpec{GroupSnapshotClassName: cluster.ClassName}
	}
}

func (w *world) groupNames() []string {
	w.Helper()
	var list groupv1.VolumeGroupSnapshotList
	w.Expect(api.List(w.Context(), &list, client.InNamespace(w.ns))).To(Succeed())
	names := []string{}
	for _, g := range list.Items {
		names = append(names, g.Name)
	}
	return names
}

// contents that exist for the namespace: what the storage holds.
func (w *world) contents() (groups, members int) {
	w.Helper()
	var of groupv1.VolumeGroupSnapshotContentList
	var each snapshotv1.VolumeSnapshotContentList
	w.Expect(api.List(w.Context(), &of)).To(Succeed())
	w.Expect(api.List(w.Context(), &each)).To(Succeed())
	for i := range of.Items {
		if of.Items[i].Spec.VolumeGroupSnapshotRef.Namespace == w.ns {
			groups++
		}
	}
	for i := range each.Items {
		if each.Items[i].Spec.VolumeSnapshotRef.Namespace == w.ns {
			members++
		}
	}
	return groups, members
}

func TestAGroupSnapshotIsOneCutAndIsRestoredMemberByMember(t *testing.T) {
	w := begin(t)
	p := w.plugin()
	apps := []*app{w.writer("data"), w.writer("wal"), w.writer("blobs")}
	s := w.schedule("s", w.together(apps...))
	change(w, s, func(s *v1.SnapshotSchedule) {
		for _, a := range apps {
			s.Spec.PreHooks = append(s.Spec.PreHooks, v1.PreHook{Hook: hook(a, "freeze-"+a.name, freeze)})
			s.Spec.PostHooks = append(s.Spec.PostHooks, v1.PostHook{Hook: hook(a, "thaw-"+a.name, thaw)})
		}
		s.Spec.Retention.MaxCount = ptr.To[int32](1)
	})
	first := w.ends(w.start(s), v1.ResultSucceeded)
	frozen := map[string]string{}
	var cut *metav1.Time
	for i, a := range apps {
		a.expectFree()
		frozen[a.name] = strings.TrimSpace(hookOf(first, "freeze-"+a.name).Targets[0].Output)
		st := first.Status.Snapshots[i]
		w.Expect(st.Consistency).To(Equal(v1.ConsistencyApplication))
		w.Expect(st.CreationTime).NotTo(BeNil())
		if cut == nil {
			cut = st.CreationTime
		}
		w.Expect(st.CreationTime).To(Equal(cut), "one cut for all")
	}
	w.Expect(w.groupNames()).To(ConsistOf(first.Status.GroupSnapshot.Name))
	w.Expect(w.snapshotNames()).To(HaveLen(3), "members, and no snapshot beside them")

	p.do("kubectl stillpoint -n " + w.ns + " restore s --consistency application --wait --timeout 1m")
	for _, a := range apps {
		w.create(w.pod("again-"+a.name, a.name+"-restored", idle))
		back := &app{world: w, name: "again-" + a.name}
		back.ready()
		w.Expect(back.sh("wc -l </data/log")).To(Equal(frozen[a.name]), a.name)
	}

	// The next run's group, of the restored claims as well, takes the place of this one, which goes whole: nothing of it is left anywhere.
	w.nextSecond()
	second := w.completes(patience, w.start(s))
	w.Expect(second.Status.Result).To(Equal(v1.ResultSucceeded), describe(second))
	w.Eventually(w.groupNames, patience, "100ms").Should(ConsistOf(second.Status.GroupSnapshot.Name))
	w.Eventually(w.snapshotNames, patience, "100ms").Should(HaveLen(6))
	w.Eventually(func() []int { groups, members := w.contents(); return []int{groups, members} }, patience, "100ms").Should(Equal([]int{1, 6}))
}

// The storage refuses: the group is gone when the run is over, and the application is free.
func TestAGroupSnapshotThatFailsLeavesNothing(t *testing.T) {
	w := begin(t)
	a := w.app("app")
	s := w.schedule("s", w.together(a), snapshotTimeout(5), before(hook(a, "freeze", freeze)), after(hook(a, "thaw", thaw)))
	w.knobs(cluster.Knobs{FailCreateSnapshot: "the array is full"})
	o := w.ends(w.start(s), v1.ResultFailed)
	a.expectFree()
	w.Expect(o.Status.Message).NotTo(BeEmpty())
	w.Eventually(w.groupNames, patience, "100ms").Should(BeEmpty())
	w.Eventually(func() []int { groups, members := w.contents(); return []int{groups, members} }, patience, "100ms").Should(Equal([]int{0, 0}))
}
