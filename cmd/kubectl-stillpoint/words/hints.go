// SPDX-License-Identifier: Apache-2.0

package words

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// hints say what to do about a hook that ended for a reason.
var hints = map[string]string{
	v1.ReasonNonZeroExit:         "read the command's output above",
	v1.ReasonOutputMissing:       "the text of expectOutput did not appear: read the command's output above",
	v1.ReasonTimeout:             "the command may still be running: look into the container; raise timeoutSeconds if it needs longer",
	v1.ReasonConnectionLost:      "the command may still be running: look into the container, and at the API server and the node",
	v1.ReasonUnreachable:         "the command was not started: look at the node",
	v1.ReasonPodNotFound:         "no running pod matches: check podSelector, or set skipIfNoSelectorFound",
	v1.ReasonContainerNotFound:   "check the name in container",
	v1.ReasonContainerNotRunning: "look at the pod: kubectl describe pod",
	v1.ReasonPodGone:             "the pod or container ended meanwhile: look at why",
	v1.ReasonForbidden:           "grant the account get and create on pods/exec in that namespace",
	v1.ReasonCommandNotFound:     "the container has no such program: check command and the image",
	v1.ReasonHoldLost:            "the held command ended too early: read its output above",
	v1.ReasonHoldNotSupported:    "held commands need WebSocket, which is refused on the way: see --exec-protocol of the operator; is there a proxy in between?",
	v1.ReasonInterrupted:         "the wait was broken off; the command may still be running: look into the container",
}

// Hints are what to do about a run, most urgent first.
func Hints(r *v1.SnapshotRun) []string {
	var out []string
	c := meta.FindStatusCondition(r.Status.Conditions, v1.ConditionMayBeQuiesced)
	if c != nil && c.Reason == v1.ReasonGivenUp {
		out = append(out, fmt.Sprintf("the application may still be quiesced. Correct the post hooks and type: kubectl stillpoint -n %s release %s --wait", r.Namespace, r.Spec.ScheduleName))
	}
	for i := range r.Status.Hooks {
		h := &r.Status.Hooks[i]
		if !HookFailed(h) {
			continue
		}
		reasons := []string{meta.FindStatusCondition(h.Conditions, v1.ConditionSucceeded).Reason}
		for j := range h.Targets {
			reasons = append(reasons, h.Targets[j].Reason)
		}
		for _, reason := range reasons {
			if text, ok := hints[reason]; ok {
				hint := fmt.Sprintf("hook %s (%s): %s", h.Name, reason, text)
				if !slices.Contains(out, hint) {
					out = append(out, hint)
				}
			}
		}
	}
	for i := range r.Status.Snapshots {
		if r.Status.Snapshots[i].State != v1.SnapshotFailed {
			continue
		}
		if r.Status.Snapshots[i].Name == "" { // of a group, which the run deletes when it is of no use
			out = append(out, fmt.Sprintf("the group snapshot failed: look at the events of what the run has deleted, and at the storage: kubectl -n %s get events --field-selector "+
				"involvedObject.kind=VolumeGroupSnapshot", r.Namespace))
			break
		}
		out = append(out, fmt.Sprintf("snapshots failed: look at their events, and at the storage: kubectl -n %s describe volumesnapshot %s", r.Namespace, r.Status.Snapshots[i].Name))
		break
	}
	return out
}
