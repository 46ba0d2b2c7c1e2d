// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// As while a cluster migrates, or when a leader does not know yet that it is none.
func TestTwoOperatorsDoubleNoSlotAndReportNoError(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	o.claim("a")
	o.claim("b")
	o.schedule("hourly", `{schedule: "0 * * * *", retention: {maxCount: 3}, runRetryLimit: 1}`)
	complaints := o.watchForComplaints()
	o.start()
	o.start()
	o.settle()
	for n := range 5 {
		o.tick(o.hour(n))
	}
	names := []string{}
	for n := 2; n < 5; n++ {
		names = append(names, "a-hourly-"+when(o.hour(n)), "b-hourly-"+when(o.hour(n)))
	}
	o.keeps(names...)
	o.Expect(o.runs("")).To(HaveLen(3))
	for _, r := range o.runs("") {
		o.Expect(r.Status.Result).To(Equal(v1.ResultSucceeded))
	}
	o.Expect(o.read("hourly").Status.LastMissed).To(BeNil())
	o.Expect(complaints()).To(BeEmpty())
	o.Expect(o.loggedErrors()).To(BeEmpty())
	deleted := map[string]int{}
	for _, e := range o.eventsOf("SnapshotExpired") {
		deleted[strings.Fields(e.Note)[1]]++
	}
	o.Expect(deleted).To(And(HaveLen(4), HaveEach(1)))
}

func TestAnOperatorThatTakesOverGoesOn(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	o.claim("data")
	o.stores(o.cutOnly)
	first := o.start()
	o.schedule("hourly", hourlyOfAll)
	o.at(o.hour(0))
	o.will(func() v1.RunPhase { return o.run("hourly-" + when(o.hour(0))).Status.Phase }).Should(Equal(v1.PhaseAwaitingReady))
	o.halt(first)

	o.finish()
	o.stores(o.ready)
	o.clock.SetTime(o.hour(3).Add(time.Minute))
	o.start()
	o.settle()
	o.idle()
	o.expectCaughtUp()
}

func TestACatchUpRunWaitsForTheRunThatTheDowntimeInterrupted(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	o.claim("data")
	s := o.schedule("hourly", hourlyOfAll)
	first := o.start()
	o.settle()
	o.halt(first)
	// The first operator had created the run of slot 0 and died.
	name := "hourly-" + when(o.hour(0))
	o.Expect(api.Create(t.Context(), &v1.SnapshotRun{ObjectMeta: metav1.ObjectMeta{Namespace: o.namespace, Name: name, Labels: map[string]string{v1.LabelSchedule: "hourly"},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(s, v1.GroupVersion.WithKind(scheduleKind))}},
		Spec: v1.SnapshotRunSpec{ScheduleName: "hourly", Slot: ptr.To(metav1.NewTime(o.hour(0)))}})).To(Succeed())
	o.patchStatus("hourly", `{"status":{"activeRun":"`+name+`","nextSnapshotTime":"`+o.hour(1).Format(time.RFC3339)+`"}}`)

	gate := make(chan struct{})
	o.refuses(func(*snapshotv1.VolumeSnapshot) error {
		<-gate
		return nil
	})
	open := sync.OnceFunc(func() { close(gate) })
	defer open()
	o.clock.SetTime(o.hour(3).Add(time.Minute))
	o.start()
	o.settle() // the schedule is looked at before its old run has done anything
	open()
	o.will(func() []string { return o.runNames("hourly") }).Should(HaveLen(2))
	o.idle()
	o.expectCaughtUp()
}

func TestACatchUpRunWaitsForTheReleaseThatTheDowntimeInterrupted(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	o.claim("data")
	o.pod("db-0")
	o.hook = func(ctx context.Context) { <-ctx.Done() } // until its operator dies
	first := o.start()
	o.schedule("hourly", `{schedule: "0 * * * *", preHooks: [{podSelector: {matchLabels: {app: db}}, command: [flush]}], postHooks: [{podSelector: {matchLabels: {app: db}}, command: [resume]}]}`)
	o.at(o.hour(0))
	name := "hourly-" + when(o.hour(0))
	o.will(func() v1.RunPhase { return o.run(name).Status.Phase }).Should(Equal(v1.PhasePreHooks))
	o.halt(first)

	o.mu.Lock()
	o.hook = nil
	o.mu.Unlock()
	o.clock.SetTime(o.hour(3).Add(10 * time.Minute))
	o.start()
	o.settle()
	o.will(func() []string { return o.runNames("hourly") }).Should(ConsistOf(name, "hourly-"+when(o.hour(3))))
	o.idle()
	o.Expect(o.run(name).Status.Result).To(Equal(v1.ResultFailed))
	o.Expect(o.run("hourly-" + when(o.hour(3))).Status.Result).To(Equal(v1.ResultSucceeded))
	o.Expect(o.snapshotNames()).To(ConsistOf("data-hourly-" + when(o.hour(3))))
	o.expectMissed("hourly", o.hour(2), v1.MissedDowntime, 2)
}

func (o *operator) expectCaughtUp() {
	o.t.Helper()
	o.Expect(o.snapshotNames()).To(ConsistOf("data-hourly-"+when(o.hour(0)), "data-hourly-"+when(o.hour(3))))
	for _, r := range o.runs("") {
		o.Expect(r.Status.Result).To(Equal(v1.ResultSucceeded))
	}
	o.expectMissed("hourly", o.hour(2), v1.MissedDowntime, 2)
}

// watchForComplaints returns what the conditions Ready and Reconciled of the namespace's schedules ever said but True.
func (o *operator) watchForComplaints() func() []metav1.Condition {
	o.t.Helper()
	watching, err := client.NewWithWatch(Env(), client.Options{Scheme: api.Scheme()})
	o.Expect(err).NotTo(HaveOccurred())
	w, err := watching.Watch(o.t.Context(), &v1.SnapshotScheduleList{}, client.InNamespace(o.namespace))
	o.Expect(err).NotTo(HaveOccurred())
	var found []metav1.Condition
	done := make(chan struct{})
	go func() {
		defer close(done)
		for e := range w.ResultChan() {
			s, ok := e.Object.(*v1.SnapshotSchedule)
			if !ok || e.Type == watch.Deleted {
				continue
			}
			for _, c := range s.Status.Conditions {
				if (c.Type == v1.ConditionReady || c.Type == v1.ConditionReconciled) && c.Status != metav1.ConditionTrue {
					found = append(found, c)
				}
			}
		}
	}()
	return func() []metav1.Condition {
		w.Stop()
		<-done
		return found
	}
}
