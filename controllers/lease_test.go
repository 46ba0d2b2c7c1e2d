// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestALeaseIsHeldForAWhileAfterEachRenewal(t *testing.T) {
	g := NewWithT(t)
	c := clocktesting.NewFakeClock(time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC))
	l := NewLease(c, 13*time.Second)
	status, failure := http.StatusOK, error(nil)
	took := time.Duration(0)
	rt := l.Wrap(roundTripper(func(*http.Request) (*http.Response, error) {
		c.Step(took)
		return &http.Response{StatusCode: status}, failure
	}))
	send := func(method, path string) {
		req, err := http.NewRequestWithContext(t.Context(), method, "https://198.18.0.1"+path, http.NoBody)
		g.Expect(err).NotTo(HaveOccurred())
		_, _ = rt.RoundTrip(req)
	}
	const leases = "/apis/coordination.k8s.io/v1/namespaces/ops/leases"
	g.Expect(l.Held()).To(BeFalse(), "it was never taken")

	send(http.MethodPost, leases)
	c.Step(12 * time.Second)
	g.Expect(l.Held()).To(BeTrue())
	c.Step(time.Second)
	g.Expect(l.Held()).To(BeFalse(), "it was not renewed")

	took = 4 * time.Second
	send(http.MethodPut, leases+"/cd2d8e9f.backube")
	c.Step(8 * time.Second)
	g.Expect(l.Held()).To(BeTrue())
	c.Step(time.Second)
	g.Expect(l.Held()).To(BeFalse(), "13 s count from when the renewal was sent")

	took = 0
	send(http.MethodGet, leases+"/cd2d8e9f.backube")
	send(http.MethodPut, "/apis/snapscheduler.backube/v1/namespaces/ops/snapshotruns/leases")
	status = http.StatusConflict
	send(http.MethodPut, leases+"/cd2d8e9f.backube")
	status, failure = http.StatusOK, errors.New("connection lost")
	send(http.MethodPut, leases+"/cd2d8e9f.backube")
	g.Expect(l.Held()).To(BeFalse(), "none of these renewed it")

	g.Expect((*Lease)(nil).Held()).To(BeTrue(), "without leader election there is no lease to lose")
}

// Of two clocks the stricter one counts.
func TestALeaseIsLostAlsoWhenTheMachineWasSuspended(t *testing.T) {
	g := NewWithT(t)
	l := NewLease(clock.RealClock{}, 13*time.Second)
	monotonic := time.Now()
	l.renewed.Store(&monotonic)
	g.Expect(l.Held()).To(BeTrue())
	// What the wall clock alone said 14 s ago: the monotonic clock stood still meanwhile.
	suspended := time.Now().Round(0).Add(-14 * time.Second)
	l.renewed.Store(&suspended)
	g.Expect(l.Held()).To(BeFalse())
}

func TestAwaitLossReturnsOnceTheLeaseIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		l := NewLease(clock.RealClock{}, 13*time.Second)
		lost := make(chan bool, 1)
		begun := time.Now()
		go func() { lost <- l.AwaitLoss(t.Context()) }()
		time.Sleep(time.Minute)
		g.Expect(lost).To(BeEmpty(), "what was never held is not lost")
		renewed := time.Now()
		l.renewed.Store(&renewed)
		g.Expect(<-lost).To(BeTrue())
		g.Expect(time.Since(begun)).To(BeNumerically("~", time.Minute+13*time.Second, time.Second))
	})
}
