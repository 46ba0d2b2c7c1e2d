// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/test/cluster"
)

func TestHeldCommandIsRefusedOverSPDYBeforeItRunsAndTheSwitchRecipeIsForThat(t *testing.T) {
	op := startOperator(t, "--exec-protocol=spdy")
	w := settle(t)
	db := w.writer("db")
	log := db.diary()
	s := w.schedule("held", holding(db, "echo x >>/state/pre; echo READY; cat >/dev/null; echo RELEASED"))

	o := w.ends(w.start(s), v1.ResultFailed)
	w.expectReason(o, "hold", v1.ReasonHoldNotSupported, "WebSocket")
	w.expectCondition(o.Status.Conditions, v1.ConditionPreHooksSucceeded, metav1.ConditionFalse, v1.ReasonHookFailed)
	w.expectLabels(o, map[string]string{})
	w.expectEvent(o, "PreHookFailed", v1.ReasonHoldNotSupported)
	w.Expect(db.noted("pre")).To(BeZero(), "nothing was started in the container")

	s = w.schedule("switched", cooked(db, recipe(w, "fsfreeze with a dead-man's switch")), switchAfter(3))
	o = w.ends(w.start(s), v1.ResultSucceeded)
	w.expectLabels(o, map[string]string{"db": application})
	w.Expect(db.sh("ps | grep -c '[s]leep 3;' || true")).To(Equal("0"), "the post hook ends the switch")

	w.knobs(cluster.Knobs{CutDelay: 8 * time.Second})
	o = w.reaches(w.start(s), v1.PhaseSnapshotting)
	begun := target(hookOf(o, "freeze")).StartTime.Time
	log.expectWaiting()
	op.kill()
	log.awaitWriting(4 * time.Second)
	w.Expect(log.longest().to).To(And(BeTemporally(">", begun.Add(3*time.Second)), BeTemporally("<", begun.Add(4*time.Second))), "the switch freed it")
}

func TestHeldCommandThatDoesNotKeepItsWord(t *testing.T) {
	w := begin(t)
	db := w.app("db")
	w.knobs(cluster.Knobs{CutDelay: 300 * time.Millisecond})
	for _, c := range []struct {
		name, script string
		result       v1.RunResult
		reason       string
		words        string
		code         *int32
		label        string // empty: no snapshot
		quiesced     bool   // nothing proves that it released the application
	}{
		{"is-ready-and-ends-well", "echo READY; echo RELEASED",
			v1.ResultPartiallyFailed, v1.ReasonHoldLost, "ended by itself", ptr.To[int32](0), crash, true},
		{"is-ready-and-fails", "echo READY; exit 3",
			v1.ResultPartiallyFailed, v1.ReasonHoldLost, "exited with code 3", ptr.To[int32](3), crash, true},
		{"is-ready-and-is-killed", "echo READY; kill -9 $$",
			v1.ResultPartiallyFailed, v1.ReasonHoldLost, "signal 9", ptr.To[int32](137), crash, true},
		{"closes-its-output-so-that-the-runtime-closes-its-input", "echo READY; exec cat >/dev/null",
			v1.ResultPartiallyFailed, v1.ReasonHoldLost, "ended by itself", ptr.To[int32](0), crash, true},
		{"ends-before-it-is-ready", "echo almost",
			v1.ResultFailed, v1.ReasonOutputMissing, "without saying that it was ready", ptr.To[int32](0), "", false},
		{"fails-before-it-is-ready", "exit 4",
			v1.ResultFailed, v1.ReasonNonZeroExit, "code 4", ptr.To[int32](4), "", false},
		{"is-never-ready", "cat >/dev/null; sleep 100000",
			v1.ResultFailed, v1.ReasonTimeout, "not ready within its timeout", nil, "", true},
		{"does-not-say-that-it-released", "echo READY; cat >/dev/null; echo bye",
			v1.ResultPartiallyFailed, v1.ReasonOutputMissing, "without saying that it had released", ptr.To[int32](0), crash, true},
		{"fails-to-release", "echo READY; cat >/dev/null; echo RELEASED; exit 5",
			v1.ResultPartiallyFailed, v1.ReasonNonZeroExit, "code 5", ptr.To[int32](5), crash, true},
		{"does-not-end", "echo READY; cat >/dev/null; echo RELEASED; sleep 100000",
			v1.ResultPartiallyFailed, v1.ReasonTimeout, "did not end within its release timeout", nil, crash, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := w.within(t)
			s := w.schedule(c.name, holding(db, c.script))

			o := w.completes(patience, w.start(s))

			w.Expect(o.Status.Result).To(Equal(c.result), describe(o))
			w.expectReason(o, "hold", c.reason, c.words)
			w.Expect(o.Status.Message).To(ContainSubstring("hold"))
			w.Expect(target(hookOf(o, "hold")).ExitCode).To(Equal(c.code))
			w.expectEvent(o, "PreHookFailed", c.reason)
			labels := map[string]string{}
			if c.label != "" {
				labels["db"] = c.label
			}
			w.expectLabels(o, labels)
			w.expectSnapshotsAsRecorded(o)
			if c.quiesced {
				w.expectCondition(o.Status.Conditions, v1.ConditionMayBeQuiesced, metav1.ConditionTrue, v1.ReasonGivenUp)
			} else {
				w.expectCondition(o.Status.Conditions, v1.ConditionMayBeQuiesced, metav1.ConditionFalse, v1.ReasonReleased)
			}
		})
	}
}

func TestHeldCommandOfALaterHookIsReleasedFirst(t *testing.T) {
	w := begin(t)
	db := w.app("db")
	script := func(name string) string {
		return "echo READY; cat >/dev/null; echo " + name + " >>/state/order; echo RELEASED"
	}
	s := w.schedule("held", holding(db, script("first")), holding(db, script("second")), func(s *v1.SnapshotScheduleSpec) { s.PreHooks[1].Name = "second" },
		after(hook(db, "post", "echo post >>/state/order")))

	o := w.ends(w.start(s), v1.ResultSucceeded)

	w.expectLabels(o, map[string]string{"db": application})
	w.Expect(db.sh("cat /state/order")).To(Equal("second\nfirst\npost"))
}
