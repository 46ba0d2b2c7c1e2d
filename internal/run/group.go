// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"maps"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/naming"
)

// A run of a schedule with groupSnapshotClassName makes one VolumeGroupSnapshot. Its name is the lock, as a snapshot's name is. Its members are
// VolumeSnapshots that the snapshot controller makes and names, some seconds after the cut: the run finds them and puts on them what its own
// snapshots carry from their creation. A group whose members nobody could find again is deleted whole before the run ends.

const (
	// groupPollShare of the time that a group has taken so far is how long to wait before looking at it again. Its kind may be missing in a
	// cluster, and its members carry no label of ours, so nothing of it is watched.
	groupPollShare = 8
	groupPollFirst = 100 * time.Millisecond
	groupPollLast  = time.Minute
)

// Group is the VolumeGroupSnapshot under the run's name.
type Group struct {
	Snapshot
	// Unknown: it could not be read. It may exist or not, and nothing else here is so.
	Unknown bool
	// Members that have appeared, by claim.
	Members map[string]Member
}

// Member is a VolumeSnapshot of a group.
type Member struct {
	Snapshot
	// Marked: it carries what the run's snapshots carry.
	Marked bool
}

type (
	// CreateGroup creates the VolumeGroupSnapshot.
	CreateGroup struct {
		Name, ClassName     string
		ClaimLabels         map[string]string
		Labels, Annotations map[string]string
		Owned               bool // by the schedule ScheduleUID
		ScheduleName        string
		ScheduleUID         types.UID
	}
	// LabelMember puts on a member what the run's snapshots carry.
	LabelMember struct {
		Name                string
		UID                 types.UID
		Labels, Annotations map[string]string
	}
	// DeleteGroup deletes the VolumeGroupSnapshot with all its members.
	DeleteGroup struct {
		Name string
		UID  types.UID
	}
)

// GroupClass is the VolumeGroupSnapshotClass that a schedule asks for; empty: its snapshots are no group.
func GroupClass(s *v1.SnapshotSchedule) string {
	if s.Spec.SnapshotTemplate == nil {
		return ""
	}
	return s.Spec.SnapshotTemplate.GroupSnapshotClassName
}

// GroupProblem is what in a schedule's spec cannot be combined with groupSnapshotClassName, in words; empty: nothing.
func GroupProblem(s *v1.SnapshotSchedule) string {
	switch {
	case GroupClass(s) == "":
		return ""
	case len(s.Spec.ClaimSelector.MatchExpressions) > 0:
		return "spec.claimSelector.matchExpressions: with spec.snapshotTemplate.groupSnapshotClassName claims are selected by matchLabels alone, because the snapshot " +
			"controller reads nothing else of a group's selector; give the claims a label of their own and name it in matchLabels"
	case ptr.Deref(s.Spec.SnapshotTemplate.SnapshotClassName, "") != "":
		return "spec.snapshotTemplate.snapshotClassName: the snapshots of a group have the class of groupSnapshotClassName; remove one of the two"
	}
	return ""
}

// groupKeys of the labels and annotations that say whose a member is. The words of a snapshotTemplate may be changed by anybody.
var (
	memberLabels      = []string{v1.LabelSchedule, v1.LabelWhen}
	memberAnnotations = []string{v1.AnnotationRun, v1.AnnotationRunUID, v1.AnnotationClaimUID}
)

// Marked reports whether a member carries what the run's record says that it should. Its claim is the member's source.
func Marked(r *v1.SnapshotRun, claim string, labels, annotations map[string]string) bool {
	if r.Status.Plan == nil {
		return false
	}
	m := &machine{Input: Input{Run: r}, st: &r.Status}
	wantLabels, wantAnnotations := m.memberMarks(claim)
	for _, k := range memberLabels {
		if labels[k] != wantLabels[k] {
			return false
		}
	}
	for _, k := range memberAnnotations {
		if annotations[k] != wantAnnotations[k] {
			return false
		}
	}
	return !m.hooked() || labels[v1.LabelConsistency] != ""
}

func (m *machine) grouped() bool { return m.st.GroupSnapshot != nil }

// planGroup of the survey's claims. Its members have no names yet.
func (m *machine) planGroup() {
	m.st.GroupSnapshot = &v1.GroupSnapshotStatus{Name: naming.Group(m.Run.Spec.ScheduleName, m.st.Plan.At.Time), ClassName: GroupClass(m.Schedule),
		ClaimLabels: maps.Clone(m.Schedule.Spec.ClaimSelector.MatchLabels)}
	m.st.Snapshots = nil
	for _, c := range m.World.Survey.Claims {
		m.st.Snapshots = append(m.st.Snapshots, v1.SnapshotStatus{Claim: c.Name, ClaimUID: c.UID, State: v1.SnapshotPending})
	}
}

// groupWithoutHooks plans a group for which no application waits. Unlike single snapshots, whose names are known, it is not created before there
// is a record that its members can be compared with.
func (m *machine) groupWithoutHooks() {
	m.changed, m.anew = true, true
	now := m.now()
	m.st.StartTime, m.st.SnapshottingTime = now, now
	m.st.Phase = v1.PhaseSnapshotting
	m.st.Message = ""
	m.st.Plan = m.newPlan()
	m.planSnapshots()
	if size, err := recordEstimate(m.st); err != nil || size > maxRecordBytes {
		m.st = waitingRecord(&m.Run.Status)
		m.invalid(fmt.Sprintf("the run's record could grow to %d KiB, more than %d: select fewer claims, or shorten spec.snapshotTemplate", size>>10, maxRecordBytes>>10))
		return
	}
	m.condition(v1.ConditionPreHooksSucceeded, metav1.ConditionTrue, v1.ReasonNoHooks, "")
	m.condition(v1.ConditionComplete, metav1.ConditionFalse, v1.ReasonInProgress, "")
}

// groupCut: another group under this name is not this one.
func (m *machine) groupCut() {
	if m.grouped() && m.World.Group != nil {
		m.st.GroupSnapshot.UID = m.World.Group.UID
	}
}

// replaced: the group that was cut does not exist any more, and another one has its name.
func (m *machine) replaced() bool {
	g := m.World.Group
	return g != nil && !g.Unknown && m.st.GroupSnapshot.UID != "" && m.st.GroupSnapshot.UID != g.UID
}

// seen is what exists of a planned snapshot. Until its member has appeared, that is what exists of its group.
func (m *machine) seen(s *v1.SnapshotStatus) (Snapshot, bool) {
	if !m.grouped() {
		seen, ok := m.World.Snapshots[s.Name]
		return seen, ok
	}
	g := m.World.Group
	if g == nil || m.replaced() {
		return Snapshot{}, false
	}
	seen := g.Snapshot
	seen.Name, seen.UID, seen.Ready, seen.Consistency = "", "", false, ""
	member, found := g.Members[s.Claim]
	if found {
		seen = member.Snapshot
		seen.Foreign, seen.Terminating = g.Foreign, g.Terminating || member.Terminating
		seen.Cut, seen.Ready = true, g.Ready && member.Ready && member.Marked
		if seen.CreationTime == nil {
			seen.CreationTime = g.CreationTime
		}
	}
	if m.hooked() && !(found && member.Marked) {
		seen.Consistency = v1.ConsistencyCrash
	}
	return seen, true
}

// createGroup if it does not exist; reports whether it is still to be created.
func (m *machine) createGroup() bool {
	pending := 0
	for i := range m.st.Snapshots {
		if m.st.Snapshots[i].State == v1.SnapshotPending {
			pending++
		}
	}
	if pending == 0 {
		return false
	}
	m.pollGroup()
	name := m.st.GroupSnapshot.Name
	if g := m.World.Group; g != nil {
		if g.Foreign {
			m.renameGroup()
		}
		return false
	}
	if failure, failed := m.World.Creates[name]; failed {
		final := failure.Refused && m.hooked()
		for i := range m.st.Snapshots {
			s := &m.st.Snapshots[i]
			s.Message = clean("group snapshot "+name+" was not created: "+failure.Message, maxSnapshotMessage)
			if final {
				s.State = v1.SnapshotFailed
			}
		}
		if final || !m.due(failure.RetryTime) {
			return !final
		}
	}
	t := m.st.Plan.SnapshotTemplate
	e := CreateGroup{Name: name, ClassName: m.st.GroupSnapshot.ClassName, ClaimLabels: maps.Clone(m.st.GroupSnapshot.ClaimLabels),
		Owned: t.OwnerReferencePolicy == v1.OwnerSchedule, ScheduleName: m.Run.Spec.ScheduleName, ScheduleUID: m.st.Plan.ScheduleUID}
	e.Labels, e.Annotations = m.marks()
	m.act(e)
	return true
}

// renameGroup whose name belongs to something else, once.
func (m *machine) renameGroup() {
	m.changed = true
	g := m.st.GroupSnapshot
	hashed := naming.GroupHashed(m.Run.Spec.ScheduleName, string(m.Run.UID), m.st.Plan.At.Time)
	if g.Name != hashed {
		g.Name = hashed
		return
	}
	m.failGroup(fmt.Sprintf("a VolumeGroupSnapshot named %s exists and was not made for this run", g.Name))
}

// failGroup marks everything that is not final as failed.
func (m *machine) failGroup(why string) {
	m.changed = true
	for i := range m.st.Snapshots {
		if s := &m.st.Snapshots[i]; s.State != v1.SnapshotReady && s.State != v1.SnapshotFailed {
			s.State = v1.SnapshotFailed
			s.Message = orDefault(s.Message, why)
		}
	}
}

// tendGroup while its snapshots are awaited: members are marked when they appear, and what is of no use is given up and deleted. It reports
// whether that is all to decide now. What is deleted failed on record before.
func (m *machine) tendGroup() bool {
	g := m.World.Group
	ours := g != nil && !g.Unknown && !g.Foreign && !g.Terminating
	failed, marked := 0, 0
	for i := range m.st.Snapshots {
		if m.st.Snapshots[i].State != v1.SnapshotFailed {
			continue
		}
		failed++
		m.changed = m.changed || m.Run.Status.Snapshots[i].State != v1.SnapshotFailed
	}
	if ours {
		for _, member := range g.Members {
			if member.Marked {
				marked++
			}
		}
	}
	if why := m.groupOver(g, marked); why != "" && !m.allFinal() {
		m.failGroup(why)
	}
	if ours && m.replaced() && failed < len(m.st.Snapshots) {
		m.changed = true
		for i := range m.st.Snapshots {
			m.st.Snapshots[i].State, m.st.Snapshots[i].Message = v1.SnapshotFailed, "its group snapshot was deleted before the run completed"
		}
	}
	switch {
	case m.changed:
		return true
	case !ours:
	case failed == len(m.st.Snapshots) && marked == 0:
		m.act(DeleteGroup{Name: m.st.GroupSnapshot.Name, UID: g.UID})
		return true
	case !m.labelOverdue():
		m.markMembers(g)
	}
	if !m.allFinal() {
		m.pollGroup()
	}
	return len(m.effects) > 0
}

// groupOver says why a group is not waited for any longer; empty: it is.
func (m *machine) groupOver(g *Group, marked int) string {
	cut := g != nil && g.Cut
	switch {
	case g == nil || g.Unknown || marked > 0:
		return ""
	case m.deleted():
		return "the run was deleted before the members of its group snapshot appeared"
	case !cut && (m.st.SnapshottingTime == nil || m.due(m.creationDeadline())):
		return fmt.Sprintf("group snapshot %s was not cut within snapshotTimeoutSeconds (%d s): do the snapshot controller and the driver's csi-snapshotter run with the "+
			"feature gate CSIVolumeGroupSnapshot, and can the driver take group snapshots?", m.st.GroupSnapshot.Name, m.st.Plan.SnapshotTimeoutSeconds)
	case m.due(m.Run.CreationTimestamp.Add(m.Config.ReadyTimeout)):
		return fmt.Sprintf("no member of group snapshot %s appeared within %s", m.st.GroupSnapshot.Name, m.Config.ReadyTimeout)
	}
	return ""
}

func (m *machine) markMembers(g *Group) {
	for _, claim := range slices.Sorted(maps.Keys(g.Members)) {
		if member := g.Members[claim]; !member.Marked && !member.Terminating {
			labels, annotations := m.memberMarks(claim)
			m.act(LabelMember{Name: member.Name, UID: member.UID, Labels: labels, Annotations: annotations})
		}
	}
}

// memberMarks are what the member of a claim is to carry. The UID of a claim that was not planned is not known.
func (m *machine) memberMarks(claim string) (labels, annotations map[string]string) {
	labels, annotations = m.marks()
	if m.hooked() {
		labels[v1.LabelConsistency] = v1.ConsistencyCrash
	}
	for i := range m.st.Snapshots {
		if s := &m.st.Snapshots[i]; s.Claim == claim {
			annotations[v1.AnnotationClaimUID] = string(s.ClaimUID)
		}
	}
	return labels, annotations
}

// unplannedMembers are of claims that got the labels after the run was planned: the group took them too, and they are the run's. Where hooks should
// have made the snapshots consistent, they are a problem, in words: nobody has asked the hooks of their pods.
func (m *machine) unplannedMembers() []string {
	if !m.grouped() || m.World.Group == nil || m.World.Group.Foreign {
		return nil
	}
	planned := map[string]bool{}
	for i := range m.st.Snapshots {
		planned[m.st.Snapshots[i].Claim] = true
	}
	var problems []string
	for _, claim := range slices.Sorted(maps.Keys(m.World.Group.Members)) {
		member := m.World.Group.Members[claim]
		if planned[claim] || !member.Marked {
			continue
		}
		s := v1.SnapshotStatus{Claim: claim, Name: member.Name, State: v1.SnapshotCut, Consistency: member.Consistency,
			Message: "its claim matched only after the run was planned; the group took it too"}
		if member.Ready {
			s.State = v1.SnapshotReady
		}
		m.st.Snapshots = append(m.st.Snapshots, s)
		if m.hooked() {
			problems = append(problems, fmt.Sprintf("snapshot %s of claim %s: %s", s.Name, s.Claim, s.Message))
		}
	}
	return problems
}

// pollGroup: look again, the later the longer it takes.
func (m *machine) pollGroup() {
	var since time.Duration
	if m.st.SnapshottingTime != nil {
		since = m.Now.Sub(m.st.SnapshottingTime.Time)
	}
	m.wakeAt(m.Now.Add(min(groupPollLast, max(groupPollFirst, since/groupPollShare))))
}
