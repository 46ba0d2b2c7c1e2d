// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/test/cluster"
)

func TestAHookThatFailsInOneOfItsPodsReleasesThemAll(t *testing.T) {
	w := begin(t)
	shard := func(p *corev1.Pod) { p.Labels["set"] = "shards" }
	a, b := w.app("shard-a", shard), w.app("shard-b", shard)
	in := func(name, script string) v1.Hook {
		return v1.Hook{Name: name, PodSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"set": "shards"}}, Command: []string{"sh", "-c", script}}
	}
	b.sh("touch /state/broken")
	s := w.schedule("hourly", before(in("freeze", "[ ! -e /state/broken ] || exit 1; "+freeze)), after(in("thaw", thaw)))

	o := w.ends(w.start(s), v1.ResultFailed)
	w.expectReason(o, "freeze", v1.ReasonNonZeroExit, "shard-b")
	w.Expect(hookOf(o, "freeze").Targets).To(HaveLen(2))
	w.Expect(target(hookOf(o, "freeze")).Pod).To(Equal("shard-b"), "failures come first")
	w.expectLabels(o, map[string]string{})
	w.Expect([]int{a.noted("pre"), a.noted("post"), b.noted("pre"), b.noted("post")}).To(Equal([]int{1, 1, 0, 1}))
	a.expectFree()
	b.expectFree()

	b.sh("rm /state/broken")
	o = w.ends(w.start(s), v1.ResultSucceeded)
	w.expectLabels(o, map[string]string{"shard-a": application, "shard-b": application})
	a.expectFree()
	b.expectFree()
}

func TestAnApplicationIsQuiescedNoLongerThanMaxQuiesceSeconds(t *testing.T) {
	w := begin(t)
	db := w.app("db")
	s := w.schedule("hourly", freezing(db), func(s *v1.SnapshotScheduleSpec) { s.MaxQuiesceSeconds = ptr.To[int32](3) })
	w.knobs(cluster.Knobs{CutDelay: 6 * time.Second})

	o := w.endsWithin(2*patience, w.start(s), v1.ResultPartiallyFailed)

	w.expectCondition(o.Status.Conditions, v1.ConditionSnapshotsCut, metav1.ConditionFalse, v1.ReasonMaxQuiesceReached)
	w.Expect(o.Status.ReleaseTime.Sub(o.Status.QuiescedTime.Time)).To(And(BeNumerically(">=", 3*time.Second), BeNumerically("<", 6*time.Second)))
	w.expectLabels(o, map[string]string{"db": crash})
	db.expectFree()
}
