// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"sync"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// dialTimeout bounds the TCP connection to the API server. What follows is bounded by the call's context.
const dialTimeout = 30 * time.Second

// link is the network connection below one call. It is there to know for sure whether anything was sent, and to close the connection
// at once: closing TLS waits up to five seconds for a peer that does not read.
type link struct {
	dialer func(ctx context.Context, network, address string) (net.Conn, error)
	proxy  func(*http.Request) (*url.URL, error)
	tls    *tls.Config

	mu      sync.Mutex
	conn    net.Conn
	closed  bool
	written bool
}

func newLink(cfg *rest.Config) (*link, error) {
	tlsConfig, err := rest.TLSConfigFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("configuring TLS: %w", err)
	}
	l := &link{dialer: cfg.Dial, proxy: cfg.Proxy, tls: tlsConfig}
	if l.dialer == nil {
		l.dialer = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	if l.proxy == nil {
		l.proxy = http.ProxyFromEnvironment
	}
	return l, nil
}

// wrap puts the configuration's authentication and impersonation around rt.
func (l *link) wrap(cfg *rest.Config, rt http.RoundTripper) (http.RoundTripper, error) {
	transportConfig, err := cfg.TransportConfig()
	if err != nil {
		return nil, fmt.Errorf("configuring the transport: %w", err)
	}
	wrapped, err := transport.HTTPWrappersForConfig(transportConfig, rt)
	if err != nil {
		return nil, fmt.Errorf("configuring authentication: %w", err)
	}
	return wrapped, nil
}

func (l *link) dial(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := l.dialer(ctx, network, address)
	if err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		_ = conn.Close()
		return nil, errors.New("the call has ended")
	}
	l.conn = conn
	return conn, nil
}

// watch makes ctx note when the connection, through proxy and TLS, is ready to be written to.
func (l *link) watch(ctx context.Context) context.Context {
	note := func(written bool) {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.written = written
	}
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn:           func(httptrace.GotConnInfo) { note(true) },
		TLSHandshakeStart: func() { note(false) },
		TLSHandshakeDone:  func(_ tls.ConnectionState, err error) { note(err == nil) },
	})
}

// sent says whether the request may have reached the server.
func (l *link) sent() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.written
}

// close ends the connection without a word, also one that is still being dialled.
func (l *link) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.conn != nil {
		_ = l.conn.Close()
	}
}
