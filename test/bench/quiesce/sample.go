// SPDX-License-Identifier: Apache-2.0

package quiesce

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

const (
	// refill is how long a sidecar's token bucket takes to be full again at the slowest QPS: its burst is twice its QPS. Each sample begins with a
	// full one, and no event tells when it is.
	refill = 3 * time.Second
	// patience for one sample: 50 claims at QPS 5 take a minute.
	patience = 5 * time.Minute
)

// bare creates one VolumeSnapshot per claim, side by side, and returns how long it took until all were seen cut. When it returns, all are ready.
func (a *application) bare(ctx context.Context, round int) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := rest(ctx); err != nil {
		return 0, err
	}
	mark := map[string]string{"round": fmt.Sprintf("bare-%d", round)}
	seen, err := a.api.Watch(ctx, &snapshotv1.VolumeSnapshotList{}, client.InNamespace(a.namespace), client.MatchingLabels(mark))
	if err != nil {
		return 0, err
	}
	defer seen.Stop()

	begin := time.Now()
	var all sync.WaitGroup
	failures := make([]error, len(a.claims))
	for i, claim := range a.claims {
		all.Go(func() {
			failures[i] = a.api.Create(ctx, &snapshotv1.VolumeSnapshot{
				ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: fmt.Sprintf("bare-%d-%s", round, claim), Labels: mark},
				Spec:       snapshotv1.VolumeSnapshotSpec{Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: ptr.To(claim)}},
			})
		})
	}
	var cut time.Time
	isCut, isReady := map[string]bool{}, map[string]bool{}
	err = follow(seen, func(s *snapshotv1.VolumeSnapshot) bool {
		if s.Status != nil && s.Status.CreationTime != nil {
			isCut[s.Name] = true
			isReady[s.Name] = ptr.Deref(s.Status.ReadyToUse, false)
		}
		if len(isCut) == len(a.claims) && cut.IsZero() {
			cut = time.Now()
		}
		return count(isReady) == len(a.claims)
	})
	all.Wait()
	return cut.Sub(begin), errors.Join(append(failures, err)...)
}

// run has the operator take one snapshot per claim, between hooks that do nothing, and returns the window and its parts. When it returns, the
// run has completed.
func (a *application) run(ctx context.Context, round int) (time.Duration, Parts, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if err := rest(ctx); err != nil {
		return 0, Parts{}, err
	}
	seen, err := a.api.Watch(ctx, &v1.SnapshotRunList{}, client.InNamespace(a.namespace))
	if err != nil {
		return 0, Parts{}, err
	}
	defer seen.Stop()
	name := fmt.Sprintf("round-%d", round)
	err = a.api.Create(ctx, &v1.SnapshotRun{ObjectMeta: metav1.ObjectMeta{Namespace: a.namespace, Name: name}, Spec: v1.SnapshotRunSpec{ScheduleName: scheduleName}})
	if err != nil {
		return 0, Parts{}, fmt.Errorf("starting a run: %w", err)
	}
	var end v1.SnapshotRunStatus
	err = follow(seen, func(r *v1.SnapshotRun) bool {
		if r.Name == name && r.Status.Phase == v1.PhaseCompleted {
			end = r.Status
		}
		return end.Phase == v1.PhaseCompleted
	})
	if err != nil {
		return 0, Parts{}, fmt.Errorf("waiting for run %s: %w\n%s", name, err, a.operator.said())
	}
	if end.Result != v1.ResultSucceeded || len(end.Snapshots) != len(a.claims) {
		return 0, Parts{}, fmt.Errorf("run %s took %d snapshots of %d and is %s: %s", name, len(end.Snapshots), len(a.claims), end.Result, end.Message)
	}
	return window(&end)
}

func window(st *v1.SnapshotRunStatus) (time.Duration, Parts, error) {
	var before, after *v1.TargetStatus
	for i := range st.Hooks {
		if h := &st.Hooks[i]; len(h.Targets) == 1 && h.Stage == v1.StagePre {
			before = &h.Targets[0]
		} else if len(h.Targets) == 1 && h.Stage == v1.StagePost {
			after = &h.Targets[0]
		}
	}
	if before == nil || after == nil || before.EndTime == nil || after.StartTime == nil || st.SnapshottingTime == nil || st.CutTime == nil {
		return 0, Parts{}, errors.New("a run's record lacks a time of its window")
	}
	return after.StartTime.Sub(before.EndTime.Time), Parts{
		Begin:   millis(st.SnapshottingTime.Sub(before.EndTime.Time)),
		Cut:     millis(st.CutTime.Sub(st.SnapshottingTime.Time)),
		Release: millis(after.StartTime.Sub(st.CutTime.Time)),
	}, nil
}

// follow calls done with what a watch shows until it says so.
func follow[T any](w watch.Interface, done func(T) bool) error {
	for e := range w.ResultChan() {
		if e.Type == watch.Error {
			return fmt.Errorf("watching: %v", e.Object)
		}
		if o, ok := any(e.Object).(T); ok && done(o) {
			return nil
		}
	}
	return errors.New("the watch ended early")
}

func count(of map[string]bool) (n int) {
	for _, is := range of {
		if is {
			n++
		}
	}
	return n
}

func rest(ctx context.Context) error {
	select {
	case <-time.After(refill):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
