// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"
	"strings"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stillpoint-operator/stillpoint/cmd/kubectl-stillpoint/restore"
)

func (p *program) keep() *cobra.Command {
	return p.keeping(restore.Pin, "kept", "was kept already", &cobra.Command{
		Use:   "keep SNAPSHOT...",
		Short: "Protect snapshots from retention",
		Long: `Protect VolumeSnapshots from retention, until unkeep: they get the label
snapscheduler.backube/retention=keep. They are not counted: keeping one does not cost another.`,
		Example: `  kubectl stillpoint keep data-hourly-202603010300`,
	})
}

func (p *program) unkeep() *cobra.Command {
	return p.keeping(restore.Unpin, "given back to retention", "was not kept", &cobra.Command{
		Use:   "unkeep SNAPSHOT...",
		Short: "Give snapshots back to retention",
		Long: `Give VolumeSnapshots back to retention, whoever protected them: keep, or a restore that did not
take its label off because it was not waited for.`,
	})
}

func (p *program) keeping(change func(metav1.Object) bool, done, already string, cmd *cobra.Command) *cobra.Command {
	cmd.Args = some("the name of a VolumeSnapshot")
	cmd.ValidArgsFunction = p.completeSnapshots
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		k, err := p.connect()
		if err != nil {
			return err
		}
		for _, name := range args {
			name = strings.TrimPrefix(name, "volumesnapshot/")
			s, changed, err := k.changeSnapshot(cmd.Context(), name, change)
			if err != nil {
				return err
			}
			word := done
			if !changed {
				word = already
			}
			fmt.Fprintf(p.Out, "volumesnapshot.%s/%s %s\n", snapshotv1.GroupName, name, word)
			if s.DeletionTimestamp != nil {
				fmt.Fprintf(p.ErrOut, "warning: VolumeSnapshot %s is being deleted already; a label does not stop that\n", name)
			}
		}
		return nil
	}
	return cmd
}

// changeSnapshot reads a snapshot, changes its labels and annotations, and writes them if nobody wrote in between.
func (k *kube) changeSnapshot(ctx context.Context, name string, change func(metav1.Object) bool) (*snapshotv1.VolumeSnapshot, bool, error) {
	var s snapshotv1.VolumeSnapshot
	changed := false
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		s = snapshotv1.VolumeSnapshot{}
		if err := k.Get(ctx, k.key(name), &s); err != nil {
			return err
		}
		before := s.DeepCopy()
		if changed = change(&s); !changed {
			return nil
		}
		return k.Patch(ctx, &s, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	})
	if isMissing(err) {
		return nil, false, notFound("VolumeSnapshot", name, k.namespace, nil)
	}
	if err != nil {
		return nil, false, fmt.Errorf("labelling VolumeSnapshot %s/%s: %w", k.namespace, name, err)
	}
	return &s, changed, nil
}
