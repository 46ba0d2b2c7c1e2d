// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/controllers"
	"github.com/stillpoint-operator/stillpoint/hooks"
	"github.com/stillpoint-operator/stillpoint/internal/run"
)

// annotationPoke on a schedule is how a test has it reconciled, and sees that it was.
const annotationPoke = "test.example.com/poke"

// pollInterval of everything a test waits for.
const pollInterval = 20 * time.Millisecond

// operator is the two controllers in a namespace of their own, once or several times, with a clock that the test sets
// and a storage that the test plays. Nothing starts before start is called.
type operator struct {
	*WithT
	t         testing.TB
	namespace string
	clock     *clocktesting.FakeClock
	// base is a full hour. The clock starts half an hour before it and is ahead of the API server's by at least that.
	base time.Time
	// driver of the claims, with a default VolumeSnapshotClass named class.
	driver, class string
	// options of instances that are started from now on.
	ownerReferences bool
	readyTimeout    time.Duration
	rules           run.HookRules
	forgetOutput    bool
	listing         bool         // the API server does not stream lists, as before Kubernetes 1.34
	lacksGroups     *atomic.Bool // set and true: the API server does not serve group snapshots

	// nicknames of snapshots that the test made, by their names.
	nicknames map[string]string

	instances []*instance
	started   int
	pokes     int
	// asked is what all instances asked of the API server.
	asked ledger

	mu     sync.Mutex
	events []occurrence
	errors []string
	// storage says what becomes of a new VolumeSnapshot; nil: nothing for now.
	storage func(*snapshotv1.VolumeSnapshot) *snapshotv1.VolumeSnapshotStatus
	// refuse, if set, fails the creation of a VolumeSnapshot on its way to the API server.
	refuse func(*snapshotv1.VolumeSnapshot) error
	// hook is what a command in a pod does until it has succeeded; nil: nothing. outcome, if set, is how it ends.
	hook    func(context.Context)
	outcome func(hooks.Call) hooks.Result
	// beforeWrite and afterWrite, if set, fail the writing of a status: before it was done, or after.
	beforeWrite, afterWrite func(client.Object) error
	// loseAnswer, if set, fails the creation of a VolumeSnapshot after it was done.
	loseAnswer func(*snapshotv1.VolumeSnapshot) error
	// output of every command; accounts that they ran as.
	output   string
	accounts map[hooks.Account]bool
	// refuseRun, if set, is what becomes of an attempt to create a run.
	refuseRun error
	// beforeDelete, if set, is called before retention deletes something; refuseDelete fails it.
	beforeDelete func(client.Object)
	refuseDelete func(client.Object) error
	// skew of the two clocks.
	skew func() (time.Duration, bool)
}

// occurrence is an event that was sent.
type occurrence struct{ Object, Type, Reason, Note string }

// instance is one process.
type instance struct {
	cached client.Client
	stop   context.CancelFunc
	ended  chan error

	mu         sync.Mutex
	passes     map[string]passage
	clean      map[string]int
	reconciles map[string]int
}

// passage is one reconcile of a schedule: the poke that it saw, and whether it wrote in vain.
type passage struct {
	poke     int
	conflict bool
}

// prepare an operator without starting it.
func prepare(t *testing.T) *operator {
	t.Helper()
	namespace := Namespace(t)
	base := time.Now().UTC().Truncate(time.Hour).Add(2 * time.Hour)
	o := &operator{WithT: NewWithT(t), t: t, namespace: namespace, base: base, clock: clocktesting.NewFakeClock(base.Add(-30 * time.Minute)),
		driver: namespace + ".csi.example.com", class: namespace + "-default", readyTimeout: 24 * time.Hour, nicknames: map[string]string{},
		skew: func() (time.Duration, bool) { return 0, true }}
	o.storage = o.ready
	o.snapshotClass(o.class, o.driver, true)
	return o
}

// operate starts an operator.
func operate(t *testing.T) *operator {
	t.Helper()
	o := prepare(t)
	o.start()
	return o
}

// start an instance, or one more.
func (o *operator) start() *instance {
	o.t.Helper()
	cfg := asOperator()
	cfg.QPS = -1
	cfg.UserAgent = "stillpoint/test"
	if o.listing {
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return notStreaming{next} })
	}
	if o.lacksGroups != nil {
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return withoutGroups{next, o.lacksGroups} })
	}
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return counted{next, &o.asked} })
	known := runtime.NewScheme()
	o.Expect(errors.Join(scheme.AddToScheme(known), snapshotv1.AddToScheme(known), groupv1.AddToScheme(known), v1.AddToScheme(known))).To(Succeed())
	caches := controllers.CacheOptions()
	caches.DefaultNamespaces = map[string]cache.Config{o.namespace: {}}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{Scheme: known, Cache: caches, Logger: o.logger(), Metrics: metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: ptr.To(true)}, GracefulShutdownTimeout: ptr.To(5 * time.Second)})
	o.Expect(err).NotTo(HaveOccurred())
	ctx, stop := context.WithCancel(context.Background())
	in := &instance{cached: mgr.GetClient(), stop: stop, ended: make(chan error, 1), passes: map[string]passage{}, clean: map[string]int{}, reconciles: map[string]int{}}
	o.Expect(controllers.AddIndexes(ctx, mgr)).To(Succeed())

	cs, err := kubernetes.NewForConfig(cfg)
	o.Expect(err).NotTo(HaveOccurred())
	events := recording{EventRecorder: mgr.GetEventRecorder("stillpoint"), o: o}
	pool := hooks.NewPool(hookExec{o}, o.clock, hooks.Limits{})
	o.Expect(mgr.Add(manager.RunnableFunc(pool.Run))).To(Succeed())
	process := fmt.Sprintf("%s_%d", o.namespace, o.started)
	runs := &controllers.RunReconciler{Client: runClient{mgr.GetClient(), o}, Live: mgr.GetAPIReader(), Recorder: events, Clock: o.clock,
		Hooks: controllers.HookEngine{Pool: pool, Resolver: hooks.NewResolver(cs.CoreV1()),
			Rights: hooks.NewRights(cs.AuthorizationV1())},
		Options: controllers.RunOptions{ReleaseDeadline: time.Hour, ReadyTimeout: o.readyTimeout, OwnerReferences: o.ownerReferences,
			Hooks: o.rules, ForgetOutput: o.forgetOutput, Workers: 2, Process: process}}
	// One worker: a reconcile that has seen a poke starts after the one before it has ended. See settle.
	schedules := &controllers.ScheduleReconciler{Client: scheduleClient{mgr.GetClient(), o, in}, Live: mgr.GetAPIReader(), Recorder: events, Clock: o.clock,
		Skew: o.currentSkew, Options: controllers.ScheduleOptions{ReadyTimeout: o.readyTimeout, Hooks: o.rules, Workers: 1},
		Draining: runs.Draining}
	o.Expect(errors.Join(runs.SetupWithManager(mgr), schedules.SetupWithManager(mgr),
		ctrl.NewControllerManagedBy(mgr).For(&snapshotv1.VolumeSnapshot{}).Named("storage").Complete(storage{mgr.GetClient(), o}))).To(Succeed())
	go func() { in.ended <- mgr.Start(ctx) }()
	o.instances = append(o.instances, in)
	o.started++
	o.t.Cleanup(func() { o.halt(in) })
	o.Expect(mgr.GetCache().WaitForCacheSync(ctx)).To(BeTrue())
	return in
}

// halt an instance; a second time does nothing.
func (o *operator) halt(in *instance) {
	if in.stop == nil {
		return
	}
	in.stop()
	in.stop = nil
	if err := <-in.ended; err != nil {
		o.t.Errorf("the manager ended with: %v", err)
	}
	for i := range o.instances {
		if o.instances[i] == in {
			o.instances = append(o.instances[:i], o.instances[i+1:]...)
			break
		}
	}
	if o.t.Failed() {
		o.t.Logf("events: %+v\nlogged errors: %v", o.eventsOf(""), o.loggedErrors())
	}
}

// at sets the clock and has every schedule reconciled.
func (o *operator) at(t time.Time) {
	o.t.Helper()
	o.clock.SetTime(t)
	o.settle()
}

// tick sets the clock, and waits until what began then is over.
func (o *operator) tick(t time.Time) {
	o.t.Helper()
	o.at(t)
	o.idle()
}

// hour is the nth full hour after base.
func (o *operator) hour(n int) time.Time { return o.base.Add(time.Duration(n) * time.Hour) }

// settle returns once every schedule was reconciled, from its beginning to its end, with everything in view that
// exists now.
func (o *operator) settle() {
	o.t.Helper()
	for _, in := range o.instances {
		o.will(func() error { return o.inView(in) }).Should(Succeed())
	}
	var list v1.SnapshotScheduleList
	o.Expect(api.List(o.t.Context(), &list, client.InNamespace(o.namespace))).To(Succeed())
	first := o.pokes + 1
	for wait := pollInterval; ; wait *= 2 {
		o.pokes++
		for i := range list.Items {
			o.patch(&v1.SnapshotSchedule{}, list.Items[i].Name, fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, annotationPoke, strconv.Itoa(o.pokes)))
		}
		over := true
		for i := range list.Items {
			for _, in := range o.instances {
				o.will(func() int { return in.seen(list.Items[i].Name) }).Should(BeNumerically(">=", o.pokes), "schedule %s is not reconciled", list.Items[i].Name)
				over = over && in.done(list.Items[i].Name) >= first
			}
		}
		if over {
			return
		}
		time.Sleep(wait) // for the reconcile to end: a poke before that has its status refused
	}
}

// idle waits until every run is over and every schedule knows.
func (o *operator) idle() {
	o.t.Helper()
	o.will(func() error {
		for _, run := range o.runs("") {
			if run.Status.Phase != v1.PhaseCompleted {
				return fmt.Errorf("run %s is in phase %q: %s", run.Name, run.Status.Phase, run.Status.Message)
			}
		}
		var list v1.SnapshotScheduleList
		if err := api.List(o.t.Context(), &list, client.InNamespace(o.namespace)); err != nil {
			return err
		}
		for i := range list.Items {
			if active := list.Items[i].Status.ActiveRun; active != "" {
				return fmt.Errorf("schedule %s still has active run %s", list.Items[i].Name, active)
			}
		}
		return nil
	}).Should(Succeed())
	o.settle()
}

// inView reports what an instance's cache does not show yet.
func (o *operator) inView(in *instance) error {
	var snapshots, seen snapshotv1.VolumeSnapshotList
	var runs, seenRuns v1.SnapshotRunList
	err := errors.Join(
		api.List(o.t.Context(), &snapshots, client.InNamespace(o.namespace), client.HasLabels{v1.LabelSchedule}), in.cached.List(o.t.Context(), &seen, client.InNamespace(o.namespace)),
		api.List(o.t.Context(), &runs, client.InNamespace(o.namespace)), in.cached.List(o.t.Context(), &seenRuns, client.InNamespace(o.namespace)))
	if err != nil {
		return err
	}
	exist, view := map[string]string{}, map[string]string{}
	for i := range snapshots.Items {
		exist["snapshot "+snapshots.Items[i].Name] = snapshots.Items[i].ResourceVersion
	}
	for i := range runs.Items {
		exist["run "+runs.Items[i].Name] = runs.Items[i].ResourceVersion
	}
	for i := range seen.Items {
		view["snapshot "+seen.Items[i].Name] = seen.Items[i].ResourceVersion
	}
	for i := range seenRuns.Items {
		view["run "+seenRuns.Items[i].Name] = seenRuns.Items[i].ResourceVersion
	}
	for name, version := range exist {
		if view[name] != version {
			return fmt.Errorf("the cache trails behind %s", name)
		}
	}
	if len(view) != len(exist) {
		return errors.New("the cache shows what is gone")
	}
	return nil
}

// will is Eventually with the package's patience.
func (o *operator) will(f any) AsyncAssertion {
	o.t.Helper()
	return o.Eventually(f, soon, pollInterval)
}

func (o *operator) logger() logr.Logger {
	return funcr.New(func(_, args string) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.errors = append(o.errors, args)
	}, funcr.Options{Verbosity: -1})
}

// loggedErrors are the lines that the controllers logged as errors.
func (o *operator) loggedErrors() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return append([]string(nil), o.errors...)
}

// eventsOf a reason; "" is all.
func (o *operator) eventsOf(reason string) []occurrence {
	o.mu.Lock()
	defer o.mu.Unlock()
	var out []occurrence
	for _, e := range o.events {
		if reason == "" || e.Reason == reason {
			out = append(out, e)
		}
	}
	return out
}
