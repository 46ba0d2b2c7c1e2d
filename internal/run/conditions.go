// SPDX-License-Identifier: Apache-2.0

package run

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

const (
	// maxMessage of a condition, a hook or a run, in bytes.
	maxMessage = 1024
	// maxSnapshotMessage of one of many snapshots or claims, in bytes. What the storage or the API server says is of any length.
	maxSnapshotMessage = 256
	// maxLeftOut is how many claims that were left out are named.
	maxLeftOut = 20
	// maxRequest is how much of the annotation that asks for a release is kept, in bytes.
	maxRequest = 256
)

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

// leftOutWords are at most maxLeftOut of the claims that were left out, and how many more there are.
func leftOutWords(all []string) []string {
	var out []string
	for i, words := range all {
		if i == maxLeftOut && len(all) > maxLeftOut+1 {
			return append(out, fmt.Sprintf("and %d more", len(all)-maxLeftOut))
		}
		out = append(out, clean(words, maxSnapshotMessage))
	}
	return out
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
