// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/test/cluster"
)

// without kills a component of the cluster; what it returns starts it again. It is started when the test ends in any case.
func (w *world) without(component string) (again func()) {
	w.Helper()
	w.Expect(local.KillComponent(component)).To(Succeed())
	w.Cleanup(func() {
		if err := local.StartComponent(context.Background(), component); err != nil {
			w.Errorf("starting %s: %v", component, err)
		}
	})
	return func() {
		w.Helper()
		w.Expect(local.StartComponent(w.Context(), component)).To(Succeed())
	}
}

func TestAnExecWhoseConnectionIsLostIsNeverASuccessAndNeverRepeated(t *testing.T) {
	w := begin(t)
	runs := map[string]*v1.SnapshotRun{}
	apps := map[string]*app{}
	for _, component := range []string{"kubelet", "kube-apiserver"} {
		db := w.app("with-" + component)
		// The command lives on when its connection is lost, and freezes then.
		s := w.schedule("with-"+component, hooked(db, "echo x >>/state/pre; sleep 5; fsfreeze --freeze /data; echo frozen", thaw), bounded(8, 5))
		o := w.start(s)
		db.awaitNote("pre", 1)
		w.without(component)()
		runs[component], apps[component] = o, db
	}
	for component, o := range runs {
		t.Run(component, func(t *testing.T) {
			w := w.within(t)
			db := apps[component].in(w)
			o := w.endsWithin(secondPass, o, v1.ResultFailed)
			w.expectReason(o, "quiesce", v1.ReasonConnectionLost)
			w.Expect(target(hookOf(o, "quiesce")).Attempts).To(BeEquivalentTo(1))
			w.Expect(db.noted("pre")).To(Equal(1))
			w.Expect(passes(o, "release")).To(HaveLen(2), describe(o))
			w.expectLabels(o, map[string]string{})
			db.expectFree()
		})
	}
}

func TestAnAPIServerThatDiesWhileAnApplicationIsFrozenDelaysItsRelease(t *testing.T) {
	w := begin(t)
	db := w.app("db")
	o := frozenRun(w, db, w.schedule("hourly", freezing(db)))

	w.without("kube-apiserver")()

	o = w.ends(o, v1.ResultSucceeded)
	w.expectLabels(o, map[string]string{"db": application})
	w.Expect(db.noted("pre")).To(Equal(1))
	db.expectFree()
}

func TestAKubeletThatIsDownWhenAnApplicationIsToBeReleasedIsWaitedFor(t *testing.T) {
	w := begin(t)
	db := w.app("db")
	s := w.schedule("hourly", freezing(db))
	w.knobs(cluster.Knobs{CutDelay: 3 * time.Second})
	o := w.reaches(w.start(s), v1.PhaseSnapshotting)

	again := w.without("kubelet")
	await(w, o, "failing to release", func(o *v1.SnapshotRun) bool { return target(hookOf(o, "thaw")).Reason == v1.ReasonUnreachable })
	again()

	o = w.ends(o, v1.ResultSucceeded)
	w.expectLabels(o, map[string]string{"db": application})
	w.Expect(passes(o, "thaw")).To(HaveLen(1))
	w.Expect([]int{db.noted("pre"), db.noted("post")}).To(Equal([]int{1, 1}))
	db.expectFree()
}
