// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"sync/atomic"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/recorder"
	"sigs.k8s.io/controller-runtime/pkg/source"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/hooks"
	"github.com/stillpoint-operator/stillpoint/internal/metrics"
	"github.com/stillpoint-operator/stillpoint/internal/run"
)

const (
	// maxSteps bounds the decisions of one reconcile; a run that has more to do is queued again.
	maxSteps = 64
	// repeatDelay is the wait when effects left the world as it was.
	repeatDelay = 500 * time.Millisecond
	maxBackoff  = 30 * time.Second
)

// HookEngine is what the run controller needs of package hooks.
type HookEngine struct {
	Pool     *hooks.Pool
	Resolver *hooks.Resolver
	Rights   *hooks.Rights
}

// RunOptions are what the operator's flags say about runs.
type RunOptions struct {
	ReleaseDeadline time.Duration // from the beginning of a release until its post hooks are given up
	ReadyTimeout    time.Duration // from a run's creation until unready snapshots are given up
	OwnerReferences bool          // default of ownerReferencePolicy
	Hooks           run.HookRules
	ForgetOutput    bool // the output of commands is judged and not recorded
	Namespaced      bool // works in some namespaces with rights in these alone: reads nothing that belongs to the cluster
	Workers         int
	Process         string // identity of this process, never used twice
}

// RunReconciler carries SnapshotRuns through their phases.
type RunReconciler struct {
	client.Client
	// Live reads from the API server, not from the cache.
	Live     client.Reader
	Recorder recorder.EventRecorder
	Clock    clock.Clock
	Hooks    HookEngine
	Options  RunOptions
	// Lease of this process, without which nothing is done; nil: there is no leader election.
	Lease *Lease

	draining atomic.Bool
	rebuild  sync.Once
	locks    lockTable
	memory   memory
	wake     chan event.GenericEvent
}

// Drain lets no further run begin; active ones go on to their release.
func (r *RunReconciler) Drain() { r.draining.Store(true) }

// Draining reports whether Drain was called.
func (r *RunReconciler) Draining() bool { return r.draining.Load() }

// ActiveRuns are runs that may have quiesced something and are not released.
func (r *RunReconciler) ActiveRuns(ctx context.Context) (int, error) {
	var runs v1.SnapshotRunList
	if err := r.List(ctx, &runs); err != nil {
		return 0, fmt.Errorf("listing runs: %w", err)
	}
	n := 0
	for i := range runs.Items {
		if run.Active(&runs.Items[i]) {
			n++
		}
	}
	return n, nil
}

// SetupWithManager registers the controller and its sources.
func (r *RunReconciler) SetupWithManager(mgr ctrl.Manager) error {
	r.wake = make(chan event.GenericEvent)
	r.locks.freed = make(chan struct{}, 1)
	if err := mgr.Add(manager.RunnableFunc(r.forwardWakeUps)); err != nil {
		return fmt.Errorf("adding the forwarder of wake-ups: %w", err)
	}
	return ctrl.NewControllerManagedBy(mgr).
		For(&v1.SnapshotRun{}).
		Watches(&snapshotv1.VolumeSnapshot{}, deferring{handler.EnqueueRequestsFromMapFunc(runOfSnapshot), takenWithoutHooks}).
		WatchesRawSource(source.Channel(r.wake, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: r.Options.Workers, RateLimiter: rateLimiter()}).
		Named("snapshotrun").
		Complete(r)
}

func rateLimiter() workqueue.TypedRateLimiter[ctrl.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[ctrl.Request](50*time.Millisecond, maxBackoff)
}

// forwardWakeUps of the exec pool and the lock table to the work queue.
func (r *RunReconciler) forwardWakeUps(ctx context.Context) error {
	metrics.Leads(true, r.poolStats) // what is added to the manager runs with the lease
	defer metrics.Leads(false, r.poolStats)
	for {
		var names []types.NamespacedName
		select {
		case <-ctx.Done():
			return nil
		case owner := <-r.Hooks.Pool.Wake():
			names = append(names, types.NamespacedName(owner))
		case <-r.locks.freed:
			names = r.locks.woken()
		}
		for _, name := range names {
			select {
			case <-ctx.Done():
				return nil
			case r.wake <- event.GenericEvent{Object: &v1.SnapshotRun{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}}:
			}
		}
	}
}

func (r *RunReconciler) poolStats() metrics.Pool {
	s := r.Hooks.Pool.Stats()
	lane := func(l hooks.Lane) metrics.Lane { return metrics.Lane{InFlight: s.Busy[l], Queued: s.Queued[l]} }
	return metrics.Pool{Quiesce: lane(hooks.LaneQuiesce), Release: lane(hooks.LaneRelease), Held: s.Held}
}

func runOfSnapshot(_ context.Context, o client.Object) []ctrl.Request {
	name := o.GetAnnotations()[v1.AnnotationRun]
	if name == "" {
		return nil
	}
	return []ctrl.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}}
}

// takenWithoutHooks: no application waits for the snapshot.
func takenWithoutHooks(o client.Object) bool { return o.GetLabels()[v1.LabelConsistency] == "" }

// Reconcile one run: gather, decide, then persist, act or wait, until there is nothing more to do now.
func (r *RunReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var cached v1.SnapshotRun
	if err := r.Get(ctx, req.NamespacedName, &cached); err != nil {
		if apierrors.IsNotFound(err) {
			r.locks.dropName(req.NamespacedName)
			for _, uid := range r.memory.ofName(req.NamespacedName) {
				r.forget(uid)
			}
		}
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	r.rebuild.Do(func() { r.rebuildLocks(ctx) })
	mem := r.memory.of(&cached, r.Clock.Now())
	if mem.gone {
		return ctrl.Result{}, nil // what the cache still shows is over, and its claims are not to be taken for news
	}
	if mem.unanswered != nil {
		if err := r.reportUnanswered(ctx, mem); err != nil {
			return ctrl.Result{}, err
		}
	}
	current := mem.fresher(&cached)
	var last run.Decision
	for range maxSteps {
		in, err := r.gather(ctx, current, mem)
		if err != nil {
			return ctrl.Result{}, err
		}
		watchSnapshots(current, mem, in.World.Snapshots, in.Now)
		d := run.Decide(in)
		if !r.Lease.Held() {
			// Another process may lead, and what this one knows may be old. This process is about to end.
			return ctrl.Result{RequeueAfter: repeatDelay}, nil
		}
		switch {
		case d.Persist != nil:
			next, err := r.persist(ctx, current, d.Persist)
			if err != nil {
				mem.unanswered = current
			}
			if apierrors.IsConflict(err) {
				// Somebody wrote in between, a person or another leader: look again when the cache has it.
				return ctrl.Result{RequeueAfter: repeatDelay}, nil
			}
			if err != nil {
				return ctrl.Result{}, client.IgnoreNotFound(err)
			}
			r.report(ctx, current, next, mem)
			if d.Anew {
				r.Hooks.Pool.Forget(cached.UID)
			}
			current, mem.latest = next, next
		case len(d.Act) > 0:
			if reflect.DeepEqual(d, last) {
				return ctrl.Result{RequeueAfter: repeatDelay}, nil
			}
			next, err := r.act(ctx, current, mem, d.Act)
			if apierrors.IsConflict(err) {
				return ctrl.Result{RequeueAfter: repeatDelay}, nil
			}
			if err != nil {
				return ctrl.Result{}, err
			}
			if next == nil { // the run itself is gone; it is forgotten when the cache shows that
				mem.gone = true
				return ctrl.Result{}, nil
			}
			current = next
		default:
			// Not before the cache shows it: until then an older run may come here again, and is not to be taken for news.
			if cached.Status.Phase == v1.PhaseCompleted && current.Status.Phase == v1.PhaseCompleted {
				r.forget(cached.UID)
			}
			wait := r.waitUntil(d.Wait)
			if mem.survey != nil || current.Status.Phase == v1.PhaseAwaitingReady {
				wait.Priority = ptr.To(later) // no application waits; see deferring
			}
			return wait, nil
		}
		last = d
	}
	log.FromContext(ctx).Info("Run has more to do than one reconcile allows; it is queued again", "phase", current.Status.Phase)
	return ctrl.Result{RequeueAfter: repeatDelay}, nil
}

func (r *RunReconciler) forget(uid types.UID) {
	r.Hooks.Pool.Forget(uid)
	r.memory.forget(uid)
}

func (r *RunReconciler) waitUntil(t time.Time) ctrl.Result {
	if t.IsZero() {
		return ctrl.Result{}
	}
	return ctrl.Result{RequeueAfter: max(time.Millisecond, t.Sub(r.Clock.Now()))}
}

// persist a new status. It fails with a conflict if anybody wrote the run since current was read.
func (r *RunReconciler) persist(ctx context.Context, current *v1.SnapshotRun, status *v1.SnapshotRunStatus) (*v1.SnapshotRun, error) {
	next := current.DeepCopy()
	next.Status = *status
	patch := client.MergeFromWithOptions(current, client.MergeFromWithOptimisticLock{})
	if err := r.Status().Patch(ctx, next, patch); err != nil {
		return nil, fmt.Errorf("recording phase %s of SnapshotRun %s/%s: %w", status.Phase, current.Namespace, current.Name, err)
	}
	return next, nil
}

// rebuildLocks takes the locks of all active runs, before the first one is granted to anybody else.
func (r *RunReconciler) rebuildLocks(ctx context.Context) {
	var runs v1.SnapshotRunList
	if err := r.List(ctx, &runs); err != nil {
		// Reads of a synchronised cache do not fail; each active run also takes its own lock when it is reconciled.
		log.FromContext(ctx).Error(err, "Listing runs to rebuild the lock table failed")
		return
	}
	for i := range runs.Items {
		if o := &runs.Items[i]; run.Active(o) || run.Lingers(o, r.Clock.Now()) {
			r.locks.hold(o.UID, client.ObjectKeyFromObject(o), lockLabel(o), r.lockedByPlan(o))
		}
	}
}

// lockLabel is how others see a run that they wait for.
func lockLabel(o *v1.SnapshotRun) string {
	return fmt.Sprintf("%s/%s (run %s)", o.Namespace, o.Spec.ScheduleName, o.Name)
}

// lockedByPlan is what a run holds because its plan says so. What its hooks may not reach it does not hold.
func (r *RunReconciler) lockedByPlan(o *v1.SnapshotRun) map[resource]bool {
	resources := map[resource]bool{}
	if run.ModeOf(o) == v1.RunRelease { // the emergency exit neither waits nor makes others wait
		return resources
	}
	account := ""
	if o.Status.Plan != nil {
		account = o.Status.Plan.ServiceAccountName
	}
	for i := range o.Status.Hooks {
		for j := range o.Status.Hooks[i].Targets {
			if t := &o.Status.Hooks[i].Targets[j]; r.Options.Hooks.Reach(o.Namespace, t.Namespace, account) {
				resources[resource{t.Namespace, t.PodUID}] = true
			}
		}
	}
	for i := range o.Status.Snapshots {
		resources[resource{o.Namespace, o.Status.Snapshots[i].ClaimUID}] = true
	}
	return resources
}
