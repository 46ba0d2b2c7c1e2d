// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"net/http"
	"testing"

	"github.com/gorilla/websocket"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestRefusals(t *testing.T) {
	status := func(code int32, reason metav1.StatusReason, message string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool {
			statusAnswer(w, code, reason, message)
			return true
		}
	}
	text := func(code int, body string) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, _ *http.Request) bool {
			http.Error(w, body, code)
			return true
		}
	}
	onlyWebSocket := func(refuse func(http.ResponseWriter, *http.Request) bool) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			return websocket.IsWebSocketUpgrade(r) && refuse(w, r)
		}
	}
	for name, tc := range map[string]struct {
		refuse            func(http.ResponseWriter, *http.Request) bool
		reason            Reason
		websockets, spdys int32
		started           int32
	}{
		"forbidden never falls back": {
			status(403, metav1.StatusReasonForbidden, `pods "db-0" is forbidden`), Forbidden, 1, 0, 0,
		},
		"forbidden without a Status object never falls back": {text(403, "no"), Forbidden, 1, 0, 0},
		"unauthorized never falls back":                      {status(401, metav1.StatusReasonUnauthorized, "Unauthorized"), Forbidden, 1, 0, 0},
		"a pod that does not exist is not asked for twice": {
			status(404, metav1.StatusReasonNotFound, `pods "db-0" not found`), PodNotFound, 1, 0, 0,
		},
		"the kubelet's word for it":                  {text(404, "pod does not exist"), PodNotFound, 1, 0, 0},
		"a container that the pod does not have":     {status(400, metav1.StatusReasonBadRequest, "container x is not valid for pod db-0"), ContainerNotFound, 1, 0, 0},
		"a completed pod":                            {status(400, metav1.StatusReasonBadRequest, "cannot exec into a container in a completed pod; current phase is Failed"), PodGone, 1, 0, 0},
		"a node that cannot be dialled":              {status(500, metav1.StatusReasonInternalError, "error dialing backend: dial tcp 10.0.0.1:10250: connect: connection refused"), Unreachable, 1, 0, 0},
		"too many requests":                          {status(429, metav1.StatusReasonTooManyRequests, "slow down"), Unreachable, 1, 0, 0},
		"an unavailable server":                      {status(503, metav1.StatusReasonServiceUnavailable, "later"), Unreachable, 1, 0, 0},
		"a gateway's error may hide a start":         {onlyWebSocket(text(502, "<html>bad gateway</html>")), ConnectionLost, 1, 0, 0},
		"an answer lost on the way may hide a start": {onlyWebSocket(status(500, metav1.StatusReasonInternalError, "EOF")), ConnectionLost, 1, 0, 0},
		"a refused upgrade falls back once and the command starts once": {
			onlyWebSocket(text(400, "unable to upgrade")), Completed, 1, 1, 1,
		},
		"a server that upgrades without agreeing on a protocol may have started": {
			onlyWebSocket(func(w http.ResponseWriter, r *http.Request) bool {
				upgrader := websocket.Upgrader{}
				if conn, err := upgrader.Upgrade(w, r, nil); err == nil {
					_ = conn.Close()
				}
				return true
			}), ConnectionLost, 1, 0, 0,
		},
		"a server that answers 101 without being a WebSocket may have started": {
			onlyWebSocket(func(w http.ResponseWriter, _ *http.Request) bool {
				w.Header().Set("Connection", "Upgrade")
				w.Header().Set("Upgrade", "other")
				w.WriteHeader(http.StatusSwitchingProtocols)
				return true
			}), ConnectionLost, 1, 0, 0,
		},
		"no answer at all may hide a start": {
			onlyWebSocket(func(w http.ResponseWriter, _ *http.Request) bool {
				conn, _, err := w.(http.Hijacker).Hijack()
				if err == nil {
					_ = conn.Close()
				}
				return true
			}), ConnectionLost, 1, 0, 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer(t, func(p *process) { p.exit(0) })
			s.refuse = tc.refuse
			result := s.executor(t, ProtocolAuto).Exec(t.Context(), testCall(newCapture("", "", nil)))
			if result.Reason != tc.reason {
				t.Errorf("got %s %q, want %s", result.Reason, result.Message, tc.reason)
			}
			if ws, sp, st := s.websockets.Load(), s.spdys.Load(), s.started.Load(); ws != tc.websockets || sp != tc.spdys || st != tc.started {
				t.Errorf("got %d WebSocket requests, %d SPDY requests, %d starts; want %d, %d, %d",
					ws, sp, st, tc.websockets, tc.spdys, tc.started)
			}
		})
	}
}

func TestRefusalsOverSPDYNeverStarted(t *testing.T) {
	s := newAPIServer(t, nil)
	s.refuse = func(w http.ResponseWriter, _ *http.Request) bool {
		statusAnswer(w, 500, metav1.StatusReasonInternalError, "EOF")
		return true
	}
	if result := s.executor(t, ProtocolSPDY).Exec(t.Context(), testCall(newCapture("", "", nil))); result.Reason != Unreachable {
		t.Fatalf("got %s %q", result.Reason, result.Message)
	}
}

func TestHoldNeedsWebSocket(t *testing.T) {
	for name, tc := range map[string]struct {
		protocol Protocol
		requests int32
	}{
		"over SPDY nothing is even asked": {ProtocolSPDY, 0},
		"auto does not fall back":         {ProtocolAuto, 1},
		"websocket":                       {ProtocolWebSocket, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := newAPIServer(t, func(p *process) { p.exit(0) })
			s.refuse = func(w http.ResponseWriter, r *http.Request) bool {
				if websocket.IsWebSocketUpgrade(r) {
					http.Error(w, "unable to upgrade", http.StatusBadRequest)
					return true
				}
				return false
			}
			call := testCall(newCapture("", "", nil))
			call.Release = make(chan struct{})
			result := s.executor(t, tc.protocol).Exec(t.Context(), call)
			if result.Reason != HoldNotSupported || !result.Reason.NeverStarted() {
				t.Errorf("got %s %q", result.Reason, result.Message)
			}
			if n := s.websockets.Load() + s.spdys.Load(); n != tc.requests || s.started.Load() != 0 {
				t.Errorf("got %d requests and %d starts", n, s.started.Load())
			}
		})
	}
}
