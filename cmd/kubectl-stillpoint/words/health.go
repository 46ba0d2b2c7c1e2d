// SPDX-License-Identifier: Apache-2.0

package words

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// Health of a schedule in one word. The order is that in which somebody should look at them.
type Health int

// Worst first.
const (
	// Quiesced: a release was given up; the application may be standing still.
	Quiesced Health = iota
	// Invalid: the spec cannot be run.
	Invalid
	// Failed: the newest run failed.
	Failed
	// Partial: the newest run is not all that was asked for.
	Partial
	// Late: its slot has passed and nothing happens.
	Late
	// Erring: the operator cannot do its work for it.
	Erring
	// Skipped: the newest run found nothing to take.
	Skipped
	// Running: a run is at work.
	Running
	// New: no run yet.
	New
	// OK: the newest run succeeded.
	OK
	// Suspended: no runs are started.
	Suspended
)

var healthWords = map[Health]string{Quiesced: "Quiesced", Invalid: "Invalid", Failed: "Failed", Partial: "Partial", Late: "Late", Erring: "Error", Skipped: "Skipped",
	Running: "Running", New: "New", OK: "OK", Suspended: "Suspended"}

func (h Health) String() string { return healthWords[h] }

// Bad: somebody has to do something.
func (h Health) Bad() bool { return h <= Partial }

// Doubtful: somebody should look.
func (h Health) Doubtful() bool { return h > Partial && h <= Skipped }

// lateAfter its time a slot should have been seen to.
const lateAfter = 2 * time.Minute

// HealthOf a schedule, and why, in a sentence.
func HealthOf(s *v1.SnapshotSchedule, now time.Time) (Health, string) {
	condition := func(typ string) metav1.Condition {
		return ptr.Deref(meta.FindStatusCondition(s.Status.Conditions, typ), metav1.Condition{})
	}
	quiesced, ready, last, reconciled := condition(v1.ConditionMayBeQuiesced), condition(v1.ConditionReady), condition(v1.ConditionLastRunSucceeded), condition(v1.ConditionReconciled)
	switch {
	case quiesced.Status == metav1.ConditionTrue && quiesced.Reason == v1.ReasonGivenUp:
		return Quiesced, quiesced.Message
	case ready.Status == metav1.ConditionFalse:
		return Invalid, ready.Message
	case s.Spec.Disabled:
		return Suspended, "no runs are started; retention goes on"
	case last.Status == metav1.ConditionFalse && last.Reason == v1.ReasonPartiallyFailed:
		return Partial, last.Message
	case last.Status == metav1.ConditionFalse:
		return Failed, last.Message
	}
	if why := late(s, now); why != "" {
		return Late, why
	}
	switch {
	case reconciled.Status == metav1.ConditionFalse:
		return Erring, reconciled.Message
	case s.Status.ActiveRun != "":
		return Running, "run " + s.Status.ActiveRun
	case last.Status == metav1.ConditionUnknown && last.Reason == v1.ReasonRunSkipped:
		return Skipped, last.Message
	case last.Status == metav1.ConditionTrue, s.Status.LastSuccessTime != nil:
		return OK, last.Message
	}
	return New, "no run yet"
}

// late says why nothing seems to happen; empty: something does.
func late(s *v1.SnapshotSchedule, now time.Time) string {
	if len(s.Status.Conditions) == 0 && now.Sub(s.CreationTimestamp.Time) > lateAfter {
		return "is Stillpoint running? no operator has looked at it: kubectl get pods -A -l app.kubernetes.io/name=stillpoint"
	}
	next := s.Status.NextSnapshotTime
	if next == nil || s.Status.ActiveRun != "" {
		return ""
	}
	due := next.Add(time.Duration(ptr.Deref(s.Spec.SpreadSeconds, 0))*time.Second + lateAfter)
	if now.After(due) {
		return fmt.Sprintf("is Stillpoint running? its slot of %s has passed and no run began: kubectl get pods -A -l app.kubernetes.io/name=stillpoint", next.UTC().Format(time.RFC3339))
	}
	return ""
}
