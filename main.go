// SPDX-License-Identifier: Apache-2.0

// Command stillpoint is the operator: application-consistent CSI snapshots on a schedule.
package main

import (
	"context"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	groupv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumegroupsnapshot/v1"
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/controllers"
	"github.com/stillpoint-operator/stillpoint/hooks"
	"github.com/stillpoint-operator/stillpoint/internal/build"
	"github.com/stillpoint-operator/stillpoint/internal/run"
)

// leaseName is snapscheduler's: while a cluster migrates, only one of the two operators works.
const leaseName = "cd2d8e9f.backube"

// A lease that is not renewed is taken by another operator after leaseDuration; one that is given back, after at most 2.2 times leaseRetry. A
// leader that cannot renew it stops after renewDeadline, and does nothing once it was not renewed for leaseGood.
const (
	leaseDuration = 15 * time.Second
	leaseGood     = 13 * time.Second
	renewDeadline = 10 * time.Second
	leaseRetry    = 700 * time.Millisecond
)

type options struct {
	metricsAddress, probeAddress         string
	pprofAddress                         string
	metricsSecure, http2                 bool
	leaderElect                          bool
	leaderNamespace                      string
	ownerReferences                      bool
	watchNamespaces                      string
	enableHooks, recordOutput            bool
	defaultAccount                       string
	crossNamespace                       bool
	execProtocol                         string
	maxHooks                             int
	releaseDeadline, readyTimeout, drain time.Duration
	workers                              int
	version, preflight                   bool
	log                                  zap.Options
}

func parseFlags() *options {
	o := &options{}
	flag.StringVar(&o.metricsAddress, "metrics-bind-address", ":8080", "Address of the metrics endpoint; 0 turns it off.")
	flag.StringVar(&o.pprofAddress, "pprof-bind-address", "0", "Address of Go's profiling endpoint, which is not authenticated: a loopback address is safest. 0 turns it off.")
	flag.StringVar(&o.probeAddress, "health-probe-bind-address", ":8081", "Address of the health endpoints /healthz and /readyz.")
	flag.BoolVar(&o.metricsSecure, "metrics-secure", true, "Serve metrics over TLS, to clients that are authenticated and authorized by the API server.")
	flag.BoolVar(&o.http2, "enable-http2", false, "Allow HTTP/2 on the metrics endpoint.")
	flag.BoolVar(&o.leaderElect, "leader-elect", true, "Let one of several operators work at a time. Hooks need it: without it, schedules with hooks are refused.")
	flag.StringVar(&o.leaderNamespace, "leader-election-namespace", "", "Namespace of the lease; default: the operator's own.")
	flag.BoolVar(&o.ownerReferences, "enable-owner-references", false, "Let schedules own their snapshots, where spec.snapshotTemplate.ownerReferencePolicy says nothing: deleting a schedule then deletes its snapshots.")
	flag.StringVar(&o.watchNamespaces, "watch-namespaces", "", "Comma-separated namespaces to work in, with rights in these alone; default: all namespaces.")
	flag.BoolVar(&o.enableHooks, "enable-hooks", true, "Run hooks. Without it the operator needs no right to exec; runs of schedules with hooks fail, without a snapshot.")
	flag.StringVar(&o.defaultAccount, "default-hook-service-account", "", "ServiceAccount, in the schedule's namespace, as which hooks run if spec.serviceAccountName is empty. With it, no hook runs as the operator itself.")
	flag.BoolVar(&o.crossNamespace, "allow-cross-namespace-hooks", false, "Let hooks that run as the operator itself reach pods of other namespaces than the schedule's. Whoever may write a schedule may then run commands in every pod.")
	flag.BoolVar(&o.recordOutput, "record-hook-output", true, "Keep the end of every command's output in the run's status.")
	flag.StringVar(&o.execProtocol, "exec-protocol", string(hooks.ProtocolAuto), "Protocol of hooks: auto (WebSocket, else SPDY), websocket or spdy. Held hooks need WebSocket.")
	flag.IntVar(&o.maxHooks, "max-concurrent-hooks", 64, "How many pre hook commands run at a time. Releases have a lane of their own.")
	flag.DurationVar(&o.releaseDeadline, "release-deadline", time.Hour, "How long post hooks are repeated before they are given up.")
	flag.DurationVar(&o.readyTimeout, "ready-timeout", 24*time.Hour, "How long a run waits for its snapshots to become ready.")
	flag.DurationVar(&o.drain, "drain-timeout", 30*time.Second, "After SIGTERM: how long active runs may take to release their applications before the operator stops. Keep it below the pod's terminationGracePeriodSeconds.")
	flag.IntVar(&o.workers, "workers", 64, "How many schedules, and how many runs, are worked on at a time.")
	flag.BoolVar(&o.preflight, "preflight", false, "Ask the API server whether the installation has all that it needs, print the answers and exit. It changes nothing.")
	flag.BoolVar(&o.version, "version", false, "Print the version and exit.")
	o.log.BindFlags(flag.CommandLine)
	flag.Parse()
	return o
}

func main() {
	o := parseFlags()
	if o.version {
		fmt.Println("stillpoint", build.String())
		return
	}
	ctrl.SetLogger(zap.New(zap.UseFlagOptions(&o.log)))
	if err := start(o); err != nil {
		ctrl.Log.WithName("setup").Error(err, "The operator stopped")
		os.Exit(1)
	}
}

func start(o *options) error {
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return fmt.Errorf("finding the cluster (in a pod: the service account; elsewhere: KUBECONFIG): %w", err)
	}
	// The API server's own priority and fairness rules protect it better than a limit here, and a quiesced application would wait.
	cfg.QPS = -1
	cfg.UserAgent = "stillpoint/" + build.Version
	if o.preflight {
		return checkInstallation(context.Background(), cfg, o, time.Now(), os.Stdout)
	}
	realClock := clock.RealClock{}

	engine, pool, err := hookEngine(cfg, o, realClock)
	if err != nil {
		return err
	}
	skew := controllers.NewClockSkew(realClock)
	mgrConfig := rest.CopyConfig(cfg)
	mgrConfig.Wrap(skew.Wrap)
	namespaces, err := o.namespaces()
	if err != nil {
		return err
	}
	rules, err := o.hookRules()
	if err != nil {
		return err
	}
	var lease *controllers.Lease
	if o.leaderElect {
		lease = controllers.NewLease(realClock, leaseGood)
		mgrConfig.Wrap(lease.Wrap)
	}
	mgr, err := newManager(mgrConfig, o, namespaces)
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	if err := controllers.AddIndexes(ctx, mgr); err != nil {
		return fmt.Errorf("adding indexes to the cache: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("reading the host's name: %w", err)
	}
	runs := &controllers.RunReconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Recorder: mgr.GetEventRecorder("stillpoint"), Clock: realClock, Hooks: engine,
		Options: controllers.RunOptions{ReleaseDeadline: o.releaseDeadline, ReadyTimeout: o.readyTimeout, OwnerReferences: o.ownerReferences,
			Hooks: rules, ForgetOutput: !o.recordOutput, Namespaced: len(namespaces) > 0, Workers: o.workers, Process: fmt.Sprintf("%s_%s", host, uuid.NewUUID())},
		Lease: lease,
	}
	schedules := &controllers.ScheduleReconciler{
		Client: mgr.GetClient(), Live: mgr.GetAPIReader(), Recorder: mgr.GetEventRecorder("stillpoint"), Clock: realClock, Skew: skew.Skew,
		Options: controllers.ScheduleOptions{ReadyTimeout: o.readyTimeout, Hooks: rules, Workers: o.workers}, Draining: runs.Draining, Lease: lease,
	}
	err = errors.Join(
		mgr.Add(manager.RunnableFunc(pool.Run)), // with the lease only: an exec belongs to the process that leads
		runs.SetupWithManager(mgr),
		schedules.SetupWithManager(mgr),
		mgr.AddHealthzCheck("healthz", healthz.Ping),
		mgr.AddReadyzCheck("readyz", healthz.Ping),
	)
	if err != nil {
		return fmt.Errorf("setting up: %w", err)
	}
	if lease != nil {
		go exitOnLoss(ctx, lease)
	}
	go stopOnSignal(ctx, stop, mgr.Elected(), runs, o.drain, realClock)
	ctrl.Log.WithName("setup").Info("The operator starts", "version", build.String())
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("running: %w", err)
	}
	return nil
}

// namespaces to work in; none: all.
func (o *options) namespaces() ([]string, error) {
	var out []string
	for _, ns := range strings.FieldsFunc(o.watchNamespaces, func(r rune) bool { return r == ',' || r == ' ' }) {
		if wrong := validation.IsDNS1123Label(ns); len(wrong) > 0 {
			return nil, fmt.Errorf("--watch-namespaces names %q, which is no namespace: %s", ns, wrong[0])
		}
		out = append(out, ns)
	}
	return out, nil
}

func (o *options) hookRules() (run.HookRules, error) {
	rules := run.HookRules{DefaultAccount: o.defaultAccount, CrossNamespace: o.crossNamespace}
	switch {
	case !o.enableHooks:
		rules.Off = "this operator runs none (--enable-hooks=false)"
	case !o.leaderElect:
		rules.Off = "this operator runs without --leader-elect, so that two of them could run the same hook"
	}
	if wrong := validation.IsDNS1123Subdomain(o.defaultAccount); o.defaultAccount != "" && len(wrong) > 0 {
		return rules, fmt.Errorf("--default-hook-service-account is %q, which is no ServiceAccount's name: %s", o.defaultAccount, wrong[0])
	}
	return rules, nil
}

func hookEngine(cfg *rest.Config, o *options, clk clock.RealClock) (controllers.HookEngine, *hooks.Pool, error) {
	protocol, err := hooks.ParseProtocol(o.execProtocol)
	if err != nil {
		return controllers.HookEngine{}, nil, fmt.Errorf("reading --exec-protocol: %w", err)
	}
	executor, err := hooks.NewExecutor(cfg, protocol, clk)
	if err != nil {
		return controllers.HookEngine{}, nil, fmt.Errorf("setting up exec: %w", err)
	}
	cs, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return controllers.HookEngine{}, nil, fmt.Errorf("setting up a client: %w", err)
	}
	pool := hooks.NewPool(executor, clk, hooks.Limits{Quiesce: o.maxHooks})
	return controllers.HookEngine{Pool: pool, Resolver: hooks.NewResolver(cs.CoreV1()), Rights: hooks.NewRights(cs.AuthorizationV1())}, pool, nil
}

func newManager(cfg *rest.Config, o *options, namespaces []string) (ctrl.Manager, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(clientgoscheme.AddToScheme(scheme), snapshotv1.AddToScheme(scheme), groupv1.AddToScheme(scheme), v1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("registering API types: %w", err)
	}
	ms := metricsserver.Options{BindAddress: o.metricsAddress, SecureServing: o.metricsSecure}
	if o.metricsSecure {
		ms.FilterProvider = filters.WithAuthenticationAndAuthorization
	}
	if !o.http2 {
		ms.TLSOpts = append(ms.TLSOpts, func(c *tls.Config) { c.NextProtos = []string{"http/1.1"} })
	}
	mgr, err := ctrl.NewManager(cfg, ctrl.Options{
		Scheme: scheme, Metrics: ms, HealthProbeBindAddress: o.probeAddress, PprofBindAddress: o.pprofAddress,
		Cache:          controllers.CacheOptions(namespaces...),
		LeaderElection: o.leaderElect, LeaderElectionID: leaseName, LeaderElectionNamespace: o.leaderNamespace,
		// start returns as soon as the manager has stopped, so the lease may be handed over at once.
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 ptr.To(leaseDuration), RenewDeadline: ptr.To(renewDeadline), RetryPeriod: ptr.To(leaseRetry),
	})
	if err != nil {
		return nil, fmt.Errorf("setting up the manager: %w", err)
	}
	return mgr, nil
}

// exitOnLoss ends the process at once when its lease is lost: what it holds open is released by that, and to stop in order would hand over a
// lease that is another's by now.
func exitOnLoss(ctx context.Context, lease *controllers.Lease) {
	if lease.AwaitLoss(ctx) {
		ctrl.Log.WithName("stop").Error(errors.New("the lease was not renewed in time"), "Another operator may lead; this one ends at once")
		os.Exit(1)
	}
}

// stopOnSignal stops in two stages. First nothing new begins and active runs go on to their release; when none is left, or the
// time is over, or a second signal comes, everything is cancelled and the lease handed over.
func stopOnSignal(ctx context.Context, stop context.CancelFunc, elected <-chan struct{}, runs *controllers.RunReconciler, drain time.Duration, clk clock.RealClock) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	select {
	case <-ctx.Done():
		return
	case <-signals:
	}
	defer stop()
	log := ctrl.Log.WithName("stop")
	select {
	case <-elected:
	default:
		log.Info("Another operator works; this one stops")
		return
	}
	runs.Drain()
	deadline := clk.After(drain)
	for {
		active, err := runs.ActiveRuns(ctx)
		if err != nil || active == 0 {
			log.Info("No run is active; the operator stops")
			return
		}
		log.Info("Active runs go on to their release before the operator stops", "activeRuns", active, "atMost", drain.String())
		select {
		case <-clk.After(200 * time.Millisecond):
		case <-deadline:
			log.Info("Runs are still active; whoever leads next releases them", "activeRuns", active)
			return
		case <-signals:
			log.Info("Second signal; the operator stops at once", "activeRuns", active)
			return
		}
	}
}
