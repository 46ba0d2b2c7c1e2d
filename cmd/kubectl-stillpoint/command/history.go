// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/cmd/kubectl-stillpoint/restore"
	"github.com/stillpoint-operator/stillpoint/cmd/kubectl-stillpoint/words"
	"github.com/stillpoint-operator/stillpoint/internal/naming"
	"github.com/stillpoint-operator/stillpoint/internal/run"
)

func (p *program) history() *cobra.Command {
	o := &output{}
	cmd := &cobra.Command{
		Use:   "history NAME",
		Short: "The runs of a schedule, and what can be restored from older ones",
		Long: `The runs of a schedule, newest first: how they ended, how long the application was quiesced, how
many snapshots are ready. Below them, what older runs left whose records are no longer kept, and
snapshots that snapscheduler made: the first column is what restore --at takes. With -o json,
yaml or name: the SnapshotRuns.`,
		Example: `  kubectl stillpoint history hourly
  kubectl stillpoint history hourly -o wide`,
		Args:              exactly(1, "the name of a schedule"),
		ValidArgsFunction: p.completeSchedules,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			k, err := p.connect()
			if err != nil {
				return err
			}
			return p.showHistory(cmd.Context(), k, scheduleName(args[0]), o)
		},
	}
	o.addTableFlags(cmd)
	return cmd
}

// historic is one row: a run, or what an older one left.
type historic struct {
	at    time.Time
	run   *v1.SnapshotRun
	point *restore.Point
}

func (p *program) showHistory(ctx context.Context, k *kube, name string, o *output) error {
	w, err := k.world(ctx, name)
	if err != nil {
		return err
	}
	if len(w.Runs) == 0 && len(w.Snapshots) == 0 {
		if _, err := k.schedule(ctx, name); err != nil {
			return err
		}
		fmt.Fprintf(p.ErrOut, "Schedule %s has no runs and no snapshots yet.\n", name)
	}
	if o.objects() {
		slices.SortFunc(w.Runs, func(a, b v1.SnapshotRun) int { return b.CreationTimestamp.Compare(a.CreationTimestamp.Time) })
		var objects []client.Object
		for i := range w.Runs {
			objects = append(objects, &w.Runs[i])
		}
		return o.print(p.Out, runKind, true, objects...)
	}
	rows := historyRows(w)
	if len(rows) == 0 {
		return nil
	}
	return p.historyTable(rows, o)
}

// historyRows, newest first.
func historyRows(w *restore.World) []historic {
	var rows []historic
	points := restore.Points(*w)
	for i := range points {
		if points[i].Record == nil {
			rows = append(rows, historic{at: points[i].Time(), point: &points[i]})
		}
	}
	for i := range w.Runs {
		r := &w.Runs[i]
		row := historic{at: r.CreationTimestamp.Time, run: r}
		for j := range points {
			if points[j].Record == r {
				row.point = &points[j]
			}
		}
		rows = append(rows, row)
	}
	slices.SortStableFunc(rows, func(a, b historic) int { return cmp.Or(b.at.Compare(a.at)) })
	return rows
}

func (p *program) historyTable(rows []historic, o *output) error {
	now := p.Clock.Now()
	wide := o.format == "wide"
	t := &table{w: p.Out, noHeaders: o.noHeaders, headers: []string{"RUN", "AGE", paint(p.Out, plain, "RESULT"), "QUIESCED", "READY", "CONSISTENCY", "MESSAGE"}}
	if wide {
		t.headers = []string{"RUN", "MODE", "SLOT", "AGE", paint(p.Out, plain, "RESULT"), "QUIESCED", "TOOK", "READY", "CONSISTENCY", "MESSAGE"}
	}
	for _, row := range rows {
		name, mode, slot, result, quiesced, took, message := "", string(v1.RunSnapshot), "-", "-", "-", "-", ""
		colour := plain
		if r := row.run; r != nil {
			name, mode, message = r.Name, string(run.ModeOf(r)), r.Status.Message
			if r.Spec.Slot != nil {
				slot = r.Spec.Slot.In(p.Zone).Format("2006-01-02 15:04 MST")
			}
			result, colour = resultOf(r)
			if q := words.QuiescedFor(r, now); q != "" {
				quiesced = q
			}
			if r.Status.StartTime != nil && r.Status.CompletionTime != nil {
				took = words.Took(r.Status.CompletionTime.Sub(r.Status.StartTime.Time))
			}
		} else {
			name = row.point.Run
			if name == "" {
				name = naming.When(row.point.When)
			}
			slot = row.point.When.In(p.Zone).Format("2006-01-02 15:04 MST")
			message = "the run's record is no longer kept"
			if row.point.Run == "" {
				message = "made without a run"
			}
		}
		ready, consistency := readiness(row.point)
		cells := []string{name, words.Ago(row.at, now), paint(p.Out, colour, result), quiesced, ready, consistency, words.Short(message, 80)}
		if wide {
			cells = []string{name, mode, slot, words.Ago(row.at, now), cells[2], quiesced, took, ready, consistency, words.Short(message, 1000)}
		}
		t.row(cells...)
	}
	return t.print()
}

func resultOf(r *v1.SnapshotRun) (word, colour string) {
	switch r.Status.Result {
	case v1.ResultSucceeded:
		return string(r.Status.Result), green
	case v1.ResultFailed, v1.ResultPartiallyFailed:
		return string(r.Status.Result), red
	case v1.ResultSkipped:
		return string(r.Status.Result), yellow
	}
	if r.Status.Phase == "" {
		return string(v1.PhasePending), plain
	}
	return string(r.Status.Phase), plain
}

// readiness of a point: how many of its claims can be restored, and as what.
func readiness(point *restore.Point) (ready, consistency string) {
	if point == nil || len(point.Members) == 0 {
		return "-", "-"
	}
	n := 0
	kinds := map[string]bool{}
	for _, m := range point.Members {
		if m.Why == "" {
			n++
			kinds[m.Consistency] = true
		}
	}
	consistency = "-"
	switch {
	case kinds[v1.ConsistencyCrash]:
		consistency = v1.ConsistencyCrash
	case kinds[v1.ConsistencyApplication]:
		consistency = v1.ConsistencyApplication
	}
	return fmt.Sprintf("%d/%d", n, len(point.Members)), consistency
}
