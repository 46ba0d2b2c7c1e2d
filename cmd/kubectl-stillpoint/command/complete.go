// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/cmd/kubectl-stillpoint/restore"
	"github.com/stillpoint-operator/stillpoint/internal/naming"
)

// completionTime is how long somebody who pressed Tab is kept waiting.
const completionTime = 3 * time.Second

// completing what names returns; whatever goes wrong completes nothing.
func (p *program) completing(cmd *cobra.Command, prefix string, names func(context.Context, *kube) []string) ([]string, cobra.ShellCompDirective) {
	k, err := p.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completionTime)
	defer cancel()
	var out []string
	for _, n := range names(ctx, k) {
		if strings.HasPrefix(n, prefix) {
			out = append(out, n)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// completeSchedules for a command that takes one.
func (p *program) completeSchedules(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return p.completeMoreSchedules(cmd, args, prefix)
}

// completeMoreSchedules for a command that takes several.
func (p *program) completeMoreSchedules(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return p.completing(cmd, prefix, func(ctx context.Context, k *kube) []string { return k.scheduleNames(ctx) })
}

// completeBoth schedules and runs.
func (p *program) completeBoth(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return p.completing(cmd, prefix, func(ctx context.Context, k *kube) []string {
		out := k.scheduleNames(ctx)
		var runs v1.SnapshotRunList
		if k.List(ctx, &runs, client.InNamespace(k.namespace)) == nil {
			for i := range runs.Items {
				out = append(out, "run/"+runs.Items[i].Name)
			}
		}
		return out
	})
}

func (p *program) completeSnapshots(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return p.completing(cmd, prefix, func(ctx context.Context, k *kube) []string {
		var list snapshotv1.VolumeSnapshotList
		if k.List(ctx, &list, client.InNamespace(k.namespace), client.HasLabels{v1.LabelSchedule}) != nil {
			return nil
		}
		var out []string
		for i := range list.Items {
			out = append(out, list.Items[i].Name)
		}
		return out
	})
}

func (p *program) completeNamespaces(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return p.completing(cmd, prefix, func(ctx context.Context, k *kube) []string {
		var list corev1.NamespaceList
		if k.List(ctx, &list) != nil {
			return nil
		}
		var out []string
		for i := range list.Items {
			out = append(out, list.Items[i].Name)
		}
		return out
	})
}

// points of the schedule that the command line names.
func (p *program) points(ctx context.Context, k *kube, args []string) []restore.Point {
	if len(args) == 0 {
		return nil
	}
	w, err := k.world(ctx, args[0])
	if err != nil {
		return nil
	}
	return restore.Points(*w)
}

// completePoints: runs and minutes that can be restored, with the time that each is named for.
func (p *program) completePoints(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return p.completing(cmd, prefix, func(ctx context.Context, k *kube) []string {
		out := []string{restore.Latest}
		for _, point := range p.points(ctx, k, args) {
			name := naming.When(point.When)
			if point.Run != "" {
				name = point.Run
			}
			out = append(out, cobra.CompletionWithDesc(name, point.When.In(p.Zone).Format("2006-01-02 15:04 MST")))
		}
		return out
	})
}

// completeClaims of the newest point, one after another with commas between.
func (p *program) completeClaims(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	begun := ""
	if i := strings.LastIndex(prefix, ","); i >= 0 {
		begun = prefix[:i+1]
	}
	out, directive := p.completing(cmd, prefix, func(ctx context.Context, k *kube) []string {
		var names []string
		for _, point := range p.points(ctx, k, args) {
			for _, m := range point.Members {
				names = append(names, begun+m.Claim)
			}
			if len(names) > 0 {
				break
			}
		}
		return names
	})
	return out, directive | cobra.ShellCompDirectiveNoSpace
}
