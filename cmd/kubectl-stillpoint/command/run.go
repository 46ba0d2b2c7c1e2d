// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/cmd/kubectl-stillpoint/words"
)

// waitOptions are the flags of commands that start something and may wait for it.
type waitOptions struct {
	wait    bool
	timeout time.Duration
}

func (o *waitOptions) addFlags(cmd *cobra.Command, what string) {
	cmd.Flags().BoolVar(&o.wait, "wait", false, what)
	cmd.Flags().DurationVar(&o.timeout, "timeout", 0, "With --wait: how long to wait, for example 10m; 0 is as long as it takes. What was begun goes on.")
}

func (o *waitOptions) check() error {
	if o.timeout != 0 && !o.wait {
		return errors.New("--timeout is for --wait: add --wait, or leave it out")
	}
	if o.timeout < 0 {
		return fmt.Errorf("--timeout %s is negative", o.timeout)
	}
	return nil
}

// bounded is the context of a wait.
func (o *waitOptions) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if o.timeout > 0 {
		return context.WithTimeout(ctx, o.timeout)
	}
	return context.WithCancel(ctx)
}

type runOptions struct {
	output
	waitOptions
}

func (p *program) run() *cobra.Command {
	return p.starter(v1.RunSnapshot, "-run-", &cobra.Command{
		Use:   "run NAME [--wait]",
		Short: "Take the snapshots of a schedule now, with its hooks",
		Long: `Take the snapshots of a schedule now, with its hooks, by creating a SnapshotRun. The operator
does the rest; the schedule's own slots are not changed. With --wait the run is followed: its
phases, what its hooks wrote, its snapshots as they are cut and ready.

Exit code with --wait: 0 succeeded, 2 failed, 3 partially failed, 4 skipped (nothing to do), 5
--timeout is over, 130 Ctrl-C. In the last two cases the run goes on.`,
		Example: `  kubectl stillpoint run hourly --wait
  kubectl stillpoint run hourly -o name`,
	})
}

func (p *program) testHooks() *cobra.Command {
	return p.starter(v1.RunTestHooks, "-test-", &cobra.Command{
		Use:   "test-hooks NAME [--wait]",
		Short: "Run the hooks of a schedule, pre and post, without a snapshot",
		Long: `Run the pre hooks of a schedule and then its post hooks, for real, without taking a snapshot.
The application is quiesced for as long as that takes.

Exit codes are those of run.`,
		Example: `  kubectl stillpoint test-hooks hourly --wait`,
	})
}

func (p *program) starter(mode v1.RunMode, infix string, cmd *cobra.Command) *cobra.Command {
	o := &runOptions{}
	cmd.Args = exactly(1, "the name of a schedule")
	cmd.ValidArgsFunction = p.completeSchedules
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := errors.Join(o.output.check(), o.waitOptions.check()); err != nil {
			return err
		}
		k, err := p.connect()
		if err != nil {
			return err
		}
		s, err := k.schedule(cmd.Context(), args[0])
		if err != nil {
			return err
		}
		return p.start(cmd.Context(), k, newRun(s, mode, infix), o)
	}
	o.output.addFlags(cmd, "json", "yaml", "name")
	o.waitOptions.addFlags(cmd, "Follow the run to its end; the exit code says how it ended.")
	return cmd
}

// start a run, and follow it if asked to.
func (p *program) start(ctx context.Context, k *kube, r *v1.SnapshotRun, o *runOptions) error {
	if err := k.Create(ctx, r); err != nil {
		return fmt.Errorf("creating a SnapshotRun of schedule %s/%s: %w", r.Namespace, r.Spec.ScheduleName, err)
	}
	story := p.Out
	if o.objects() {
		if err := o.print(p.Out, runKind, false, r); err != nil {
			return err
		}
		story = p.ErrOut // who reads objects reads nothing else
	} else {
		fmt.Fprintf(p.Out, "snapshotrun.%s/%s created\n", v1.GroupVersion.Group, r.Name)
	}
	if !o.wait {
		fmt.Fprintf(p.ErrOut, "see how it goes: kubectl stillpoint -n %s describe run/%s\n", r.Namespace, r.Name)
		return nil
	}
	waiting, cancel := o.bounded(ctx)
	defer cancel()
	seen, err := p.follow(waiting, k, r.Name, story, completed)
	if err != nil {
		return p.leftAlone(ctx, seen, r, err)
	}
	p.hint(seen)
	return exitWith(codeOfResult(seen.Status.Result))
}

func completed(r *v1.SnapshotRun) bool { return r.Status.Phase == v1.PhaseCompleted }

// hint what to do about a run that did not succeed.
func (p *program) hint(r *v1.SnapshotRun) {
	for _, h := range words.Hints(r) {
		fmt.Fprintln(p.ErrOut, "what to do: "+h)
	}
}

// leftAlone says what becomes of a run that is no longer waited for, and why it is not.
func (p *program) leftAlone(ctx context.Context, seen, created *v1.SnapshotRun, err error) error {
	goesOn := fmt.Sprintf("the run goes on: kubectl stillpoint -n %s describe run/%s\nto stop it: kubectl stillpoint -n %s cancel run/%s", created.Namespace, created.Name, created.Namespace, created.Name)
	switch {
	case errors.Is(err, errGone):
		last := "it had not begun"
		if seen != nil && seen.Status.Phase != "" {
			last = "it was last seen in phase " + string(seen.Status.Phase)
		}
		return &failure{ExitFailed, fmt.Errorf("run %s was deleted (%s); how it ended is no longer known", created.Name, last)}
	case ctx.Err() != nil:
		return &failure{ExitInterrupted, fmt.Errorf("interrupted; %s", goesOn)}
	case errors.Is(err, context.DeadlineExceeded):
		return &failure{ExitTimeout, fmt.Errorf("--timeout is over; %s", goesOn)}
	case apierrors.IsForbidden(err):
		return fmt.Errorf("following run %s: %w", created.Name, err)
	}
	return fmt.Errorf("following run %s: %w\n%s", created.Name, err, goesOn)
}
