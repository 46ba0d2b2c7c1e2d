// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"maps"
	"net/http"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// What the operator asks of the API server, counted and not timed: a request too many fails these tests on every machine. Watches are not
// counted, they are there all the time, and neither are leases, which these operators have none of.

// ledger counts requests, as "verb resource[/subresource]".
type ledger struct {
	mu     sync.Mutex
	counts map[string]int
}

// counted has every request of a transport noted.
type counted struct {
	next http.RoundTripper
	in   *ledger
}

func (c counted) RoundTrip(r *http.Request) (*http.Response, error) {
	c.in.note(r)
	return c.next.RoundTrip(r)
}

func (l *ledger) note(r *http.Request) {
	info, err := requests.NewRequestInfo(r)
	if err != nil || info.Verb == "watch" {
		return
	}
	what := info.Verb + " " + info.Path
	if info.IsResourceRequest {
		what = info.Verb + " " + info.Resource
		if info.Subresource != "" {
			what += "/" + info.Subresource
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.counts == nil {
		l.counts = map[string]int{}
	}
	l.counts[what]++
}

// reset begins anew.
func (l *ledger) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts = map[string]int{}
}

func (l *ledger) all() map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.counts)
}

// asks: exactly this was asked, or one more of what may be, and nothing follows. Events are sent in the background.
func (o *operator) asks(want map[string]int, maybeOneMore, what string) {
	o.t.Helper()
	asked := func() map[string]int {
		all := o.asked.all()
		if maybeOneMore != "" && all[maybeOneMore] == want[maybeOneMore]+1 {
			all[maybeOneMore]--
		}
		return all
	}
	o.will(asked).Should(Equal(want), what)
	o.Consistently(asked, 500*time.Millisecond, pollInterval).Should(Equal(want), what)
}

// inTime is an operator whose clock stands behind the API server's: what it has just created is new to it. See run.DirectGrace.
func inTime(t *testing.T) *operator {
	t.Helper()
	o := prepare(t)
	o.base = time.Now().UTC().Truncate(time.Hour).Add(-24 * time.Hour)
	o.clock.SetTime(o.base)
	o.start()
	return o
}

// enough slots for what is asked of the driver once only, and for the first old run and the first old snapshots to go: from then on every slot
// costs the same.
const enough = 4

// everySlotAsks for exactly this, or for one more of what may be.
func (o *operator) everySlotAsks(want map[string]int, maybeOneMore string) {
	o.t.Helper()
	for n := 1; n <= enough; n++ {
		o.tick(o.hour(n))
	}
	for n := enough + 1; n <= enough+3; n++ {
		o.asked.reset()
		o.clock.SetTime(o.hour(n))
		o.pokeOnce("hourly") // and not again: a write of the test's in between would have the operator's refused, and repeated
		o.asks(want, maybeOneMore, fmt.Sprintf("slot %d", n))
	}
	o.Expect(o.runs("")).To(HaveEach(HaveField("Status.Result", v1.ResultSucceeded)))
}

func (o *operator) pokeOnce(schedule string) {
	o.t.Helper()
	o.pokes++
	o.patch(&v1.SnapshotSchedule{}, schedule, fmt.Sprintf(`{"metadata":{"annotations":{%q:"%d"}}}`, annotationPoke, o.pokes))
}

// Only the snapshots follow the number of claims.
func TestARunWithoutHooksAsksForNoMoreThanItNeeds(t *testing.T) {
	t.Parallel()
	o := inTime(t)
	for _, name := range []string{"a", "b", "c"} {
		o.claim(name)
	}
	o.schedule("hourly", `{schedule: "0 * * * *", retention: {maxCount: 3}}`)

	o.everySlotAsks(map[string]int{
		"create snapshotruns":            1,
		"list persistentvolumeclaims":    2, // to take; for retention, which keeps the last snapshot of a claim that exists
		"create volumesnapshots":         3,
		"patch snapshotruns/status":      1,
		"patch snapshotschedules/status": 1,
		"create events":                  4, // succeeded; an expired snapshot each
		"delete volumesnapshots":         3, // of the oldest run that has some
		"delete snapshotruns":            1,
	}, "patch snapshotschedules/status") // clocks that differ by a day: the end may come after the books
}

func TestARunWithHooksAsksForNoMoreThanItsJournal(t *testing.T) {
	t.Parallel()
	o := inTime(t)
	o.claim("data")
	o.pod("db")
	hook := `{podSelector: {matchLabels: {app: db}}, command: [work]}`
	o.schedule("hourly", fmt.Sprintf(`{schedule: "0 * * * *", retention: {maxCount: 3}, preHooks: [%s], postHooks: [%s]}`, hook, hook))

	o.everySlotAsks(map[string]int{
		"create snapshotruns":             1,
		"list persistentvolumeclaims":     2,
		"list pods":                       2, // for the plan; after the release, for the consistency
		"create selfsubjectaccessreviews": 2, // get and create of pods/exec
		"create volumesnapshots":          1,
		"patch volumesnapshots":           1, // application-consistent
		"patch snapshotruns/status":       6,
		"patch snapshotruns":              1, // its finalizer
		"patch snapshotschedules/status":  4,
		"create events":                   5, // started and succeeded, on the run and on the schedule; an expired snapshot
		"delete volumesnapshots":          1,
		"delete snapshotruns":             1,
	}, "patch snapshotruns/status") // if the cut is seen before the release has its place in the pool
}

func TestNothingIsAskedBetweenSlots(t *testing.T) {
	t.Parallel()
	o := inTime(t)
	o.claim("data")
	for i := range 20 {
		o.schedule(fmt.Sprintf("hourly-%d", i), `{schedule: "0 * * * *", retention: {maxCount: 2, expires: 100h}}`)
	}
	for n := range 3 {
		o.tick(o.hour(n + 1))
	}
	o.will(o.snapshots).Should(HaveLen(40), "retention has had its say")
	o.settle()
	o.asked.reset()

	for minute := 1; minute < 60; minute += 10 {
		o.tick(o.hour(3).Add(time.Duration(minute) * time.Minute))
	}

	o.asks(map[string]int{}, "", "an hour less a minute with no slot")
}
