// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/remotecommand"
)

// maxMessage bounds Outcome.Message and what is read of a server's error text, in bytes.
const maxMessage = 512

// knownFailures are texts that API server, kubelet and container runtimes put into errors for which no machine-readable reason exists,
// most telling first. All of a row's texts must occur, in any case.
var knownFailures = []struct {
	texts  []string
	reason Reason
}{
	{[]string{"error dialing backend"}, Unreachable},
	// The API server on its way to the kubelet, the kubelet on its way to the runtime: refused before anything was sent.
	{[]string{"dial tcp"}, Unreachable},
	{[]string{"dial unix"}, Unreachable},
	{[]string{"does not have a host assigned"}, Unreachable},
	{[]string{"executable file", "not found"}, CommandNotFound},
	{[]string{"exec", "no such file or directory"}, CommandNotFound},
	{[]string{"unable to start container process", "permission denied"}, CommandNotFound},
	{[]string{"pod does not exist"}, PodNotFound},
	{[]string{"pod not found"}, PodNotFound},
	{[]string{`pods "`, "not found"}, PodNotFound},
	{[]string{"is not valid for pod"}, ContainerNotFound},
	// The kubelet looks among the containers that run.
	{[]string{"container not found"}, ContainerNotRunning},
	{[]string{"completed pod"}, PodGone},
	{[]string{"container_exited"}, PodGone},
	{[]string{"container", "not running"}, PodGone},
	{[]string{"stopped container"}, PodGone},
	{[]string{"task", "not found"}, PodGone},
	{[]string{"process already finished"}, PodGone},
}

// meanings are the fixed beginnings of messages.
var meanings = map[Reason]string{
	Completed:           "the command completed",
	ConnectionLost:      "the stream ended without the command's status",
	PodGone:             "the container is not running any more",
	Unreachable:         "the node or the API server cannot be reached",
	PodNotFound:         "the pod does not exist",
	ContainerNotFound:   "the pod has no such container",
	ContainerNotRunning: "the container does not run",
	Forbidden:           "executing commands in this pod is forbidden",
	CommandNotFound:     "the command was not found in the container, or is not executable",
	HoldNotSupported:    "a held command needs WebSocket, which is refused on the way to the pod or switched off",
}

// reasonIn looks for a known failure in a server's text.
func reasonIn(text string) (Reason, bool) {
	text = strings.ToLower(text)
rows:
	for _, row := range knownFailures {
		for _, t := range row.texts {
			if !strings.Contains(text, t) {
				continue rows
			}
		}
		return row.reason, true
	}
	return "", false
}

// fail is the Result of a call that went wrong for a reason that a server's or library's text explains.
func fail(reason Reason, text string, argv []string) Result {
	message := meanings[reason]
	// The runtime's text about a missing command says nothing more, and quotes it.
	if detail := withoutArguments(text, argv); detail != "" && reason != CommandNotFound {
		message += ": " + detail
	}
	return Result{Reason: reason, Message: line(message)}
}

// fromStatus judges what arrived on the error channel. Nothing, or nothing that can be read, is ConnectionLost.
func fromStatus(raw []byte, argv []string) Result {
	var status metav1.Status
	if len(raw) == 0 || json.Unmarshal(raw, &status) != nil {
		return fail(ConnectionLost, "", argv)
	}
	switch {
	case status.Status == metav1.StatusSuccess:
		zero := int32(0)
		return Result{Reason: Completed, ExitCode: &zero, Message: meanings[Completed]}
	case status.Status != metav1.StatusFailure:
		return fail(ConnectionLost, "the server sent an unknown status", argv)
	case status.Reason == remotecommand.NonZeroExitCodeReason:
		code, ok := exitCode(status.Details)
		if !ok {
			return fail(ConnectionLost, "the server sent no exit code", argv)
		}
		message := fmt.Sprintf("the command exited with code %d", code)
		if code > 128 && code <= 128+64 {
			message += fmt.Sprintf(" (killed by signal %d)", code-128)
		}
		return Result{Reason: NonZeroExit, ExitCode: &code, Message: message}
	}
	if reason, ok := reasonIn(status.Message); ok {
		return fail(reason, status.Message, argv)
	}
	// Also faults between API server, kubelet and runtime come as a status of Failure: they say nothing about the command.
	return fail(ConnectionLost, status.Message, argv)
}

func exitCode(details *metav1.StatusDetails) (int32, bool) {
	if details == nil {
		return 0, false
	}
	for _, cause := range details.Causes {
		if cause.Type == remotecommand.ExitCodeCauseType {
			code, err := strconv.ParseInt(cause.Message, 10, 32)
			return int32(code), err == nil && code > 0
		}
	}
	return 0, false
}

// answer is an HTTP answer that refuses an upgrade.
type answer struct {
	code int
	body []byte
}

// refusesUpgrade says that the server refused this protocol, and not the request: another protocol may be tried, nothing has started.
func (a answer) refusesUpgrade() bool {
	if _, known := reasonIn(a.text()); known {
		return false
	}
	switch {
	case a.code == http.StatusSwitchingProtocols:
		return false
	case a.code == http.StatusUnauthorized, a.code == http.StatusForbidden, a.code == http.StatusTooManyRequests:
		return false
	case a.code == http.StatusNotImplemented:
		return true
	default:
		return a.code < http.StatusInternalServerError
	}
}

// result judges the answer. beforeStart: over this protocol nothing runs before the upgrade is complete, whatever the answer says.
func (a answer) result(beforeStart bool, argv []string) Result {
	text := a.text()
	if a.code == http.StatusUnauthorized || a.code == http.StatusForbidden {
		return fail(Forbidden, text, argv)
	}
	if reason, ok := reasonIn(text); ok {
		return fail(reason, text, argv)
	}
	if text == "" {
		text = fmt.Sprintf("HTTP status %d", a.code)
	}
	switch {
	case a.code == http.StatusSwitchingProtocols:
		return fail(ConnectionLost, "the server upgraded to something that was not asked for", argv)
	case beforeStart, a.code < http.StatusInternalServerError, a.code == http.StatusServiceUnavailable, a.code == http.StatusNotImplemented:
		return fail(Unreachable, text, argv)
	default:
		// A gateway that lost the node's answer reports 500, 502 or 504 too, and the node may have started the command by then.
		return fail(ConnectionLost, text, argv)
	}
}

// text is the message of a Status object, else the body if it is plain text.
func (a answer) text() string {
	var status metav1.Status
	if json.Unmarshal(a.body, &status) == nil && status.Kind == "Status" {
		return status.Message
	}
	if bytes.HasPrefix(bytes.TrimSpace(a.body), []byte("<")) {
		return ""
	}
	return string(a.body)
}

var urls = regexp.MustCompile(`(?i)[a-z]+://\S+`)

// withoutArguments makes a server's text fit to be shown: URLs of exec requests carry the command and are cut out, and a text that
// quotes an argument is dropped as a whole. Shorter arguments than four bytes are no secrets, and occur in every text.
func withoutArguments(text string, argv []string) string {
	text = urls.ReplaceAllString(text, "…")
	for _, arg := range argv {
		if len(arg) < 4 {
			continue
		}
		quoted := strconv.Quote(arg)
		for _, form := range []string{arg, quoted[1 : len(quoted)-1], url.QueryEscape(arg), url.PathEscape(arg)} {
			if strings.Contains(text, form) {
				return ""
			}
		}
	}
	return strings.TrimSpace(text)
}

// line makes text one printable line of bounded length.
func line(text string) string {
	text = strings.Join(strings.Fields(printable(text, false)), " ")
	if len(text) <= maxMessage {
		return text
	}
	end := maxMessage - len("…")
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}
