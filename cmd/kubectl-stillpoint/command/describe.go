// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/cmd/kubectl-stillpoint/words"
	"github.com/stillpoint-operator/stillpoint/internal/calendar"
)

func (p *program) describe() *cobra.Command {
	return &cobra.Command{
		Use:   "describe NAME|run/NAME",
		Short: "A schedule and its newest run, or one run, in words",
		Long: `A schedule with its newest run, or one run: its times, how long the application was quiesced,
each hook in each container with the end of its output, each snapshot, and what to do about what
failed.`,
		Example: `  kubectl stillpoint describe hourly
  kubectl stillpoint describe run/hourly-202603010300`,
		Args:              exactly(1, "the name of a schedule, or run/ and the name of a run"),
		ValidArgsFunction: p.completeBoth,
		RunE: func(cmd *cobra.Command, args []string) error {
			k, err := p.connect()
			if err != nil {
				return err
			}
			return p.describeAny(cmd.Context(), k, args[0])
		},
	}
}

func (p *program) describeAny(ctx context.Context, k *kube, name string) error {
	view := words.View{Now: p.Clock.Now(), Zone: p.Zone}
	if one, ok := runName(name); ok {
		r, err := k.run(ctx, one)
		if err != nil {
			return err
		}
		view.Run(p.Out, r)
		return nil
	}
	s, err := k.schedule(ctx, name)
	if errors.Is(err, errNotFound) {
		if r, runErr := k.run(ctx, name); runErr == nil {
			view.Run(p.Out, r)
			return nil
		}
	}
	if err != nil {
		return err
	}
	runs, err := k.runs(ctx, s.Name)
	if err != nil {
		return err
	}
	next, zone := slots(s, view.Now, 1)
	view.Schedule(p.Out, s, next, zone)
	if newest := newestRun(runs); newest != nil {
		fmt.Fprintln(p.Out)
		view.Run(p.Out, newest)
	}
	return nil
}

// slots of a schedule that come, as its status and its calendar say, and its zone. None: it cannot be read.
func slots(s *v1.SnapshotSchedule, now time.Time, n int) ([]time.Time, *time.Location) {
	cal, err := calendar.Parse(s.Spec.Schedule, s.Spec.TimeZone)
	if err != nil {
		return nil, time.UTC
	}
	var out []time.Time
	at := now
	// What the operator persisted is what it will do, unless the spec has changed since.
	if next := s.Status.NextSnapshotTime; next != nil && s.Status.ObservedGeneration == s.Generation && next.After(now) {
		out = append(out, next.UTC())
		at = next.Time
	}
	for len(out) < n {
		t := cal.Next(at)
		if t.IsZero() {
			break
		}
		out = append(out, t)
		at = t
	}
	return out, cal.Location()
}

func newestRun(runs []v1.SnapshotRun) *v1.SnapshotRun {
	var newest *v1.SnapshotRun
	for i := range runs {
		if newest == nil || newest.CreationTimestamp.Before(&runs[i].CreationTimestamp) {
			newest = &runs[i]
		}
	}
	return newest
}
