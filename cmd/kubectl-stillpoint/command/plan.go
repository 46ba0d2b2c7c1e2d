// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/cmd/kubectl-stillpoint/lint"
)

// shownSlots of a plan.
const shownSlots = 5

type planOptions struct {
	output
	file string
}

func (p *program) plan() *cobra.Command {
	o := &planOptions{}
	cmd := &cobra.Command{
		Use:   "plan NAME | plan -f FILE",
		Short: "What a schedule would do now: slots, claims, pods, rights, what retention deletes",
		Long: `What a schedule would do, without doing it: its next slots in its zone; the claims that it would
take, each with class and driver; the pods and containers in which its hooks would run; whether
their account may; and which snapshots retention would delete now, and why. With -f a schedule
is planned before it exists.

The plan is made by the operator's own code and with your rights: what you may not read it
cannot tell, and says so.

Exit code: 0 it would run, 2 the run would fail before it quiesces anything, 4 it would find
nothing to do, 1 the plan could not be made.`,
		Example: `  kubectl stillpoint plan hourly
  kubectl stillpoint plan -f schedule.yaml -n shop`,
		Args: func(_ *cobra.Command, args []string) error {
			if (o.file == "") == (len(args) == 0) || len(args) > 1 {
				return errors.New("kubectl stillpoint plan needs the name of a schedule, or -f FILE")
			}
			return nil
		},
		ValidArgsFunction: p.completeSchedules,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			k, err := p.connect()
			if err != nil {
				return err
			}
			s, err := p.toPlan(cmd.Context(), k, o, args)
			if err != nil {
				return err
			}
			k.namespace = s.Namespace
			made := p.makePlan(cmd.Context(), k, s)
			if o.format == "json" || o.format == "yaml" {
				err = o.value(p.Out, made)
			} else {
				err = made.print(p, o.format == "wide")
			}
			if err != nil {
				return err
			}
			return made.exit(p)
		},
	}
	cmd.Flags().StringVarP(&o.file, "filename", "f", "", "Plan the SnapshotSchedule of this file, or - for standard input.")
	o.addFlags(cmd, "wide", "json", "yaml")
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
	return cmd
}

// toPlan is the schedule in the cluster or in the file.
func (p *program) toPlan(ctx context.Context, k *kube, o *planOptions, args []string) (*v1.SnapshotSchedule, error) {
	if o.file == "" {
		return k.schedule(ctx, args[0])
	}
	files, err := p.read([]string{o.file})
	if err != nil {
		return nil, err
	}
	if len(files) != 1 {
		return nil, fmt.Errorf("%s is a directory: name one file", o.file)
	}
	s, report, err := lint.Schedule(ctx, files[0], lint.Options{Namespace: k.namespace, Now: p.Clock.Now()})
	if report != nil && len(report.Findings) > 0 {
		report.Text(p.ErrOut, func(_ lint.Level, text string) string { return paint(p.ErrOut, plain, text) })
	}
	if err != nil {
		return nil, err
	}
	if s == nil {
		return nil, &failure{ExitFailed, fmt.Errorf("the API server would refuse %s", o.file)}
	}
	if given := p.flags.Namespace; given != nil && *given != "" && s.Namespace != *given {
		return nil, fmt.Errorf("%s is for namespace %s and -n says %s", o.file, s.Namespace, *given)
	}
	return s, nil
}

// Plan is what a schedule would do. It is printed as JSON and YAML, too.
type Plan struct {
	Schedule  string `json:"schedule"`
	Namespace string `json:"namespace"`
	Suspended bool   `json:"suspended,omitempty"`
	TimeZone  string `json:"timeZone,omitempty"`
	// Slots that come next.
	Slots []PlannedSlot `json:"slots,omitempty"`
	// Outcome: Planned, Failed (before anything is quiesced), Skipped, or Unknown.
	Outcome string `json:"outcome"`
	Message string `json:"message,omitempty"`

	Claims  []PlannedClaim `json:"claims,omitempty"`
	LeftOut []string       `json:"claimsLeftOut,omitempty"`
	Hooks   []PlannedHook  `json:"hooks,omitempty"`
	Account *PlanAccount   `json:"account,omitempty"`

	Retention PlannedRetention `json:"retention"`
	// Unknown is what could not be found out, in sentences.
	Unknown []string `json:"unknown,omitempty"`
}

// PlannedSlot is a time that the schedule names.
type PlannedSlot struct {
	Slot   time.Time `json:"slot"`
	Starts time.Time `json:"starts"` // later than the slot by the spread
}

// PlannedClaim is one claim that would be taken.
type PlannedClaim struct {
	Claim    string `json:"claim"`
	Snapshot string `json:"snapshot"`
	Class    string `json:"class"` // empty: the default class of the driver
	Driver   string `json:"driver,omitempty"`
}

// PlannedHook is a hook and where it would run.
type PlannedHook struct {
	Stage      v1.HookStage `json:"stage"`
	Name       string       `json:"name"`
	Namespace  string       `json:"namespace"`
	Selector   string       `json:"selector"`
	Policy     string       `json:"targetPolicy"`
	Mode       string       `json:"mode,omitempty"`
	Timeout    string       `json:"timeout"`
	Containers []string     `json:"containers,omitempty"` // namespace/pod/container
	Problems   []string     `json:"problems,omitempty"`
}

// PlanAccount is who would run the hooks, and whether it may.
type PlanAccount struct {
	Name   string         `json:"name"` // in words
	Rights []PlannedRight `json:"rights,omitempty"`
}

// PlannedRight is the right to exec in one namespace.
type PlannedRight struct {
	Namespace string `json:"namespace"`
	Allowed   bool   `json:"allowed"`
	Reason    string `json:"reason,omitempty"`
}

// PlannedRetention is what retention would do now.
type PlannedRetention struct {
	Rules  string            `json:"rules,omitempty"`
	Delete []PlannedDeletion `json:"delete,omitempty"`
	Keep   []PlannedDeletion `json:"keep,omitempty"`
	Next   *time.Time        `json:"next,omitempty"` // when time alone may change this
}

// PlannedDeletion is a snapshot, and why it goes or stays.
type PlannedDeletion struct {
	Snapshot string `json:"snapshot"`
	Claim    string `json:"claim"`
	Rule     string `json:"rule"`
	Reason   string `json:"reason"`
}

// Outcomes of a plan.
const (
	outcomePlanned = "Planned"
	outcomeFailed  = "Failed"
	outcomeSkipped = "Skipped"
	outcomeUnknown = "Unknown"
)

// exit code of a plan.
func (m *Plan) exit(p *program) error {
	switch m.Outcome {
	case outcomePlanned:
		return nil
	case outcomeSkipped:
		return exitWith(ExitSkipped)
	case outcomeFailed:
		return exitWith(ExitFailed)
	}
	fmt.Fprintln(p.ErrOut, "error: the plan is not complete, see UNKNOWN")
	return exitWith(ExitError)
}
