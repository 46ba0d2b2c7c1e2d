// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/moby/spdystream"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/remotecommand"
	"k8s.io/streaming/pkg/httpstream"
)

// execSPDY runs the call over SPDY. Nothing starts before the client has opened its streams, which is after the upgrade.
func (e *streamExecutor) execSPDY(ctx context.Context, call Call) Result {
	cfg := e.configFor(call.Account)
	l, err := newLink(cfg)
	if err != nil {
		return fail(Unreachable, err.Error(), call.Command)
	}
	defer l.close()
	defer context.AfterFunc(ctx, l.close)()

	// One connection, for this call only; http.Transport knows proxies and ends when the context does.
	rt, err := l.wrap(cfg, &http.Transport{
		DialContext: l.dial, Proxy: l.proxy, TLSClientConfig: l.tls, DisableKeepAlives: true,
	})
	if err != nil {
		return fail(Unreachable, err.Error(), call.Command)
	}
	req, err := http.NewRequestWithContext(l.watch(ctx), http.MethodPost, e.url(call).String(), nil)
	if err != nil {
		return fail(Unreachable, "", nil)
	}
	req.Header.Set(httpstream.HeaderConnection, httpstream.HeaderUpgrade)
	req.Header.Set(httpstream.HeaderUpgrade, "SPDY/3.1")
	// v4 is the first that reports exit codes; the two differ in nothing that matters here.
	req.Header.Add(httpstream.HeaderProtocolVersion, remotecommand.StreamProtocolV5Name)
	req.Header.Add(httpstream.HeaderProtocolVersion, remotecommand.StreamProtocolV4Name)
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return broken(ctx, l, err, call.Command)
	}
	upgraded, ok := resp.Body.(io.ReadWriteCloser)
	if resp.StatusCode != http.StatusSwitchingProtocols || !ok {
		a := answer{code: resp.StatusCode, body: readAnswer(resp.Body)}
		return a.result(true, call.Command)
	}
	conn, err := spdystream.NewConnection(upgradedConn{upgraded}, false)
	if err != nil {
		return fail(Unreachable, err.Error(), call.Command)
	}
	go conn.Serve(spdystream.NoOpStreamHandler)
	go e.keepAlive(conn)
	result := e.streamSPDY(ctx, l, conn, call)
	result.Protocol = ProtocolSPDY
	return result
}

// streamSPDY runs the streams to their end.
func (e *streamExecutor) streamSPDY(ctx context.Context, l *link, conn *spdystream.Connection, call Call) Result {
	var status statusBuffer
	complete := make(chan struct{})
	ended := make(chan error, 1)
	go func() { ended <- copySPDY(conn, call, &status, sync.OnceFunc(func() { close(complete) })) }()

	lost := conn.CloseChan()
	var grace <-chan time.Time
	var err error
wait:
	for {
		select {
		case err = <-ended:
			break wait
		case <-ctx.Done():
			break wait
		case <-grace:
			break wait
		case <-complete:
			complete = nil
			timer := e.clock.NewTimer(e.drainGrace)
			defer timer.Stop()
			grace = timer.C()
		case <-lost:
			// What has arrived is still being delivered.
			lost = nil
			if grace == nil {
				timer := e.clock.NewTimer(e.drainGrace)
				defer timer.Stop()
				grace = timer.C()
			}
		}
	}
	l.close()
	if raw := status.bytes(); len(raw) > 0 || ctx.Err() == nil {
		result := fromStatus(raw, call.Command)
		if result.Reason == ConnectionLost && len(raw) == 0 && err != nil {
			return fail(ConnectionLost, err.Error(), call.Command)
		}
		return result
	}
	return interrupted()
}

// copySPDY opens the streams and copies from them until all have ended. onStatus is called when the whole status has arrived.
func copySPDY(conn *spdystream.Connection, call Call, status *statusBuffer, onStatus func()) error {
	// The end of a stream looks the same whether the server closed it or the connection broke; the status tells.
	var copies sync.WaitGroup
	defer copies.Wait()
	// The server starts the command when it has all of them.
	for _, stream := range []struct {
		kind string
		to   io.Writer
	}{
		{corev1.StreamTypeError, writerFunc(func(p []byte) (int, error) {
			n, err := status.Write(p)
			if status.complete() {
				onStatus()
			}
			return n, err
		})},
		{corev1.StreamTypeStdout, call.Stdout},
		{corev1.StreamTypeStderr, call.Stderr},
	} {
		from, err := openSPDY(conn, stream.kind)
		if err != nil {
			return fmt.Errorf("opening the %s stream: %w", stream.kind, err)
		}
		copies.Go(func() { _, _ = io.CopyBuffer(struct{ io.Writer }{stream.to}, from, make([]byte, streamBuffer)) })
	}
	return nil
}

// openSPDY opens one stream and waits until the server has accepted it or the connection is closed.
func openSPDY(conn *spdystream.Connection, kind string) (io.Reader, error) {
	stream, err := conn.CreateStream(http.Header{corev1.StreamType: []string{kind}}, nil, false)
	if err != nil {
		return nil, err
	}
	for {
		// The wait does not end with the connection, so it goes in short steps: nothing may outlive its call.
		err := stream.WaitTimeout(100 * time.Millisecond)
		if !errors.Is(err, spdystream.ErrTimeout) {
			return stream, err
		}
		select {
		case <-conn.CloseChan():
			return nil, io.ErrUnexpectedEOF
		default:
		}
	}
}

// keepAlive keeps what lies between the peers from taking a silent connection for a dead one. The SPDY side has no bound of its
// own for a peer that does not answer: the call's timeout is that.
func (e *streamExecutor) keepAlive(conn *spdystream.Connection) {
	ticker := e.clock.NewTicker(e.pingPeriod)
	defer ticker.Stop()
	for {
		select {
		case <-conn.CloseChan():
			return
		case <-ticker.C():
			_, _ = conn.Ping()
		}
	}
}

// upgradedConn lets the SPDY library use the connection that an upgraded HTTP answer hands over. It reads, writes and closes only.
type upgradedConn struct {
	io.ReadWriteCloser
}

func (upgradedConn) LocalAddr() net.Addr  { return &net.TCPAddr{} }
func (upgradedConn) RemoteAddr() net.Addr { return &net.TCPAddr{} }

func (upgradedConn) SetDeadline(time.Time) error {
	return os.ErrNoDeadline
}
func (c upgradedConn) SetReadDeadline(t time.Time) error  { return c.SetDeadline(t) }
func (c upgradedConn) SetWriteDeadline(t time.Time) error { return c.SetDeadline(t) }
