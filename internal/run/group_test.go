// SPDX-License-Identifier: Apache-2.0

package run

import (
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// groupWorld is the part of a world that plays the snapshot controller for group snapshots.
type groupWorld struct {
	refusal *Problem
	exist   map[string]*groupObject
	// uncut: the storage never cuts. memberless: no member ever appears. extra: claims that the group takes besides those of the run.
	uncut, memberless, unreadable bool
	error                         string
	extra                         []string
	created, deleted              []string
}

type groupObject struct {
	Snapshot
	labels  map[string]string
	at      time.Time
	members map[string]*memberObject
}

type memberObject struct {
	Snapshot
	labels, annotations map[string]string
}

// memberDelay is how long after the cut members appear.
const memberDelay = 3 * time.Second

func (w *world) groupSeen() *Group {
	status := w.run.Status.GroupSnapshot
	if status == nil {
		return nil
	}
	if w.groups.unreadable {
		return &Group{Unknown: true}
	}
	o := w.groups.exist[status.Name]
	if o == nil {
		return nil
	}
	g := &Group{Snapshot: o.Snapshot, Members: map[string]Member{}}
	if o.Cut && !w.groups.memberless && !w.now.Before(o.at.Add(memberDelay)) {
		for claim, m := range o.members {
			g.Members[claim] = Member{Snapshot: m.Snapshot, Marked: Marked(w.run, claim, m.labels, m.annotations)}
		}
	}
	return g
}

func (w *world) actOnGroup(e Effect) {
	switch e := e.(type) {
	case CreateGroup:
		if w.groups.exist == nil {
			w.groups.exist = map[string]*groupObject{}
		}
		if w.groups.exist[e.Name] != nil {
			return
		}
		w.groups.created = append(w.groups.created, e.Name)
		o := &groupObject{labels: e.Labels, at: w.now, members: map[string]*memberObject{}}
		o.UID = types.UID("uid-" + e.Name)
		w.groups.exist[e.Name] = o
		if o.Error = w.groups.error; o.Error != "" || w.groups.uncut {
			return
		}
		o.Cut, o.Ready, o.Bound, o.CreationTime = true, true, true, ptr.To(w.now)
		for _, claim := range append(slices.Clone(w.groups.extra), claimNames(w.claims)...) {
			o.members[claim] = &memberObject{Snapshot: Snapshot{Name: "snapshot-of-" + claim, UID: types.UID("uid-" + claim), Cut: true, Ready: true, Bound: true,
				CreationTime: o.CreationTime}}
		}
	case LabelMember:
		for _, m := range w.groups.exist[w.run.Status.GroupSnapshot.Name].members {
			if m.Name == e.Name {
				m.labels, m.annotations, m.Consistency = e.Labels, e.Annotations, e.Labels[v1.LabelConsistency]
			}
		}
	case DeleteGroup:
		for i := range w.run.Status.Snapshots {
			if s := w.run.Status.Snapshots[i]; s.State != v1.SnapshotFailed {
				w.t.Fatalf("the group was deleted and snapshot of %s is %s on record (I1)", s.Claim, s.State)
			}
		}
		if o := w.groups.exist[e.Name]; o != nil && o.UID == e.UID {
			w.groups.deleted = append(w.groups.deleted, e.Name)
			delete(w.groups.exist, e.Name)
		}
	}
}

func claimNames(claims []Claim) []string {
	var out []string
	for _, c := range claims {
		out = append(out, c.Name)
	}
	return out
}

func (w *world) memberNamed(name string) *Snapshot {
	for _, o := range w.groups.exist {
		for _, m := range o.members {
			if m.Name == name {
				return &m.Snapshot
			}
		}
	}
	return nil
}

const groupName = "hourly-202603011200"

func newGroupWorld(t *testing.T) *world {
	w := newWorld(t)
	w.schedule.Spec.ClaimSelector = metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}
	w.schedule.Spec.SnapshotTemplate = &v1.SnapshotTemplateSpec{GroupSnapshotClassName: "together", Labels: map[string]string{"team": "shop"}}
	return w
}

func TestGroupUnderHooks(t *testing.T) {
	w := newGroupWorld(t)
	labelledBefore := false
	w.onStep = func(w *world) {
		labelledBefore = labelledBefore || (len(w.labelled) > 0 && w.run.Status.ReleasedTime == nil)
	}
	w.finish()
	st := w.run.Status
	if st.Result != v1.ResultSucceeded {
		t.Fatalf("%s: %s", st.Result, st.Message)
	}
	if want := []string{groupName}; !slices.Equal(w.groups.created, want) || len(w.created) > 0 || len(w.groups.deleted) > 0 {
		t.Errorf("created groups %v and snapshots %v, deleted %v", w.groups.created, w.created, w.groups.deleted)
	}
	if labelledBefore {
		t.Error("a member was raised to application before the release was over")
	}
	if took := st.ReleaseTime.Sub(st.SnapshottingTime.Time); took >= memberDelay {
		t.Errorf("the application waited %s: for the members, not for the cut", took)
	}
	for claim, uid := range map[string]types.UID{"data": "k0", "wal": "k1"} {
		m := w.groups.exist[groupName].members[claim]
		if m.labels[v1.LabelSchedule] != "hourly" || m.labels["team"] != "shop" || m.annotations[v1.AnnotationRunUID] != "r" || m.annotations[v1.AnnotationClaimUID] != string(uid) {
			t.Errorf("the member of %s carries %v, %v", claim, m.labels, m.annotations)
		}
		if m.Consistency != v1.ConsistencyApplication {
			t.Errorf("the member of %s is %q consistent", claim, m.Consistency)
		}
	}
	for _, s := range st.Snapshots {
		if s.Name != "snapshot-of-"+s.Claim || s.State != v1.SnapshotReady || s.CreationTime == nil {
			t.Errorf("recorded: %+v", s)
		}
	}
}

func TestGroupWithoutHooks(t *testing.T) {
	w := newGroupWorld(t)
	w.schedule.Spec.PreHooks, w.schedule.Spec.PostHooks = nil, nil
	w.run.Finalizers = nil
	w.onStep = func(w *world) {
		if len(w.groups.created) > 0 && len(w.run.Finalizers) == 0 && w.run.Status.Phase != v1.PhaseCompleted {
			t.Fatal("there is a group, and the run could vanish before its members are labelled")
		}
	}
	w.finish()
	if st := w.run.Status; st.Result != v1.ResultSucceeded {
		t.Fatalf("%s: %s", st.Result, st.Message)
	}
	for claim, m := range w.groups.exist[groupName].members {
		if _, labelled := m.labels[v1.LabelConsistency]; labelled || m.labels[v1.LabelSchedule] != "hourly" {
			t.Errorf("the member of %s carries %v", claim, m.labels)
		}
	}
}

// Whenever the process dies, one group is created, it is adopted, and everything of it is labelled.
func TestGroupAfterACrash(t *testing.T) {
	for _, hooks := range []bool{true, false} {
		steps := 0
		for crashAt := 0; crashAt <= steps; crashAt++ {
			w := newGroupWorld(t)
			if !hooks {
				w.schedule.Spec.PreHooks, w.schedule.Spec.PostHooks = nil, nil
			}
			n := 0
			w.onStep = func(w *world) {
				if n == crashAt {
					w.restart()
				}
				n++
				steps = max(steps, n)
			}
			w.finish()
			if steps > 300 {
				t.Fatalf("the run takes %d steps", steps)
			}
			if len(w.groups.created) > 1 {
				t.Fatalf("crash at step %d: created %v", crashAt, w.groups.created)
			}
			st := w.run.Status
			for _, name := range w.groups.created {
				if g := w.groups.exist[name]; g != nil {
					for claim, m := range g.members {
						if m.labels[v1.LabelSchedule] == "" {
							t.Fatalf("crash at step %d: run %s (%s), and the member of %s is an orphan", crashAt, st.Result, st.Message, claim)
						}
					}
				}
			}
		}
		if steps < 10 {
			t.Fatalf("only %d steps", steps)
		}
	}
}

func TestGroupThatIsOfNoUse(t *testing.T) {
	for name, c := range map[string]struct {
		change func(w *world)
		hooks  bool
		says   string
	}{
		"never cut, under hooks":            {func(w *world) { w.groups.uncut = true }, true, "were not cut within snapshotTimeoutSeconds"},
		"never cut":                         {func(w *world) { w.groups.uncut = true }, false, "CSIVolumeGroupSnapshot"},
		"an error":                          {func(w *world) { w.groups.error = "the array is full" }, false, "the array is full"},
		"an error, under hooks":             {func(w *world) { w.groups.error = "the array is full" }, true, "the array is full"},
		"no members":                        {func(w *world) { w.groups.memberless = true }, false, "no member of group snapshot"},
		"no members, under hooks":           {func(w *world) { w.groups.memberless = true }, true, "no member of group snapshot"},
		"the run is deleted before the cut": {func(w *world) { w.groups.uncut = true; deleteOnceCreated(w) }, false, "the run was deleted"},
		"the run is deleted before members": {func(w *world) { w.groups.memberless = true; deleteOnceCreated(w) }, true, "the run was deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newGroupWorld(t)
			if !c.hooks {
				w.schedule.Spec.PreHooks, w.schedule.Spec.PostHooks = nil, nil
			}
			c.change(w)
			w.finish()
			st := w.run.Status
			if st.Result != v1.ResultFailed || !strings.Contains(st.Message, c.says) {
				t.Errorf("%s: %s", st.Result, st.Message)
			}
			if len(w.groups.created) != 1 || len(w.groups.exist) > 0 {
				t.Errorf("created %v, left %v", w.groups.created, w.groups.exist)
			}
			if c.hooks && !slices.Contains(w.started, "Post/release/db-0#1") {
				t.Errorf("nothing was released: %v", w.started)
			}
		})
	}
}

func deleteOnceCreated(w *world) {
	w.onStep = func(w *world) {
		if len(w.groups.created) > 0 && w.run.DeletionTimestamp == nil {
			w.run.DeletionTimestamp = ptr.To(metav1.NewTime(w.now))
		}
	}
}

// What cannot be read holds nobody up: the application is released when its time is over.
func TestGroupThatCannotBeRead(t *testing.T) {
	w := newGroupWorld(t)
	w.groups.unreadable = true
	for w.run.Status.Phase != v1.PhaseAwaitingReady {
		if d := w.settle(); d.Wait.After(w.now) {
			w.now = d.Wait
		} else if w.run.Status.Phase != v1.PhaseAwaitingReady {
			t.Fatalf("the run waits for nothing in phase %s", w.run.Status.Phase)
		}
	}
	if quiesced := w.run.Status.ReleaseTime.Sub(w.run.Status.QuiescedTime.Time); quiesced > 6*time.Minute {
		t.Errorf("quiesced for %s", quiesced)
	}
	w.groups.unreadable = false
	w.finish()
	if st := w.run.Status; st.Result != v1.ResultFailed || len(w.groups.exist) > 0 {
		t.Errorf("%s: %s", st.Result, st.Message)
	}
}

func TestGroupWhoseNameIsTaken(t *testing.T) {
	w := newGroupWorld(t)
	w.groups.exist = map[string]*groupObject{groupName: {Snapshot: Snapshot{UID: "other", Foreign: true, Cut: true, Ready: true}}}
	w.finish()
	st := w.run.Status
	if st.Result != v1.ResultSucceeded || len(w.groups.created) != 1 || st.GroupSnapshot.Name != w.groups.created[0] || st.GroupSnapshot.Name == groupName {
		t.Errorf("%s: %s; created %v", st.Result, st.Message, w.groups.created)
	}
	if w.groups.exist[groupName] == nil {
		t.Error("the group of somebody else was deleted")
	}
}

func TestGroupTakesOneClaimMore(t *testing.T) {
	w := newGroupWorld(t)
	w.groups.extra = []string{"new"}
	w.finish()
	st := w.run.Status
	if st.Result != v1.ResultPartiallyFailed || !strings.Contains(st.Message, "claim new") || len(st.Snapshots) != 3 {
		t.Errorf("%s: %s, %+v", st.Result, st.Message, st.Snapshots)
	}
	m := w.groups.exist[groupName].members["new"]
	if m.labels[v1.LabelSchedule] != "hourly" || m.Consistency != v1.ConsistencyCrash {
		t.Errorf("its member carries %v", m.labels)
	}
}

func TestGroupThatIsRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change       func(w *world)
		reason, says string
	}{
		"expressions": {func(w *world) {
			w.schedule.Spec.ClaimSelector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpExists}}
		}, v1.ReasonInvalidGroup, "matchExpressions"},
		"two classes": {func(w *world) { w.schedule.Spec.SnapshotTemplate.SnapshotClassName = ptr.To("gold") }, v1.ReasonInvalidGroup, "remove one of the two"},
		"its claims": {func(w *world) {
			w.groups.refusal = &Problem{Reason: v1.ReasonInvalidGroup, Message: "claim x is not bound"}
		}, v1.ReasonInvalidGroup,
			"claim x is not bound"},
		"no such API": {func(w *world) { w.groups.refusal = &Problem{Reason: v1.ReasonGroupsUnavailable, Message: "not served"} }, v1.ReasonGroupsUnavailable, "not served"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newGroupWorld(t)
			c.change(w)
			w.finish()
			st := w.run.Status
			if st.Result != v1.ResultFailed || !strings.Contains(st.Message, c.says) || w.cond(v1.ConditionComplete).Reason != c.reason {
				t.Errorf("%s: %s", st.Result, st.Message)
			}
			if len(w.started) > 0 || len(w.groups.created)+len(w.created) > 0 {
				t.Errorf("started %v, created %v %v", w.started, w.groups.created, w.created)
			}
		})
	}
}

// Modes that take no snapshot do not mind.
func TestGroupIsNothingToOtherModes(t *testing.T) {
	w := newGroupWorld(t)
	w.run.Spec.Slot, w.run.Spec.Mode = nil, v1.RunTestHooks
	w.groups.refusal = &Problem{Reason: v1.ReasonGroupsUnavailable, Message: "not served"}
	w.finish()
	if st := w.run.Status; st.Result != v1.ResultSucceeded || len(w.groups.created) > 0 {
		t.Errorf("%s: %s", st.Result, st.Message)
	}
}

// What was cut is gone, and a process with an old record has made the group once more: that one is worth nothing, and goes.
func TestGroupThatIsReplaced(t *testing.T) {
	w := newGroupWorld(t)
	w.onStep = func(w *world) {
		if o := w.groups.exist[groupName]; o != nil && w.run.Status.Phase == v1.PhaseAwaitingReady && o.UID != "again" {
			o.UID = "again"
		}
	}
	w.finish()
	st := w.run.Status
	if st.Result != v1.ResultFailed || !strings.Contains(st.Message, "was deleted before the run completed") {
		t.Errorf("%s: %s", st.Result, st.Message)
	}
	if len(w.groups.exist) > 0 || len(w.labelled) > 0 {
		t.Errorf("left %v, labelled %v", w.groups.exist, w.labelled)
	}
}
