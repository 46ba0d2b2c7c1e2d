// SPDX-License-Identifier: Apache-2.0

package run

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// FuzzPlanHooks plans any hooks, also such as the CRD would refuse.
func FuzzPlanHooks(f *testing.F) {
	f.Add([]byte(`{"preHooks":[{"podSelector":{},"command":["sync"]}],"postHooks":[{"podSelector":{},"command":["x"],"executionPolicy":"OnFailure"}]}`))
	f.Add([]byte(`{"preHooks":[{"name":"a","podSelector":{"matchLabels":{"app":"db"}},"command":["x"],"mode":"Hold","expectOutput":"READY","expectReleaseOutput":"BYE"}]}`))
	f.Add([]byte(`{"preHooks":[{"podSelector":{"matchExpressions":[{"key":"a","operator":"Foo"}]},"command":[""]}]}`))
	f.Add([]byte(`{"serviceAccountName":"x","postHooks":[{"podSelector":{},"command":["x"],"namespace":"other","backoffLimit":-1,"timeoutSeconds":0}]}`))
	f.Fuzz(func(t *testing.T, spec []byte) {
		s := &v1.SnapshotSchedule{}
		s.Namespace = "shop"
		if json.Unmarshal(spec, &s.Spec) != nil {
			t.Skip()
		}
		before, _ := json.Marshal(s)
		pre, post, err := PlanHooks(s, HookRules{})
		if after, _ := json.Marshal(s); string(before) != string(after) {
			t.Fatal("planning changed the schedule")
		}
		if err != nil {
			if !strings.HasPrefix(err.Error(), "spec.preHooks[") && !strings.HasPrefix(err.Error(), "spec.postHooks[") {
				t.Fatalf("the error names no field: %v", err)
			}
			return
		}
		if len(pre) != len(s.Spec.PreHooks) || len(post) != len(s.Spec.PostHooks) {
			t.Fatalf("%d and %d hooks planned of %d and %d", len(pre), len(post), len(s.Spec.PreHooks), len(s.Spec.PostHooks))
		}
		for i, h := range pre {
			if h.BackoffLimit == nil || h.OnError == "" || h.Mode == "" || (h.Mode == v1.ModeHold && (h.ExpectOutput == "" || h.ExpectReleaseOutput == "")) {
				t.Fatalf("pre hook %d lacks its defaults: %+v", i, h)
			}
		}
		for i, h := range post {
			if h.ExecutionPolicy == "" {
				t.Fatalf("post hook %d lacks its defaults: %+v", i, h)
			}
		}
		for _, h := range append(pre, post...) {
			if h.Name == "" || h.Namespace == "" || h.TargetPolicy == "" || len(h.Command) == 0 || h.Command[0] == "" || (h.Namespace != "shop" && s.Spec.ServiceAccountName == "") {
				t.Fatalf("a hook lacks its defaults, or may not run: %+v", h)
			}
		}
	})
}

// FuzzJournal carries runs of any size to their end, in which everything fails as wordily as it can. What was planned is never larger than
// the record may be.
func FuzzJournal(f *testing.F) {
	f.Add(uint8(1), uint8(1), uint16(2), uint16(2), uint16(10), uint8(0))
	f.Add(uint8(32), uint8(32), uint16(3), uint16(100), uint16(100), uint8(1))
	f.Add(uint8(2), uint8(1), uint16(250), uint16(250), uint16(4096), uint8(2))
	f.Add(uint8(1), uint8(0), uint16(1), uint16(600), uint16(1), uint8(3))
	for letter := range uint8(5) {
		f.Add(uint8(1), uint8(1), uint16(40), uint16(10), uint16(10), letter)
		f.Add(uint8(12), uint8(12), uint16(2), uint16(2), uint16(4000), letter)
		f.Add(uint8(1), uint8(32), uint16(2), uint16(2), uint16(10), letter)
	}
	f.Fuzz(func(t *testing.T, pre, post uint8, pods, claims, argument uint16, letter uint8) {
		w := newWorld(t)
		w.schedule.Spec.PreHooks, w.schedule.Spec.PostHooks = nil, nil
		h := hook("")
		h.Command = []string{"x", strings.Repeat(`"`, int(argument%4097))}
		h.Name = strings.Repeat("n", 63)
		for range pre % 33 {
			w.schedule.Spec.PreHooks = append(w.schedule.Spec.PreHooks, v1.PreHook{Hook: h, OnError: v1.OnErrorContinue})
		}
		for range post % 33 {
			p := v1.PostHook{Hook: h}
			p.BackoffLimit = ptr.To[int32](1)
			w.schedule.Spec.PostHooks = append(w.schedule.Spec.PostHooks, p)
		}
		w.pods, w.claims = nil, nil
		for i := range int(pods % 512) {
			w.pods = append(w.pods, Target{Namespace: strings.Repeat("n", 63), Pod: fmt.Sprintf("%0253d", i), UID: types.UID(fmt.Sprintf("%036d", i)),
				Container: strings.Repeat("c", 63), ContainerID: "containerd://" + strings.Repeat("0", 64), RestartCount: 99})
		}
		for i := range int(claims % 1024) {
			w.claims = append(w.claims, Claim{Name: fmt.Sprintf("%0253d", i), UID: types.UID(fmt.Sprintf("%036d", i)), ClassName: strings.Repeat("c", 63)})
		}
		words := pick(&source{[]byte{letter}}, "x", "\n", "<", "€", `"`)
		w.onStart = func(*world, StartExec) *Outcome {
			return &Outcome{Reason: v1.ReasonTimeout, EndUnknown: true, Message: strings.Repeat(words, 512/len(words)), Output: strings.Repeat(words, 4096/len(words))}
		}
		w.onCreated = func(_ *world, s *Snapshot) { s.Bound, s.Error = true, strings.Repeat("e", 2000) }
		largest := 0
		w.onStep = func(w *world) {
			if b, _ := json.Marshal(w.run.Status); len(b) > largest {
				largest = len(b)
			}
			w.schedule.Status.Conditions = givenUp
		}
		w.finish()
		if w.run.Status.Plan != nil && largest > MaxJournalBytes {
			t.Fatalf("the record of %d and %d hooks in %d pods with %d snapshots grew to %d KiB", len(w.schedule.Spec.PreHooks), len(w.schedule.Spec.PostHooks), len(w.pods), len(w.claims), largest>>10)
		}
		t.Logf("plan %v, %d KiB", w.run.Status.Plan != nil, largest>>10)
	})
}
