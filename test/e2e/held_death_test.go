// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/test/cluster"
)

// The dead-man's switch of the tests, in seconds.
const fast = 5

// frozenWriter is a writer that waits, because a held command has frozen it.
func frozenWriter(w *world, name string, cut time.Duration, more ...shape) (diary, *v1.SnapshotSchedule, *v1.SnapshotRun) {
	w.Helper()
	db := w.writer(name)
	log := db.diary()
	s := w.schedule(name, cooked(db, recipe(w, "fsfreeze, held")), all(more...), shortly(3))
	w.knobs(cluster.Knobs{CutDelay: cut})
	o := w.reaches(w.start(s), v1.PhaseSnapshotting)
	log.expectWaiting()
	return log, s, o
}

func TestHeldApplicationIsFreeAtOnceWhenItsOperatorIsKilledAndNoOperatorLives(t *testing.T) {
	op := startOperator(t)
	w := settle(t)
	thawToo := func(s *v1.SnapshotScheduleSpec) {
		h := s.PreHooks[0].Hook
		h.Name, h.TimeoutSeconds, h.ExpectOutput, h.Command = "thaw", nil, "", []string{"sh", "-c", thaw}
		after(h)(s)
	}
	logs, schedules, runs := [2]diary{}, [2]*v1.SnapshotSchedule{}, [2]*v1.SnapshotRun{}
	logs[0], schedules[0], runs[0] = frozenWriter(w, "alone", 6*time.Second)
	logs[1], schedules[1], runs[1] = frozenWriter(w, "thawed", 6*time.Second, thawToo)

	killed := time.Now()
	op.kill()
	for i, log := range logs {
		log.awaitWriting(2 * time.Second)
		waited := log.longest()
		t.Logf("%s waited %s and was free %s after the operator was killed", runs[i].Spec.ScheduleName, waited, waited.to.Sub(killed).Round(time.Millisecond))
		w.Expect(waited.to).To(And(BeTemporally(">", killed), BeTemporally("<", killed.Add(time.Second))), "with no operator alive")
		w.Expect(api.Get(t.Context(), keyOf(runs[i]), runs[i])).To(Succeed())
		w.Expect(runs[i].Status.Phase).To(Equal(v1.PhaseSnapshotting), "nobody works on the run")
	}
	w.Expect(op.runs()).To(BeFalse())

	dropLease()
	startOperator(t)
	for i, o := range runs {
		o := w.completes(secondPass, o)
		w.expectLost(o, "freeze", schedules[i].Name, "operator process", "is gone")
		w.expectEvent(o, "PreHookFailed", v1.ReasonHoldLost)
		runs[i] = o
	}
	w.expectCondition(runs[0].Status.Conditions, v1.ConditionMayBeQuiesced, metav1.ConditionTrue, v1.ReasonGivenUp)
	w.expectCondition(runs[1].Status.Conditions, v1.ConditionMayBeQuiesced, metav1.ConditionFalse, v1.ReasonReleased)
	w.Expect(passes(runs[1], "thaw")).To(HaveLen(2), "the second comes when the command can no longer run")
	w.knobs(cluster.Knobs{})
	w.ends(w.start(schedules[0]), v1.ResultSucceeded)
	w.expectAlarm(schedules[0], metav1.ConditionFalse)
}

func TestHeldApplicationIsFreeWithinItsOwnSwitchWhatEverDies(t *testing.T) {
	w := begin(t)
	for _, c := range []struct {
		component string
		killed    bool // with it, the command dies or goes on without its client, so that only the switch is left
	}{{"kube-apiserver", false}, {"kubelet", true}, {"containerd", true}} {
		t.Run(c.component, func(t *testing.T) {
			w := w.within(t)
			log, s, o := frozenWriter(w, "with-"+c.component, 2*time.Second, switchAfter(fast))
			begun := target(hookOf(o, "freeze")).HeldTime.Time
			died := time.Now()
			again := w.without(c.component)
			log.awaitWriting((fast + 2) * time.Second)
			waited := log.longest()
			t.Logf("the writer waited %s and was free %s after %s was killed", waited, waited.to.Sub(died).Round(time.Millisecond), c.component)
			again()
			if c.killed {
				w.Expect(waited.to).To(And(BeTemporally(">", begun.Add((fast-1)*time.Second)), BeTemporally("<", begun.Add((fast+1)*time.Second))), "the switch freed it")
			} else {
				w.Expect(waited.to).To(BeTemporally("<", died.Add(time.Second)), "the command saw it")
			}
			o = w.completes(2*patience, o)
			w.expectLost(o, "freeze", "with-"+c.component)
			w.expectCondition(o.Status.Conditions, v1.ConditionMayBeQuiesced, metav1.ConditionTrue, v1.ReasonGivenUp)
			w.knobs(cluster.Knobs{})
			w.Eventually(func() error { // a kubelet that has just started does not know its pods yet
				_, err := w.exec(s.Name, "true")
				return err
			}, patience, "100ms").Should(Succeed())
			w.ends(w.start(s), v1.ResultSucceeded)
			w.expectAlarm(s, metav1.ConditionFalse)
		})
	}
}

func TestHeldApplicationIsFreeWithinItsOwnSwitchWhenPacketsAreDropped(t *testing.T) {
	op := startOperator(t)
	w := settle(t)
	before := connections(w, op)
	log, _, o := frozenWriter(w, "db", 8*time.Second, switchAfter(fast))
	begun := target(hookOf(o, "freeze")).HeldTime.Time
	var dropped []string
	for _, port := range connections(w, op) {
		if !slices.Contains(before, port) {
			dropped = append(dropped, port)
			w.drop(port)
		}
	}
	w.Expect(dropped).NotTo(BeEmpty(), "the held command has a connection of its own")

	log.awaitWriting((fast + 2) * time.Second)
	waited := log.longest()
	w.Expect(waited.to).To(And(BeTemporally(">", begun.Add((fast-1)*time.Second)), BeTemporally("<", begun.Add((fast+1)*time.Second))), "the switch freed it")
	o = w.completes(patience, o)
	w.Expect(o.Status.Result).To(Equal(v1.ResultPartiallyFailed), describe(o))
	w.expectReason(o, "freeze", v1.ReasonTimeout, "did not end within its release timeout")
	w.expectCondition(o.Status.Conditions, v1.ConditionSnapshotsCut, metav1.ConditionTrue, v1.ReasonAllCut)
	w.Expect(o.Status.Message).To(ContainSubstring("freeze"))
	w.expectLabels(o, map[string]string{"db": crash})
	w.expectCondition(o.Status.Conditions, v1.ConditionMayBeQuiesced, metav1.ConditionTrue, v1.ReasonGivenUp)
}

func TestHeldApplicationIsFreeWithinItsOwnSwitchWhenTheOperatorIsFrozen(t *testing.T) {
	op := startOperator(t)
	w := settle(t)
	log, _, o := frozenWriter(w, "db", 3*time.Second, switchAfter(fast))
	begun := target(hookOf(o, "freeze")).HeldTime.Time

	op.signal(syscall.SIGSTOP)
	log.awaitWriting((fast + 2) * time.Second)
	waited := log.longest()
	op.signal(syscall.SIGCONT)

	w.Expect(waited.to).To(And(BeTemporally(">", begun.Add((fast-1)*time.Second)), BeTemporally("<", begun.Add((fast+1)*time.Second))), "the switch freed it")
	o = w.completes(patience, o)
	w.Expect(o.Status.Result).To(Equal(v1.ResultPartiallyFailed), describe(o))
	w.expectReason(o, "freeze", v1.ReasonNonZeroExit, "code 1") // there was nothing left to thaw
	w.expectLabels(o, map[string]string{"db": crash})
}

// connections of an operator to the API server, by their local ports.
func connections(w *world, o *operator) []string {
	w.Helper()
	out, err := exec.CommandContext(w.Context(), "ss", "-Htnp", "state", "established", "dst", strings.TrimPrefix(cluster.ServerURL, "https://")).Output()
	w.Expect(err).NotTo(HaveOccurred())
	var ports []string
	for text := range strings.Lines(string(out)) {
		if f := strings.Fields(text); len(f) >= 4 && strings.Contains(text, fmt.Sprintf("pid=%d,", o.cmd.Process.Pid)) {
			ports = append(ports, f[2][strings.LastIndex(f[2], ":")+1:])
		}
	}
	return ports
}

// drop what is sent over a connection, both ways, until the test ends.
func (w *world) drop(port string) {
	w.Helper()
	for _, rule := range []string{"OUTPUT -p tcp --dport 6443 --sport " + port, "INPUT -p tcp --sport 6443 --dport " + port} {
		chain, match, _ := strings.Cut(rule, " ")
		args := append(strings.Fields(match), "-j", "DROP")
		if err := command(w.Context(), "iptables", append([]string{"-w", "-I", chain}, args...)...); err != nil {
			w.Skipf("this machine cannot drop packets: %v", err)
		}
		w.Cleanup(func() {
			if err := command(context.Background(), "iptables", append([]string{"-w", "-D", chain}, args...)...); err != nil {
				w.Error(err)
			}
		})
	}
}
