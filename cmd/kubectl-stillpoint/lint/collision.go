// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/calendar"
)

const (
	// horizon is how far ahead two schedules are compared.
	horizon = 366 * 24 * time.Hour
	// maxSlots of the two are looked at; more often than that nobody quiesces an application.
	maxSlots = 20_000
)

// collisions reports pairs of schedules with hooks that fire in the same minute and want the same pods or claims. Runs without hooks never wait.
func (l *linter) collisions() {
	for i, b := range l.schedules {
		for _, a := range l.schedules[:i] {
			what := shared(a, b)
			if what == "" {
				continue
			}
			at := sameMinute(a.schedule, b.schedule, l.Now)
			if at.IsZero() {
				continue
			}
			line, _ := a.locate(pathSchedule)
			l.find(b, "collision", pathSchedule, "fires in the same minute as %s (%s:%d), next at %s, and both may want the same %s: the later one waits until the other has released them; move one by some minutes, or set spreadSeconds",
				a.name, a.file, line, at.Format("2006-01-02T15:04Z07:00"), what)
		}
	}
}

// shared says what two schedules may both want; empty: surely nothing, or one of them never waits.
func shared(a, b *object) string {
	hooked := func(o *object) bool {
		s := &o.schedule.Spec
		return len(s.PreHooks)+len(s.PostHooks) > 0 && !s.Disabled && ptr.Deref(s.SpreadSeconds, 0) == 0
	}
	if !hooked(a) || !hooked(b) {
		return ""
	}
	for _, x := range podsOf(a) {
		for _, y := range podsOf(b) {
			if x.Namespace == y.Namespace && !disjoint(x.PodSelector, y.PodSelector) {
				return "pods"
			}
		}
	}
	if a.namespace == b.namespace && !disjoint(&a.schedule.Spec.ClaimSelector, &b.schedule.Spec.ClaimSelector) && !otherClasses(&a.schedule.Spec, &b.schedule.Spec) {
		return "claims"
	}
	return ""
}

// podsOf the hooks of a schedule: namespaces and selectors.
func podsOf(o *object) []v1.Hook {
	var out []v1.Hook
	add := func(h *v1.Hook) {
		n := h.Namespace
		if n == "" {
			n = o.namespace
		}
		out = append(out, v1.Hook{Namespace: n, PodSelector: h.PodSelector})
	}
	for i := range o.schedule.Spec.PreHooks {
		add(&o.schedule.Spec.PreHooks[i].Hook)
	}
	for i := range o.schedule.Spec.PostHooks {
		add(&o.schedule.Spec.PostHooks[i].Hook)
	}
	return out
}

func otherClasses(a, b *v1.SnapshotScheduleSpec) bool {
	return len(a.StorageClassNames) > 0 && len(b.StorageClassNames) > 0 &&
		!slices.ContainsFunc(a.StorageClassNames, func(c string) bool { return slices.Contains(b.StorageClassNames, c) })
}

// disjoint: no object can match both selectors, because they ask for different values of one label.
func disjoint(a, b *metav1.LabelSelector) bool {
	if a == nil || b == nil {
		return true // selects nothing
	}
	wants := func(s *metav1.LabelSelector) map[string][]string {
		out := map[string][]string{}
		for k, v := range s.MatchLabels {
			out[k] = []string{v}
		}
		for _, e := range s.MatchExpressions {
			if e.Operator == metav1.LabelSelectorOpIn {
				out[e.Key] = e.Values
			}
		}
		return out
	}
	other := wants(b)
	for k, values := range wants(a) {
		theirs, ok := other[k]
		if ok && !slices.ContainsFunc(values, func(v string) bool { return slices.Contains(theirs, v) }) {
			return true
		}
	}
	return false
}

// sameMinute is the first time after now at which both fire; zero: none within the horizon.
func sameMinute(a, b *v1.SnapshotSchedule, now time.Time) time.Time {
	x, errX := calendar.Parse(a.Spec.Schedule, a.Spec.TimeZone)
	y, errY := calendar.Parse(b.Spec.Schedule, b.Spec.TimeZone)
	if errX != nil || errY != nil {
		return time.Time{}
	}
	end := now.Add(horizon)
	s, t := x.Next(now), y.Next(now)
	for range maxSlots {
		switch {
		case s.IsZero() || t.IsZero() || s.After(end) || t.After(end):
			return time.Time{}
		case s.Truncate(time.Minute).Equal(t.Truncate(time.Minute)):
			return s.Truncate(time.Minute)
		case s.Before(t):
			// Straight to the minute of the other one.
			s = x.Next(later(s, t.Truncate(time.Minute).Add(-time.Second)))
		default:
			t = y.Next(later(t, s.Truncate(time.Minute).Add(-time.Second)))
		}
	}
	return time.Time{}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
