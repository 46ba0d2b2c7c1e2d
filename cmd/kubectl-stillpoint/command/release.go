// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/run"
)

func (p *program) release() *cobra.Command {
	o := &waitOptions{}
	cmd := &cobra.Command{
		Use:   "release NAME [--wait]",
		Short: "The emergency exit: run the post hooks of a schedule now",
		Long: `The emergency exit, when an application is still quiesced: run the post hooks of a schedule now,
as the schedule has them now (a typo that was corrected helps at once).

If a run of the schedule is active, it is sent to its release. If none is, a SnapshotRun with
mode Release is created.

Exit code with --wait: 0 released, 2 not released, 4 there is nothing to release (no post
hooks), 5 --timeout is over, 130 Ctrl-C.`,
		Example:           `  kubectl stillpoint release hourly --wait`,
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
			s, err := k.schedule(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return p.releaseSchedule(cmd.Context(), k, s, o)
		},
	}
	o.addFlags(cmd, "Follow the release to its end; the exit code says how it ended.")
	return cmd
}

func (p *program) releaseSchedule(ctx context.Context, k *kube, s *v1.SnapshotSchedule, o *waitOptions) error {
	runs, err := k.runs(ctx, s.Name)
	if err != nil {
		return err
	}
	var active []*v1.SnapshotRun
	for i := range runs {
		if run.Active(&runs[i]) {
			active = append(active, &runs[i])
		}
	}
	if len(active) == 0 {
		return p.start(ctx, k, newRun(s, v1.RunRelease, "-release-"), &runOptions{waitOptions: *o})
	}
	if len(s.Spec.PostHooks) == 0 {
		fmt.Fprintf(p.ErrOut, "note: the schedule has no post hooks now; held commands are released all the same\n")
	}
	value := p.Clock.Now().UTC().Format(time.RFC3339Nano) // every new value is acted on once
	for _, r := range active {
		patch := fmt.Sprintf(`{"metadata":{"uid":%q,"annotations":{%q:%q}}}`, r.UID, v1.AnnotationRelease, value)
		if err := k.Patch(ctx, r, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			return fmt.Errorf("sending SnapshotRun %s/%s to its release: %w", r.Namespace, r.Name, err)
		}
		fmt.Fprintf(p.Out, "snapshotrun.%s/%s sent to its release\n", v1.GroupVersion.Group, r.Name)
	}
	if !o.wait {
		fmt.Fprintf(p.ErrOut, "see how it goes: kubectl stillpoint -n %s describe run/%s\n", active[0].Namespace, active[0].Name)
		return nil
	}
	waiting, cancel := o.bounded(ctx)
	defer cancel()
	code := ExitOK
	for _, r := range active {
		seen, err := p.follow(waiting, k, r.Name, p.Out, func(r *v1.SnapshotRun) bool { return released(r, value) })
		if errors.Is(err, errGone) && seen != nil && released(seen, "") {
			err = nil // completed and pruned
		}
		if err != nil {
			return p.leftAlone(ctx, seen, r, err)
		}
		code = max(code, p.howReleased(seen))
	}
	return exitWith(code)
}

// released: the release that was asked for is over. value "": any release.
func released(r *v1.SnapshotRun, value string) bool {
	if run.Active(r) {
		return false
	}
	// A run that came to its end by itself in that moment did not need the request.
	return value == "" || r.Status.ReleasedTime != nil || r.Status.Phase == v1.PhaseCompleted
}

func (p *program) howReleased(r *v1.SnapshotRun) int {
	if meta.IsStatusConditionTrue(r.Status.Conditions, v1.ConditionMayBeQuiesced) {
		fmt.Fprintln(p.ErrOut, paint(p.ErrOut, red, "the application may still be quiesced: ")+meta.FindStatusCondition(r.Status.Conditions, v1.ConditionMayBeQuiesced).Message)
		p.hint(r)
		return ExitFailed
	}
	fmt.Fprintf(p.Out, "run %s: the application is released\n", r.Name)
	return ExitOK
}

func (p *program) cancel() *cobra.Command {
	o := &waitOptions{}
	cmd := &cobra.Command{
		Use:   "cancel NAME|run/NAME [--wait]",
		Short: "Stop the active runs of a schedule, or one run; what was quiesced is released",
		Long: `Stop the active runs of a schedule, or one run, by deleting them. They go straight to their
release and take no further snapshot; snapshots that were cut stay under retention. A run that
only waits until its snapshots can be restored from holds no application and is left alone.

Exit code with --wait: 0 stopped and released, 2 the application may still be quiesced, 4 there
was nothing to stop, 5 --timeout is over, 130 Ctrl-C.`,
		Example: `  kubectl stillpoint cancel hourly --wait
  kubectl stillpoint cancel run/hourly-run-x7k2p`,
		Args:              exactly(1, "the name of a schedule, or run/ and the name of a run"),
		ValidArgsFunction: p.completeBoth,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			k, err := p.connect()
			if err != nil {
				return err
			}
			return p.cancelRuns(cmd.Context(), k, args[0], o)
		},
	}
	o.addFlags(cmd, "Follow the release to its end; the exit code says how it ended.")
	return cmd
}

func (p *program) cancelRuns(ctx context.Context, k *kube, name string, o *waitOptions) error {
	runs, err := k.runsOf(ctx, name)
	if err != nil {
		return err
	}
	var stopped []*v1.SnapshotRun
	for i := range runs {
		r := &runs[i]
		if !run.BeforeAwaitingReady(r) {
			continue
		}
		err := k.Delete(ctx, r, client.Preconditions{UID: ptr.To(r.UID)}, client.PropagationPolicy(metav1.DeletePropagationBackground))
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting SnapshotRun %s/%s: %w", r.Namespace, r.Name, err)
		}
		fmt.Fprintf(p.Out, "snapshotrun.%s/%s cancelled\n", v1.GroupVersion.Group, r.Name)
		stopped = append(stopped, r)
	}
	if len(stopped) == 0 {
		fmt.Fprintf(p.ErrOut, "nothing to stop: %s has no run that holds an application or is about to\n", name)
		return exitWith(ExitSkipped)
	}
	if !o.wait {
		return nil
	}
	waiting, cancel := o.bounded(ctx)
	defer cancel()
	code := ExitOK
	for _, r := range stopped {
		if len(r.Finalizers) == 0 {
			continue // nothing was quiesced: it is gone
		}
		seen, err := p.follow(waiting, k, r.Name, p.Out, func(r *v1.SnapshotRun) bool { return released(r, "") })
		switch {
		case errors.Is(err, errNotFound):
			continue // released and gone before the first look
		case errors.Is(err, errGone) && seen != nil:
		case err != nil:
			return p.leftAlone(ctx, seen, r, err)
		}
		code = max(code, p.howReleased(seen))
	}
	return exitWith(code)
}

// runsOf a schedule, or the one run that run/NAME names.
func (k *kube) runsOf(ctx context.Context, name string) ([]v1.SnapshotRun, error) {
	if one, ok := runName(name); ok {
		r, err := k.run(ctx, one)
		if err != nil {
			return nil, err
		}
		return []v1.SnapshotRun{*r}, nil
	}
	runs, err := k.runs(ctx, scheduleName(name))
	if err == nil && len(runs) == 0 {
		_, err = k.schedule(ctx, name) // that there is none is only said of a schedule that exists
	}
	return runs, err
}

// runName of an argument run/NAME.
func runName(arg string) (string, bool) {
	for _, prefix := range []string{"run/", "runs/", "snapshotrun/", "snapshotruns/", "snapshotrun." + v1.GroupVersion.Group + "/"} {
		if name, ok := strings.CutPrefix(arg, prefix); ok {
			return name, true
		}
	}
	return "", false
}

// run by name.
func (k *kube) run(ctx context.Context, name string) (*v1.SnapshotRun, error) {
	var r v1.SnapshotRun
	err := k.Get(ctx, k.key(name), &r)
	if isMissing(err) {
		return nil, notFound("SnapshotRun", name, k.namespace, nil)
	}
	if err != nil {
		return nil, fmt.Errorf("reading SnapshotRun %s/%s: %w", k.namespace, name, err)
	}
	return &r, nil
}
