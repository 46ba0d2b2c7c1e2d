// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"strconv"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/test/cluster"
)

const (
	application = v1.ConsistencyApplication
	crash       = v1.ConsistencyCrash
)

func TestASnapshotHoldsExactlyWhatWasWrittenBeforeTheFreeze(t *testing.T) {
	w := begin(t)
	db := w.writer("db")
	s := w.schedule("hourly", freezing(db))

	o := w.ends(w.start(s), v1.ResultSucceeded)

	w.expectLabels(o, map[string]string{"db": application})
	w.expectOrder(o)
	w.expectCondition(o.Status.Conditions, v1.ConditionPreHooksSucceeded, metav1.ConditionTrue, v1.ReasonHooksSucceeded)
	w.expectCondition(o.Status.Conditions, v1.ConditionSnapshotsCut, metav1.ConditionTrue, v1.ReasonAllCut)
	w.expectCondition(o.Status.Conditions, v1.ConditionPostHooksSucceeded, metav1.ConditionTrue, v1.ReasonHooksSucceeded)
	w.expectCondition(o.Status.Conditions, v1.ConditionSnapshotsReady, metav1.ConditionTrue, v1.ReasonAllReady)
	w.expectCondition(o.Status.Conditions, v1.ConditionMayBeQuiesced, metav1.ConditionFalse, v1.ReasonReleased)
	w.expectReason(o, "freeze", v1.ReasonHookCompleted)
	w.expectReason(o, "thaw", v1.ReasonHookCompleted)
	w.expectEvent(o, "Succeeded", "snapshots ready: 1")
	db.expectFree()
	w.Expect(db.noted("pre")).To(Equal(1))

	frozenAt, err := strconv.Atoi(strings.TrimSpace(target(hookOf(o, "freeze")).Output))
	w.Expect(err).NotTo(HaveOccurred(), "the freeze hook says how many lines there were")
	back := w.restore(o.Status.Snapshots[0].Name, "back")
	w.Expect(back.number("wc -l </data/log")).To(Equal(frozenAt), "lines restored, and lines at the freeze")

	w.Eventually(func() int { return len(db.lines()) }, patience, "100ms").Should(BeNumerically(">", frozenAt+2))
	lines := db.lines()
	const tick = 20 * time.Millisecond // resolution of the lines' times
	w.Expect(lines[frozenAt-1].begun).To(BeTemporally("<=", target(hookOf(o, "freeze")).EndTime.Time), "the last line before the freeze")
	// The line after it was begun and had to wait; the next one tells when the wait was over.
	w.Expect(lines[frozenAt+1].begun.Add(tick)).To(BeTemporally(">=", o.Status.CutTime.Time), "the writer waited until the cut")
	w.Expect(lines[frozenAt+1].begun.Add(tick)).To(BeTemporally(">=", target(hookOf(o, "thaw")).StartTime.Time), "the writer waited until the thaw")
	t.Logf("quiesced for %s; the writer waited from %s before the cut was seen to %s after", o.Status.QuiescedFor,
		o.Status.CutTime.Sub(lines[frozenAt].begun), lines[frozenAt+1].begun.Sub(o.Status.CutTime.Time))
}

func TestADriverThatIsLateWithReadyDoesNotKeepTheApplicationFrozen(t *testing.T) {
	w := begin(t)
	db := w.app("db")
	s := w.schedule("hourly", freezing(db))
	w.knobs(cluster.Knobs{ReadyDelay: 4 * time.Second})

	o := w.endsWithin(2*patience, w.start(s), v1.ResultSucceeded)

	w.expectLabels(o, map[string]string{"db": application})
	w.expectOrder(o)
	w.Expect(o.Status.ReleasedTime.Sub(o.Status.QuiescedTime.Time)).To(BeNumerically("<", 5*time.Second))
	w.Expect(o.Status.Snapshots[0].ReadySeenTime.Sub(o.Status.ReleasedTime.Time)).To(BeNumerically(">", 2*time.Second), "it was released at the cut and not when ready")
	db.expectFree()
}

func TestADriverThatNeverCutsDoesNotKeepTheApplicationFrozen(t *testing.T) {
	startOperator(t, "--ready-timeout=9s")
	w := settle(t)
	db := w.app("db")
	s := w.schedule("hourly", freezing(db), snapshotTimeout(3))
	w.knobs(cluster.Knobs{CutDelay: 25 * time.Second})

	o := w.ends(w.start(s), v1.ResultFailed)

	w.expectCondition(o.Status.Conditions, v1.ConditionSnapshotsCut, metav1.ConditionFalse, v1.ReasonNotAllCut)
	w.Expect(o.Status.Message).To(ContainSubstring("1 of 1 snapshots were not cut within snapshotTimeoutSeconds (3 s)"))
	w.Expect(o.Status.ReleasedTime.Sub(o.Status.SnapshottingTime.Time)).To(And(BeNumerically(">", 3*time.Second), BeNumerically("<", 7*time.Second)))
	w.expectLabels(o, map[string]string{"db": crash})
	db.expectFree()
}

func TestASnapshotThatIsCutAfterTheReleaseIsOnlyCrashConsistent(t *testing.T) {
	w := begin(t)
	db := w.app("db")
	s := w.schedule("hourly", freezing(db), snapshotTimeout(3))
	w.knobs(cluster.Knobs{CutDelay: 7 * time.Second})

	o := w.endsWithin(2*patience, w.start(s), v1.ResultPartiallyFailed)

	w.expectLabels(o, map[string]string{"db": crash})
	w.expectCondition(o.Status.Conditions, v1.ConditionSnapshotsCut, metav1.ConditionFalse, v1.ReasonNotAllCut)
	w.expectCondition(o.Status.Conditions, v1.ConditionSnapshotsReady, metav1.ConditionTrue, v1.ReasonAllReady)
	w.Expect(o.Status.Snapshots[0].CutBeforeRelease).To(BeFalse())
	w.Expect(o.Status.Snapshots[0].CutSeenTime.Time).To(BeTemporally(">", o.Status.ReleasedTime.Time))
	db.expectFree()
}
