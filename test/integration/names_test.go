// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// snapscheduler: such a schedule creates and expires nothing.
func TestAScheduleWhoseNameIsNoLabelValueWorks(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("data")
	name, other := strings.Repeat("n", 70), strings.Repeat("n", 69)+"o"
	o.schedule(name, `{schedule: "0 * * * *", retention: {maxCount: 2}}`)
	o.schedule(other, `{schedule: "0 * * * *", retention: {maxCount: 1}}`)
	for n := range 4 {
		o.tick(o.hour(n))
	}
	// Retention found its own, and only those.
	o.will(o.snapshotNames).Should(ConsistOf("data-"+name+"-"+when(o.hour(2)), "data-"+name+"-"+when(o.hour(3)), "data-"+other+"-"+when(o.hour(3))))
	labels := map[string]bool{}
	for _, s := range o.snapshots() {
		label := s.Labels[v1.LabelSchedule]
		labels[label] = true
		o.Expect(validation.IsValidLabelValue(label)).To(BeEmpty())
		o.Expect(label).To(HavePrefix("nnnn"))
	}
	o.Expect(labels).To(HaveLen(2))
	for _, r := range o.runs("") {
		o.Expect(validation.IsValidLabelValue(r.Name)).To(BeEmpty())
		o.Expect(r.Status.Result).To(Equal(v1.ResultSucceeded))
	}
	o.Expect(o.condition(name, v1.ConditionReconciled).Reason).To(Equal(v1.ReasonReconcileComplete))
}

// snapscheduler: they are cut at 239 characters without a hash; those of two claims collide, and one cut after a dot is invalid.
func TestLongNamesOfClaimsAndSchedulesAreCutWithAHash(t *testing.T) {
	t.Parallel()
	o := operate(t)
	long := strings.Repeat("c", 230)
	dotted := strings.Repeat("d", 228) + ".e0000000000"
	exact := strings.Repeat("e", 233)
	for _, name := range []string{long + "-1", long + "-2", dotted, exact} {
		o.claim(name)
	}
	o.schedule("daily", `{schedule: "0 * * * *"}`) // 5 characters and a dash
	o.tick(o.hour(0))
	o.Expect(o.runs("")[0].Status.Result).To(Equal(v1.ResultSucceeded))
	o.Expect(o.snapshots()).To(HaveLen(4))
	o.Expect(o.snapshotNames()).To(ContainElement(exact + "-daily-" + when(o.hour(0)))) // 252 characters: fits
	for _, s := range o.snapshots() {
		o.Expect(validation.IsDNS1123Subdomain(s.Name)).To(BeEmpty())
		o.Expect(s.Name).To(HaveSuffix("-" + when(o.hour(0))))
		o.Expect(len(s.Name)).To(BeNumerically("<=", 253))
	}
	o.Expect(strings.Fields(o.claimsTaken())).To(HaveLen(4))
}

// snapscheduler: claim a-b of schedule c and claim a of schedule b-c have one name.
func TestTwoSchedulesWhoseSnapshotsWouldShareANameTakeBoth(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("a")
	o.claim("a-b")
	o.schedule("c", hourlyOfAll)
	o.schedule("b-c", hourlyOfAll)
	o.tick(o.hour(0))
	o.Expect(o.claimsTaken()).To(Equal("a a a-b a-b"))
	o.Expect(o.snapshotNames()).To(ContainElement("a-b-c-" + when(o.hour(0))))
	for _, r := range o.runs("") {
		o.Expect(r.Status.Result).To(Equal(v1.ResultSucceeded), r.Name)
		for _, s := range r.Status.Snapshots {
			o.Expect(o.snapshot(s.Name).Annotations).To(HaveKeyWithValue(v1.AnnotationRun, r.Name))
			o.Expect(o.snapshot(s.Name).Spec.Source.PersistentVolumeClaimName).To(HaveValue(Equal(s.Claim)))
		}
	}
}

func TestASnapshotOfSomebodyElseUnderOurNameIsLeftAlone(t *testing.T) {
	t.Parallel()
	o := operate(t)
	claim := o.claim("data")
	name := "data-hourly-" + when(o.hour(0))
	foreign := o.made(name, "somebody", "data", "", time.Hour)
	o.schedule("hourly", `{schedule: "0 * * * *", retention: {maxCount: 1}}`)
	o.tick(o.hour(0))
	run := o.runs("hourly")[0]
	o.Expect(run.Status.Result).To(Equal(v1.ResultSucceeded))
	o.Expect(run.Status.Snapshots).To(HaveLen(1))
	o.Expect(run.Status.Snapshots[0].Name).To(MatchRegexp(`^data-hourly-[a-z0-9]{10}-` + when(o.hour(0)) + `$`))
	o.Expect(o.snapshot(run.Status.Snapshots[0].Name).Annotations).To(HaveKeyWithValue(v1.AnnotationClaimUID, string(claim.UID)))
	o.Expect(ptr.To(*o.snapshot(name))).To(And(HaveField("UID", foreign.UID), HaveField("ResourceVersion", foreign.ResourceVersion)))
}

func TestASnapshotThatSnapschedulerMadeForTheSameSlotIsLeftAlone(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	o.claim("data")
	name := "data-hourly-" + when(o.hour(0))
	o.made(name, "hourly", "data", "", 0)
	o.schedule("hourly", hourlyOfAll)
	o.start()
	o.settle()
	o.tick(o.hour(0))
	o.Expect(o.snapshots()).To(HaveLen(2))
	o.Expect(o.snapshot(name).Annotations).To(BeEmpty())
	o.Expect(o.runs("hourly")[0].Status.Result).To(Equal(v1.ResultSucceeded))
}
