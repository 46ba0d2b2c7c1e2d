// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// seen is what this demo saw.
type seen struct {
	run                          *v1.SnapshotRun
	committed, restored, written int64
	pause, longest               time.Duration // the writer's, while the run had PostgreSQL quiesced, and ever
	recovery                     string
	operatorLog                  string
}

// showRun prints what kubectl shows of the run, and how each hook ended.
func (d *demo) showRun(ctx context.Context, run *v1.SnapshotRun) error {
	const kinds = "snapshotschedules,snapshotruns,volumesnapshots"
	out, err := d.kubectl(ctx, "", "-n", namespace, "get", kinds)
	if err != nil {
		return err
	}
	fmt.Fprintf(d.out, "\n$ kubectl -n %s get %s\n%s\n", namespace, kinds, out)
	fmt.Fprintf(d.out, "$ kubectl -n %s get snapshotrun %s -o yaml    # in short\n", namespace, run.Name)
	w := tabwriter.NewWriter(d.out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "HOOK\tTARGET\tSUCCEEDED\tREASON\tEXIT CODE\tSTARTED\tTOOK")
	for i := range run.Status.Hooks {
		h := &run.Status.Hooks[i]
		for j := range h.Targets {
			t := &h.Targets[j]
			succeeded, reason := "", ""
			if len(h.Conditions) > 0 {
				succeeded, reason = string(h.Conditions[0].Status), h.Conditions[0].Reason
			}
			fmt.Fprintf(w, "%s %s\t%s/%s\t%s\t%s\t%s\t%s\t%d ms\n", h.Stage, h.Name, t.Pod, t.Container, succeeded, reason, exitCode(t), clock(t), tookOf(t).Milliseconds())
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(d.out, "quiesced for %s\n\n", run.Status.QuiescedFor)
	label, err := d.kubectl(ctx, "", "-n", namespace, "get", "volumesnapshot", run.Status.Snapshots[0].Name,
		"-o", `jsonpath={.metadata.labels.snapscheduler\.backube/consistency}`)
	if err != nil {
		return err
	}
	if label != v1.ConsistencyApplication {
		return fmt.Errorf("snapshot %s should carry the label %s=%s, and has %q", run.Status.Snapshots[0].Name, v1.LabelConsistency, v1.ConsistencyApplication, label)
	}
	return nil
}

func exitCode(t *v1.TargetStatus) string {
	if t.ExitCode == nil {
		return "unknown"
	}
	return fmt.Sprint(*t.ExitCode)
}

func clock(t *v1.TargetStatus) string {
	if t.StartTime == nil {
		return "-"
	}
	return t.StartTime.UTC().Format("15:04:05.000")
}

// screen is the last thing that the demo prints: at most 24 lines of 100 columns.
func (s *seen) screen(took time.Duration) string {
	st := &s.run.Status
	var hooks []string
	var frozen, thawed time.Time
	for i := range st.Hooks {
		h := &st.Hooks[i]
		for j := range h.Targets {
			t := &h.Targets[j]
			hooks = append(hooks, fmt.Sprintf("%s %d ms", h.Name, tookOf(t).Milliseconds()))
			if t.EndTime != nil && h.Name == "freeze" {
				frozen = t.EndTime.Time
			}
			if t.EndTime != nil && h.Name == "thaw" {
				thawed = t.EndTime.Time
			}
		}
	}
	pause := "no pause over 100 ms"
	if s.pause > 0 {
		pause = fmt.Sprintf("a pause of %d ms", s.pause.Milliseconds())
	}
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	line("%s", strings.Repeat("─", 98))
	line("A PostgreSQL was quiesced, snapshotted, released and restored (%d s in all)", int(took.Seconds()))
	line("")
	line("  run         %s: %s", s.run.Name, st.Result)
	line("  hooks       %s; each exit code 0", strings.Join(hooks, ", "))
	line("  quiesced    for %d ms, of which frozen for %d ms", st.ReleasedTime.Sub(st.QuiescedTime.Time).Milliseconds(), thawed.Sub(frozen).Milliseconds())
	line("  the writer  saw %s meanwhile; its longest ever: %d ms", pause, s.longest.Milliseconds())
	line("  snapshot    %s: ready, consistency=%s", st.Snapshots[0].Name, st.Consistency.Verdict)
	line("  restored    %d rows; %d were committed before the freeze, %d by the release", s.restored, s.committed, s.written)
	line("              %s", s.recovery)
	line("")
	line("Look further; the operator takes the next snapshot every minute:")
	line("")
	line(`  eval "$(go run ./test/cluster/cmd/localcluster env)"      # sets KUBECONFIG, and kubectl in PATH`)
	line("  kubectl -n demo get snapshotschedules,snapshotruns,volumesnapshots")
	line("  kubectl -n demo get snapshotrun %s -o yaml", s.run.Name)
	line("  kubectl -n demo logs deploy/writer -f                     # each pause of the application")
	line("  less hack/demo/schedule.yaml                              # the schedule, explained")
	line("  less %s", s.operatorLog)
	line("")
	line("Stop it, and leave nothing behind:  make demo-down")
	return b.String()
}
