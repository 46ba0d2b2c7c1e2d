// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"context"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

var bothProtocols = []Protocol{ProtocolWebSocket, ProtocolSPDY}

const secret = "hunter2-password"

func testCall(output *capture) Call {
	return Call{
		Target:  Target{Namespace: "shop", Pod: "db-0", Container: "postgres"},
		Command: []string{"psql", "-c", secret},
		Stdout:  output, Stderr: output.stderr(),
	}
}

func TestHowAStreamEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		command  func(p *process)
		reason   Reason
		exitCode int32 // -1: none
		message  string
	}{
		"a command that exits with 0 has completed": {
			func(p *process) { p.exit(0) }, Completed, 0, "completed",
		},
		"an exit code is reported": {
			func(p *process) { p.exit(7) }, NonZeroExit, 7, "code 7",
		},
		"death by a signal is told in words": {
			func(p *process) { p.exit(137) }, NonZeroExit, 137, "signal 9",
		},
		"a stream that ends without a status is lost, not successful": {
			func(p *process) { _, _ = io.WriteString(p.stdout, "half") }, ConnectionLost, -1, "without the command's status",
		},
		"a broken TCP connection is lost": {
			func(p *process) { p.kill() }, ConnectionLost, -1, "without the command's status",
		},
		"a status that cannot be read is lost": {
			func(p *process) { _, _ = io.WriteString(p.status, "{oops") }, ConnectionLost, -1, "",
		},
		"half a status is lost": {
			func(p *process) { _, _ = io.WriteString(p.status, `{"status":"Suc`) }, ConnectionLost, -1, "",
		},
		"a missing program never started and its name is not repeated": {
			func(p *process) {
				p.internalError(`OCI runtime exec failed: exec: "` + secret + `": executable file not found in $PATH: unknown`)
			}, CommandNotFound, -1, "not found in the container",
		},
		"a path that does not exist never started": {
			func(p *process) {
				p.internalError(`error executing command in container: exec: "/nope": stat /nope: no such file or directory`)
			}, CommandNotFound, -1, "not found in the container",
		},
		"the API server that cannot reach the kubelet says so without the request's URL": {
			func(p *process) {
				p.internalError(`error sending request: Post "https://10.0.0.1:10250/exec/shop/db-0/postgres?command=` + secret + `": dial tcp 10.0.0.1:10250: connect: connection refused`)
			}, Unreachable, -1, "connection refused",
		},
		"a container that the kubelet does not find among those that run never ran it": {
			func(p *process) { p.internalError(`unable to upgrade connection: container not found ("postgres")`) },
			ContainerNotRunning, -1, "does not run",
		},
		"a container that has stopped is gone": {
			func(p *process) { p.internalError("container is in CONTAINER_EXITED state") }, PodGone, -1, "not running any more",
		},
		"a fault between the servers leaves the end unknown": {
			func(p *process) { p.internalError("error reading from error stream: EOF") }, ConnectionLost, -1, "EOF",
		},
	} {
		for _, protocol := range bothProtocols {
			t.Run(name+"/"+string(protocol), func(t *testing.T) {
				s := newAPIServer(t, tc.command)
				result := s.executor(t, protocol).Exec(t.Context(), testCall(newCapture("", "", nil)))
				if result.Reason != tc.reason || !strings.Contains(result.Message, tc.message) {
					t.Fatalf("got %s %q, want %s %q", result.Reason, result.Message, tc.reason, tc.message)
				}
				switch {
				case tc.exitCode < 0 && result.ExitCode != nil:
					t.Fatalf("got exit code %d, want none", *result.ExitCode)
				case tc.exitCode >= 0 && (result.ExitCode == nil || *result.ExitCode != tc.exitCode):
					t.Fatalf("got exit code %v, want %d", result.ExitCode, tc.exitCode)
				}
				if result.Protocol != protocol {
					t.Fatalf("got protocol %q", result.Protocol)
				}
				if strings.Contains(result.Message, secret) || strings.Contains(result.Message, "://") {
					t.Fatalf("the message tells an argument: %q", result.Message)
				}
			})
		}
	}
}

func TestRequestsCarryTheCallAndItsAccount(t *testing.T) {
	for _, protocol := range bothProtocols {
		t.Run(string(protocol), func(t *testing.T) {
			s := newAPIServer(t, func(p *process) { p.exit(0) })
			call := testCall(newCapture("", "", nil))
			call.Account = Account{Namespace: "shop", Name: "snapshots"}
			exec := s.executor(t, protocol)
			for range 2 {
				if result := exec.Exec(t.Context(), call); result.Reason != Completed {
					t.Fatalf("got %s %q", result.Reason, result.Message)
				}
			}
			if len(exec.accounts) != 1 {
				t.Errorf("got %d configurations for one account", len(exec.accounts))
			}
			r := s.lastRequest.Load()
			if r.URL.Path != "/api/v1/namespaces/shop/pods/db-0/exec" {
				t.Errorf("got path %s", r.URL.Path)
			}
			q := r.URL.Query()
			if q.Get("container") != "postgres" || strings.Join(q["command"], " ") != "psql -c "+secret || q.Has("stdin") {
				t.Errorf("got query %v", q)
			}
			if got := r.Header.Get("Impersonate-User"); got != "system:serviceaccount:shop:snapshots" {
				t.Errorf("got impersonation %q", got)
			}
			if got := r.Header.Get("Authorization"); got != "Bearer operator" {
				t.Errorf("got authorization %q", got)
			}
		})
	}
}

func TestAServerThatCannotBeDialledIsUnreachable(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	noTLS := newAPIServer(t, nil)
	for name, host := range map[string]string{
		"nobody listens":      "https://" + address,
		"an untrusted server": noTLS.URL,
	} {
		for _, protocol := range []Protocol{ProtocolAuto, ProtocolSPDY} {
			t.Run(name+"/"+string(protocol), func(t *testing.T) {
				exec, err := NewExecutor(&rest.Config{Host: host}, protocol, clock.RealClock{})
				if err != nil {
					t.Fatal(err)
				}
				result := exec.Exec(t.Context(), testCall(newCapture("", "", nil)))
				if result.Reason != Unreachable || strings.Contains(result.Message, secret) {
					t.Fatalf("got %s %q", result.Reason, result.Message)
				}
			})
		}
	}
}

func TestCancellationReturnsAtOnceAndClosesTheStream(t *testing.T) {
	for _, protocol := range bothProtocols {
		t.Run(string(protocol), func(t *testing.T) {
			running := make(chan struct{})
			s := newAPIServer(t, func(p *process) {
				close(running)
				<-p.gone
			})
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-running
				cancel()
			}()
			if result := s.executor(t, protocol).Exec(ctx, testCall(newCapture("", "", nil))); result.Reason != Interrupted {
				t.Fatalf("got %s %q", result.Reason, result.Message)
			}
			eventually(t, "the connection to be closed", func() bool { return s.open.Load() == 0 })
		})
	}
}

func TestCancellationWhileTheServerIsSilent(t *testing.T) {
	for _, protocol := range bothProtocols {
		t.Run(string(protocol), func(t *testing.T) {
			asked, over := make(chan struct{}), make(chan struct{})
			s := newAPIServer(t, nil)
			s.refuse = func(http.ResponseWriter, *http.Request) bool {
				close(asked)
				<-over
				return true
			}
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-asked
				cancel()
			}()
			result := s.executor(t, protocol).Exec(ctx, testCall(newCapture("", "", nil)))
			close(over)
			if result.Reason != Interrupted {
				t.Fatalf("got %s %q", result.Reason, result.Message)
			}
		})
	}
}

func TestAPeerWithoutASignOfLifeIsLost(t *testing.T) {
	s := newAPIServer(t, func(p *process) { <-p.gone })
	s.pinged = func() bool { return false }
	exec := s.executor(t, ProtocolWebSocket)
	exec.pingPeriod, exec.pongWait = 5*time.Millisecond, 50*time.Millisecond
	if result := exec.Exec(t.Context(), testCall(newCapture("", "", nil))); result.Reason != ConnectionLost {
		t.Fatalf("got %s %q", result.Reason, result.Message)
	}
}

func TestSignsOfLifeKeepASilentStreamOpen(t *testing.T) {
	pings := make(chan struct{}, 100)
	s := newAPIServer(t, func(p *process) {
		for range 30 {
			<-pings
		}
		p.exit(0)
	})
	s.pinged = func() bool {
		pings <- struct{}{}
		return true
	}
	exec := s.executor(t, ProtocolWebSocket)
	// 30 pings take three times what a peer without a sign of life is given.
	exec.pingPeriod, exec.pongWait = 50*time.Millisecond, 500*time.Millisecond
	if result := exec.Exec(t.Context(), testCall(newCapture("", "", nil))); result.Reason != Completed {
		t.Fatalf("got %s %q", result.Reason, result.Message)
	}
}

func TestAChildThatKeepsTheOutputOpenDoesNotHideTheStatus(t *testing.T) {
	for _, protocol := range bothProtocols {
		t.Run(string(protocol), func(t *testing.T) {
			s := newAPIServer(t, func(p *process) {
				p.exit(3)
				for {
					if _, err := io.WriteString(p.stdout, "still here\n"); err != nil {
						return
					}
					select {
					case <-p.gone:
						return
					case <-time.After(time.Millisecond):
					}
				}
			})
			exec := s.executor(t, protocol)
			exec.drainGrace = 20 * time.Millisecond
			if result := exec.Exec(t.Context(), testCall(newCapture("", "", nil))); result.Reason != NonZeroExit {
				t.Fatalf("got %s %q", result.Reason, result.Message)
			}
		})
	}
}

func TestAStatusInPiecesIsPutTogether(t *testing.T) {
	for _, protocol := range bothProtocols {
		t.Run(string(protocol), func(t *testing.T) {
			s := newAPIServer(t, func(p *process) {
				for _, piece := range []string{`{"sta`, `tus":"Succ`, `ess"}`} {
					_, _ = io.WriteString(p.status, piece)
				}
			})
			if result := s.executor(t, protocol).Exec(t.Context(), testCall(newCapture("", "", nil))); result.Reason != Completed {
				t.Fatalf("got %s %q", result.Reason, result.Message)
			}
		})
	}
}

func TestHugeOutputIsDrainedInBoundedMemory(t *testing.T) {
	for _, protocol := range bothProtocols {
		t.Run(string(protocol), func(t *testing.T) {
			const size, chunk = 20 << 20, 16 << 10
			s := newAPIServer(t, func(p *process) {
				piece := []byte(strings.Repeat("x", chunk))
				for range size / chunk {
					_, _ = p.stdout.Write(piece)
				}
				_, _ = io.WriteString(p.stdout, "and done")
				p.exit(0)
			})
			output := newCapture("and done", "", nil)
			call := testCall(output)
			var seen, peak uint64
			call.Stdout = writerFunc(func(p []byte) (int, error) {
				if before := seen >> 22; (seen+uint64(len(p)))>>22 != before {
					runtime.GC()
					var m runtime.MemStats
					runtime.ReadMemStats(&m)
					peak = max(peak, m.HeapAlloc)
				}
				seen += uint64(len(p))
				return output.Write(p)
			})
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			base := m.HeapAlloc
			if result := s.executor(t, protocol).Exec(t.Context(), call); result.Reason != Completed {
				t.Fatalf("got %s %q", result.Reason, result.Message)
			}
			if ready, _ := output.expected(); !ready || seen != size+8 {
				t.Errorf("got %d bytes, expected text seen: %v", seen, ready)
			}
			if got := output.output(); len(got) > MaxOutput || !strings.HasSuffix(got, "and done") {
				t.Errorf("got a tail of %d bytes", len(got))
			}
			if peak > base+4<<20 {
				t.Errorf("the heap grew from %d to %d bytes", base, peak)
			}
		})
	}
}

func TestAHeldCommandIsReleasedByClosingItsStdin(t *testing.T) {
	s := newAPIServer(t, func(p *process) {
		_, _ = io.WriteString(p.stdout, "READY\n")
		<-p.stdinClosed
		_, _ = io.WriteString(p.stdout, "RELEASED\n")
		p.exit(0)
	})
	release := make(chan struct{})
	output := newCapture("READY", "RELEASED", func() { close(release) })
	call := testCall(output)
	call.Release = release
	result := s.executor(t, ProtocolAuto).Exec(t.Context(), call)
	if ready, released := output.expected(); result.Reason != Completed || !ready || !released {
		t.Fatalf("got %s %q, ready %v, released %v", result.Reason, result.Message, ready, released)
	}
	if !s.lastRequest.Load().URL.Query().Has("stdin") {
		t.Error("the request did not ask for stdin")
	}
}

func TestProtocolNames(t *testing.T) {
	for _, name := range []string{"auto", "websocket", "spdy"} {
		if p, err := ParseProtocol(name); err != nil || string(p) != name {
			t.Errorf("%s: got %q, %v", name, p, err)
		}
	}
	if _, err := ParseProtocol("http"); err == nil {
		t.Error("http was accepted")
	}
	// The server side of the tests and the client must mean the same thing.
	if remotecommand.StreamClose != 255 {
		t.Error("the close signal has changed")
	}
}
