// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/gorilla/websocket"
	"k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
)

// streamBuffer is the size of a stream's buffers in bytes. Messages may be longer; small buffers keep a held stream cheap.
const streamBuffer = 4096

// execWebSocket runs the call over WebSocket. refused: the server (or a proxy on the way) does not speak it, and nothing has started.
func (e *streamExecutor) execWebSocket(ctx context.Context, call Call) (result Result, refused bool) {
	cfg := e.configFor(call.Account)
	l, err := newLink(cfg)
	if err != nil {
		return fail(Unreachable, err.Error(), call.Command), false
	}
	defer l.close()
	defer context.AfterFunc(ctx, l.close)()

	upgrade := &wsUpgrade{link: l}
	rt, err := l.wrap(cfg, upgrade)
	if err != nil {
		return fail(Unreachable, err.Error(), call.Command), false
	}
	req, err := http.NewRequestWithContext(l.watch(ctx), http.MethodGet, e.url(call).String(), nil)
	if err != nil {
		return fail(Unreachable, "", nil), false
	}
	resp, err := rt.RoundTrip(req)
	switch {
	case err != nil && httpstream.IsHTTPSProxyError(err):
		return fail(Unreachable, err.Error(), call.Command), true
	case err != nil:
		return broken(ctx, l, err, call.Command), false
	case upgrade.conn == nil:
		a := answer{code: resp.StatusCode, body: readAnswer(resp.Body)}
		return a.result(false, call.Command), a.refusesUpgrade()
	}
	result = e.streamWebSocket(ctx, l, upgrade.conn, call)
	result.Protocol = ProtocolWebSocket
	return result, false
}

// wsUpgrade is the innermost RoundTripper of one WebSocket call. A refusal is an answer, not an error, so that its code is known.
type wsUpgrade struct {
	link *link
	conn *websocket.Conn
}

// RoundTrip implements http.RoundTripper.
func (u *wsUpgrade) RoundTrip(req *http.Request) (*http.Response, error) {
	dialer := websocket.Dialer{
		NetDialContext:  u.link.dial,
		Proxy:           u.link.proxy,
		TLSClientConfig: u.link.tls,
		// v5 only: older ones have no signal that closes stdin, and servers answer them with streams that carry no status.
		Subprotocols:    []string{remotecommand.StreamProtocolV5Name},
		ReadBufferSize:  streamBuffer,
		WriteBufferSize: streamBuffer,
	}
	address := *req.URL
	switch address.Scheme {
	case "https":
		address.Scheme = "wss"
	case "http":
		address.Scheme = "ws"
	}
	conn, resp, err := dialer.DialContext(req.Context(), address.String(), req.Header)
	if errors.Is(err, websocket.ErrBadHandshake) && resp != nil {
		return resp, nil
	}
	if err != nil {
		return nil, err
	}
	if conn.Subprotocol() != remotecommand.StreamProtocolV5Name {
		// A server that upgrades without agreeing may have started the command already.
		u.link.close()
		return nil, errors.New("the server upgraded to an exec protocol that was not asked for")
	}
	u.conn = conn
	return resp, nil
}

// streamWebSocket runs the stream to its end.
func (e *streamExecutor) streamWebSocket(ctx context.Context, l *link, conn *websocket.Conn, call Call) Result {
	s := &wsSession{e: e, conn: conn, call: call, done: make(chan struct{})}
	var workers sync.WaitGroup
	workers.Go(func() {
		defer close(s.done)
		s.err = s.read()
	})
	workers.Go(s.beat)
	select {
	case <-s.done:
	case <-ctx.Done():
	}
	l.close()
	// Both end at once: the connection is closed, and the writers do not block.
	workers.Wait()
	if status := s.status.bytes(); len(status) > 0 || ctx.Err() == nil {
		result := fromStatus(status, call.Command)
		if result.Reason == ConnectionLost && len(status) == 0 && s.err != nil {
			return fail(ConnectionLost, s.err.Error(), call.Command)
		}
		return result
	}
	return interrupted()
}

// wsSession is one stream of v5.channel.k8s.io: binary messages whose first byte is the channel.
type wsSession struct {
	e      *streamExecutor
	conn   *websocket.Conn
	call   Call
	done   chan struct{}
	status statusBuffer
	err    error
	// heard: something has arrived since the last look.
	heard atomic.Bool
}

// read takes what arrives until the stream ends. A peer that gives no sign of life for pongWait has ended it.
func (s *wsSession) read() error {
	ending := false
	alive := func() error {
		wait := s.e.pongWait
		switch {
		case ending:
			// Once the command has ended nothing extends the stream: what it left behind may write to stdout for ever.
			return nil
		case s.status.complete():
			ending = true
			wait = s.e.drainGrace
		}
		return s.conn.SetReadDeadline(s.e.clock.Now().Add(wait))
	}
	s.conn.SetPongHandler(func(string) error { return alive() })
	if err := alive(); err != nil {
		return fmt.Errorf("setting the read deadline: %w", err)
	}
	buffer := make([]byte, streamBuffer)
	for {
		kind, message, err := s.conn.NextReader()
		if err != nil {
			return fmt.Errorf("reading from the stream: %w", err)
		}
		s.heard.Store(true)
		if kind != websocket.BinaryMessage {
			return errors.New("reading from the stream: the server sent text")
		}
		if err := s.deliver(message, buffer); err != nil {
			return fmt.Errorf("reading from the stream: %w", err)
		}
		if err := alive(); err != nil {
			return fmt.Errorf("setting the read deadline: %w", err)
		}
	}
}

// deliver hands one message to the writer of its channel.
func (s *wsSession) deliver(message io.Reader, buffer []byte) error {
	var channel [1]byte
	if _, err := io.ReadFull(message, channel[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	}
	var to io.Writer
	switch channel[0] {
	case remotecommand.StreamStdOut:
		to = s.call.Stdout
	case remotecommand.StreamStdErr:
		to = s.call.Stderr
	case remotecommand.StreamErr:
		to = &s.status
	default:
		to = io.Discard
	}
	_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{message}, buffer)
	return err
}

// beat asks for signs of life, and closes stdin when the command is released. It is the only one that writes data.
func (s *wsSession) beat() {
	ticker := s.e.clock.NewTicker(s.e.pingPeriod)
	defer ticker.Stop()
	release := s.call.Release
	for {
		select {
		case <-s.done:
			return
		case <-ticker.C():
			// A stream that flows needs no sign of life. And a ping that reaches a server just as it closes makes its TCP reset the
			// connection, which drops what has not been read here yet, the status included.
			if s.heard.Swap(false) {
				continue
			}
			// What a failed write means, the reading side finds out by itself.
			_ = s.conn.WriteControl(websocket.PingMessage, nil, s.e.clock.Now().Add(s.e.pongWait))
		case <-release:
			release = nil
			_ = s.conn.SetWriteDeadline(s.e.clock.Now().Add(s.e.pongWait))
			_ = s.conn.WriteMessage(websocket.BinaryMessage, []byte{remotecommand.StreamClose, remotecommand.StreamStdIn})
		}
	}
}

// statusBuffer collects what arrives on the error channel. It is safe for concurrent use.
type statusBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// maxStatus bounds a status; the rest of a longer one is dropped, which makes it unreadable.
const maxStatus = 64 << 10

// Write implements io.Writer.
func (b *statusBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.buf.Write(p[:min(len(p), maxStatus-b.buf.Len())])
	return len(p), nil
}

func (b *statusBuffer) bytes() []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	return bytes.Clone(b.buf.Bytes())
}

// complete: the whole status has arrived.
func (b *statusBuffer) complete() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Len() > 0 && json.Valid(b.buf.Bytes())
}

// readAnswer reads the beginning of a refusal.
func readAnswer(body io.ReadCloser) []byte {
	defer body.Close() //nolint:errcheck // nothing can be done about it, and nothing depends on it
	raw, _ := io.ReadAll(io.LimitReader(body, maxStatus))
	return raw
}
