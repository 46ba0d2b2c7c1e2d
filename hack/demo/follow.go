// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

const (
	// slotWait is the longest until the next minute, and some for a busy machine.
	slotWait = 90 * time.Second
	// runWait covers the limits of schedule.yaml.
	runWait = 2 * time.Minute
)

// followNextRun creates the schedule and tells what its first run does, until it has completed as it should.
func (d *demo) followNextRun(ctx context.Context) (*v1.SnapshotRun, error) {
	updates := d.watchRuns(ctx)
	if err := d.apply(ctx, "schedule.yaml"); err != nil {
		return nil, err
	}
	now := time.Now().UTC()
	slot := now.Truncate(time.Minute).Add(time.Minute)
	d.say("the schedule: %s (hack/demo/schedule.yaml); its next slot is %s UTC, in %.0f s", scheduleName, slot.Format(time.TimeOnly), slot.Sub(now).Seconds())

	var run *v1.SnapshotRun
	told := story{say: d.say}
	deadline := now.Add(slotWait)
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		case seen := <-updates:
			if run == nil {
				d.say("the run %s:", seen.Name)
				deadline = time.Now().Add(runWait)
			} else if seen.UID != run.UID {
				continue // the next slot's
			}
			run = seen
			told.tell(run)
			if run.Status.Phase == v1.PhaseCompleted {
				return run, asItShould(run)
			}
		case <-look.C:
			if err := d.operatorDied(); err != nil {
				return nil, err
			}
			if time.Now().Before(deadline) {
				continue
			}
			if run == nil {
				return nil, fmt.Errorf("no run appeared within %s; %s", slotWait, d.scheduleSays(ctx))
			}
			return nil, fmt.Errorf("run %s has not completed within %s: it is in phase %s (%s)", run.Name, runWait, run.Status.Phase, run.Status.Message)
		}
	}
}

// watchRuns sends every change of every run, in order, until ctx ends.
func (d *demo) watchRuns(ctx context.Context) <-chan *v1.SnapshotRun {
	updates := make(chan *v1.SnapshotRun)
	go func() {
		for ctx.Err() == nil {
			cmd := d.command(ctx, "-n", namespace, "get", "snapshotruns", "--watch", "-o", "json")
			out, err := cmd.StdoutPipe()
			if err == nil && cmd.Start() == nil {
				send(ctx, out, updates)
				_ = cmd.Wait() // whatever ended it, it is begun again
			}
			_ = sleep(ctx, 200*time.Millisecond)
		}
	}()
	return updates
}

func send(ctx context.Context, out io.Reader, updates chan<- *v1.SnapshotRun) {
	for dec := json.NewDecoder(out); ; {
		run := &v1.SnapshotRun{}
		if dec.Decode(run) != nil {
			return
		}
		if run.Name == "" { // an empty list
			continue
		}
		select {
		case updates <- run:
		case <-ctx.Done():
			return
		}
	}
}

// story tells each phase and each hook's end once.
type story struct {
	say   func(format string, args ...any)
	phase v1.RunPhase
	hooks int // whose end was told
}

var phaseWords = map[v1.RunPhase]string{
	v1.PhasePending:       "looks for claims and takes its locks",
	v1.PhasePlanned:       "pods, containers and rights are checked",
	v1.PhasePreHooks:      "quiesces",
	v1.PhaseSnapshotting:  "all pre hooks have ended; snapshots are created",
	v1.PhasePostHooks:     "releases",
	v1.PhaseAwaitingReady: "released; waits until the snapshots can be restored",
}

func (s *story) tell(run *v1.SnapshotRun) {
	st := &run.Status
	ended := 0
	for i := range st.Hooks {
		h := &st.Hooks[i]
		if len(h.Conditions) == 0 {
			break
		}
		if ended++; ended > s.hooks {
			s.say("    %-14s %s", h.Name, hookWords(h))
		}
	}
	s.hooks = max(s.hooks, ended)
	if st.Phase == s.phase || st.Phase == "" {
		return
	}
	s.phase = st.Phase
	if st.Phase == v1.PhaseCompleted {
		s.say("  %-16s %s", st.Phase, strings.TrimSuffix(fmt.Sprintf("%s: %s", st.Result, st.Message), ": "))
		return
	}
	s.say("  %-16s %s", st.Phase, phaseWords[st.Phase])
}

// hookWords says how a hook ended, for example "Completed, exit code 0 after 84 ms".
func hookWords(h *v1.HookStatus) string {
	words := h.Conditions[0].Reason
	for _, t := range h.Targets {
		if t.ExitCode != nil {
			words += fmt.Sprintf(", exit code %d", *t.ExitCode)
		}
		if took := tookOf(&t); took > 0 {
			words += fmt.Sprintf(" after %d ms", took.Milliseconds())
		}
		if t.Message != "" && (t.ExitCode == nil || *t.ExitCode != 0) {
			words += ": " + t.Message
		}
	}
	return words
}

func tookOf(t *v1.TargetStatus) time.Duration {
	if t.StartTime == nil || t.EndTime == nil {
		return 0
	}
	return t.EndTime.Sub(t.StartTime.Time)
}

// asItShould fails if a completed run is anything but an application-consistent snapshot.
func asItShould(run *v1.SnapshotRun) error {
	st := &run.Status
	if st.Result != v1.ResultSucceeded {
		return fmt.Errorf("run %s ended as %s: %s", run.Name, st.Result, st.Message)
	}
	if st.Consistency == nil || st.Consistency.Verdict != v1.ConsistencyApplication {
		reason := "no reason is given"
		if st.Consistency != nil {
			reason = st.Consistency.Reason
		}
		return fmt.Errorf("run %s is not application-consistent: %s", run.Name, reason)
	}
	if len(st.Snapshots) != 1 || st.Snapshots[0].Claim != claimName {
		return fmt.Errorf("run %s has %d snapshots, and should have one, of claim %s", run.Name, len(st.Snapshots), claimName)
	}
	if st.QuiescedTime == nil || st.ReleasedTime == nil {
		return errors.New("the run's status lacks the times at which the application was quiesced and released")
	}
	return nil
}

// scheduleSays is what the schedule's own conditions tell.
func (d *demo) scheduleSays(ctx context.Context) string {
	var s v1.SnapshotSchedule
	if err := d.get(ctx, &s, "-n", namespace, "snapshotschedule", scheduleName); err != nil {
		return err.Error()
	}
	var words []string
	for _, name := range []string{v1.ConditionReconciled, v1.ConditionReady} {
		if c := meta.FindStatusCondition(s.Status.Conditions, name); c != nil {
			words = append(words, fmt.Sprintf("the schedule's condition %s is %s (%s: %s)", c.Type, c.Status, c.Reason, c.Message))
		}
	}
	if len(words) == 0 {
		return "the operator has not looked at the schedule yet"
	}
	return strings.Join(words, "; ")
}
