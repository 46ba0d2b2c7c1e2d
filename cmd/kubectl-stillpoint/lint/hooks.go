// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/run"
)

// pair is a way to quiesce that outlives its command, and what ends it.
type pair struct {
	name         string
	begins, ends *regexp.Regexp // the first group, if any, is what is quiesced
}

var pairs = []pair{
	{"fsfreeze", regexp.MustCompile(`\b(?:fsfreeze|xfs_freeze)\s+(?:-f|--freeze)\s+([^\s;|&"')]+)`), regexp.MustCompile(`\b(?:fsfreeze|xfs_freeze)\s+(?:-u|--unfreeze)\s+([^\s;|&"')]+)`)},
	{"fsyncLock", regexp.MustCompile(`\bfsyncLock\b`), regexp.MustCompile(`\bfsyncUnlock\b`)},
	{"dmsetup suspend", regexp.MustCompile(`\bdmsetup\s+suspend\s+(\S+)`), regexp.MustCompile(`\bdmsetup\s+resume\s+(\S+)`)},
	{"kill -STOP", regexp.MustCompile(`\bkill\s+(?:-s\s+|-)(?:SIG)?STOP\b`), regexp.MustCompile(`\bkill\s+(?:-s\s+|-)(?:SIG)?CONT\b`)},
}

var (
	// sessionLock ends with the client that took it.
	sessionLock = regexp.MustCompile(`(?i)\bflush\s+tables\s+with\s+read\s+lock\b|\block\s+instance\s+for\s+backup\b|\bpg_backup_start\b`)
	// complete commands leave nothing to release.
	complete = regexp.MustCompile(`(?i)checkpoint|dump|backup|\b(?:bg)?save\b|\bsync\b`)
	// bareThaw fails on what is not frozen.
	bareThaw = regexp.MustCompile(`^(?:\S*/)?(?:fsfreeze|xfs_freeze) (?:-u|--unfreeze) \S+$`)
)

func text(h *v1.Hook) string { return strings.Join(h.Command, " ") }

func (l *linter) hooks(o *object) {
	s := o.schedule
	if _, _, err := run.PlanHooks(s, run.HookRules{}); err != nil {
		l.planned(o, err)
	}
	for i := range s.Spec.PreHooks {
		l.preHook(o, fmt.Sprintf("spec.preHooks[%d]", i), &s.Spec.PreHooks[i])
	}
	always := len(s.Spec.PostHooks) == 0
	for i := range s.Spec.PostHooks {
		h := &s.Spec.PostHooks[i]
		always = always || runsAlways(h)
		if bareThaw.MatchString(text(&h.Hook)) {
			l.find(o, "thaw-not-idempotent", fmt.Sprintf("spec.postHooks[%d].command", i),
				"thawing what is not frozen fails with \"Invalid argument\"; a release may run twice, and this hook would then be repeated and raise an alarm: take that error for success (see docs/hooks.md)")
		}
	}
	if !always && len(s.Spec.PreHooks) > 0 && !o.said("spec.postHooks") {
		l.find(o, "release-not-always", "spec.postHooks", "no post hook has executionPolicy Always: what releases an application must run whatever happened before")
	}
}

// planned reports why hooks cannot be planned, where nothing is said about that hook yet.
func (l *linter) planned(o *object, err error) {
	path := "spec"
	if m := regexp.MustCompile(`^spec\.(?:pre|post)Hooks\[\d+\](?:\.\w+)?`).FindString(err.Error()); m != "" {
		path = m
	}
	if !o.said(path) {
		l.find(o, "hooks", path, "%s", err)
	}
}

func runsAlways(h *v1.PostHook) bool {
	return h.ExecutionPolicy == "" || h.ExecutionPolicy == v1.ExecuteAlways
}

func (l *linter) preHook(o *object, path string, h *v1.PreHook) {
	command := text(&h.Hook)
	held := h.Mode == v1.ModeHold
	quiesces := false
	for _, p := range pairs {
		if !p.begins.MatchString(command) {
			continue
		}
		quiesces = true
		if held {
			if !p.ends.MatchString(command) {
				l.find(o, "freeze-without-thaw", path+".command", "the held command quiesces (%s) and never releases: after its standard input has ended it must undo that", p.name)
			}
			continue
		}
		l.released(o, path, h, p)
	}
	switch {
	case held:
	case sessionLock.MatchString(command):
		l.find(o, "lock-needs-hold", path+".command", "this lock ends with the session that took it, before a snapshot is cut: keep the session open with mode: Hold (see docs/hooks.md)")
	case o.said(path):
	case !quiesces && len(o.schedule.Spec.PostHooks) == 0 && !complete.MatchString(command):
		l.find(o, "no-release", path, "there is no post hook: if this command quiesces the application, nothing will release it")
	}
}

// released looks for the post hooks that undo what a pre hook does.
func (l *linter) released(o *object, path string, h *v1.PreHook, p pair) {
	frozen := objects(p.begins, text(&h.Hook))
	thawed := map[string]bool{}
	var thaw *v1.PostHook
	at := ""
	for i := range o.schedule.Spec.PostHooks {
		x := &o.schedule.Spec.PostHooks[i]
		if !p.ends.MatchString(text(&x.Hook)) {
			continue
		}
		if !runsAlways(x) {
			l.find(o, "release-not-always", fmt.Sprintf("spec.postHooks[%d].executionPolicy", i), "this hook releases what %s quiesces and must be Always", path)
		}
		if thaw == nil {
			thaw, at = x, fmt.Sprintf("spec.postHooks[%d]", i)
		}
		for object := range objects(p.ends, text(&x.Hook)) {
			thawed[object] = true
		}
	}
	if thaw == nil {
		more := ""
		if p.ends.MatchString(text(&h.Hook)) {
			more = " (its own delayed release is a safety net, and too late for a snapshot every hour)"
		}
		l.find(o, "freeze-without-thaw", path+".command", "this hook quiesces (%s) and no post hook releases%s: the application would wait for ever", p.name, more)
		return
	}
	for object := range frozen {
		if !thawed[object] && !strings.Contains(object, "$") && !variable(thawed) {
			l.find(o, "freeze-without-thaw", path+".command", "this hook quiesces %s (%s), and the post hooks release %s only", object, p.name, strings.Join(sortedKeys(thawed), ", "))
		}
	}
	if why := elsewhere(o.schedule.Namespace, &h.Hook, &thaw.Hook); why != "" {
		l.find(o, "thaw-elsewhere", at, "%s quiesces %s; every pod that is quiesced must be released", path, why)
	}
}

// objects that a command names to be quiesced or released.
func objects(r *regexp.Regexp, command string) map[string]bool {
	out := map[string]bool{}
	for _, m := range r.FindAllStringSubmatch(command, -1) {
		if len(m) > 1 {
			out[strings.TrimRight(m[1], "/")] = true
		}
	}
	return out
}

func variable(set map[string]bool) bool {
	for object := range set {
		if strings.Contains(object, "$") {
			return true
		}
	}
	return false
}

// elsewhere says in words why a release would not reach all that a hook quiesces.
func elsewhere(namespace string, pre, post *v1.Hook) string {
	in := func(h *v1.Hook) string {
		if h.Namespace != "" {
			return h.Namespace
		}
		return namespace
	}
	if a, b := in(pre), in(post); a != b {
		return fmt.Sprintf("in namespace %s, this one releases in %s", a, b)
	}
	if a, b := metav1.FormatLabelSelector(pre.PodSelector), metav1.FormatLabelSelector(post.PodSelector); a != b && post.PodSelector != nil && len(post.PodSelector.MatchLabels)+len(post.PodSelector.MatchExpressions) > 0 {
		return fmt.Sprintf("pods with %s, this one releases those with %s", a, b)
	}
	if pre.TargetPolicy != v1.TargetOne && post.TargetPolicy == v1.TargetOne {
		return "all matching pods, this one releases one of them"
	}
	return ""
}
