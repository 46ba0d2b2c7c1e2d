// SPDX-License-Identifier: Apache-2.0

package run

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

const maxMessage = 1024

func (m *machine) condition(typ string, status metav1.ConditionStatus, reason, message string) {
	setCondition(&m.st.Conditions, m, typ, status, reason, message)
}

func (m *machine) hookCondition(h *v1.HookStatus, status metav1.ConditionStatus, reason, message string) {
	setCondition(&h.Conditions, m, v1.ConditionSucceeded, status, reason, message)
	m.changed = true
}

func setCondition(list *[]metav1.Condition, m *machine, typ string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(list, metav1.Condition{Type: typ, Status: status, Reason: reason, Message: shorten(message),
		ObservedGeneration: m.Run.Generation, LastTransitionTime: metav1.NewTime(m.Now.Truncate(1e9))})
}

func shorten(s string) string { return clean(s, maxMessage) }

// clean makes words out of what others wrote: at most limit bytes, and nothing in it that a terminal or a log would act on.
func clean(s string, limit int) string {
	long := len(s) > limit
	if long {
		s = s[:limit]
	}
	s = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsGraphic(r):
			return r
		case r == '\n' || r == '\t' || r == '\r':
			return ' '
		}
		return utf8.RuneError // longer than most of what it replaces
	}, s)
	if !long && len(s) <= limit {
		return s
	}
	cut := min(limit-len("..."), len(s))
	for cut < len(s) && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "..."
}

func hookEnded(h *v1.HookStatus) bool {
	return meta.FindStatusCondition(h.Conditions, v1.ConditionSucceeded) != nil
}

func hookSucceeded(h *v1.HookStatus) bool {
	return meta.IsStatusConditionTrue(h.Conditions, v1.ConditionSucceeded)
}

func hookReason(h *v1.HookStatus) string {
	if c := meta.FindStatusCondition(h.Conditions, v1.ConditionSucceeded); c != nil {
		return c.Reason
	}
	return ""
}

func join(parts []string) string { return strings.Join(parts, "; ") }
