// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// told are the events of a schedule that the API server has, as "Reason(related) note".
func (o *operator) told(schedule string) []string {
	o.t.Helper()
	var list eventsv1.EventList
	o.Expect(api.List(o.t.Context(), &list, client.InNamespace(o.namespace))).To(Succeed())
	out := []string{}
	for _, e := range list.Items {
		if e.Regarding.Kind == scheduleKind && e.Regarding.Name == schedule {
			related := ""
			if e.Related != nil {
				related = "(" + e.Related.Kind + " " + e.Related.Name + ")"
			}
			out = append(out, e.Reason+related+" "+e.Note)
		}
	}
	slices.Sort(out)
	return out
}

func TestAScheduleTellsOfItsRuns(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	o.pod("db-0")
	o.schedule("shop", hourlyWithHooks)
	run := func(n int) string { return "shop-" + when(o.hour(n)) }
	tells := func(reason string, n int, note string) OmegaMatcher {
		return ContainElement(HavePrefix(fmt.Sprintf("%s(SnapshotRun %s) run %s: %s", reason, run(n), run(n), note)))
	}
	o.tick(o.hour(0))
	o.will(func() []string { return o.told("shop") }).Should(And(HaveLen(2),
		tells("RunStarted", 0, "planned 1 snapshots and 2 hooks"), tells("RunSucceeded", 0, "snapshots ready: 1, quiesced for ")))

	o.fails("flush")
	o.tick(o.hour(1))
	o.will(func() []string { return o.told("shop") }).Should(And(HaveLen(5),
		tells("HookFailed", 1, "pre hook flush failed: NonZeroExit in "+o.namespace+"/db-0, container db: the command exited with code 1"), tells("RunFailed", 1, "hook flush: NonZeroExit")))

	o.fails("resume")
	o.tick(o.hour(2))
	o.will(func() []string { return o.told("shop") }).Should(And(HaveLen(9),
		tells("HookFailed", 2, "post hook resume failed: NonZeroExit"), tells("ReleaseGivenUp", 2, "the release did not succeed, the application may still be quiesced"),
		tells("RunPartiallyFailed", 2, "hook resume: NonZeroExit")))

	o.tick(o.hour(5)) // two are missed
	o.will(func() []string { return o.told("shop") }).Should(ContainElement(HavePrefix("SlotMissed slots not run: 2, the newest " + o.hour(4).Format(time.RFC3339))))
}

// Two at most, see report_test.go: the clock here is so far ahead that no run is over at once.
func TestASlotWithoutHooksThatGoesWellIsToldOnTheScheduleOnly(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	o.schedule("plain", hourlyOfAll)
	o.tick(o.hour(0))
	name := "plain-" + when(o.hour(0))
	o.will(func() []string { return o.told("plain") }).Should(ConsistOf(HavePrefix("RunStarted(SnapshotRun "+name), HavePrefix("RunSucceeded(SnapshotRun "+name)))
	o.Expect(o.eventsOf("")).To(HaveLen(2))
}

func TestClaimsThatAreSkippedAreToldOnce(t *testing.T) {
	t.Parallel()
	o := operate(t)
	for _, name := range []string{"a", "b"} {
		o.claim(name, func(c *corev1.PersistentVolumeClaim) { c.Status.Phase = corev1.ClaimPending })
	}
	o.schedule("plain", hourlyOfAll)
	o.tick(o.hour(0))
	o.tick(o.hour(1))
	skipped := "(SnapshotRun plain-" + when(o.hour(0)) + ") run plain-" + when(o.hour(0)) + ": "
	o.will(func() []string { return o.told("plain") }).Should(ConsistOf("ClaimSkipped"+skipped+"claim a is not bound; claim b is not bound",
		HavePrefix("RunSkipped"+skipped+"no claim to take"), HavePrefix("RunSkipped(SnapshotRun plain-"+when(o.hour(1)))))
}

func TestManySnapshotsThatExpireAreOneEvent(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	for n := range 30 {
		claim := fmt.Sprintf("data-%02d", n)
		uid := string(o.claim(claim).UID)
		o.made(claim+"-old", "kept", claim, uid, 50*time.Hour)
		o.made(claim+"-new", "kept", claim, uid, time.Hour)
	}
	o.schedule("kept", `{`+never+`, retention: {expires: 10h}}`)
	o.start()
	o.will(o.snapshotNames).Should(HaveLen(30))
	o.settle()
	told := 0
	o.will(func() []string { return o.told("kept") }).Should(ContainElement(And(HavePrefix("SnapshotExpired(VolumeSnapshot data-"), ContainSubstring("VolumeSnapshots were deleted ("))))
	for _, e := range o.told("kept") {
		told += strings.Count(e, "-kept-") // part of each snapshot's name
	}
	o.Expect(o.told("kept")).To(HaveEach(HavePrefix("SnapshotExpired")))
	// The cache may have been filled in parts, so that there was more than one look; each snapshot is named once, or twice as the related object.
	o.Expect(len(o.told("kept"))).To(BeNumerically("<", 5))
	o.Expect(told).To(BeNumerically(">=", 30))
}

// Events that differ in nothing but their note become one, with the first note. So they differ in something else.
func TestTwoHooksThatFailInOneRunAreTwoEvents(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	o.pod("db-0")
	o.fails("flush", "sync")
	o.schedule("shop", `{schedule: "0 * * * *", preHooks: [{name: flush, podSelector: {matchLabels: {app: db}}, command: [flush], onError: Continue}, `+
		`{name: sync, podSelector: {matchLabels: {app: db}}, command: [sync], onError: Continue}]}`)
	o.tick(o.hour(0))
	notes := func(kind string) []string {
		var list eventsv1.EventList
		o.Expect(api.List(t.Context(), &list, client.InNamespace(o.namespace))).To(Succeed())
		var out []string
		for _, e := range list.Items {
			if e.Regarding.Kind == kind && strings.HasSuffix(e.Reason, "HookFailed") {
				out = append(out, e.Note)
			}
		}
		return out
	}
	for _, kind := range []string{runKind, scheduleKind} {
		o.will(func() []string { return notes(kind) }).Should(ConsistOf(ContainSubstring("hook flush failed"), ContainSubstring("hook sync failed")))
	}
}

// docs/events.md has every reason that the API's constants have, and no other.
func TestEveryReasonOfAnEventIsDocumented(t *testing.T) {
	t.Parallel()
	g := NewWithT(t)
	source, err := os.ReadFile("../../api/v1/names.go")
	g.Expect(err).NotTo(HaveOccurred())
	doc, err := os.ReadFile("../../docs/events.md")
	g.Expect(err).NotTo(HaveOccurred())
	find := func(expr string, in []byte) []string {
		var out []string
		for _, m := range regexp.MustCompile(expr).FindAllSubmatch(in, -1) {
			out = append(out, string(m[1]))
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	reasons := find(`\tEvent\w+ += "(\w+)"`, source)
	g.Expect(reasons).To(ContainElements(v1.EventRunStarted, v1.EventSkipped))
	g.Expect(find("(?m)^\\| `(\\w+)` \\|", doc)).To(Equal(reasons))
}
