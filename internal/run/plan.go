// SPDX-License-Identifier: Apache-2.0

package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// Defaults of hooks and runs, in seconds.
const (
	defaultTimeout         = 300
	defaultReleaseTimeout  = 60
	defaultSnapshotTimeout = 300
)

// PlanHooks fills in the defaults of a schedule's hooks. A problem with one of them is an error that names the field and the fix.
func PlanHooks(s *v1.SnapshotSchedule, rules HookRules) (pre, post []v1.PlannedHook, err error) {
	if rules.Off != "" && HasHooks(s) {
		return nil, nil, errors.New("the schedule has hooks, and " + rules.Off)
	}
	for i := range s.Spec.PreHooks {
		h := &s.Spec.PreHooks[i]
		p, err := planHook(s, rules, &h.Hook, fmt.Sprintf("spec.preHooks[%d]", i), fmt.Sprintf("pre-%d", i))
		if err != nil {
			return nil, nil, err
		}
		p.BackoffLimit = ptr.To(ptr.Deref(h.BackoffLimit, 0))
		p.OnError = orDefault(h.OnError, v1.OnErrorFail)
		p.Mode = orDefault(h.Mode, v1.ModeRun)
		if p.Mode == v1.ModeHold {
			if h.ExpectOutput == "" || h.ExpectReleaseOutput == "" {
				return nil, nil, fmt.Errorf("spec.preHooks[%d]: mode Hold needs expectOutput and expectReleaseOutput", i)
			}
			p.ExpectReleaseOutput = h.ExpectReleaseOutput
			p.ReleaseTimeoutSeconds = ptr.Deref(h.ReleaseTimeoutSeconds, defaultReleaseTimeout)
		}
		pre = append(pre, p)
	}
	for i := range s.Spec.PostHooks {
		h := &s.Spec.PostHooks[i]
		p, err := planHook(s, rules, &h.Hook, fmt.Sprintf("spec.postHooks[%d]", i), fmt.Sprintf("post-%d", i))
		if err != nil {
			return nil, nil, err
		}
		p.BackoffLimit = h.BackoffLimit
		p.ExecutionPolicy = orDefault(h.ExecutionPolicy, v1.ExecuteAlways)
		post = append(post, p)
	}
	return pre, post, nil
}

// HasHooks reports whether the schedule has hooks at all.
func HasHooks(s *v1.SnapshotSchedule) bool { return len(s.Spec.PreHooks)+len(s.Spec.PostHooks) > 0 }

func planHook(s *v1.SnapshotSchedule, rules HookRules, h *v1.Hook, field, name string) (v1.PlannedHook, error) {
	p := v1.PlannedHook{
		Name:                  orDefault(h.Name, name),
		Namespace:             orDefault(h.Namespace, s.Namespace),
		TargetPolicy:          orDefault(h.TargetPolicy, v1.TargetAll),
		Container:             h.Container,
		Command:               h.Command,
		TimeoutSeconds:        ptr.Deref(h.TimeoutSeconds, defaultTimeout),
		SkipIfNoSelectorFound: h.SkipIfNoSelectorFound,
		ExpectOutput:          h.ExpectOutput,
	}
	if h.PodSelector == nil {
		return p, fmt.Errorf("%s.podSelector is missing: name the pods' labels, or write {} for every pod of the namespace", field)
	}
	p.PodSelector = *h.PodSelector
	if _, err := metav1.LabelSelectorAsSelector(h.PodSelector); err != nil {
		return p, fmt.Errorf("%s.podSelector is not valid: %w", field, err)
	}
	if len(h.Command) == 0 || h.Command[0] == "" {
		return p, fmt.Errorf("%s.command is missing: name the program to run", field)
	}
	if !rules.Reach(s.Namespace, p.Namespace, s.Spec.ServiceAccountName) {
		return p, fmt.Errorf("%s.namespace is %q and the schedule's is %q: a hook in another namespace needs spec.serviceAccountName, whose rights then decide",
			field, p.Namespace, s.Namespace)
	}
	return p, nil
}

func orDefault[T comparable](v, d T) T {
	var zero T
	if v == zero {
		return d
	}
	return v
}

// NamedAt is the minute for which a run's snapshots are named: its slot, or the creation of a run without one.
func NamedAt(r *v1.SnapshotRun) time.Time {
	if r.Spec.Slot != nil {
		return r.Spec.Slot.Time
	}
	return r.CreationTimestamp.Time
}

// newPlan of everything but hooks and claims.
func (m *machine) newPlan() *v1.RunPlan {
	s := m.Schedule
	p := &v1.RunPlan{
		Version:                JournalVersion,
		ScheduleUID:            s.UID,
		ScheduleGeneration:     s.Generation,
		At:                     metav1.NewTime(NamedAt(m.Run)),
		ServiceAccountName:     m.Config.Hooks.Account(s.Spec.ServiceAccountName),
		SnapshotTimeoutSeconds: ptr.Deref(s.Spec.SnapshotTimeoutSeconds, defaultSnapshotTimeout),
		MaxQuiesceSeconds:      ptr.Deref(s.Spec.MaxQuiesceSeconds, 0),
		ReleaseDeadlineSeconds: int32(min(m.Config.ReleaseDeadline/time.Second, maxReleaseDeadline)), //nolint:gosec // bounded in the same expression
	}
	if t := s.Spec.SnapshotTemplate; t != nil {
		p.SnapshotTemplate = *t.DeepCopy()
	}
	if p.SnapshotTemplate.OwnerReferencePolicy == "" {
		p.SnapshotTemplate.OwnerReferencePolicy = v1.OwnerNone
		if m.Config.OwnerReferences {
			p.SnapshotTemplate.OwnerReferencePolicy = v1.OwnerSchedule
		}
	}
	return p
}

// journalEstimate is the size to which a journal can grow, in bytes: what is planned, twice (a release with corrected hooks), and per
// target its record with the longest output it may keep.
func journalEstimate(st *v1.SnapshotRunStatus) (int, error) {
	b, err := json.Marshal(st)
	if err != nil {
		return 0, err
	}
	targets := 0
	for i := range st.Hooks {
		targets += len(st.Hooks[i].Targets)
	}
	const perTarget, perSnapshot = 700, 600
	return 2*len(b) + targets*(perTarget+outputLimit(targets)) + len(st.Snapshots)*perSnapshot, nil
}

// recordEstimate is the size to which the record of a run without hooks can grow, in bytes.
func recordEstimate(st *v1.SnapshotRunStatus) (int, error) {
	b, err := json.Marshal(st)
	const perSnapshot = 300 // times and states; that many do not all have a message of full length
	return len(b) + len(st.Snapshots)*perSnapshot, err
}

// outputLimit is how much output of one target is kept, in bytes: 4 KiB for a few, less for many.
func outputLimit(targets int) int {
	const budget, most, least = 128 << 10, 4096, 128
	if targets <= 0 {
		return most
	}
	return min(most, max(least, budget/targets))
}
