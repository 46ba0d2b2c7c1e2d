// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/stillpoint-operator/stillpoint/cmd/kubectl-stillpoint/restore"
	"github.com/stillpoint-operator/stillpoint/cmd/kubectl-stillpoint/words"
)

// boundPoll is how often new claims are looked at while they are waited for.
const boundPoll = time.Second

func (p *program) restoreSchedule(ctx context.Context, k *kube, name string, o *restoreOptions) error {
	job, err := p.planRestore(ctx, k, name, o)
	if err != nil {
		return err
	}
	if o.dryRun {
		return p.showRestore(job, o)
	}
	p.announce(job)
	if err := p.protect(ctx, k, job); err != nil {
		return err
	}
	made, err := p.create(ctx, k, job, o)
	if err != nil {
		return p.halfDone(ctx, k, job, made, err)
	}
	return p.finish(ctx, k, job, o)
}

// announce on the second stream what is restored, and what a person should know about it.
func (p *program) announce(job *restore.Job) {
	for _, passed := range job.Choice.Passed {
		fmt.Fprintln(p.ErrOut, paint(p.ErrOut, yellow, "passed over: ")+passed)
	}
	fmt.Fprintf(p.ErrOut, "restoring %s of schedule %s\n  %s\n", words.Plural(len(job.Items), "claim"), job.Schedule, strings.Join(job.Choice.Summary(), "\n  "))
	for _, i := range job.Items {
		for _, n := range i.Notes {
			fmt.Fprintln(p.ErrOut, paint(p.ErrOut, yellow, "note: ")+n)
		}
	}
}

// showRestore says what would be done.
func (p *program) showRestore(job *restore.Job, o *restoreOptions) error {
	p.announce(job)
	if o.objects() {
		var objects []client.Object
		for _, i := range job.Items {
			objects = append(objects, i.New)
		}
		return o.print(p.Out, corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), false, objects...)
	}
	t := &table{w: p.Out, headers: []string{"CLAIM", "NEW CLAIM", "SIZE", "STORAGE CLASS", "ACCESS MODES", "SNAPSHOT"}}
	for _, i := range job.Items {
		size := i.New.Spec.Resources.Requests[corev1.ResourceStorage]
		var modes []string
		for _, m := range i.New.Spec.AccessModes {
			modes = append(modes, string(m))
		}
		t.row(i.Claim, i.New.Name, size.String(), *i.New.Spec.StorageClassName, strings.Join(modes, ","), i.Snapshot.Name)
	}
	if err := t.print(); err != nil {
		return err
	}
	fmt.Fprintln(p.ErrOut, "nothing was changed (dry run)")
	return nil
}

// protect the snapshots from retention before anything depends on them. If one cannot be protected, nothing is begun.
func (p *program) protect(ctx context.Context, k *kube, job *restore.Job) error {
	for n, i := range job.Items {
		s, _, err := k.changeSnapshot(ctx, i.Snapshot.Name, func(o metav1.Object) bool {
			return o.GetUID() == i.Snapshot.UID && o.GetDeletionTimestamp() == nil && restore.Keep(o, i.New.Name)
		})
		if err == nil && (s.UID != i.Snapshot.UID || s.DeletionTimestamp != nil) {
			err = fmt.Errorf("VolumeSnapshot %s was deleted a moment ago; try again, and another run is chosen", i.Snapshot.Name)
		}
		if err != nil {
			p.unprotect(ctx, k, job.Items[:n])
			return fmt.Errorf("nothing was created, because a snapshot could not be protected from retention: %w", err)
		}
		if restore.Holds(s, i.New.Name) { // else a person protects it
			job.Kept = append(job.Kept, i.Snapshot.Name)
		}
	}
	return nil
}

// unprotect the snapshots of items, unless a person or another restore wants it otherwise. What fails is said: the label then stays.
func (p *program) unprotect(ctx context.Context, k *kube, items []restore.Item) {
	// Also after Ctrl-C: what nothing depends on should not stay.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), completionTime)
	defer cancel()
	for _, i := range items {
		if _, _, err := k.changeSnapshot(ctx, i.Snapshot.Name, func(o metav1.Object) bool { return restore.Done(o, i.New.Name) }); err != nil && !errors.Is(err, errNotFound) {
			fmt.Fprintf(p.ErrOut, "warning: VolumeSnapshot %s stays protected from retention: %v\n  take it off: kubectl stillpoint -n %s unkeep %s\n", i.Snapshot.Name, err, k.namespace, i.Snapshot.Name)
		}
	}
}

// create the claims, and say which were made.
func (p *program) create(ctx context.Context, k *kube, job *restore.Job, o *restoreOptions) (int, error) {
	for n, i := range job.Items {
		if err := k.Create(ctx, i.New); err != nil {
			if apierrors.IsAlreadyExists(err) {
				err = fmt.Errorf("claim %s was made by somebody else a moment ago, and is not touched", i.New.Name)
			}
			return n, fmt.Errorf("creating claim %s from snapshot %s: %w", i.New.Name, i.Snapshot.Name, err)
		}
		if o.format == "" || o.format == "name" {
			done := " created"
			if o.format == "name" {
				done = ""
			}
			fmt.Fprintf(p.Out, "persistentvolumeclaim/%s%s\n", i.New.Name, done)
		}
	}
	if o.format == "json" || o.format == "yaml" {
		var objects []client.Object
		for _, i := range job.Items {
			objects = append(objects, i.New)
		}
		return len(job.Items), o.print(p.Out, corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), false, objects...)
	}
	return len(job.Items), nil
}

// halfDone says what was made and what was not.
func (p *program) halfDone(ctx context.Context, k *kube, job *restore.Job, made int, err error) error {
	p.unprotect(ctx, k, job.Items[made:])
	if made == 0 {
		return fmt.Errorf("nothing was created: %w", err)
	}
	var names, kept []string
	for _, i := range job.Items[:made] {
		names = append(names, i.New.Name)
		if slices.Contains(job.Kept, i.Snapshot.Name) {
			kept = append(kept, i.Snapshot.Name)
		}
	}
	again := fmt.Sprintf("kubectl -n %s delete pvc %s", k.namespace, strings.Join(names, " "))
	if len(kept) > 0 {
		again += fmt.Sprintf(" && kubectl stillpoint -n %s unkeep %s", k.namespace, strings.Join(kept, " "))
	}
	return &failure{ExitPartial, fmt.Errorf("%w\n%d of %d claims were made: %s\nto begin again: %s", err, made, len(job.Items), strings.Join(names, ", "), again)}
}

// finish waits if asked to, takes the protection off when nothing depends on it any more, and says what to do next.
func (p *program) finish(ctx context.Context, k *kube, job *restore.Job, o *restoreOptions) error {
	var waited error
	if o.wait {
		waiting, cancel := o.bounded(ctx)
		waited = p.awaitBound(waiting, k, job)
		cancel()
		if ctx.Err() != nil {
			waited = &failure{ExitInterrupted, errors.New("interrupted; the claims are being made")}
		} else if errors.Is(waited, context.DeadlineExceeded) {
			waited = &failure{ExitTimeout, errors.New("--timeout is over; the claims are being made")}
		}
	}
	if o.wait && waited == nil {
		p.unprotect(ctx, k, job.Items)
		job.Kept = nil
	}
	if errors.Is(waited, errFirstConsumer) {
		fmt.Fprintf(p.ErrOut, "the claims wait for their first pod (volumeBindingMode WaitForFirstConsumer): they are filled when one uses them\n")
		waited = nil
	}
	fmt.Fprintln(p.ErrOut, "\nNext:")
	for n, s := range job.Next() {
		fmt.Fprintf(p.ErrOut, "%d. %s\n", n+1, s.Text)
		for _, c := range s.Commands {
			fmt.Fprintf(p.ErrOut, "     %s\n", c)
		}
	}
	return waited
}

// errFirstConsumer: claims are bound when a pod uses them, and not before.
var errFirstConsumer = errors.New("they wait for their first consumer")

// awaitBound waits until the new claims are bound: then the data is there and the snapshots are no longer needed.
func (p *program) awaitBound(ctx context.Context, k *kube, job *restore.Job) error {
	modes := map[string]storagev1.VolumeBindingMode{}
	var classes storagev1.StorageClassList
	if k.List(ctx, &classes) == nil {
		for i := range classes.Items {
			if m := classes.Items[i].VolumeBindingMode; m != nil {
				modes[classes.Items[i].Name] = *m
			}
		}
	}
	said := map[string]string{}
	for {
		left, waiting := 0, 0
		for _, i := range job.Items {
			var c corev1.PersistentVolumeClaim
			err := k.Get(ctx, k.key(i.New.Name), &c)
			switch {
			case isMissing(err):
				return fmt.Errorf("claim %s was deleted while it was being made", i.New.Name)
			case ctx.Err() != nil:
				return ctx.Err()
			case err != nil:
				return fmt.Errorf("reading claim %s/%s: %w", k.namespace, i.New.Name, err)
			}
			if state := string(c.Status.Phase); state != said[c.Name] {
				said[c.Name] = state
				fmt.Fprintf(p.ErrOut, "%s  claim %s: %s\n", p.Clock.Now().In(p.Zone).Format("15:04:05"), c.Name, state)
			}
			if c.Status.Phase == corev1.ClaimBound {
				continue
			}
			left++
			if c.Spec.StorageClassName != nil && modes[*c.Spec.StorageClassName] == storagev1.VolumeBindingWaitForFirstConsumer {
				waiting++
			}
		}
		switch {
		case left == 0:
			return nil
		case left == waiting:
			return errFirstConsumer
		}
		select {
		case <-p.Clock.After(boundPoll):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
