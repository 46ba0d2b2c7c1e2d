// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"maps"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/naming"
)

// hooked: the run has hooks, so that an application may wait for its snapshots.
func (m *machine) hooked() bool { return len(m.st.Plan.PreHooks)+len(m.st.Plan.PostHooks) > 0 }

// snapshotting creates all snapshots at once and waits until every one is cut, has failed, or the time is over.
func (m *machine) snapshotting() {
	m.observeSnapshots() // also for a run that is interrupted now: what was cut by then was cut while quiesced
	if m.hooked() {
		if m.interrupted() {
			return
		}
		for _, s := range m.preSteps() {
			m.watchHeld(s)
		}
	} else if m.deleted() {
		if m.grouped() { // a group that nobody would know of does not stay
			m.changed = true
			m.st.Phase = v1.PhaseAwaitingReady
			return
		}
		m.complete(v1.ResultFailed, v1.ReasonCancelled, "the run was deleted; its snapshots stay under retention")
		return
	}
	undeleted := ""
	if len(m.World.Leftovers) > 0 && !m.changed {
		if !m.due(m.creationDeadline()) {
			for _, l := range m.World.Leftovers {
				m.act(DeleteLeftover{l})
			}
			return
		}
		// It is refused again and again, and the application waits.
		undeleted = fmt.Sprintf("; VolumeSnapshot %s, which an earlier run left uncut, could not be deleted", m.World.Leftovers[0].Name)
	}
	m.createSnapshots()
	if m.changed {
		return
	}
	if !m.hooked() {
		// Nobody waits for the cut. What could not be created is tried again while the others become ready, and the next slot is free to come.
		if len(m.effects) == 0 {
			m.changed = true
			m.st.Phase = v1.PhaseAwaitingReady
		}
		return
	}
	uncut := 0
	for i := range m.st.Snapshots {
		if m.st.Snapshots[i].State == v1.SnapshotPending {
			uncut++
		}
	}
	switch {
	case uncut == 0:
		m.release("", "")
	case m.due(m.creationDeadline()):
		m.release(v1.ReasonNotAllCut, fmt.Sprintf("%d of %d snapshots were not cut within snapshotTimeoutSeconds (%d s)%s", uncut, len(m.st.Snapshots), m.st.Plan.SnapshotTimeoutSeconds, undeleted))
	default:
		m.reserveRelease()
	}
}

// createSnapshots that do not exist yet; reports whether some are still to be created.
func (m *machine) createSnapshots() bool {
	if m.grouped() {
		return m.createGroup()
	}
	creating := false
	for i := range m.st.Snapshots {
		s := &m.st.Snapshots[i]
		if s.State != v1.SnapshotPending {
			continue
		}
		if seen, ok := m.World.Snapshots[s.Name]; ok {
			if m.foreign(seen) {
				m.rename(s)
			}
			continue
		}
		failure, failed := m.World.Creates[s.Name]
		if failed {
			s.Message = clean(failure.Message, maxSnapshotMessage)
			// While an application waits there is no time for the cause of a refusal to go away.
			if failure.Refused && m.hooked() {
				s.State = v1.SnapshotFailed
				continue
			}
			if !m.due(failure.RetryTime) {
				creating = true
				continue
			}
		}
		creating = true
		m.act(m.create(s))
	}
	return creating
}

// foreign: not made by this run, or not under its hooks. A process that read an old record of the run, and a schedule that had lost its
// hooks meanwhile, may have made one without the label that every snapshot under hooks is created with; nothing was quiesced for it.
func (m *machine) foreign(s Snapshot) bool {
	return s.Foreign || (m.hooked() && s.Consistency == "")
}

// own is what exists of a snapshot of the run. What was cut and then deleted does not exist any more, even if the name does: a process that
// read an old record of the run may have created it once more.
func (m *machine) own(s *v1.SnapshotStatus) (Snapshot, bool) {
	seen, ok := m.seen(s)
	return seen, ok && !m.foreign(seen) && (s.UID == "" || s.UID == seen.UID)
}

// rename a snapshot whose name belongs to something else, once.
func (m *machine) rename(s *v1.SnapshotStatus) {
	m.changed = true
	hashed := naming.SnapshotHashed(s.Claim, m.Run.Spec.ScheduleName, string(m.Run.UID), m.st.Plan.At.Time)
	if s.Name == hashed {
		s.State = v1.SnapshotFailed
		s.Message = fmt.Sprintf("a VolumeSnapshot named %s exists and was not made for this run", s.Name)
		return
	}
	s.Name = hashed
}

func (m *machine) create(s *v1.SnapshotStatus) CreateSnapshot {
	t := m.st.Plan.SnapshotTemplate
	e := CreateSnapshot{Name: s.Name, Claim: s.Claim, ClaimUID: s.ClaimUID, ClassName: s.ClassName,
		Owned:        t.OwnerReferencePolicy == v1.OwnerSchedule,
		ScheduleName: m.Run.Spec.ScheduleName, ScheduleUID: m.st.Plan.ScheduleUID}
	e.Labels, e.Annotations = m.marks()
	if m.hooked() {
		e.Labels[v1.LabelConsistency] = v1.ConsistencyCrash
	}
	e.Annotations[v1.AnnotationClaimUID] = string(s.ClaimUID)
	return e
}

// marks are the labels and annotations of whatever a run makes.
func (m *machine) marks() (labels, annotations map[string]string) {
	labels, annotations = map[string]string{}, map[string]string{}
	maps.Copy(labels, m.st.Plan.SnapshotTemplate.Labels)
	maps.Copy(annotations, m.st.Plan.SnapshotTemplate.Annotations)
	labels[v1.LabelSchedule] = naming.ScheduleLabel(m.Run.Spec.ScheduleName)
	labels[v1.LabelWhen] = naming.When(m.st.Plan.At.Time)
	delete(labels, v1.LabelConsistency)
	annotations[v1.AnnotationRun] = m.Run.Name
	annotations[v1.AnnotationRunUID] = string(m.Run.UID)
	return labels, annotations
}

// observeSnapshots carries what is seen into the record. It does not mark the record as changed: whoever ends a phase writes it.
func (m *machine) observeSnapshots() {
	for i := range m.st.Snapshots {
		s := &m.st.Snapshots[i]
		if s.State == v1.SnapshotFailed || s.State == v1.SnapshotReady {
			continue
		}
		seen, ok := m.own(s)
		if !ok {
			continue
		}
		if seen.Name != "" && s.Name == "" { // a member has appeared
			s.Name, s.UID = seen.Name, seen.UID
		}
		s.Consistency = seen.Consistency
		s.Message = clean(seen.Error, maxSnapshotMessage)
		if seen.Cut && s.State == v1.SnapshotPending {
			s.State = v1.SnapshotCut
			s.UID = seen.UID
			m.groupCut()
			s.CutSeenTime = m.now()
			if seen.CreationTime != nil {
				t := metav1.NewTime(*seen.CreationTime)
				s.CreationTime = &t
			}
		}
		switch {
		case seen.Ready && seen.Cut:
			s.State = v1.SnapshotReady
			s.ReadySeenTime = m.now()
			s.Message = ""
		case seen.Error != "" && !seen.Bound && !seen.Cut:
			s.State = v1.SnapshotFailed
		}
	}
}

// creationDeadline is when snapshots that could not be created, or cut under hooks, are given up.
func (m *machine) creationDeadline() time.Time {
	return m.st.SnapshottingTime.Add(time.Duration(m.st.Plan.SnapshotTimeoutSeconds) * time.Second)
}

func (m *machine) allFinal() bool {
	for i := range m.st.Snapshots {
		if st := m.st.Snapshots[i].State; st != v1.SnapshotReady && st != v1.SnapshotFailed {
			return false
		}
	}
	return true
}
