// SPDX-License-Identifier: Apache-2.0

package command

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/cmd/kubectl-stillpoint/words"
)

type listOptions struct {
	output
	all      bool
	selector string
}

func (p *program) list() *cobra.Command {
	o := &listOptions{}
	cmd := &cobra.Command{
		Use:   "list [-A]",
		Short: "All schedules with their health, the worst first",
		Long: `All schedules of the namespace, or with -A of the cluster, with their health in one word, the
worst first:

  Quiesced   a release was given up: the application may be standing still. Act: kubectl stillpoint release NAME --wait
  Invalid    the spec cannot be run; WHY names the field
  Failed     the newest run failed
  Partial    the newest run is not all that was asked for
  Late       its slot has passed and nothing happens
  Error      the operator cannot do its work for it
  Skipped    the newest run found nothing to take
  Running    a run is at work
  New        no run yet
  OK         the newest run succeeded
  Suspended  no runs are started`,
		Example: `  kubectl stillpoint list -A
  kubectl stillpoint list -n shop -o wide`,
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			k, err := p.connect()
			if err != nil {
				return err
			}
			return p.listSchedules(cmd.Context(), k, o)
		},
	}
	o.addTableFlags(cmd)
	cmd.Flags().BoolVarP(&o.all, "all-namespaces", "A", false, "All namespaces.")
	cmd.Flags().StringVarP(&o.selector, "selector", "l", "", "Only schedules with these labels, for example team=shop.")
	return cmd
}

func (p *program) listSchedules(ctx context.Context, k *kube, o *listOptions) error {
	list := v1.SnapshotScheduleList{}
	options := &client.ListOptions{Namespace: k.namespace, Raw: nil}
	where := "namespace " + k.namespace
	if o.all {
		options.Namespace, where = "", "any namespace"
	}
	if o.selector != "" {
		s, err := parseSelector(o.selector)
		if err != nil {
			return err
		}
		options.LabelSelector = s
	}
	if err := k.List(ctx, &list, options); err != nil {
		return fmt.Errorf("listing SnapshotSchedules: %w", err)
	}
	now := p.Clock.Now()
	slices.SortFunc(list.Items, func(a, b v1.SnapshotSchedule) int {
		x, _ := words.HealthOf(&a, now)
		y, _ := words.HealthOf(&b, now)
		return cmp.Or(cmp.Compare(x, y), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	if o.objects() {
		var objects []client.Object
		for i := range list.Items {
			objects = append(objects, &list.Items[i])
		}
		return o.print(p.Out, scheduleKind, true, objects...)
	}
	if len(list.Items) == 0 {
		fmt.Fprintf(p.ErrOut, "No SnapshotSchedules found in %s.\n", where)
		return nil
	}
	return p.scheduleTable(list.Items, o)
}

func (p *program) scheduleTable(items []v1.SnapshotSchedule, o *listOptions) error {
	t := &table{w: p.Out, noHeaders: o.noHeaders, headers: []string{"NAME", paint(p.Out, plain, "HEALTH"), "SCHEDULE", "LAST SUCCESS", "NEXT", "WHY"}}
	wide := o.format == "wide"
	if wide {
		t.headers = []string{"NAME", paint(p.Out, plain, "HEALTH"), "SCHEDULE", "TIME ZONE", "HOOKS", "LAST SUCCESS", "NEXT", "ACTIVE RUN", "AGE", "WHY"}
	}
	if o.all {
		t.headers = append([]string{"NAMESPACE"}, t.headers...)
	}
	now := p.Clock.Now()
	for i := range items {
		s := &items[i]
		health, why := words.HealthOf(s, now)
		if health == words.OK && !wide {
			why = "" // nobody has to read it
		}
		success, next := "never", "-"
		if at := s.Status.LastSuccessTime; at != nil {
			success = words.Ago(at.Time, now) + " ago"
		}
		if at := s.Status.NextSnapshotTime; at != nil && !s.Spec.Disabled {
			next = words.In(at.Time, now)
		}
		cells := []string{s.Name, paint(p.Out, colourOf(health), health.String()), s.Spec.Schedule, success, next, words.Short(why, 80)}
		if wide {
			zone := s.Spec.TimeZone
			if zone == "" {
				zone = "UTC"
			}
			active := s.Status.ActiveRun
			if active == "" {
				active = "-"
			}
			cells = []string{s.Name, cells[1], s.Spec.Schedule, zone, fmt.Sprintf("%d/%d", len(s.Spec.PreHooks), len(s.Spec.PostHooks)), success, next, active,
				words.Ago(s.CreationTimestamp.Time, now), words.Short(why, 1000)}
		}
		if o.all {
			cells = append([]string{s.Namespace}, cells...)
		}
		t.row(cells...)
	}
	return t.print()
}
