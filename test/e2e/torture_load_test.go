// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/test/torture"
)

const (
	tortureTimeout = 6  // of the hooks, in seconds
	tortureSwitch  = 30 // of the held commands, in seconds
)

// Scripts that note what they do in /state, which is never frozen, with the machine's uptime. TAG becomes the run's name.
const (
	noting = `note() { read up rest </proc/uptime; echo "$1 TAG $up" >>/state/notes; }
`
	tortureFreeze = noting + `note pre; sleep 0.$(($$%4)); fsfreeze --freeze /data || exit 1; note frozen; sleep 0.$(($$%3))`
	tortureThaw   = noting + `sleep 0.$(($$%4)); note thaw; said=$(fsfreeze --unfreeze /data 2>&1) || case "$said" in *Invalid*) ;; *) echo "$said"; exit 1;; esac`
	// tortureHold is the cookbook's held freeze, with notes.
	tortureHold = noting + `note pre; fsfreeze --freeze /data || exit 1; note frozen
setsid sh -c 'sleep SWITCH; read up rest </proc/uptime; echo "thaw TAG $up" >>/state/notes; fsfreeze --unfreeze /data' </dev/null >/dev/null 2>&1 & switch=$!
echo READY; cat >/dev/null
note thaw; fsfreeze --unfreeze /data || exit 1
kill -- -$switch; echo RELEASED`
	// syncing writes and syncs lines, and notes how long each took.
	syncing = `i=0; while :; do i=$((i+1)); read up rest </proc/uptime; echo -n "$up " >>/state/writes
echo $i >>/data/log; sync -d /data/log; read up rest </proc/uptime; echo "$up" >>/state/writes; sleep 0.2; done`
)

// victim is a schedule that is run again and again.
type victim struct {
	name, app   string
	kind        torture.Kind
	hooks       shape
	everyMinute bool
	first       time.Time // slot that came due first
}

// load is what the operators work on.
type load struct {
	*world
	ledger  *ledger
	victims []*victim
	apps    []*app
	kinds   map[string]torture.Kind // by app
	since   time.Time
	stop    context.CancelFunc
	drivers sync.WaitGroup
}

// startLoad makes applications and schedules, and runs each schedule as soon as its last run is over.
func startLoad(w *world, seed uint64) *load {
	w.Helper()
	l := &load{world: w, kinds: map[string]torture.Kind{}, since: time.Now()}
	add := func(kind torture.Kind, app string, schedules ...string) {
		l.kinds[app] = kind
		w.claim(app, nil)
		w.create(w.pod(app, app, syncing))
		a := appNamed(w, app)
		l.apps = append(l.apps, a)
		for _, name := range schedules {
			v := &victim{name: name, app: app, kind: kind, hooks: taking(a)}
			switch {
			case kind == torture.Hooks:
				v.hooks = all(v.hooks, before(hook(a, "freeze", tortureFreeze)), after(hook(a, "thaw", tortureThaw)), bounded(tortureTimeout, 0), releaseTimeout(tortureTimeout))
			case name == "held-thawed":
				v.hooks = all(v.hooks, holding(a, tortureHold), after(hook(a, "thaw", tortureThaw)), shortly(tortureTimeout), releaseTimeout(tortureTimeout))
			case kind == torture.Held:
				v.hooks = all(v.hooks, holding(a, tortureHold), shortly(tortureTimeout))
			}
			l.victims = append(l.victims, v)
		}
	}
	add(torture.Hooks, "files-0", "hourly", "daily") // they wait for each other
	for i := 1; i < 5; i++ {
		add(torture.Hooks, fmt.Sprintf("files-%d", i), fmt.Sprintf("files-%d", i))
	}
	add(torture.Hooks, "clock", "minutely")
	add(torture.Held, "held", "held")
	add(torture.Held, "held-thawed", "held-thawed")
	add(torture.Plain, "plain", "plain", "plain-minutely")
	for _, a := range l.apps {
		a.ready()
	}
	l.ledger = newLedger(w)
	var ctx context.Context
	ctx, l.stop = context.WithCancel(w.Context())
	w.Cleanup(func() { l.stop(); l.drivers.Wait() })
	for i, v := range l.victims {
		v.everyMinute = v.name == "minutely" || v.name == "plain-minutely"
		s := w.schedule(v.name, tagged(v.hooks, v.name), func(s *v1.SnapshotScheduleSpec) {
			// So that the ledger sees the end of every run, whatever the API server does.
			s.SuccessfulRunsHistoryLimit, s.FailedRunsHistoryLimit = ptr.To[int32](100), ptr.To[int32](100)
			if v.everyMinute {
				s.Schedule = "* * * * *"
			}
		})
		if v.everyMinute {
			s = await(w, s, "scheduled", func(s *v1.SnapshotSchedule) bool { return s.Status.NextSnapshotTime != nil })
			v.first = s.Status.NextSnapshotTime.Time
			continue
		}
		random := rand.New(rand.NewPCG(seed, uint64(i)+1))
		l.drivers.Go(func() { l.drive(ctx, v, random) })
	}
	return l
}

// tagged puts a tag into the notes of a schedule's hooks.
func tagged(hooks shape, tag string) shape {
	return all(hooks, changed("TAG", tag), changed("SWITCH", fmt.Sprint(tortureSwitch)))
}

// drive runs a schedule until it is told to stop. It does not wait for the last run.
func (l *load) drive(ctx context.Context, v *victim, random *rand.Rand) {
	for n := 1; ; n++ {
		o := l.order(ctx, v, fmt.Sprintf("%s-%03d", v.name, n))
		if !l.ledger.awaitEnd(ctx, o.Name) {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Duration(random.Int64N(int64(time.Second)))):
		}
	}
}

// order a run by hand. Its hooks carry its name.
func (l *load) order(ctx context.Context, v *victim, name string) *v1.SnapshotRun {
	o := &v1.SnapshotRun{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: name}, Spec: v1.SnapshotRunSpec{ScheduleName: v.name}}
	again(ctx, func() error {
		s := &v1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: v.name}}
		if err := api.Get(ctx, keyOf(s), s); err != nil {
			return err
		}
		s.Spec.PreHooks, s.Spec.PostHooks, s.Spec.ClaimSelector = nil, nil, metav1.LabelSelector{}
		tagged(v.hooks, name)(&s.Spec)
		return api.Update(ctx, s)
	})
	again(ctx, func() error {
		err := api.Create(ctx, o)
		if apierrors.IsAlreadyExists(err) {
			return nil // it was created, and the answer was lost
		}
		return err
	})
	return o
}

// again until it succeeds: the API server may be dead.
func again(ctx context.Context, f func() error) {
	for ctx.Err() == nil && f() != nil {
		select {
		case <-ctx.Done():
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// finish lets every run come to its end, and runs each schedule once more, undisturbed.
func (l *load) finish() {
	l.Helper()
	if err := local.ResetKnobs(); err != nil {
		l.Fatal(err)
	}
	l.stop()
	l.drivers.Wait()
	const enough = 2 * time.Minute
	l.awaitQuiet(enough)
	for _, v := range l.victims {
		if !v.everyMinute {
			l.order(l.Context(), v, v.name+"-last")
		}
	}
	for _, v := range l.victims {
		if v.everyMinute {
			l.disable(v)
		} else {
			ctx, cancel := context.WithTimeout(l.Context(), enough)
			l.ledger.awaitEnd(ctx, v.name+"-last")
			cancel()
		}
	}
	l.awaitQuiet(enough)
}

// awaitQuiet waits until no run is under way, or for long enough: the judge names those that are.
func (l *load) awaitQuiet(limit time.Duration) {
	ctx, cancel := context.WithTimeout(l.Context(), limit)
	defer cancel()
	l.ledger.await(ctx, func(runs map[string]*v1.SnapshotRun) bool {
		for _, o := range runs {
			if !ended(o) {
				return false
			}
		}
		return true
	})
}

// disable a schedule of every minute well before its next slot, which is then the first that does not count.
func (l *load) disable(v *victim) {
	l.Helper()
	s := &v1.SnapshotSchedule{ObjectMeta: metav1.ObjectMeta{Namespace: l.ns, Name: v.name}}
	s = awaitFor(l.world, 2*time.Minute, s, "some seconds before its next slot", func(s *v1.SnapshotSchedule) bool {
		return s.Status.NextSnapshotTime != nil && time.Until(s.Status.NextSnapshotTime.Time) > 5*time.Second
	})
	change(l.world, s, func(s *v1.SnapshotSchedule) { s.Spec.Disabled = true })
	await(l.world, s, "disabled", func(s *v1.SnapshotSchedule) bool { return s.Status.ObservedGeneration == s.Generation })
}

func ended(o *v1.SnapshotRun) bool {
	return o.Status.Phase == v1.PhaseCompleted && (len(o.Finalizers) == 0 || o.DeletionTimestamp != nil)
}
