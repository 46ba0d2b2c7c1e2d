// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// act carries out effects that a decision about the record r asked for. Commands and snapshots that begin end later, by happen. If r is
// stale, writes to the run itself are refused.
func (x *explorer) act(n *node, r *v1.SnapshotRun, effects []Effect, what string) {
	c := n.clone(what)
	stale := r != n.Run
	var creates []CreateSnapshot
	for _, e := range effects {
		c.trace.what += fmt.Sprintf(" %T", e)[len(" run."):]
		switch e := e.(type) {
		case AddFinalizer:
			if stale {
				continue
			}
			c.Run = c.Run.DeepCopy()
			c.Run.Finalizers = []string{v1.FinalizerRelease}
		case RemoveFinalizer:
			if stale {
				continue
			}
			x.checkRemoveFinalizer(c)
			c.Run = c.Run.DeepCopy()
			c.Run.Finalizers = nil
		case DropLock:
			x.checkDropLock(c, r)
			c.Lock = false
		case CreateSnapshot:
			x.checkCreate(c, r, e)
			creates = append(creates, e)
		case LabelConsistency:
			x.checkLabel(c, r, e)
			if c.refuses(x, n) {
				continue
			}
			s := c.Snapshots[e.Name]
			s.Consistency = e.Value
			c.Snapshots[e.Name] = s
		case DeleteLeftover:
			if !in(r, v1.PhaseSnapshotting) {
				x.fail(c, "what an earlier run left was deleted in phase %s (I1)", phaseOf(r))
			}
			c.Leftover = c.Leftover && c.refuses(x, n)
		case ReserveExec:
			x.checkReserve(c, r, e)
			if _, known := c.Exec[e.Key]; !known {
				c.Exec[e.Key] = Exec{State: ExecReserved}
			}
		case StartExec:
			x.start(c, r, e)
		case ReleaseHeld:
			x.checkReleaseHeld(c, r, e)
			if c.Exec[e.Key].State == ExecHeld {
				c.Exec[e.Key] = Exec{State: ExecReleasing, HeldAt: c.Exec[e.Key].HeldAt}
				c.Ends[e.Key] = c.Now.Add(time.Duration(c.plannedHook(e.Key).ReleaseTimeoutSeconds) * time.Second)
			}
		case CancelExec:
			x.checkCancel(c, r, e)
			c.cancel(e.Key)
		default:
			x.fail(c, "an effect that nothing in this world asks for: %T", e)
		}
	}
	x.create(n, c, creates, stale)
}

// refuses says whether the API server refuses a write that is asked for in state n. It may begin to do so now, and then does for ever.
func (n *node) refuses(x *explorer, from *node) bool {
	if !n.Refusing && from.Refusable && from.Faults > 0 {
		d := from.clone("from now on it is refused")
		d.Faults--
		d.Refusing = true
		x.visit(d)
	}
	return n.Refusing
}

// start what the pool has a slot for; it refuses anything else.
func (x *explorer) start(c *node, r *v1.SnapshotRun, e StartExec) {
	if c.Exec[e.Key].State != ExecReserved {
		return
	}
	x.checkStart(c, r, e)
	c.Exec[e.Key] = Exec{State: ExecRunning}
	c.Ends[e.Key] = c.Now.Add(time.Duration(e.Hook.TimeoutSeconds) * time.Second)
	c.Starts[e.Key]++
}

// cancel the wait for a command on this side.
func (n *node) cancel(k ExecKey) {
	switch n.Exec[k].State {
	case ExecRunning:
		n.lose(k)
	case ExecHeld, ExecReleasing:
		n.Frozen[volumeOf(podOf(k))] = false // its input is closed
	case ExecUnknown, ExecQueued, ExecReserved:
		delete(n.Exec, k)
		return
	case ExecDone:
		return
	}
	n.end(k, &Outcome{Reason: v1.ReasonInterrupted, EndUnknown: true})
}

// end a command as the pool sees it.
func (n *node) end(k ExecKey, o *Outcome) {
	n.Exec[k] = Exec{State: ExecDone, Outcome: *o}
	delete(n.Ends, k)
}

// create snapshots side by side: all go well, or one does not.
func (x *explorer) create(n, c *node, creates []CreateSnapshot, stale bool) {
	for _, e := range creates {
		c.create(e)
	}
	if stale {
		x.visit(c)
		return
	}
	if n.key() != c.key() { // else nothing came of it, and it is repeated after a while
		x.decided(n, c)
	}
	if n.Faults == 0 {
		return
	}
	for _, e := range creates {
		if _, exists := n.Snapshots[e.Name]; exists {
			continue
		}
		for what, f := range map[string]CreateFailure{
			"refused":             {Message: "exceeded quota", Refused: true, RetryTime: c.Now.Add(time.Second)},
			"not reached":         {Message: "connection refused", RetryTime: c.Now.Add(time.Second)},
			"created, unanswered": {Message: "connection lost", RetryTime: c.Now.Add(time.Second)},
		} {
			f.Message += " for " + e.Claim
			d := c.clone(what + ": " + e.Name)
			d.Faults--
			if what != "created, unanswered" {
				delete(d.Snapshots, e.Name)
			} else {
				d.Behind[e.Name] = Snapshot{}
			}
			d.Creates[e.Name] = f
			x.visit(d)
		}
		d := c.clone("somebody else's has the name: " + e.Name)
		d.Faults--
		d.Snapshots[e.Name] = Snapshot{Foreign: true, UID: "foreign", Bound: true, Cut: true, Ready: true}
		x.visit(d)
	}
}

func (n *node) create(e CreateSnapshot) {
	if _, ok := n.Snapshots[e.Name]; !ok {
		n.Made++
		n.Snapshots[e.Name] = Snapshot{UID: types.UID(strconv.Itoa(n.Made)), Consistency: e.Labels[v1.LabelConsistency]}
	}
	delete(n.Creates, e.Name)
	delete(n.Behind, e.Name) // an answer, or what AlreadyExists leads to: a live look
}

// recorded is the target of an attempt in a record.
func recorded(r *v1.SnapshotRun, k ExecKey) *v1.TargetStatus {
	for i := range r.Status.Hooks {
		h := &r.Status.Hooks[i]
		if h.Stage != k.Stage || h.Pass != k.Pass {
			continue
		}
		for j := range h.Targets {
			if t := &h.Targets[j]; targetID(t) == k.Target && indexIn(r, i) == k.Hook {
				return t
			}
		}
	}
	return nil
}

// indexIn is the place of hook entry i in the list of its stage and pass.
func indexIn(r *v1.SnapshotRun, i int) int32 {
	n := int32(0)
	for j := range i {
		if a, b := &r.Status.Hooks[j], &r.Status.Hooks[i]; a.Stage == b.Stage && a.Pass == b.Pass {
			n++
		}
	}
	return n
}

func hooked(r *v1.SnapshotRun) bool {
	p := r.Status.Plan
	return p != nil && len(p.PreHooks)+len(p.PostHooks) > 0
}

func in(r *v1.SnapshotRun, phases ...v1.RunPhase) bool { return slices.Contains(phases, phaseOf(r)) }

func (x *explorer) checkRemoveFinalizer(c *node) {
	st := &c.Run.Status
	switch {
	case !in(c.Run, v1.PhaseCompleted):
		x.fail(c, "the finalizer went in phase %s (I2)", phaseOf(c.Run))
	case gaveUp(st) && c.Schedule != nil && !alarmed(c.Schedule):
		x.fail(c, "the finalizer went before the schedule showed the alarm (I2)")
	}
}

func (x *explorer) checkDropLock(c *node, r *v1.SnapshotRun) {
	if !in(r, v1.PhaseAwaitingReady, v1.PhaseCompleted) {
		x.fail(c, "the lock was given back in phase %s (I1)", phaseOf(r))
	}
	if c.Now.Before(c.Posts) && ModeOf(r) != v1.RunRelease {
		x.fail(c, "the lock was given back while a post hook of unknown end may be running")
	}
}

func (x *explorer) checkCreate(c *node, r *v1.SnapshotRun, e CreateSnapshot) {
	if !hooked(r) {
		return // such a run's creates are locked by their names alone
	}
	planned := slices.ContainsFunc(r.Status.Snapshots, func(s v1.SnapshotStatus) bool { return s.Name == e.Name && s.State == v1.SnapshotPending })
	switch {
	case !in(r, v1.PhaseSnapshotting) || !planned:
		x.fail(c, "snapshot %s was created in phase %s (I1)", e.Name, phaseOf(r))
	case r.Status.Plan.Version != JournalVersion:
		x.fail(c, "a run of another version was continued (I1)")
	case e.Labels[v1.LabelConsistency] != v1.ConsistencyCrash:
		x.fail(c, "snapshot %s was created as %q (I11)", e.Name, e.Labels[v1.LabelConsistency])
	}
	for i := range r.Status.Hooks {
		h := &r.Status.Hooks[i]
		if h.Stage == v1.StagePre && (!hookEnded(h) || (!hookSucceeded(h) && hookReason(h) != v1.ReasonHeld && r.Status.Plan.PreHooks[indexIn(r, i)].OnError != v1.OnErrorContinue)) && !heldIsLost(h) {
			x.fail(c, "snapshot %s was created before pre hook %s had succeeded (I1)", e.Name, h.Name)
		}
	}
}

// heldIsLost: a held command ended after its hook was over; the snapshots are taken all the same, as crash consistent.
func heldIsLost(h *v1.HookStatus) bool {
	return slices.ContainsFunc(h.Targets, func(t v1.TargetStatus) bool { return t.HeldTime != nil && t.Claim == nil })
}

func (x *explorer) checkLabel(c *node, r *v1.SnapshotRun, e LabelConsistency) {
	may := slices.ContainsFunc(r.Status.Snapshots, func(s v1.SnapshotStatus) bool { return s.Name == e.Name && s.CutBeforeRelease })
	if con := r.Status.Consistency; !in(r, v1.PhaseAwaitingReady) || !may || con == nil || con.Verdict != e.Value {
		x.fail(c, "snapshot %s was labelled in phase %s without a recorded verdict (I1)", e.Name, phaseOf(r))
	}
	if _, exists := c.Snapshots[e.Name]; !exists {
		x.fail(c, "snapshot %s was labelled and does not exist", e.Name)
	}
}

func (x *explorer) checkReserve(c *node, r *v1.SnapshotRun, e ReserveExec) {
	t := recorded(r, e.Key)
	if t == nil || !Active(r) || t.Claim != nil || t.Attempts+1 != e.Key.Attempt {
		x.fail(c, "%v was reserved in phase %s, and the record does not ask for it (I1)", e.Key, phaseOf(r))
	}
}

func (x *explorer) checkReleaseHeld(c *node, r *v1.SnapshotRun, e ReleaseHeld) {
	if t := recorded(r, e.Key); !in(r, v1.PhasePostHooks) || t == nil || t.Claim == nil {
		x.fail(c, "%v was released in phase %s (I1)", e.Key, phaseOf(r))
	}
	for k, other := range c.Exec {
		if k.Stage == v1.StagePre && k.Hook > e.Key.Hook && (other.State == ExecHeld || other.State == ExecReleasing) {
			x.fail(c, "%v was released before a hook that came after it (order)", e.Key)
		}
	}
}

func (x *explorer) checkCancel(c *node, r *v1.SnapshotRun, e CancelExec) {
	if t := recorded(r, e.Key); t == nil || t.Claim != nil || t.Reason != v1.ReasonInterrupted || !in(r, v1.PhasePostHooks) {
		x.fail(c, "%v was cancelled without a record (I1)", e.Key)
	}
}

// checkStart what must hold when a command really starts.
func (x *explorer) checkStart(c *node, r *v1.SnapshotRun, e StartExec) {
	k, t := e.Key, recorded(r, e.Key)
	switch {
	case c.Starts[k] > 0:
		x.fail(c, "%v was started twice (I4)", k)
	case t == nil || t.Claim == nil || t.Claim.Process != c.process() || t.Attempts != k.Attempt:
		x.fail(c, "%v was started without a recorded claim (I1)", k)
		return
	case !c.Now.Before(t.Claim.Time.Add(ClaimWindow)):
		x.fail(c, "%v was started after its claim's window (I4)", k)
	case !slices.Contains(c.Run.Finalizers, v1.FinalizerRelease):
		x.fail(c, "%v was started without the finalizer (I8)", k)
	case !c.Lock:
		x.fail(c, "%v was started without the lock (I1)", k)
	}
	if k.Stage == v1.StagePost {
		x.checkStartPost(c, r, e)
		return
	}
	same := k
	same.Attempt = 0
	limit := *r.Status.Plan.PreHooks[k.Hook].BackoffLimit + 1 + min(c.Free[same], freeRepeats)
	switch {
	case !in(r, v1.PhasePreHooks):
		x.fail(c, "%v was started in phase %s (I1)", k, phaseOf(r))
	case r.Status.Plan.Version != JournalVersion:
		x.fail(c, "a run of another version was continued (I1)")
	case c.Lost[same]:
		x.fail(c, "%v repeats an attempt whose end was lost (I4)", k)
	case k.Attempt > limit:
		x.fail(c, "%v is one attempt too many", k)
	}
	for i := range r.Status.Hooks {
		if h := &r.Status.Hooks[i]; h.Stage == v1.StagePre && indexIn(r, i) < k.Hook && !hookEnded(h) {
			x.fail(c, "%v was started before hook %s had ended (order)", k, h.Name)
		}
	}
	for other, exec := range c.Exec {
		if other.Stage == v1.StagePre && other.Hook < k.Hook && exec.State == ExecRunning {
			x.fail(c, "%v was started while %v ran (order)", k, other)
		}
	}
}

func (x *explorer) checkStartPost(c *node, r *v1.SnapshotRun, e StartExec) {
	k, st := e.Key, &r.Status
	if !in(r, v1.PhasePostHooks) {
		x.fail(c, "%v was started in phase %s (I1)", k, phaseOf(r))
		return
	}
	plan := &st.Plan.PostHooks[k.Hook]
	if limit := plan.BackoffLimit; (limit != nil && k.Attempt > *limit+1) || (st.Release.BestEffort && k.Attempt > 1) {
		x.fail(c, "%v is one attempt too many", k)
	}
	for held, exec := range c.Exec {
		if exec.State == ExecHeld || exec.State == ExecReleasing {
			x.fail(c, "%v was started before %v was released (order)", k, held)
		}
	}
	good := st.Release.Reason == "" || ModeOf(r) == v1.RunRelease
	for i := range st.Hooks {
		h := &st.Hooks[i]
		good = good && (h.Stage != v1.StagePre || hookSucceeded(h))
		if h.Stage != v1.StagePost || h.Pass != k.Pass || indexIn(r, i) >= k.Hook {
			continue
		}
		for _, t := range h.Targets {
			if !hookEnded(h) && !t.Gone && (t.Attempts == 0 || (t.Attempts == 1 && t.Claim != nil)) {
				x.fail(c, "%v was started before hook %s had been tried (order)", k, h.Name)
			}
		}
	}
	for i := range st.Snapshots {
		good = good && st.Snapshots[i].CutBeforeRelease
	}
	if p := plan.ExecutionPolicy; (p == v1.ExecuteOnSuccess && !good) || (p == v1.ExecuteOnFailure && good) {
		x.fail(c, "%v was started against its executionPolicy (%s)", k, p)
	}
}
