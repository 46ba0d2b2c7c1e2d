// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/cmd/kubectl-stillpoint/restore"
	"github.com/stillpoint-operator/stillpoint/internal/calendar"
)

type restoreOptions struct {
	output
	waitOptions
	at           string
	claims       []string
	consistency  string
	suffix       string
	into         []string
	statefulSet  string
	dryRun       bool
	storageClass string
	accessModes  []string
	volumeMode   string
	size         string

	suffixSet bool
}

func (p *program) restore() *cobra.Command {
	o := &restoreOptions{}
	cmd := &cobra.Command{
		Use:   "restore NAME [--at TIME|latest|RUN|SNAPSHOT] [--claims A,B] [--to-suffix SUFFIX | --into NEW,... | --statefulset OLD=NEW]",
		Short: "Make new claims from the snapshots of one run; existing claims are never touched",
		Long: `Make new claims from the snapshots of one run of a schedule. Existing claims are never touched:
if a name is taken, nothing is done.

Which run: --at latest (the newest that is complete), the name of a run or of one of its
snapshots, the minute of a listing (202603010300, UTC), or a time (2026-03-01T03:00:00Z, or
without a zone in the schedule's): the newest that was cut then or before. A run is complete if
every claim of it has a snapshot that can be restored; one that is not is passed over, or
refused if it was named. --claims restores only these. NAME need not exist any more: its
snapshots are found by their label.

What the new claims are: StorageClass, access modes and volume mode of the original claims; as
large as the snapshot or the original asks for, whichever is more; with the labels by which the
schedule selects. If an original is gone, say --storage-class and --access-modes.

While it works the snapshots are labelled retention=keep. With --wait the label is taken off
again when the claims are bound; without, or if the command dies, it stays, and unkeep takes it
off. A label that you set yourself stays in any case.

Exit code: 0 done, 1 refused and nothing done, 3 some of the claims were made and the rest not,
5 --timeout is over, 130 Ctrl-C.`,
		Example: `  kubectl stillpoint restore hourly --dry-run
  kubectl stillpoint restore hourly --at 2026-03-01T03:00:00Z --consistency application --wait
  kubectl stillpoint restore hourly --claims data --into data-from-last-night
  kubectl stillpoint restore hourly --statefulset web=web-restored --wait`,
		Args:              exactly(1, "the name of a schedule"),
		ValidArgsFunction: p.completeSchedules,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.suffixSet = cmd.Flags().Changed("to-suffix")
			if err := o.check(); err != nil {
				return err
			}
			k, err := p.connect()
			if err != nil {
				return err
			}
			return p.restoreSchedule(cmd.Context(), k, scheduleName(args[0]), o)
		},
	}
	p.restoreFlags(cmd, o)
	return cmd
}

func (p *program) restoreFlags(cmd *cobra.Command, o *restoreOptions) {
	f := cmd.Flags()
	f.StringVar(&o.at, "at", restore.Latest, "Which run: latest, a time, the name of a run or of a snapshot.")
	f.StringSliceVar(&o.claims, "claims", nil, "Only these claims, by their original names.")
	f.StringVar(&o.consistency, "consistency", "", "application: only snapshots that were cut while the application was quiesced.")
	f.StringVar(&o.suffix, "to-suffix", restore.DefaultSuffix, "New names are the original ones with this suffix; '' for the same names, if they are free.")
	f.StringSliceVar(&o.into, "into", nil, "New names: OLD=NEW for each claim, or only NEW in the order of --claims.")
	f.StringVar(&o.statefulSet, "statefulset", "", "OLD=NEW: the claims of StatefulSet OLD, named for NEW: data-OLD-0 becomes data-NEW-0.")
	f.BoolVar(&o.dryRun, "dry-run", false, "Say what would be made; with -o yaml the claims themselves. Nothing is changed.")
	f.StringVar(&o.storageClass, "storage-class", "", "StorageClass of the new claims; default: the original's.")
	f.StringSliceVar(&o.accessModes, "access-modes", nil, "Access modes of the new claims, for example ReadWriteOnce; default: the original's.")
	f.StringVar(&o.volumeMode, "volume-mode", "", "Filesystem or Block; default: the original's.")
	f.StringVar(&o.size, "size", "", "Size of the new claims, if more than the default.")
	o.output.addFlags(cmd, "json", "yaml", "name")
	o.waitOptions.addFlags(cmd, "Wait until the new claims are bound, and take the protection off the snapshots again.")
	_ = cmd.RegisterFlagCompletionFunc("at", p.completePoints)
	_ = cmd.RegisterFlagCompletionFunc("claims", p.completeClaims)
	_ = cmd.RegisterFlagCompletionFunc("consistency", cobra.FixedCompletions([]string{v1.ConsistencyApplication}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("volume-mode", cobra.FixedCompletions([]string{"Filesystem", "Block"}, cobra.ShellCompDirectiveNoFileComp))
	_ = cmd.RegisterFlagCompletionFunc("access-modes", cobra.FixedCompletions([]string{"ReadWriteOnce", "ReadWriteOncePod", "ReadWriteMany", "ReadOnlyMany"}, cobra.ShellCompDirectiveNoFileComp))
}

func (o *restoreOptions) check() error {
	named := 0
	for _, given := range []bool{o.suffixSet, len(o.into) > 0, o.statefulSet != ""} {
		if given {
			named++
		}
	}
	var errs []error
	if named > 1 {
		errs = append(errs, errors.New("--to-suffix, --into and --statefulset exclude each other: each says what the new claims are called"))
	}
	if o.statefulSet != "" && len(o.claims) > 0 {
		errs = append(errs, errors.New("--statefulset and --claims exclude each other: --statefulset takes the claims of the StatefulSet"))
	}
	if old, as, ok := strings.Cut(o.statefulSet, "="); o.statefulSet != "" && (!ok || old == "" || as == "") {
		errs = append(errs, fmt.Errorf("--statefulset %s: write OLD=NEW", o.statefulSet))
	}
	if o.consistency != "" && o.consistency != v1.ConsistencyApplication {
		errs = append(errs, fmt.Errorf("--consistency %s: there is only application", o.consistency))
	}
	if o.dryRun && o.wait {
		errs = append(errs, errors.New("--dry-run and --wait exclude each other: there is nothing to wait for"))
	}
	if o.volumeMode != "" && o.volumeMode != string(corev1.PersistentVolumeFilesystem) && o.volumeMode != string(corev1.PersistentVolumeBlock) {
		errs = append(errs, fmt.Errorf("--volume-mode %s: there are Filesystem and Block", o.volumeMode))
	}
	if o.size != "" {
		if _, err := resource.ParseQuantity(o.size); err != nil {
			errs = append(errs, fmt.Errorf("--size %s: %w", o.size, err))
		}
	}
	return errors.Join(append(errs, o.output.check(), o.waitOptions.check())...)
}

func (o *restoreOptions) naming() restore.Naming {
	if o.statefulSet != "" {
		old, as, _ := strings.Cut(o.statefulSet, "=")
		return restore.Naming{StatefulSet: old, As: as}
	}
	return restore.Naming{Suffix: o.suffix, Into: o.into}
}

func (o *restoreOptions) shape() restore.Shape {
	s := restore.Shape{StorageClass: o.storageClass, VolumeMode: corev1.PersistentVolumeMode(o.volumeMode)}
	for _, m := range o.accessModes {
		s.AccessModes = append(s.AccessModes, corev1.PersistentVolumeAccessMode(m))
	}
	if q, err := resource.ParseQuantity(o.size); o.size != "" && err == nil {
		s.Size = &q
	}
	return s
}

// world of a schedule: its runs, its snapshots, and all claims of the namespace.
func (k *kube) world(ctx context.Context, schedule string) (*restore.World, error) {
	w := &restore.World{Schedule: schedule}
	var err error
	if w.Runs, err = k.runs(ctx, schedule); err != nil {
		return nil, err
	}
	if w.Snapshots, err = k.snapshots(ctx, schedule); err != nil {
		return nil, err
	}
	w.Claims, err = k.claims(ctx)
	return w, err
}

// planRestore gathers and decides; nothing is changed.
func (p *program) planRestore(ctx context.Context, k *kube, name string, o *restoreOptions) (*restore.Job, error) {
	s, err := k.schedule(ctx, name)
	missing := errors.Is(err, errNotFound)
	if err != nil && !missing {
		return nil, err
	}
	zone := time.UTC
	if s != nil {
		if cal, err := calendar.Parse(s.Spec.Schedule, s.Spec.TimeZone); err == nil {
			zone = cal.Location()
		}
	}
	w, err2 := k.world(ctx, name)
	if err2 != nil {
		return nil, err2
	}
	if missing && len(w.Snapshots) == 0 {
		return nil, err // neither the schedule nor anything that it made
	}
	points := restore.Points(*w)
	request := restore.Request{Schedule: name, At: o.at, Zone: zone, Claims: o.claims, Application: o.consistency == v1.ConsistencyApplication}
	naming := o.naming()
	if naming.StatefulSet != "" {
		if request.Claims, err = k.claimsOfStatefulSet(ctx, naming.StatefulSet, points); err != nil {
			return nil, err
		}
	}
	choice, err := restore.Choose(points, request)
	if err != nil {
		return nil, err
	}
	var old []string
	for _, m := range choice.Members {
		old = append(old, m.Claim)
	}
	names, err := naming.Names(old)
	if err != nil {
		return nil, err
	}
	if taken := restore.Collisions(old, names, w.Claims); len(taken) > 0 {
		return nil, fmt.Errorf("nothing was created, because existing claims are never touched: %s\nchoose other names with --to-suffix or --into", strings.Join(taken, "; "))
	}
	items, err := restore.Claims(choice, names, w.Claims, s, o.shape(), k.storage(ctx, choice))
	if err != nil {
		return nil, err
	}
	return &restore.Job{Namespace: k.namespace, Schedule: name, Naming: naming, Choice: choice, Items: items, Users: k.users(ctx, old)}, nil
}

// claimsOfStatefulSet among those that the schedule has ever taken.
func (k *kube) claimsOfStatefulSet(ctx context.Context, set string, points []restore.Point) ([]string, error) {
	var sets appsv1.StatefulSetList
	if err := k.List(ctx, &sets, client.InNamespace(k.namespace)); err != nil && !apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("listing the StatefulSets of namespace %s: %w", k.namespace, err)
	} // without the right, the names of the claims tell
	var all []string
	for i := range points {
		for _, m := range points[i].Members {
			if !slices.Contains(all, m.Claim) {
				all = append(all, m.Claim)
			}
		}
		if found := restore.OfStatefulSet(set, all, sets.Items); len(found) > 0 {
			return found, nil // as many as the newest run took that took any
		}
	}
	return nil, fmt.Errorf("no snapshot of this schedule is of a claim of StatefulSet %s (they end in -%s-0, -%s-1, ...); its claims are: %s", set, set, set, strings.Join(all, ", "))
}

// storage is what can be read of it; what cannot is left to the provisioner to judge.
func (k *kube) storage(ctx context.Context, c *restore.Choice) restore.Storage {
	out := restore.Storage{Contents: map[string]snapshotv1.VolumeSnapshotContent{}, Classes: map[string]storagev1.StorageClass{}}
	var classes storagev1.StorageClassList
	if k.List(ctx, &classes) == nil {
		for _, c := range classes.Items {
			out.Classes[c.Name] = c
		}
	}
	for _, m := range c.Members {
		if m.Snapshot.Status == nil || m.Snapshot.Status.BoundVolumeSnapshotContentName == nil {
			continue
		}
		var content snapshotv1.VolumeSnapshotContent
		if k.Get(ctx, client.ObjectKey{Name: *m.Snapshot.Status.BoundVolumeSnapshotContentName}, &content) == nil {
			out.Contents[m.Snapshot.Name] = content
		}
	}
	return out
}

// users of the original claims, as far as pods can be read: it is for advice only.
func (k *kube) users(ctx context.Context, claims []string) []restore.User {
	var pods corev1.PodList
	if k.List(ctx, &pods, client.InNamespace(k.namespace)) != nil {
		return nil
	}
	users := restore.Users(pods.Items, claims)
	for i := range users {
		u := &users[i]
		switch u.Kind {
		case "Deployment":
			var d appsv1.Deployment
			if k.Get(ctx, k.key(u.Name), &d) == nil && d.Spec.Replicas != nil {
				u.Replicas = *d.Spec.Replicas
			}
		case "StatefulSet":
			var s appsv1.StatefulSet
			if k.Get(ctx, k.key(u.Name), &s) == nil && s.Spec.Replicas != nil {
				u.Replicas = *s.Spec.Replicas
			}
		}
		u.Replicas = max(1, u.Replicas)
	}
	return users
}
