// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

func (p *program) suspend() *cobra.Command {
	return p.switching(true, &cobra.Command{
		Use:   "suspend NAME...",
		Short: "Start no runs of a schedule until it is resumed; retention goes on",
		Long: `Start no runs of these schedules until they are resumed (spec.disabled: true). Retention goes
on; an active run goes on to its end.`,
	})
}

func (p *program) resume() *cobra.Command {
	return p.switching(false, &cobra.Command{
		Use:   "resume NAME...",
		Short: "Start runs of a suspended schedule again, from its next slot on",
		Long: `Start runs of these schedules again (spec.disabled: false), from their next slot on: nothing is
made up for.`,
	})
}

func (p *program) switching(disabled bool, cmd *cobra.Command) *cobra.Command {
	cmd.Args = some("the name of a schedule")
	cmd.ValidArgsFunction = p.completeMoreSchedules
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		k, err := p.connect()
		if err != nil {
			return err
		}
		for _, name := range args {
			if err := p.setDisabled(cmd.Context(), k, name, disabled); err != nil {
				return err
			}
		}
		return nil
	}
	return cmd
}

func (p *program) setDisabled(ctx context.Context, k *kube, name string, disabled bool) error {
	s, err := k.schedule(ctx, name)
	if err != nil {
		return err
	}
	word := map[bool]string{true: "suspended", false: "resumed"}[disabled]
	if s.Spec.Disabled == disabled {
		word = map[bool]string{true: "was suspended already", false: "was not suspended"}[disabled]
	} else {
		patch := fmt.Sprintf(`{"spec":{"disabled":%t}}`, disabled)
		if err := k.Patch(ctx, s, client.RawPatch(types.MergePatchType, []byte(patch))); err != nil {
			return fmt.Errorf("changing SnapshotSchedule %s/%s: %w", s.Namespace, s.Name, err)
		}
	}
	fmt.Fprintf(p.Out, "snapshotschedule.%s/%s %s\n", v1.GroupVersion.Group, s.Name, word)
	return nil
}
