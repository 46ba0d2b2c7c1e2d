// SPDX-License-Identifier: Apache-2.0

package run

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

func sizeOf(g *WithT, r *v1.SnapshotRun) int {
	b, err := json.Marshal(&r.Status)
	g.Expect(err).NotTo(HaveOccurred())
	return len(b)
}

// A run that has not begun has no record yet. What somebody wrote there does not count.
func TestNothingIsBelievedThatStandsInARunBeforeItBegins(t *testing.T) {
	for name, hooked := range map[string]bool{"with hooks": true, "without hooks": false} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := newWorld(t)
			w.forged = true
			if !hooked {
				w.schedule.Spec.PreHooks, w.schedule.Spec.PostHooks = nil, nil
				w.run.Finalizers = nil
			}
			early := ptr.To(metav1.NewMicroTime(begin.Add(-time.Hour)))
			w.run.Status = v1.SnapshotRunStatus{
				Phase: v1.PhasePending, Result: v1.ResultFailed, QuiescedTime: early, ReleasedTime: early, CutTime: early, QuiescedFor: "1h",
				Plan:        &v1.RunPlan{Version: JournalVersion, ServiceAccountName: "admin"},
				Release:     &v1.ReleaseStatus{Pass: 7, Requested: "no", Reason: v1.ReasonCancelled, BestEffort: true},
				Consistency: &v1.ConsistencyStatus{Verdict: v1.ConsistencyApplication},
				Snapshots:   []v1.SnapshotStatus{{Claim: "other", Name: "other", State: v1.SnapshotReady}},
				Hooks:       []v1.HookStatus{{Stage: v1.StagePre, Name: "quiesce", Conditions: []metav1.Condition{{Type: v1.ConditionSucceeded, Status: "True"}}}},
				Conditions: []metav1.Condition{{Type: v1.ConditionMayBeQuiesced, Status: "True", Reason: v1.ReasonGivenUp},
					{Type: v1.ConditionPreHooksSucceeded, Status: "False", Reason: v1.ReasonHookFailed}},
			}
			w.finish()
			g.Expect(w.run.Status.Result).To(Equal(v1.ResultSucceeded))
			g.Expect(w.created).To(HaveLen(2))
			g.Expect(w.run.Status.Plan.ServiceAccountName).To(BeEmpty())
			if hooked {
				g.Expect(w.started).To(HaveLen(4))
				g.Expect(w.cond(v1.ConditionMayBeQuiesced).Reason).To(Equal(v1.ReasonReleased))
				return
			}
			g.Expect(meta.FindStatusCondition(w.run.Status.Conditions, v1.ConditionMayBeQuiesced)).To(BeNil())
			g.Expect(w.run.Status.QuiescedTime).To(BeNil())
		})
	}
}

// What the storage and the API server say is of any length. The record must be stored all the same, or nothing would be released any more.
func TestTheWordsOfOthersDoNotBurstTheRecord(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.claims = nil
	for i := range 90 {
		w.claims = append(w.claims, Claim{Name: fmt.Sprintf("data-%d", i), UID: types.UID(fmt.Sprintf("k%d", i))})
	}
	long := strings.Repeat("\x1b[31m<disk full>\n", 1<<11)
	w.onCreate = func(_ *world, e CreateSnapshot) *CreateFailure {
		if n := e.Claim[len(e.Claim)-1]; n%2 == 1 {
			return &CreateFailure{Message: long, Refused: true, RetryTime: w.now}
		}
		return nil
	}
	w.onCreated = func(_ *world, s *Snapshot) { s.Bound, s.Error = true, long }
	most := 0
	w.onStep = func(w *world) { most = max(most, sizeOf(g, w.run)) }
	w.finish()
	g.Expect(most).To(BeNumerically("<", MaxJournalBytes))
	g.Expect(w.started).To(HaveLen(4))
	g.Expect(w.run.Status.Snapshots[0].Message).To(HavePrefix("\uFFFD[31m<disk full> \uFFFD"))
	g.Expect(w.cond(v1.ConditionMayBeQuiesced).Reason).To(Equal(v1.ReasonReleased))
}

func TestClaimsThatAreLeftOutAreToldWithinBounds(t *testing.T) {
	g := NewWithT(t)
	var all []string
	for i := range 5000 {
		all = append(all, fmt.Sprintf("claim data-%d names VolumeSnapshotClass %s\x00", i, strings.Repeat("x", 1<<10)))
	}
	got := leftOutWords(all)
	g.Expect(got).To(HaveLen(maxLeftOut + 1))
	g.Expect(got[maxLeftOut]).To(Equal("and 4980 more"))
	g.Expect(got[0]).To(HaveLen(maxSnapshotMessage))
	g.Expect(leftOutWords(all[:maxLeftOut+1])).To(HaveLen(maxLeftOut + 1))
	g.Expect(leftOutWords(all[:maxLeftOut+1])[maxLeftOut]).To(HavePrefix("claim data-20 "))
	g.Expect(leftOutWords(nil)).To(BeNil())
}

func TestARunWithoutHooksWhoseRecordCouldNotBeStoredIsRefused(t *testing.T) {
	tests := map[string]func(*world){
		"too many claims": func(w *world) {
			for i := range 5000 {
				w.claims = append(w.claims, Claim{Name: fmt.Sprintf("data-%d", i), UID: types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", i))})
			}
		},
		"too many labels": func(w *world) {
			w.schedule.Spec.SnapshotTemplate = &v1.SnapshotTemplateSpec{Annotations: map[string]string{"a": strings.Repeat("x", 1<<20)}}
		},
	}
	for name, set := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := newWorld(t)
			w.schedule.Spec.PreHooks, w.schedule.Spec.PostHooks = nil, nil
			w.run.Finalizers = nil
			set(w)
			w.finish()
			g.Expect(w.run.Status.Result).To(Equal(v1.ResultFailed))
			g.Expect(w.run.Status.Message).To(ContainSubstring("select fewer claims, or shorten spec.snapshotTemplate"))
			g.Expect(sizeOf(g, w.run)).To(BeNumerically("<", 4096))
			g.Expect(w.created).To(BeEmpty())
		})
	}
}

// The annotation may be as long as the API server takes it. Every new value is acted on once.
func TestALongReleaseRequestIsActedOnOnceAndNotKept(t *testing.T) {
	g := NewWithT(t)
	w := newWorld(t)
	w.pods = w.pods[:1]
	long := strings.Repeat("x", 250<<10)
	w.onStart = func(_ *world, e StartExec) *Outcome {
		if e.Key.Stage == v1.StagePost {
			return failed()
		}
		return completed()
	}
	w.settle()
	attempts := func() int { return strings.Count(strings.Join(w.started, " "), "Post/release/db-0#1") }
	for n := 1; n <= 3; n++ {
		w.run.Annotations = map[string]string{v1.AnnotationRelease: long + fmt.Sprint(n)}
		w.settle()
		w.settle()
		g.Expect(attempts()).To(Equal(1 + n))
		g.Expect(len(w.run.Status.Release.Requested)).To(Equal(64))
	}
	g.Expect(sizeOf(g, w.run)).To(BeNumerically("<", 16<<10))
}

// A run that somebody made for a slot of the future would take its name and its place. One that is a little early, by another clock, waits for nothing.
func TestARunForASlotThatTheScheduleIsNotAtIsNotTaken(t *testing.T) {
	tests := map[string]struct {
		set   func(*world)
		taken bool
	}{
		"the slot that is due":              {func(*world) {}, true},
		"a slot a little ahead":             {func(w *world) { w.now = begin.Add(-maxEarly) }, true},
		"a slot of the future":              {func(w *world) { w.now = begin.Add(-maxEarly - time.Second) }, false},
		"a slot of the past":                {func(w *world) { w.schedule.Status.NextSnapshotTime = ptr.To(metav1.NewTime(begin.Add(time.Hour))) }, false},
		"another name":                      {func(w *world) { w.run.Name = "mine" }, false},
		"the name of another slot":          {func(w *world) { w.run.Name = "hourly-202603011300" }, false},
		"the name of a repetition":          {func(w *world) { w.run.Name = "hourly-202603011200-r3" }, true},
		"the name of an endless repetition": {func(w *world) { w.run.Name = "hourly-202603011200-r2147483648" }, false},
		"another owner":                     {func(w *world) { w.run.OwnerReferences[0].UID = "other" }, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			w := newWorld(t)
			w.schedule.Status.ActiveRun = ""
			tt.set(w)
			w.finish()
			if tt.taken {
				g.Expect(w.run.Status.Result).To(Equal(v1.ResultSucceeded))
				return
			}
			g.Expect(w.run.Status.Result).To(Equal(v1.ResultSkipped))
			g.Expect(w.cond(v1.ConditionComplete).Reason).To(Equal(v1.ReasonNotTaken))
			g.Expect(w.created).To(BeEmpty())
			g.Expect(w.started).To(BeEmpty())
		})
	}
}
