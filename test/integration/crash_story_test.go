// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/hooks"
	"github.com/stillpoint-operator/stillpoint/internal/run"
)

const (
	// lease is how long it takes until another process begins where one has died.
	lease = 3 * time.Second
	// patience is how long a cache that trails for ever does so while something is planned for later.
	patience = 45 * time.Second
	// maxReconciles and maxCalls are far beyond what a story needs.
	maxReconciles, maxCalls = 1500, 8000
)

// noon is the slot of every story; it begins a minute before and ends when nothing is left to do within storyLength.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const storyLength = 50 * time.Minute

// plot is a kind of story.
type plot struct {
	name      string
	schedules []string // by name
	spec      string
	pods      int
	// hooked: with hooks. held: one of them is held. released: there are post hooks.
	hooked, held, released bool
}

const (
	storyRules = `schedule: "0 * * * *", retention: {maxCount: 1}, successfulRunsHistoryLimit: 1, failedRunsHistoryLimit: 1`
	storyRun   = `{name: quiesce, podSelector: {matchLabels: {app: db}}, command: [quiesce, NAME], timeoutSeconds: 20}`
	storyHold  = `{name: hold, podSelector: {matchLabels: {app: db}}, command: [hold, NAME], timeoutSeconds: 20, mode: Hold, expectOutput: QUIESCED, expectReleaseOutput: RELEASED, releaseTimeoutSeconds: 20}`
	storyPost  = `{name: release, podSelector: {matchLabels: {app: db}}, command: [release, NAME], timeoutSeconds: 20}`
)

// plots: one full schedule each, from its slot to the pruning of what it replaces.
var plots = []plot{
	{name: "without hooks", schedules: []string{"hourly"}, spec: `{` + storyRules + `, snapshotTemplate: {ownerReferencePolicy: Schedule, labels: {team: shop}}}`},
	{name: "with hooks", schedules: []string{"hourly"}, pods: 2, hooked: true, released: true, spec: `{` + storyRules + `, preHooks: [` + storyRun + `], postHooks: [` + storyPost + `]}`},
	{name: "with a held hook", schedules: []string{"hourly"}, pods: 1, hooked: true, held: true, spec: `{` + storyRules + `, preHooks: [` + storyHold + `]}`},
	{name: "with a held hook and a post hook", schedules: []string{"hourly"}, pods: 1, hooked: true, held: true, released: true,
		spec: `{` + storyRules + `, preHooks: [` + storyHold + `], postHooks: [` + storyPost + `]}`},
	{name: "two schedules in one pod", schedules: []string{"first", "second"}, pods: 1, hooked: true, released: true,
		spec: `{` + storyRules + `, preHooks: [` + storyRun + `], postHooks: [` + storyPost + `]}`},
}

// story is one full schedule under given faults: real reconcilers, a real API server, and the test in the place of the cache, the work queue,
// the pods and the storage. It makes no step by itself and does not wait in real time.
type story struct {
	plot
	t         testing.TB
	namespace string
	clock     *clocktesting.FakeClock
	server    *server
	view      *view
	process   *process
	processes int
	runsFirst bool
	faults    map[int]fault // by number of the call
	broken    broken
	meddle    func() // what somebody does after each step

	mu         sync.Mutex
	calls      int
	made       []call
	moves      int // what has changed in the world so far
	fired      int
	reconciles int
	trace      []string
	complaints []string
	over       bool     // nothing that follows would tell anything
	trails     struct { // since when a cache that trails for ever has shown nothing new
		since      time.Time
		reconciles int
	}

	arrivals sync.Mutex
	commands []*command // in order of arrival
	apps     map[string]*pod
	// unknown says of runs why the end of a pre hook could not be known.
	unknown map[string]string
	cuts    map[string]bool // snapshots, and whether every application was quiesced then
	claims  map[string]types.UID
	old     map[string]types.UID // runs before the story
}

// call that an operator made.
type call struct {
	what  string
	moves int // what had changed when it was answered
}

func (c call) cached() bool { return strings.HasPrefix(c.what, "cached ") }

// writes: it changes the world.
func (c call) writes() bool {
	return !c.cached() && !strings.HasPrefix(c.what, "live ") && !strings.HasPrefix(c.what, "ask ")
}

// broken is what is wrong with the world of a story that must not end well.
type broken struct {
	client func(verb string, o client.Object, do func() error) error
	// deaf: the command changes nothing in the application.
	deaf func(command string) bool
}

func (h *story) say(format string, args ...any) {
	h.trace = append(h.trace, fmt.Sprintf(format, args...))
}

// happens: something changes in the world.
func (h *story) happens(format string, args ...any) {
	h.moves++
	h.say("     -- "+format, args...)
}

func (h *story) complain(format string, args ...any) {
	h.complaints = append(h.complaints, fmt.Sprintf(format, args...))
}

// play the story to its end.
func (h *story) play() {
	h.begin()
	defer func() { h.process.end() }()
	for !h.over && h.step() {
		if h.meddle != nil {
			h.meddle()
		}
		if h.reconciles > maxReconciles || h.calls > maxCalls {
			h.complain("it does not come to rest: %d reconciles, %d calls", h.reconciles, h.calls)
			return
		}
	}
	h.expectRest()
}

// step does one thing; false: nothing is left to do.
func (h *story) step() bool {
	switch {
	case h.process.isDead():
		h.takeOver()
	case h.hear():
	case h.process.work():
		h.settlePool()
	case h.commandStarts(), h.commandEnds(), h.storageWorks():
		h.clock.Step(10 * time.Millisecond)
	case len(h.view.hidden) > 0:
		h.catchUp()
	default:
		return h.passTime(noon.Add(storyLength))
	}
	return true
}

// catchUp: the operator has nothing left to do but to wait for its cache. One that trails for ever catches up only when that has
// brought nothing for a while.
func (h *story) catchUp() {
	if h.view.lag.forever {
		if h.trails.since.IsZero() {
			h.trails.since, h.trails.reconciles = h.clock.Now(), h.reconciles
		}
		if h.reconciles-h.trails.reconciles < 12 && h.passTime(h.trails.since.Add(patience)) {
			return
		}
	}
	h.trails.since = time.Time{}
	h.view.reveal()
}

// takeOver: the process is dead, and another one begins.
func (h *story) takeOver() {
	h.happens("the process ends")
	h.process.end()
	for _, c := range h.commands {
		c.cutOff("its operator died")
	}
	h.noteUnknown()
	h.clock.Step(lease)
	h.begin()
	h.happens("process %d begins", h.process.n)
}

// noteUnknown: what a process was to run and has not reported, nobody will know of.
func (h *story) noteUnknown() {
	for _, o := range h.server.newest {
		r, ok := o.(*v1.SnapshotRun)
		if !ok {
			continue
		}
		for i := range r.Status.Hooks {
			for _, t := range r.Status.Hooks[i].Targets {
				if r.Status.Hooks[i].Stage == v1.StagePre && t.Claim != nil {
					h.unknown[r.Name] = "the process that had claimed pre hook " + r.Status.Hooks[i].Name + " died"
				}
			}
		}
	}
}

// hear takes a wake-up of the pool that is there; false: there is none.
func (h *story) hear() bool {
	select {
	case owner := <-h.process.pool.Wake():
		h.process.enqueue(request{kindRun, owner.Name})
		return true
	default:
		return false
	}
}

// await the wake-up that is certain to come.
func (h *story) await() {
	h.settlePool()
	select {
	case owner := <-h.process.pool.Wake():
		h.process.enqueue(request{kindRun, owner.Name})
	case <-time.After(soon):
		h.complain("the pool wakes nobody")
		h.over = true
	}
}

// settlePool waits until every call that the pool has started has arrived in its pod, and every one that ended is over in the pool.
func (h *story) settlePool() {
	for deadline := time.Now().Add(soon); h.underway() != h.arrived(); time.Sleep(20 * time.Microsecond) {
		if time.Now().After(deadline) {
			h.complain("the pool has %d calls under way and %d have arrived", h.underway(), h.arrived())
			h.over = true
			return
		}
	}
}

// underway are the calls that the pool of the process has started and not seen the end of.
func (h *story) underway() int {
	n := 0
	for _, o := range h.server.newest {
		r, ok := o.(*v1.SnapshotRun)
		if !ok || r.Status.Phase == v1.PhaseCompleted {
			continue
		}
		for _, k := range run.ExecKeys(r) {
			state, _, _ := h.process.pool.Status(hooks.Key{Run: r.UID, Stage: string(k.Stage), Pass: k.Pass, Hook: k.Hook, Target: k.Target, Attempt: k.Attempt})
			if state == hooks.Running || state == hooks.Held || state == hooks.Releasing {
				n++
			}
		}
	}
	return n
}

// passTime moves the clock to the next moment at which something is planned; false: that is not before end.
func (h *story) passTime(end time.Time) bool {
	next := end
	for _, t := range h.process.timers {
		if t.Before(next) {
			next = t
		}
	}
	for _, c := range h.commands {
		if c.state == loose && c.late.Before(next) {
			next = c.late
		}
	}
	if !next.Before(end) {
		return false
	}
	if next.After(h.clock.Now()) {
		h.clock.SetTime(next)
		h.happens("it is %s", next.Format("15:04:05.000"))
	}
	h.lateCommands()
	return true
}

// storageWorks: cuts one snapshot, or makes one ready.
func (h *story) storageWorks() bool {
	for _, name := range h.sorted(kindSnapshot) {
		s, ok := h.server.newest[objectKey{kindSnapshot, name}].(*snapshotv1.VolumeSnapshot)
		if !ok || s.Annotations[v1.AnnotationRun] == "" || h.old[s.Annotations[v1.AnnotationRun]] != "" {
			continue
		}
		status := readySince(name, h.clock.Now())
		switch {
		case s.Status == nil || s.Status.CreationTime == nil:
			h.cuts[name] = h.allQuiesced()
			status.ReadyToUse = ptr.To(false)
			h.happens("the storage cuts %s, everything quiesced: %t", name, h.cuts[name])
		case !ptr.Deref(s.Status.ReadyToUse, false):
			status.CreationTime = s.Status.CreationTime
			h.happens("the storage has %s ready", name)
		default:
			continue
		}
		h.writeStatus(s, status)
		return true
	}
	return false
}

func (h *story) writeStatus(s *snapshotv1.VolumeSnapshot, status *snapshotv1.VolumeSnapshotStatus) {
	changed := s.DeepCopy()
	changed.Status = status
	if err := h.server.patchStatus(h.t.Context(), changed, client.MergeFrom(s)); err != nil {
		h.t.Fatalf("playing the storage: %v", err)
	}
}
