// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
)

// Protocol carries an exec stream.
type Protocol string

const (
	// ProtocolAuto tries WebSocket, and SPDY if the server refuses the upgrade.
	ProtocolAuto Protocol = "auto"
	// ProtocolWebSocket never falls back.
	ProtocolWebSocket Protocol = "websocket"
	// ProtocolSPDY never tries WebSocket. Held commands are refused.
	ProtocolSPDY Protocol = "spdy"
)

// ParseProtocol reads a Protocol from a flag.
func ParseProtocol(s string) (Protocol, error) {
	switch p := Protocol(s); p {
	case ProtocolAuto, ProtocolWebSocket, ProtocolSPDY:
		return p, nil
	default:
		return "", fmt.Errorf("parsing exec protocol: %q is none of auto, websocket, spdy", s)
	}
}

// Call is one command to run in one container.
type Call struct {
	Target  Target
	Account Account
	Command []string
	// Stdout and Stderr take the output. They must not block and must be safe for concurrent use.
	Stdout, Stderr io.Writer
	// Release, if not nil, makes this a held command: its stdin stays open until the channel is closed.
	Release <-chan struct{}
}

// Result is how a Call ended, as far as its stream tells: Completed means exit code 0.
type Result struct {
	Reason   Reason
	ExitCode *int32
	Message  string
	Protocol Protocol
}

// Executor runs calls. Exec returns when the stream has ended or at once when ctx is done, then with Interrupted (or Unreachable, if
// nothing had been sent yet) and with the stream closed: it leaves neither goroutine nor connection behind. It starts the command at most once.
type Executor interface {
	Exec(ctx context.Context, call Call) Result
}

// NewExecutor returns the Executor that speaks to the API server of cfg, without a rate limit. It acts as a call's account by
// impersonation. clk is for the deadlines of connections.
func NewExecutor(cfg *rest.Config, protocol Protocol, clk clock.WithTicker) (Executor, error) {
	cfg = rest.CopyConfig(cfg)
	// Only HTTP/1.1 can be upgraded.
	cfg.NextProtos = []string{"http/1.1"}
	cfg.Timeout = 0
	cfg.APIPath = "/api"
	cfg.GroupVersion = &corev1.SchemeGroupVersion
	cfg.NegotiatedSerializer = scheme.Codecs.WithoutConversion()
	client, err := rest.RESTClientFor(cfg)
	if err != nil {
		return nil, fmt.Errorf("creating the REST client for exec: %w", err)
	}
	return &streamExecutor{
		cfg: cfg, client: client, protocol: protocol, clock: clk,
		pingPeriod: 5 * time.Second, pongWait: 60 * time.Second, drainGrace: 2 * time.Second,
		accounts: map[Account]*rest.Config{},
	}, nil
}

type streamExecutor struct {
	cfg      *rest.Config
	client   rest.Interface
	protocol Protocol
	clock    clock.WithTicker

	// pingPeriod is how often a stream asks its peer for a sign of life; pongWait is how long a WebSocket may give none.
	pingPeriod, pongWait time.Duration
	// drainGrace is how long output may follow the status: a child that the command left behind can keep stdout open for ever.
	drainGrace time.Duration

	mu sync.Mutex
	// accounts holds one configuration per account.
	accounts map[Account]*rest.Config
}

// Exec implements Executor.
func (e *streamExecutor) Exec(ctx context.Context, call Call) Result {
	hold := call.Release != nil
	if e.protocol == ProtocolSPDY {
		if hold {
			return fail(HoldNotSupported, "", nil)
		}
		return e.execSPDY(ctx, call)
	}
	result, refused := e.execWebSocket(ctx, call)
	switch {
	case !refused || ctx.Err() != nil:
		return result
	case hold:
		return fail(HoldNotSupported, "", nil)
	case e.protocol == ProtocolWebSocket:
		return result
	default:
		return e.execSPDY(ctx, call)
	}
}

// configFor returns the configuration that acts as the account.
func (e *streamExecutor) configFor(account Account) *rest.Config {
	if account == (Account{}) {
		return e.cfg
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	cfg, ok := e.accounts[account]
	if !ok {
		cfg = rest.CopyConfig(e.cfg)
		cfg.Impersonate = rest.ImpersonationConfig{UserName: account.username()}
		e.accounts[account] = cfg
	}
	return cfg
}

// url is the address of the call.
func (e *streamExecutor) url(call Call) *url.URL {
	return e.client.Post().
		Resource("pods").Namespace(call.Target.Namespace).Name(call.Target.Pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{
			Container: call.Target.Container,
			Command:   call.Command,
			Stdin:     call.Release != nil,
			Stdout:    true,
			Stderr:    true,
		}, scheme.ParameterCodec).URL()
}

// broken is the Result of a stream that failed before the server answered.
func broken(ctx context.Context, l *link, err error, argv []string) Result {
	switch {
	case !l.sent():
		return fail(Unreachable, err.Error(), argv)
	case ctx.Err() != nil:
		return interrupted()
	default:
		return fail(ConnectionLost, err.Error(), argv)
	}
}

func interrupted() Result {
	return Result{Reason: Interrupted, Message: "the call was cancelled; the command may still be running"}
}
