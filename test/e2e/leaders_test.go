// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/test/cluster"
)

func TestALeaderThatWasStoppedBeyondItsLeaseTouchesNoRunOfItsSuccessor(t *testing.T) {
	old := startOperator(t)
	w := settle(t)
	db := w.app("db")
	s := w.schedule("hourly", hooked(db, "echo x >>/state/pre; sleep 4; fsfreeze --freeze /data", thaw))
	next := addOperator(t)

	old.signal(syscall.SIGSTOP)
	next.awaitLog(t, working)
	o := w.start(s)
	db.awaitNote("pre", 1)
	old.signal(syscall.SIGCONT)

	select {
	case <-old.done:
	case <-time.After(3 * time.Second):
		t.Errorf("the old leader goes on:\n%s", old.log.tail())
	}
	o = w.ends(o, v1.ResultSucceeded)
	w.expectLabels(o, map[string]string{"db": application})
	w.Expect(db.noted("pre")).To(Equal(1))
	db.expectFree()
	w.Expect(next.runs()).To(BeTrue(), "the old leader took nothing from its successor")
	w.ends(w.start(s), v1.ResultSucceeded)
}

func TestAStandbyWorksWithinTwoSecondsOfTheLeasesRelease(t *testing.T) {
	op := startOperator(t)
	w := settle(t)
	for range 3 {
		next := addOperator(t)
		next.awaitLog(t, "Attempting to acquire leader lease")
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		lease := watchLease(ctx, w)
		op.signal(syscall.SIGTERM)
		next.awaitLog(t, working)
		works := time.Now()
		l := <-lease
		cancel()
		t.Logf("the lease was taken %s after its release, and the next operator worked after %s", l.taken.Sub(l.free), works.Sub(l.free))
		w.Expect(works.Sub(l.free)).To(BeNumerically("<", 2*time.Second))
		<-op.done
		op = next
	}
}

// A post hook that is still running when its operator dies is run again at once. What is left of the first one must not release an application
// that a later run has quiesced: that run's snapshot would lie.
func TestWhatIsLeftOfAPostHookOfADeadOperatorDoesNotThawTheNextRun(t *testing.T) {
	op := startOperator(t)
	w := settle(t)
	db := w.writer("db")
	slow := w.schedule("slow", hooked(db, freeze, "echo x >>/state/begun; [ $(wc -l </state/begun) -gt 1 ] || sleep 8; "+thaw), releaseTimeout(10))
	quick := w.schedule("quick", freezing(db))
	first := w.start(slow)
	db.awaitNote("begun", 1)
	startOperatorAfter(t, op.kill)
	w.knobs(cluster.Knobs{CutDelay: 12 * time.Second})

	second := w.start(quick)

	first = w.endsWithin(secondPass, first, v1.ResultSucceeded)
	second = w.endsWithin(2*secondPass, second, v1.ResultSucceeded)
	w.expectLabels(first, map[string]string{"db": application})
	w.expectLabels(second, map[string]string{"db": application})
	for _, s := range w.stored() {
		w.Expect(s.Clean).To(BeTrue(), "snapshot %s is called %s and its file system was not frozen when it was cut", s.Name, s.Label)
	}
	db.expectFree()
}
