// SPDX-License-Identifier: Apache-2.0

package words

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

const (
	// lines of output that are shown of a hook that succeeded, and of one that failed.
	fewLines, manyLines = 3, 10
)

// Story tells what a run does as it goes on, each thing once. The zero value begins one.
type Story struct {
	phase   v1.RunPhase
	waiting string
	told    map[string]bool
}

// Line of a story; Bad ones are about a failure.
type Line struct {
	Text string
	Bad  bool
}

// Next are the lines that a newer state of the run adds.
func (s *Story) Next(r *v1.SnapshotRun) []Line {
	if s.told == nil {
		s.told = map[string]bool{}
	}
	var out []Line
	for i := range r.Status.Hooks {
		out = append(out, s.hook(r, &r.Status.Hooks[i])...)
	}
	for i := range r.Status.Snapshots {
		out = append(out, s.snapshot(&r.Status.Snapshots[i])...)
	}
	if r.Status.Phase == v1.PhasePending && r.Status.Message != "" && r.Status.Message != s.waiting {
		s.waiting = r.Status.Message
		out = append(out, Line{Text: phaseLine(v1.PhasePending, r.Status.Message)})
		s.phase = v1.PhasePending
	}
	if r.Status.Phase != s.phase && r.Status.Phase != "" {
		s.phase = r.Status.Phase
		bad := s.phase == v1.PhaseCompleted && (r.Status.Result == v1.ResultFailed || r.Status.Result == v1.ResultPartiallyFailed)
		phase := Line{Text: phaseLine(s.phase, PhaseMeans(r)), Bad: bad}
		if s.phase == v1.PhasePlanned || s.phase == v1.PhasePreHooks {
			return append([]Line{phase}, out...) // what has ended by now ended in this phase
		}
		out = append(out, phase)
	}
	return out
}

func phaseLine(phase v1.RunPhase, text string) string {
	return fmt.Sprintf("%-13s %s", phase, Printable(text))
}

func (s *Story) once(key string) bool {
	if s.told[key] {
		return false
	}
	s.told[key] = true
	return true
}

// hook tells its end in each container, with the end of what the command wrote, and that it holds.
func (s *Story) hook(r *v1.SnapshotRun, h *v1.HookStatus) []Line {
	var out []Line
	name := fmt.Sprintf("  %-4s %s", strings.ToLower(string(h.Stage)), h.Name)
	for i := range h.Targets {
		t := &h.Targets[i]
		key := fmt.Sprint(h.Stage, h.Pass, h.Name, t.PodUID, t.Pod, t.Container)
		if t.HeldTime != nil && t.EndTime == nil && s.once(key+"held") {
			out = append(out, Line{Text: fmt.Sprintf("%s  %s  %s", name, Where(t, r.Namespace), v1.ReasonHeld)})
		}
		if t.Reason == "" || t.Claim != nil || !s.once(fmt.Sprint(key, t.Attempts, t.Reason)) {
			continue
		}
		bad := t.Reason != v1.ReasonHookCompleted && t.Reason != v1.ReasonHookSkipped && t.Reason != v1.ReasonHeld
		out = append(out, Line{Text: fmt.Sprintf("%s  %s  %s", name, Where(t, r.Namespace), TargetEnd(t)), Bad: bad})
		lines := fewLines
		if bad {
			lines = manyLines
		}
		for _, l := range Tail(t.Output, lines) {
			out = append(out, Line{Text: "       | " + l})
		}
	}
	if c := meta.FindStatusCondition(h.Conditions, v1.ConditionSucceeded); c != nil && len(h.Targets) == 0 && s.once(fmt.Sprint(h.Stage, h.Pass, h.Name)) {
		out = append(out, Line{Text: fmt.Sprintf("%s  %s: %s", name, c.Reason, Short(c.Message, 300)), Bad: HookFailed(h)})
	}
	return out
}

func (s *Story) snapshot(x *v1.SnapshotStatus) []Line {
	if x.State == v1.SnapshotPending || x.State == "" || !s.once(x.Claim+string(x.State)) {
		return nil
	}
	name := "snapshot " + x.Name
	if x.Name == "" { // a member of a group that has not appeared
		name = "snapshot"
	}
	text := fmt.Sprintf("  %s of claim %s: %s", name, x.Claim, strings.ToLower(string(x.State)))
	if x.Message != "" {
		text += ": " + Short(x.Message, 300)
	}
	return []Line{{Text: text, Bad: x.State == v1.SnapshotFailed}}
}
