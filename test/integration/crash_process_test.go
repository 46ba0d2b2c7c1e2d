// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/controllers"
	"github.com/stillpoint-operator/stillpoint/hooks"
	"github.com/stillpoint-operator/stillpoint/internal/run"
)

// fault is what becomes of one call.
type fault string

const (
	// fails: the API server is not reached.
	fails fault = "fails"
	// unanswered: it is carried out, and the answer gets lost.
	unanswered fault = "unanswered"
	// killBefore and killAfter: the process ends and does nothing any more.
	killBefore fault = "kill before"
	killAfter  fault = "kill after"
	// busy: the API server has no time for it.
	busy fault = "busy"
	// failsIfCached: fails, if it is a read of the cache.
	failsIfCached fault = "fails if cached"
)

var (
	errRefused = &url.Error{Op: "Do", URL: "https://api", Err: syscall.ECONNREFUSED}
	errLost    = &url.Error{Op: "Do", URL: "https://api", Err: io.ErrUnexpectedEOF}
	errDead    = errors.New("this process is dead")
)

// process is one operator: both controllers and the exec pool, without threads of its own but for the pool's. The story calls the reconcilers
// one after the other, as a work queue would, so that every call has its number.
type process struct {
	*story
	n        int
	runs     *controllers.RunReconciler
	schedule *controllers.ScheduleReconciler
	pool     *hooks.Pool
	stop     context.CancelFunc
	stopped  chan error
	dead     bool // guarded by story.mu

	queue    []request
	timers   map[request]time.Time
	failures map[request]int
}

// request is an object to reconcile.
type request struct{ kind, name string }

// begin another process over what the story's server holds.
func (h *story) begin() {
	p := &process{story: h, n: h.processes, stopped: make(chan error, 1), timers: map[request]time.Time{}, failures: map[request]int{}}
	h.processes++
	h.process = p
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	p.pool = hooks.NewPool(podExec{p}, h.clock, hooks.Limits{})
	go func() { p.stopped <- p.pool.Run(ctx) }()
	p.awaitPool()
	cl := operatorClient{p: p}
	p.runs = &controllers.RunReconciler{Client: cl, Live: liveReader{p}, Recorder: silent{}, Clock: h.clock,
		Hooks:   controllers.HookEngine{Pool: p.pool, Resolver: hooks.NewResolver(podsGetter{p}), Rights: hooks.NewRights(rightsClient{p: p})},
		Options: controllers.RunOptions{ReleaseDeadline: time.Hour, ReadyTimeout: 24 * time.Hour, Workers: 1, Process: fmt.Sprintf("%s_%d", h.namespace, p.n)}}
	p.schedule = &controllers.ScheduleReconciler{Client: cl, Live: liveReader{p}, Recorder: silent{}, Clock: h.clock,
		Skew: func() (time.Duration, bool) { return 0, true }, Options: controllers.ScheduleOptions{ReadyTimeout: 24 * time.Hour, Workers: 1}, Draining: p.runs.Draining}
	kinds := []string{kindSchedule, kindRun}
	if h.runsFirst {
		slices.Reverse(kinds)
	}
	for _, kind := range kinds {
		for _, name := range h.view.names(kind) {
			p.enqueue(request{kind, name})
		}
	}
}

// awaitPool until it gives out slots. A process whose reads are all cached could be through with everything before.
func (p *process) awaitPool() {
	probe := hooks.Key{Run: "probe"}
	if p.pool.Reserve(probe, hooks.Owner{}, hooks.LaneQuiesce) == hooks.Queued {
		select {
		case <-p.pool.Wake():
		case <-time.After(soon):
			p.complain("the pool gives out no slots")
		}
	}
	p.pool.Forget(probe.Run)
}

// silent sends no events: they are not what a story is about.
type silent struct{}

func (silent) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}

func (silent) AnnotatedEventf(runtime.Object, runtime.Object, map[string]string, string, string, string, string, ...any) {
}

// end of a process: what runs in its pool is cut off.
func (p *process) end() {
	p.stop()
	if err := <-p.stopped; err != nil {
		p.complain("the pool ended with: %v", err)
	}
}

// changed queues what an object in view concerns, as SetupWithManager wires it.
func (p *process) changed(key objectKey, o client.Object) {
	switch key.kind {
	case kindSchedule:
		p.enqueue(request{kindSchedule, key.name})
	case kindRun:
		p.enqueue(request{kindRun, key.name})
		if o, ok := o.(*v1.SnapshotRun); ok {
			p.enqueue(request{kindSchedule, o.Spec.ScheduleName})
		}
	case kindSnapshot:
		if name := o.GetAnnotations()[v1.AnnotationRun]; name != "" {
			p.enqueue(request{kindRun, name})
		}
		p.enqueue(request{kindSchedule, o.GetLabels()[v1.LabelSchedule]})
	}
}

func (p *process) enqueue(r request) {
	if !slices.Contains(p.queue, r) {
		p.queue = append(p.queue, r)
	}
}

// wakeAt queues the request at a time, if nothing does earlier.
func (p *process) wakeAt(r request, t time.Time) {
	if before, ok := p.timers[r]; !ok || t.Before(before) {
		p.timers[r] = t
	}
}

// ring queues those whose time has come.
func (p *process) ring() {
	now := p.clock.Now()
	var due []request
	for r, t := range p.timers {
		if !t.After(now) {
			due = append(due, r)
		}
	}
	slices.SortFunc(due, func(a, b request) int {
		if c := p.timers[a].Compare(p.timers[b]); c != 0 {
			return c
		}
		return slices.Compare([]string{a.kind, a.name}, []string{b.kind, b.name})
	})
	for _, r := range due {
		delete(p.timers, r)
		p.enqueue(r)
	}
}

// work on the next request; false: there is none.
func (p *process) work() bool {
	p.ring()
	if len(p.queue) == 0 {
		return false
	}
	r := p.queue[0]
	p.queue = p.queue[1:]
	// Of what it asked for before, nothing counts any more: each pass says itself when it wants the next.
	delete(p.timers, r)
	req := ctrl.Request{NamespacedName: types.NamespacedName{Namespace: p.namespace, Name: r.name}}
	reconcile := p.schedule.Reconcile
	if r.kind == kindRun {
		reconcile = p.runs.Reconcile
	}
	p.reconciles++
	p.say("reconcile %s %s", r.kind, r.name)
	result, err := reconcile(context.Background(), req)
	switch {
	case p.isDead():
	case err != nil:
		if apierrors.IsConflict(err) {
			p.complain("a conflict was treated as a failure: %v", err)
		}
		p.say("  failed: %v", err)
		p.wakeAt(r, p.clock.Now().Add(min(30*time.Second, 50*time.Millisecond<<min(p.failures[r], 10))))
		p.failures[r]++
	default:
		delete(p.failures, r)
		if result.RequeueAfter > 0 {
			p.wakeAt(r, p.clock.Now().Add(result.RequeueAfter))
		}
	}
	p.passOnLock(r)
	return true
}

// passOnLock wakes the runs that wait for one that may just have given its lock back, as the lock table does.
func (p *process) passOnLock(r request) {
	if r.kind != kindRun {
		return
	}
	if o, ok := p.server.newest[objectKey(r)].(*v1.SnapshotRun); ok && run.BeforeAwaitingReady(o) {
		return
	}
	for _, name := range p.sorted(kindRun) {
		o, ok := p.server.newest[objectKey{kindRun, name}].(*v1.SnapshotRun)
		if ok && meta.IsStatusConditionPresentAndEqual(o.Status.Conditions, v1.ConditionComplete, metav1.ConditionFalse) && o.Status.Phase == v1.PhasePending {
			p.enqueue(request{kindRun, name})
		}
	}
}

// kindName of an object.
func kindName(o runtime.Object) string {
	name := fmt.Sprintf("%T", o)
	return name[strings.LastIndex(name, ".")+1:]
}

// read and write are calls about an object.
func (p *process) read(verb string, o runtime.Object, name string, do func() error) error {
	return p.call(fmt.Sprintf("%s %s %s", verb, kindName(o), name), do)
}

func (p *process) write(verb string, o client.Object, do func() error) error {
	what := fmt.Sprintf("%s %s %s", verb, kindName(o), o.GetName())
	if p.broken.client == nil {
		return p.call(what, do)
	}
	return p.call(what, func() error { return p.broken.client(verb, o, do) })
}

// call numbers a call and lets the story's faults have it. Only one is made at a time.
func (p *process) call(what string, do func() error) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.dead {
		return errDead
	}
	p.calls++
	f := p.faults[p.calls]
	if f == failsIfCached {
		f = ""
		if (call{what: what}).cached() {
			f = fails
		}
	}
	p.say("%4d %s%s", p.calls, what, map[bool]string{true: " [" + string(f) + "]"}[f != ""])
	if f != "" {
		p.fired++
	}
	defer func() { p.made = append(p.made, call{what, p.moves}) }()
	switch f {
	case fails:
		return errRefused
	case busy:
		return apierrors.NewTooManyRequests("the API server is busy", 0)
	case killBefore:
		p.dead = true
		return errDead
	default: // it is done first
	}
	err := do()
	switch f {
	case unanswered:
		return errLost
	case killAfter:
		p.dead = true
		return errDead
	default:
	}
	if err != nil && !apierrors.IsNotFound(err) {
		p.say("     %v", err)
	}
	return err
}

func (p *process) isDead() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dead
}
