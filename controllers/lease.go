// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// leaseCheck is how often a leader looks whether its lease is still good.
const leaseCheck = 500 * time.Millisecond

// Lease knows until when this process may act as the leader. The leader election does not: after the process was stopped for a while (SIGSTOP, a
// suspended machine) it tries to renew for its whole deadline before it gives up, and by then another process has long been leading.
type Lease struct {
	clock   clock.WithTicker
	good    time.Duration
	renewed atomic.Pointer[time.Time]
}

// NewLease that is good for a time from each renewal. The time must be shorter than what other processes wait before they take the lease.
func NewLease(c clock.WithTicker, good time.Duration) *Lease { return &Lease{clock: c, good: good} }

// Held reports whether the lease was renewed lately. Nothing may be done without it. A nil Lease is always held.
func (l *Lease) Held() bool {
	if l == nil {
		return true
	}
	renewed := l.renewed.Load()
	if renewed == nil {
		return false
	}
	// By both clocks: the monotonic one stands still while a machine is suspended, and the other one can be set back.
	now := l.clock.Now()
	return now.Sub(*renewed) < l.good && now.Round(0).Sub(renewed.Round(0)) < l.good
}

// AwaitLoss returns true once a lease that was held is not, and false when ctx is done.
func (l *Lease) AwaitLoss(ctx context.Context) bool {
	ticker := l.clock.NewTicker(leaseCheck)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-ticker.C():
			if l.renewed.Load() != nil && !l.Held() {
				return true
			}
		}
	}
}

// Wrap observes the transport over which the lease is renewed. Whoever sees the renewal waits from then on, which is later than it was sent.
func (l *Lease) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		sent := l.clock.Now()
		resp, err := next.RoundTrip(req)
		if err == nil && resp.StatusCode < http.StatusMultipleChoices && writesLease(req) {
			l.renewed.Store(&sent)
		}
		return resp, err
	})
}

func writesLease(req *http.Request) bool {
	return (req.Method == http.MethodPut || req.Method == http.MethodPost) && strings.HasPrefix(req.URL.Path, "/apis/coordination.k8s.io/") &&
		strings.Contains(req.URL.Path, "/leases")
}
