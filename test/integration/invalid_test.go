// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// What an old cluster may hold, or what no rule at admission can see.
var invalid = map[string]struct{ spec, reason, says string }{
	"february":    {`schedule: "0 0 30 2 *"`, v1.ReasonNeverFires, "choose a day of month that exists"},
	"hidden":      {`schedule: "0 0 30 2,2 *"`, v1.ReasonNeverFires, "choose a day of month that exists"},
	"minute-60":   {`schedule: "60 * * * *"`, v1.ReasonInvalidSchedule, "60"},
	"six-fields":  {`schedule: "0 0 5 * * *"`, v1.ReasonInvalidSchedule, "five fields"},
	"foo":         {`schedule: "@hourlyfoo"`, v1.ReasonInvalidSchedule, "@hourly"},
	"empty":       {`schedule: ""`, v1.ReasonInvalidSchedule, "write five fields"},
	"no-schedule": {`disabled: false`, v1.ReasonInvalidSchedule, "write five fields"},
	"mars":        {`schedule: "@daily", timeZone: Mars/Olympus`, v1.ReasonInvalidTimeZone, "use an IANA name"},
	"mars-prefix": {`schedule: "TZ=Mars/Olympus 0 5 * * *"`, v1.ReasonInvalidTimeZone, "use an IANA name"},
	"local":       {`schedule: "CRON_TZ=Local 0 5 * * *"`, v1.ReasonInvalidTimeZone, "use an IANA name"},
	"two-zones":   {`schedule: "TZ=UTC 0 5 * * *", timeZone: UTC`, v1.ReasonInvalidTimeZone, "remove one of them"},
}

// Not parallel: for a moment the real definition is without its rules.
func TestInvalidSchedulesThatExistAreReportedAndTheirRetentionGoesOn(t *testing.T) {
	o := prepare(t)
	claim := o.claim("data")
	o.withoutRules(func() {
		for name, tt := range invalid {
			o.schedule(name, `{`+tt.spec+`, retention: {maxCount: 1}}`)
			o.made("old-"+name, name, "data", string(claim.UID), 2*time.Hour)
			o.made("new-"+name, name, "data", string(claim.UID), time.Hour)
		}
	})
	in := o.start()
	o.settle()
	for name, tt := range invalid {
		ready, reconciled := o.condition(name, v1.ConditionReady), o.condition(name, v1.ConditionReconciled)
		o.Expect(ready.Status).To(Equal(metav1.ConditionFalse), name)
		o.Expect(ready.Reason).To(Equal(tt.reason), name)
		o.Expect(ready.Message).To(ContainSubstring(tt.says), name)
		o.Expect(reconciled).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", v1.ReasonReconcileError), HaveField("Message", ready.Message)), name)
		o.Expect(o.read(name).Status.NextSnapshotTime).To(BeNil(), name)
		o.Expect(o.read(name).Status.ObservedGeneration).NotTo(BeZero(), name)
	}
	o.will(func() int { return len(o.snapshots()) }).Should(Equal(len(invalid)))
	o.Expect(o.snapshotNames()).NotTo(ContainElement(HavePrefix("old-")))

	o.at(o.hour(24 * 400)) // nothing ever comes
	before := map[string]int{}
	for name := range invalid {
		before[name] = in.reconcilesOf(name)
	}
	o.Consistently(func() error {
		for name := range invalid {
			o.Expect(in.reconcilesOf(name)).To(BeNumerically("<=", before[name]+1), "busy loop: %s", name)
		}
		return nil
	}, time.Second, 200*time.Millisecond).Should(Succeed())
	o.Expect(o.runs("")).To(BeEmpty())
	o.Expect(o.loggedErrors()).To(BeEmpty())

	// Mended, it goes on as if it was new.
	o.edit("february", `{"schedule":"0 0 28 2 *"}`)
	o.Expect(o.condition("february", v1.ConditionReady)).To(And(HaveField("Status", metav1.ConditionTrue), HaveField("Message", "")))
	o.Expect(o.condition("february", v1.ConditionReconciled).Reason).To(Equal(v1.ReasonReconcileComplete))
	o.Expect(o.read("february").Status.NextSnapshotTime).NotTo(BeNil())
}

// withoutRules runs f while the API server takes every schedule, as snapscheduler's definition does.
func (o *operator) withoutRules(f func()) {
	o.t.Helper()
	const name = "snapshotschedules.snapscheduler.backube"
	var crd apiextensionsv1.CustomResourceDefinition
	o.Expect(api.Get(o.t.Context(), client.ObjectKey{Name: name}, &crd)).To(Succeed())
	version := &crd.Spec.Versions[0]
	rules := version.Schema.DeepCopy()
	version.Schema.OpenAPIV3Schema = &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: &[]bool{true}[0]}
	probe := func() error {
		return api.Create(o.t.Context(), object(o.t, scheduleKind, o.namespace, `spec: {schedule: "60 * * * *"}`), client.DryRunAll)
	}
	o.Expect(api.Update(o.t.Context(), &crd)).To(Succeed())
	defer func() {
		o.Expect(api.Get(o.t.Context(), client.ObjectKey{Name: name}, &crd)).To(Succeed())
		crd.Spec.Versions[0].Schema = rules
		o.Expect(api.Update(o.t.Context(), &crd)).To(Succeed())
		o.will(probe).ShouldNot(Succeed())
	}()
	o.will(probe).Should(Succeed())
	f()
}

func TestAnInvalidRetentionDeletesNothingAndIsReported(t *testing.T) {
	t.Parallel()
	o := operate(t)
	claim := o.claim("data")
	o.made("old", "hourly", "data", string(claim.UID), 2*time.Hour)
	o.made("new", "hourly", "data", string(claim.UID), time.Hour)
	o.schedule("hourly", `{schedule: "0 * * * *", retention: {maxCount: 1, expires: 99999999999999h}}`)
	o.Expect(o.condition("hourly", v1.ConditionReady)).To(And(HaveField("Status", metav1.ConditionFalse), HaveField("Reason", v1.ReasonInvalidRetention)))
	o.Expect(o.condition("hourly", v1.ConditionReconciled).Status).To(Equal(metav1.ConditionFalse))
	o.tick(o.hour(0)) // snapshots go on
	o.Expect(o.snapshotNames()).To(ConsistOf("old", "new", "data-hourly-"+when(o.hour(0))))
}
