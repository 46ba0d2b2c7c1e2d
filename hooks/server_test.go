// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/client-go/rest"
	"k8s.io/streaming/pkg/httpstream"
	"k8s.io/streaming/pkg/httpstream/spdy"
	"k8s.io/utils/clock"
)

// apiServer speaks both exec protocols as a kube-apiserver does. Each accepted call runs command.
type apiServer struct {
	*httptest.Server
	// refuse, if set, answers a request instead of upgrading it, and says that it did.
	refuse func(w http.ResponseWriter, r *http.Request) bool
	// pinged, if set, is called for every ping of a WebSocket and says whether it is answered.
	pinged func() bool
	// command is what runs in the container.
	command func(p *process)

	websockets, spdys, started atomic.Int32
	open                       atomic.Int32
	// conns are the connections below TLS.
	conns       sync.Map
	lastRequest atomic.Pointer[http.Request]
	handlers    sync.WaitGroup
}

// process is the server's side of one exec.
type process struct {
	stdout, stderr io.Writer
	// stdinClosed is closed when the client closes stdin.
	stdinClosed chan struct{}
	// gone is closed when the client's connection is.
	gone chan struct{}
	// status writes to the error channel.
	status io.Writer
	// kill breaks the TCP connection.
	kill func()
}

func (p *process) exit(code int) {
	status := metav1.Status{Status: metav1.StatusSuccess}
	if code != 0 {
		status = metav1.Status{
			Status: metav1.StatusFailure, Reason: remotecommand.NonZeroExitCodeReason, Message: "command terminated",
			Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{
				{Type: remotecommand.ExitCodeCauseType, Message: strconv.Itoa(code)},
			}},
		}
	}
	p.send(status)
}

func (p *process) internalError(message string) {
	p.send(metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Message: message, Code: 500})
}

func (p *process) send(status metav1.Status) {
	raw, err := json.Marshal(status)
	if err != nil {
		panic(err)
	}
	_, _ = p.status.Write(raw)
}

func newAPIServer(t *testing.T, command func(p *process)) *apiServer {
	t.Helper()
	return startAPIServer(t, command, (*httptest.Server).StartTLS)
}

func startAPIServer(t *testing.T, command func(p *process), start func(*httptest.Server)) *apiServer {
	t.Helper()
	s := &apiServer{command: command}
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.Listener = &countingListener{Listener: s.Listener, server: s}
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	start(s.Server)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
		s.handlers.Wait()
	})
	return s
}

func (s *apiServer) executor(t *testing.T, protocol Protocol) *streamExecutor {
	t.Helper()
	exec, err := NewExecutor(&rest.Config{
		Host:            s.URL,
		BearerToken:     "operator",
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	}, protocol, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	return exec.(*streamExecutor)
}

func (s *apiServer) serve(w http.ResponseWriter, r *http.Request) {
	s.handlers.Add(1)
	defer s.handlers.Done()
	s.lastRequest.Store(r)
	if websocket.IsWebSocketUpgrade(r) {
		s.websockets.Add(1)
	} else {
		s.spdys.Add(1)
	}
	if s.refuse != nil && s.refuse(w, r) {
		return
	}
	if websocket.IsWebSocketUpgrade(r) {
		s.serveWebSocket(w, r)
	} else {
		s.serveSPDY(w, r)
	}
}

func (s *apiServer) serveWebSocket(w http.ResponseWriter, r *http.Request) {
	upgrader := websocket.Upgrader{Subprotocols: []string{remotecommand.StreamProtocolV5Name}}
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return
	}
	defer conn.Close()
	var mu sync.Mutex
	channel := func(id byte) writerFunc {
		return func(p []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			return len(p), conn.WriteMessage(websocket.BinaryMessage, append([]byte{id}, p...))
		}
	}
	p := &process{
		stdout: channel(1), stderr: channel(2), status: channel(3),
		stdinClosed: make(chan struct{}), gone: make(chan struct{}),
		kill: s.breakConnections,
	}
	if answer := conn.PingHandler(); s.pinged != nil {
		conn.SetPingHandler(func(data string) error {
			if s.pinged() {
				return answer(data)
			}
			return nil
		})
	}
	go func() {
		defer close(p.gone)
		for {
			_, message, err := conn.ReadMessage()
			if err != nil {
				return
			}
			if len(message) == 2 && message[0] == remotecommand.StreamClose && message[1] == remotecommand.StreamStdIn {
				close(p.stdinClosed)
			}
		}
	}()
	s.started.Add(1)
	s.command(p)
	mu.Lock()
	_ = conn.WriteControl(websocket.CloseMessage, websocket.FormatCloseMessage(websocket.CloseNormalClosure, ""), time.Now().Add(time.Second))
	mu.Unlock()
	// Closing now, with a ping unread, would reset the connection and take what the client has not read yet with it.
	<-p.gone
}

func (s *apiServer) serveSPDY(w http.ResponseWriter, r *http.Request) {
	if _, err := httpstream.Handshake(r, w, []string{remotecommand.StreamProtocolV5Name, remotecommand.StreamProtocolV4Name}); err != nil {
		return
	}
	type openedStream struct {
		httpstream.Stream
		replySent <-chan struct{}
	}
	opened := make(chan openedStream, 8)
	conn := spdy.NewResponseUpgrader().UpgradeResponse(w, r, func(stream httpstream.Stream, replySent <-chan struct{}) error {
		opened <- openedStream{stream, replySent}
		return nil
	})
	if conn == nil {
		return
	}
	defer conn.Close()
	gone := make(chan struct{})
	go func() {
		<-conn.CloseChan()
		close(gone)
	}()
	streams := map[string]httpstream.Stream{}
	for len(streams) < 3 {
		select {
		case stream := <-opened:
			<-stream.replySent
			streams[stream.Headers().Get(corev1.StreamType)] = stream
		case <-gone:
			return
		}
	}
	s.started.Add(1)
	s.command(&process{
		stdout: streams[corev1.StreamTypeStdout], stderr: streams[corev1.StreamTypeStderr], status: streams[corev1.StreamTypeError],
		gone: gone, kill: s.breakConnections,
	})
}

// breakConnections ends every connection without a word.
func (s *apiServer) breakConnections() {
	s.conns.Range(func(conn, _ any) bool {
		_ = conn.(net.Conn).Close()
		return true
	})
}

// countingListener knows which of its connections are open, hijacked ones included.
type countingListener struct {
	net.Listener
	server *apiServer
}

func (l *countingListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	counted := &countedConn{Conn: conn}
	l.server.open.Add(1)
	l.server.conns.Store(counted, nil)
	counted.closed = sync.OnceFunc(func() {
		l.server.open.Add(-1)
		l.server.conns.Delete(counted)
	})
	return counted, nil
}

type countedConn struct {
	net.Conn
	closed func()
}

func (c *countedConn) Close() error {
	c.closed()
	return c.Conn.Close()
}

// statusAnswer is a refusal as the API server words it.
func statusAnswer(w http.ResponseWriter, code int32, reason metav1.StatusReason, message string) {
	raw, err := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: code, Reason: reason, Message: message,
	})
	if err != nil {
		panic(err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(code))
	_, _ = w.Write(raw)
}

// eventually waits for a condition that nothing signals.
func eventually(t *testing.T, what string, met func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	over := time.After(20 * time.Second)
	for !met() {
		select {
		case <-tick.C:
		case <-over:
			t.Fatalf("waited too long for: %s", what)
		}
	}
}
