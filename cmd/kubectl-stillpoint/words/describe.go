// SPDX-License-Identifier: Apache-2.0

package words

import (
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/printers"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/run"
)

// View is how somebody looks at objects.
type View struct {
	Now  time.Time
	Zone *time.Location
}

// pairs writes names and values in two columns; those without a value are left out.
func pairs(w io.Writer, list ...string) {
	t := printers.GetNewTabWriter(w)
	defer func() { _ = t.Flush() }()
	for i := 0; i+1 < len(list); i += 2 {
		if list[i+1] != "" {
			fmt.Fprintf(t, "  %s:\t%s\n", list[i], Printable(list[i+1]))
		}
	}
}

func (v View) moment(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return Moment(t, v.Zone)
}

// Run describes a run: its times, its hooks, its snapshots, and what to do if it failed.
func (v View) Run(w io.Writer, r *v1.SnapshotRun) {
	st := &r.Status
	fmt.Fprintf(w, "Run %s of schedule %s/%s\n", r.Name, r.Namespace, r.Spec.ScheduleName)
	state := string(st.Phase)
	switch st.Phase {
	case v1.PhaseCompleted:
		state = Ended(r)
	case "":
		state = "no operator has looked at it yet"
	default:
		state += ": " + PhaseMeans(r)
	}
	slot := "none (created by hand)"
	if r.Spec.Slot != nil {
		slot = Moment(r.Spec.Slot.Time, v.Zone)
	}
	quiesced := v.moment(micro(st.QuiescedTime))
	if quiesced != "" {
		quiesced += ", for " + QuiescedFor(r, v.Now)
	}
	consistency := ""
	if c := st.Consistency; c != nil {
		consistency = strings.TrimSuffix(c.Verdict+": "+c.Reason, ": ")
	}
	pairs(w, "State", state, "Mode", string(run.ModeOf(r)), "Slot", slot, "Created", v.moment(r.CreationTimestamp.Time), "Quiesced", quiesced, "Cut", v.moment(micro(st.CutTime)),
		"Release began", v.moment(micro(st.ReleaseTime)), "Released", v.moment(micro(st.ReleasedTime)), "Completed", v.moment(micro(st.CompletionTime)),
		"Consistency", consistency, "May be quiesced", mayBeQuiesced(st.Conditions), "Account", v.account(st))
	v.hooks(w, r)
	v.snapshots(w, r)
	if len(st.ClaimsLeftOut) > 0 {
		fmt.Fprintf(w, "Left out:\n  %s\n", Printable(strings.Join(st.ClaimsLeftOut, "\n  ")))
	}
	if hints := Hints(r); len(hints) > 0 {
		fmt.Fprintf(w, "What to do:\n  %s\n", strings.Join(hints, "\n  "))
	}
}

func (v View) account(st *v1.SnapshotRunStatus) string {
	switch {
	case st.Plan == nil || len(st.Plan.PreHooks)+len(st.Plan.PostHooks) == 0:
		return ""
	case st.Plan.ServiceAccountName == "":
		return "the operator's"
	}
	return "ServiceAccount " + st.Plan.ServiceAccountName
}

func mayBeQuiesced(conditions []metav1.Condition) string {
	c := meta.FindStatusCondition(conditions, v1.ConditionMayBeQuiesced)
	if c == nil || c.Status != metav1.ConditionTrue {
		return ""
	}
	return strings.TrimSuffix("YES ("+c.Reason+"): "+c.Message, ": ")
}

func (v View) hooks(w io.Writer, r *v1.SnapshotRun) {
	if len(r.Status.Hooks) == 0 {
		return
	}
	fmt.Fprintln(w, "Hooks:")
	for i := range r.Status.Hooks {
		h := &r.Status.Hooks[i]
		end := HookEnd(h)
		if end == "" {
			end = "not ended"
		}
		pass := ""
		if h.Pass > 1 {
			pass = fmt.Sprintf(" (pass %d)", h.Pass)
		}
		fmt.Fprintf(w, "  %-4s %s%s  %s\n", strings.ToLower(string(h.Stage)), h.Name, pass, Printable(end))
		if c := meta.FindStatusCondition(h.Conditions, v1.ConditionSucceeded); c != nil && len(h.Targets) == 0 && c.Message != "" && HookFailed(h) {
			fmt.Fprintf(w, "       %s\n", Printable(c.Message))
		}
		for j := range h.Targets {
			t := &h.Targets[j]
			fmt.Fprintf(w, "       %s  %s\n", Where(t, r.Namespace), TargetEnd(t))
			for _, l := range Tail(t.Output, manyLines) {
				fmt.Fprintf(w, "         | %s\n", l)
			}
		}
	}
}

func (v View) snapshots(w io.Writer, r *v1.SnapshotRun) {
	if len(r.Status.Snapshots) == 0 {
		return
	}
	fmt.Fprintln(w, "Snapshots:")
	t := printers.GetNewTabWriter(w)
	fmt.Fprintln(t, "  CLAIM\tSNAPSHOT\tSTATE\tCUT\tCONSISTENCY\tMESSAGE")
	for i := range r.Status.Snapshots {
		s := &r.Status.Snapshots[i]
		cut := "-"
		if s.CreationTime != nil {
			cut = s.CreationTime.In(v.Zone).Format("15:04:05 MST")
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\t%s\n", s.Claim, orDash(s.Name), s.State, cut, orDash(s.Consistency), Short(s.Message, 200))
	}
	_ = t.Flush()
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// Schedule describes a schedule: its health, when it runs next, what was missed. next are its coming slots.
func (v View) Schedule(w io.Writer, s *v1.SnapshotSchedule, next []time.Time, zone *time.Location) {
	health, why := HealthOf(s, v.Now)
	fmt.Fprintf(w, "Schedule %s/%s\n", s.Namespace, s.Name)
	first := ""
	if len(next) > 0 && !s.Spec.Disabled {
		first = fmt.Sprintf("%s, %s", Moment(next[0], zone), In(next[0], v.Now))
	}
	missed := ""
	if m := s.Status.LastMissed; m != nil {
		missed = fmt.Sprintf("%d so far, the newest %s: %s", m.Count, Moment(m.Slot.Time, zone), missedMeans[m.Reason])
	}
	lastTaken, lastGood := "never", "never"
	if t := s.Status.LastSnapshotTime; t != nil {
		lastTaken = fmt.Sprintf("%s, %s ago", v.moment(t.Time), Ago(t.Time, v.Now))
	}
	if t := s.Status.LastSuccessTime; t != nil {
		lastGood = fmt.Sprintf("%s, %s ago", v.moment(t.Time), Ago(t.Time, v.Now))
	}
	pairs(w, "Health", strings.TrimSuffix(health.String()+": "+why, ": "), "Schedule", s.Spec.Schedule, "Next slot", first, "Last snapshots", lastTaken, "Last success", lastGood,
		"Active run", s.Status.ActiveRun, "Missed slots", missed, "May be quiesced", mayBeQuiesced(s.Status.Conditions), "Hooks", fmt.Sprintf("%d before, %d after", len(s.Spec.PreHooks), len(s.Spec.PostHooks)))
	if len(s.Status.ClaimsLeftOut) > 0 {
		fmt.Fprintf(w, "Left out by the newest run:\n  %s\n", Printable(strings.Join(s.Status.ClaimsLeftOut, "\n  ")))
	}
	if len(s.Status.Conditions) > 0 {
		fmt.Fprintln(w, "Conditions:")
		t := printers.GetNewTabWriter(w)
		for _, c := range s.Status.Conditions {
			fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%s\n", c.Type, c.Status, c.Reason, Ago(c.LastTransitionTime.Time, v.Now), Short(c.Message, 200))
		}
		_ = t.Flush()
	}
	if health == Quiesced {
		fmt.Fprintf(w, "What to do:\n  the application may be standing still. Correct the post hooks and type: kubectl stillpoint -n %s release %s --wait\n", s.Namespace, s.Name)
	}
}

var missedMeans = map[string]string{
	v1.MissedTooLate:  "it could not start within startingDeadlineSeconds",
	v1.MissedOverlap:  "the run before had not released its application",
	v1.MissedDowntime: "no operator was at work; only the newest missed slot is caught up",
}
