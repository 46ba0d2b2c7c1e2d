// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/priorityqueue"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

func TestWhatCanWaitComesAfterWhatCannot(t *testing.T) {
	q := priorityqueue.New[ctrl.Request]("test")
	defer q.ShutDown()
	h := deferring{handler.EnqueueRequestsFromMapFunc(runOfSnapshot), takenWithoutHooks}
	snapshot := func(run, consistency string) *snapshotv1.VolumeSnapshot {
		s := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "of-" + run, Annotations: map[string]string{v1.AnnotationRun: run}}}
		if consistency != "" {
			s.Labels = map[string]string{v1.LabelConsistency: consistency}
		}
		return s
	}
	before, after := snapshot("no-hooks", ""), snapshot("no-hooks", "")
	after.ResourceVersion = "2"
	h.Create(t.Context(), event.CreateEvent{Object: snapshot("created", "")}, q)
	h.Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, q)
	h.Delete(t.Context(), event.DeleteEvent{Object: snapshot("deleted", "")}, q)
	before, after = snapshot("hooks", v1.ConsistencyCrash), snapshot("hooks", v1.ConsistencyCrash)
	after.ResourceVersion = "2"
	h.Update(t.Context(), event.UpdateEvent{ObjectOld: before, ObjectNew: after}, q)
	q.Add(ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "fresh"}})
	q.Add(ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "ns", Name: "deleted"}}) // cannot wait any more

	got := map[string]int{}
	for range 5 {
		item, priority, _ := q.GetWithPriority()
		got[item.Name] = priority
	}
	for name, want := range map[string]int{"hooks": 0, "fresh": 0, "deleted": 0, "created": later, "no-hooks": later} {
		if p, ok := got[name]; !ok || p != want {
			t.Errorf("%s has priority %d (queued: %t), want %d", name, p, ok, want)
		}
	}
}
