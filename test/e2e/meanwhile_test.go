// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/test/cluster"
)

// frozenRun starts a run and returns once its application is frozen and waits for a cut that is a few seconds away.
func frozenRun(w *world, db *app, s *v1.SnapshotSchedule) *v1.SnapshotRun {
	w.Helper()
	w.knobs(cluster.Knobs{CutDelay: 5 * time.Second})
	o := w.reaches(w.start(s), v1.PhaseSnapshotting)
	w.Expect(db.frozen()).To(BeTrue(), "the application is frozen while the snapshot is cut")
	return o
}

func TestAContainerThatIsRestartedWhileQuiescedMakesTheSnapshotCrashConsistent(t *testing.T) {
	w := begin(t)
	db := w.app("db")
	o := frozenRun(w, db, w.schedule("hourly", freezing(db)))

	_, err := db.exec(db.name, "kill", "-TERM", "1")
	t.Logf("killed: %v", err) // the command dies with its container, or just before
	await(w, db.object(), "restarted", func(p *corev1.Pod) bool {
		c := p.Status.ContainerStatuses
		return len(c) == 1 && c[0].RestartCount == 1 && c[0].State.Running != nil
	})

	o = w.ends(o, v1.ResultPartiallyFailed)
	w.Expect(o.Status.Message).To(And(ContainSubstring("crash consistent"), ContainSubstring("was restarted")))
	w.expectCondition(o.Status.Conditions, v1.ConditionPostHooksSucceeded, metav1.ConditionTrue, v1.ReasonHooksSucceeded)
	w.expectLabels(o, map[string]string{"db": crash})
	db.expectFree()
}

func TestAPodThatIsReplacedWhileItsFileSystemIsFrozenIsReleasedThroughTheNewOne(t *testing.T) {
	for name, kept := range map[string]bool{"its volume stays mounted, by another pod": true, "its volume is mounted again": false} {
		t.Run(name, func(t *testing.T) {
			w := begin(t)
			if kept {
				w.app("data")
			} else {
				w.claim("data", nil)
			}
			set := &appsv1.StatefulSet{
				ObjectMeta: metav1.ObjectMeta{Name: "db"},
				Spec: appsv1.StatefulSetSpec{
					Selector: ptr.To(labelled("db")),
					Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labelled("db").MatchLabels}, Spec: podSpec("data", idle)},
				},
			}
			w.create(set)
			await(w, set, "ready", func(s *appsv1.StatefulSet) bool { return s.Status.ReadyReplicas == 1 })
			db := &app{world: w, name: "db-0"}
			old := db.ready()
			data, pods := &app{name: "data"}, &app{name: "db"} // the labels of claim and pods
			o := frozenRun(w, db, w.schedule("hourly", taking(data), before(hook(pods, "freeze", freeze)), after(hook(pods, "thaw", thaw))))

			w.remove(old)
			awaitGone(w, old)

			o = w.endsWithin(2*patience, o, v1.ResultPartiallyFailed)
			w.expectLabels(o, map[string]string{"data": crash})
			w.Expect(o.Status.Consistency.Reason).To(ContainSubstring("db-0"))
			w.Expect(db.ready().UID).NotTo(Equal(old.UID))
			w.expectReason(o, "thaw", v1.ReasonHookCompleted)
			w.Expect(db.noted("post")).To(BeNumerically(">=", 1), "the new pod ran the post hook")
			db.expectFree()
		})
	}
}

func TestAPodThatIsBeingDeletedIsReleasedToo(t *testing.T) {
	w := begin(t)
	db := w.app("db", slowToLeave)
	t.Cleanup(func() { w.forceDelete(db.object()) })
	o := frozenRun(w, db, w.schedule("hourly", freezing(db)))

	w.remove(db.object())

	// The same container, never restarted, was frozen all the time: the label is true.
	o = w.ends(o, v1.ResultSucceeded)
	w.expectLabels(o, map[string]string{"db": application})
	w.expectReason(o, "thaw", v1.ReasonHookCompleted)
	w.Expect(db.noted("post")).To(Equal(1))
	db.expectFree()
}

func TestAFileSystemWhosePodIsGoneIsReleasedThroughWhateverMountsItNext(t *testing.T) {
	w := begin(t)
	db := w.app("db")
	o := frozenRun(w, db, w.schedule("hourly", freezing(db)))
	w.remove(db.object())
	awaitGone(w, db.object())
	await(w, o, "saying what it waits for", func(o *v1.SnapshotRun) bool {
		return o.Status.Phase == v1.PhasePostHooks && o.Status.Message == "waiting to run post hook thaw: no running pod in namespace "+w.ns+" matches app=db"
	})

	w.create(w.pod("other", "db", idle, func(p *corev1.Pod) { p.Labels = labelled("db").MatchLabels }))

	o = w.ends(o, v1.ResultPartiallyFailed)
	w.expectLabels(o, map[string]string{"db": crash})
	other := &app{world: w, name: "other"}
	w.Expect(other.noted("post")).To(Equal(1))
	other.expectFree()
}

func TestAScheduleThatChangesWhileQuiescedDoesNotChangeTheRun(t *testing.T) {
	w := begin(t)
	for name, edit := range map[string]func(w *world, s *v1.SnapshotSchedule){
		"edited": func(w *world, s *v1.SnapshotSchedule) {
			change(w, s, func(s *v1.SnapshotSchedule) {
				s.Spec.PreHooks, s.Spec.ClaimSelector = nil, labelled("nobody")
				s.Spec.PostHooks[0].Command = []string{"false"}
			})
		},
		"disabled": func(w *world, s *v1.SnapshotSchedule) {
			change(w, s, func(s *v1.SnapshotSchedule) { s.Spec.Disabled = true })
		},
		"deleted": func(w *world, s *v1.SnapshotSchedule) { w.remove(s) },
	} {
		t.Run(name, func(t *testing.T) {
			w := w.within(t)
			db := w.app(name)
			s := w.schedule(name, freezing(db))
			o := frozenRun(w, db, s)
			edit(w, s)
			o = w.completes(patience, o)
			w.Expect(o.Status.Result).To(Equal(v1.ResultSucceeded), describe(o))
			w.expectSnapshotsAsRecorded(o)
			w.expectLabels(o, map[string]string{name: application})
			db.expectFree()
		})
	}
}

func TestADeletedRunIsReleasedBeforeItIsGone(t *testing.T) {
	w := begin(t)
	t.Run("deleted by a person", func(t *testing.T) {
		w := w.within(t)
		db := w.app("db")
		o := frozenRun(w, db, w.schedule("hourly", freezing(db)))
		w.remove(o)
		awaitGone(w, o)
		db.expectFree()
		w.Expect(db.noted("post")).To(Equal(1))
		w.expectLabels(o, map[string]string{"db": crash})
	})
	t.Run("deleted with the schedule that owns it", func(t *testing.T) {
		w := w.within(t)
		db := w.app("owned")
		s := w.schedule("owned", freezing(db))
		w.knobs(cluster.Knobs{CutDelay: 5 * time.Second})
		o := &v1.SnapshotRun{
			ObjectMeta: metav1.ObjectMeta{Name: "owned-run", OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s, v1.GroupVersion.WithKind("SnapshotSchedule"))}},
			Spec:       v1.SnapshotRunSpec{ScheduleName: s.Name},
		}
		w.create(o)
		w.reaches(o, v1.PhaseSnapshotting)
		w.remove(s)
		awaitGone(w, o)
		db.expectFree()
		w.Expect(db.noted("post")).To(Equal(1))
		w.expectLabels(o, map[string]string{"owned": crash})
	})
}
