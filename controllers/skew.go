// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// ClockSkew compares the operator's clock with the Date of the API server's answers, at no extra request.
type ClockSkew struct {
	clock clock.PassiveClock
	skew  atomic.Int64
	known atomic.Bool
}

// NewClockSkew that knows nothing yet.
func NewClockSkew(c clock.PassiveClock) *ClockSkew { return &ClockSkew{clock: c} }

// Skew is how far the operator's clock is ahead of the API server's, to about a second; false: no answer was seen yet.
func (s *ClockSkew) Skew() (time.Duration, bool) {
	return time.Duration(s.skew.Load()), s.known.Load()
}

// Wrap observes a client's transport.
func (s *ClockSkew) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		if t, err := http.ParseTime(resp.Header.Get("Date")); err == nil {
			s.skew.Store(int64(s.clock.Since(t)))
			s.known.Store(true)
		}
		return resp, nil
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
