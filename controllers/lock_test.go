// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
)

func locked(uids ...types.UID) map[resource]bool {
	out := map[resource]bool{}
	for _, u := range uids {
		out[resource{"shop", u}] = true
	}
	return out
}

func named(run types.UID) types.NamespacedName {
	return types.NamespacedName{Namespace: "shop", Name: string(run)}
}

type lockTest struct{ lockTable }

func newLockTest() *lockTest { return &lockTest{lockTable{freed: make(chan struct{}, 1)}} }

func (t *lockTest) try(run types.UID, resources ...types.UID) string {
	held, waitingFor := t.take(run, named(run), string(run), locked(resources...))
	if held {
		return "held"
	}
	return "waits for " + waitingFor
}

func TestRunsThatShareNothingHoldSideBySide(t *testing.T) {
	g, l := NewWithT(t), newLockTest()
	g.Expect(l.try("a", "pod1")).To(Equal("held"))
	g.Expect(l.try("b", "pod2")).To(Equal("held"))
}

func TestARunWaitsForTheOneThatHoldsWhatItNeeds(t *testing.T) {
	g, l := NewWithT(t), newLockTest()
	g.Expect(l.try("a", "pod1", "claim1")).To(Equal("held"))
	g.Expect(l.try("b", "pod2", "claim1")).To(Equal("waits for a"))
	l.drop("a")
	g.Expect(l.freed).To(Receive())
	g.Expect(l.woken()).To(Equal([]types.NamespacedName{named("b")}))
	g.Expect(l.woken()).To(BeEmpty())
	g.Expect(l.try("b", "pod2", "claim1")).To(Equal("held"))
}

func TestAWaitingRunIsNotOvertakenByALaterOneThatNeedsTheSame(t *testing.T) {
	g, l := NewWithT(t), newLockTest()
	g.Expect(l.try("a", "pod1")).To(Equal("held"))
	g.Expect(l.try("b", "pod1", "pod2")).To(Equal("waits for a"))
	g.Expect(l.try("c", "pod2")).To(Equal("waits for b"))
	g.Expect(l.try("d", "pod3")).To(Equal("held"), "it shares nothing with those that wait")
	l.drop("a")
	g.Expect(l.try("c", "pod2")).To(Equal("waits for b"))
	g.Expect(l.try("b", "pod1", "pod2")).To(Equal("held"))
}

// Overlaps in a circle: whoever was first goes on, nobody holds a part.
func TestOverlapsInACircleDoNotDeadlock(t *testing.T) {
	g, l := NewWithT(t), newLockTest()
	g.Expect(l.try("a", "pod1", "pod2")).To(Equal("held"))
	g.Expect(l.try("b", "pod2", "pod3")).To(Equal("waits for a"))
	g.Expect(l.try("c", "pod3", "pod1")).To(Equal("waits for a"))
	l.drop("a")
	g.Expect(l.try("c", "pod3", "pod1")).To(Equal("waits for b"))
	g.Expect(l.try("b", "pod2", "pod3")).To(Equal("held"))
	l.drop("b")
	g.Expect(l.try("c", "pod3", "pod1")).To(Equal("held"))
}

func TestAPlanHoldsItsLockWhateverTheQueueSays(t *testing.T) {
	g, l := NewWithT(t), newLockTest()
	l.hold("a", named("a"), "a", locked("pod1"))
	g.Expect(l.try("b", "pod1")).To(Equal("waits for a"))
	g.Expect(l.holds("a")).To(BeTrue())
	g.Expect(l.holds("b")).To(BeFalse())
}

func TestARunThatIsGoneLosesItsPlace(t *testing.T) {
	g, l := NewWithT(t), newLockTest()
	g.Expect(l.try("a", "pod1")).To(Equal("held"))
	g.Expect(l.try("b", "pod1")).To(Equal("waits for a"))
	g.Expect(l.try("c", "pod1")).To(Equal("waits for a"))
	l.dropName(named("b"))
	l.drop("a")
	g.Expect(l.try("c", "pod1")).To(Equal("held"))
}

func TestARunThatNeedsMoreThanItHoldsAsksForAllAgain(t *testing.T) {
	g, l := NewWithT(t), newLockTest()
	g.Expect(l.try("a", "pod1")).To(Equal("held"))
	g.Expect(l.try("b", "pod2")).To(Equal("held"))
	g.Expect(l.try("a", "pod1", "pod2")).To(Equal("waits for b"))
	g.Expect(l.holds("a")).To(BeFalse())
}
