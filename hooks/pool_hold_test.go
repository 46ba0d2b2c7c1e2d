// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"io"
	"testing"
	"time"
)

func TestHeldCommands(t *testing.T) {
	say := func(c *fakeCall, text string) { _, _ = io.WriteString(c.Stdout, text) }
	lost := Result{Reason: ConnectionLost, Message: "the stream ended"}
	for name, tc := range map[string]struct {
		play   func(p *poolTest, c *fakeCall)
		reason Reason
		ended  bool // its end is known
	}{
		"ready, released, exit 0 and the last word: completed": {func(p *poolTest, c *fakeCall) {
			say(c, "READY\n")
			p.want("a", Held)
			p.Release(key("a"))
			p.want("a", Releasing)
			<-c.Release
			say(c, "RELEASED\n")
			c.exit(0)
		}, Completed, true},
		"released before it was ready, and well all the same": {func(p *poolTest, c *fakeCall) {
			p.Release(key("a"))
			say(c, "READY\n")
			p.want("a", Releasing)
			say(c, "RELEASED\n")
			c.exit(0)
		}, Completed, true},
		"it waits as long as it is held": {func(p *poolTest, c *fakeCall) {
			say(c, "READY")
			time.Sleep(24 * time.Hour)
			p.want("a", Held)
			p.Release(key("a"))
			p.Release(key("a"))
			say(c, "RELEASED")
			c.exit(0)
		}, Completed, true},
		"exit 0 without the last word": {func(p *poolTest, c *fakeCall) {
			say(c, "RELEASED READY")
			p.Release(key("a"))
			c.exit(0)
		}, OutputMissing, true},
		"the last word but an exit code": {func(p *poolTest, c *fakeCall) {
			say(c, "READY")
			p.Release(key("a"))
			say(c, "RELEASED")
			c.exit(1)
		}, NonZeroExit, true},
		"the stream breaks during the release": {func(p *poolTest, c *fakeCall) {
			say(c, "READY")
			p.Release(key("a"))
			say(c, "RELEASED")
			c.end <- lost
		}, ConnectionLost, false},
		"the release takes too long": {func(p *poolTest, c *fakeCall) {
			say(c, "READY")
			p.Release(key("a"))
			time.Sleep(10 * time.Second)
		}, Timeout, false},
		"it ends by itself while held, even well": {func(_ *poolTest, c *fakeCall) {
			say(c, "READY RELEASED")
			c.exit(0)
		}, HoldLost, true},
		"it fails while held": {func(_ *poolTest, c *fakeCall) {
			say(c, "READY")
			c.exit(137)
		}, HoldLost, true},
		"the stream breaks while held": {func(_ *poolTest, c *fakeCall) {
			say(c, "READY")
			c.end <- lost
		}, HoldLost, false},
		"it is never ready": {func(_ *poolTest, _ *fakeCall) { time.Sleep(time.Minute) }, Timeout, false},
		"it ends without being ready": {func(_ *poolTest, c *fakeCall) {
			c.exit(0)
		}, OutputMissing, true},
		"it fails before it is ready": {func(_ *poolTest, c *fakeCall) {
			c.exit(2)
		}, NonZeroExit, true},
		"it is refused": {func(_ *poolTest, c *fakeCall) {
			c.end <- Result{Reason: HoldNotSupported}
		}, HoldNotSupported, true},
		"it is cancelled while held": {func(p *poolTest, c *fakeCall) {
			say(c, "READY")
			p.Cancel(key("a"))
		}, Interrupted, false},
	} {
		t.Run(name, func(t *testing.T) {
			withPool(t, Limits{}, func(p *poolTest) {
				tc.play(p, p.start("a", LaneQuiesce, heldRequest("a")))
				o := p.wantReason("a", tc.reason)
				if o.EndUnknown() == tc.ended {
					t.Errorf("got %+v", o)
				}
				if s := p.Stats(); s != (Stats{}) {
					t.Errorf("got %+v", s)
				}
			})
		})
	}
}

func TestAHeldCommandThatIsReadyOccupiesNoSlot(t *testing.T) {
	withPool(t, Limits{Quiesce: 1}, func(p *poolTest) {
		began := time.Now()
		c := p.start("a", LaneQuiesce, heldRequest("a"))
		p.Reserve(key("b"), owner("b"), LaneQuiesce)
		time.Sleep(time.Second)
		_, _ = io.WriteString(c.Stdout, "READY")
		p.want("b", Reserved)
		if _, _, since := p.Status(key("a")); since.Sub(began) != time.Second {
			t.Errorf("held since %v", since)
		}
		if s := p.Stats(); s.Held != 1 || s.Busy[LaneQuiesce] != 1 {
			t.Errorf("got %+v", s)
		}
		p.wantWoken("a", "b")
	})
}
