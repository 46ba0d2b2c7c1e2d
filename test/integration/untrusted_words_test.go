// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// escape is what a terminal would act on.
const escape = "\x1b]0;owned\x07\x1b[2J\r\n\x00\u202e"

// harmless: nothing in it that a terminal or a log would act on, and nothing that is not UTF-8.
func harmless(s string) error {
	if !utf8.ValidString(s) {
		return fmt.Errorf("not UTF-8: %q", s)
	}
	for _, r := range s {
		if !unicode.IsGraphic(r) && r != '\n' && r != '\t' {
			return fmt.Errorf("holds %q", r)
		}
	}
	return nil
}

// tells are all words that the operator has written about a schedule and its runs.
func (o *operator) tells(schedule string) []string {
	o.t.Helper()
	s := o.read(schedule)
	words := append([]string{}, s.Status.ClaimsLeftOut...)
	for _, c := range s.Status.Conditions {
		words = append(words, c.Message)
	}
	for _, r := range o.runs(schedule) {
		words = append(append(words, r.Status.Message), r.Status.ClaimsLeftOut...)
		for _, c := range r.Status.Conditions {
			words = append(words, c.Message)
		}
		for _, sn := range r.Status.Snapshots {
			words = append(words, sn.Message)
		}
		for _, h := range r.Status.Hooks {
			for _, t := range h.Targets {
				words = append(words, t.Message, t.Output)
			}
		}
	}
	for _, e := range o.eventsOf("") {
		o.Expect(len(e.Note)).To(BeNumerically("<=", 1024))
		words = append(words, e.Note)
	}
	return words
}

func (o *operator) expectHarmless(schedule string) {
	o.t.Helper()
	for _, words := range o.tells(schedule) {
		o.Expect(harmless(words)).To(Succeed())
	}
	for _, r := range o.runs(schedule) {
		b, err := json.Marshal(&r.Status)
		o.Expect(err).NotTo(HaveOccurred())
		o.Expect(len(b)).To(BeNumerically("<", 256<<10), r.Name)
	}
}

func TestAnnotationsOfClaimsAreToldShortAndClean(t *testing.T) {
	t.Parallel()
	o := operate(t)
	o.claim("good")
	for i := range 40 {
		o.claim(fmt.Sprintf("bad-%d", i), annotated(v1.AnnotationSnapshotClass, escape+strings.Repeat("ü", 100_000)))
	}
	o.claim("odd", annotated(v1.AnnotationExclude, escape), annotated(v1.AnnotationClaimUID, escape))
	o.schedule("hourly", hourlyOfAll)
	o.schedule("none", `{schedule: "0 * * * *", claimSelector: {matchLabels: {bad: "yes"}}}`)
	o.patch(&corev1.PersistentVolumeClaim{}, "bad-0", `{"metadata":{"labels":{"bad":"yes"}}}`)
	o.tick(o.hour(0))
	o.Expect(o.runs("hourly")[0].Status.Result).To(Equal(v1.ResultSucceeded))
	o.Expect(o.claimsTaken()).To(Equal("good odd"))
	o.Expect(o.read("hourly").Status.ClaimsLeftOut).To(HaveLen(21))
	o.Expect(o.read("hourly").Status.ClaimsLeftOut[20]).To(Equal("and 20 more"))
	o.Expect(o.runs("none")[0].Status.Result).To(Equal(v1.ResultSkipped))
	o.expectHarmless("hourly")
	o.expectHarmless("none")
	o.Expect(o.loggedErrors()).To(BeEmpty())
}

// A storage that says too much must not keep an application quiesced.
func TestWhatTheStorageSaysIsToldShortAndClean(t *testing.T) {
	t.Parallel()
	o := operate(t)
	c := o.watching()
	o.stores(func(*snapshotv1.VolumeSnapshot) *snapshotv1.VolumeSnapshotStatus {
		return &snapshotv1.VolumeSnapshotStatus{ReadyToUse: ptr.To(false),
			Error: &snapshotv1.VolumeSnapshotError{Time: ptr.To(metav1.Now()), Message: ptr.To(escape + strings.Repeat("x", 500_000))}}
	})
	for i := range 10 {
		o.claim(fmt.Sprintf("data-%d", i))
	}
	o.pod("db")
	o.schedule("hourly", hookedHourly)
	o.schedule("plain", hourlyOfAll)
	o.tick(o.hour(0))
	o.Expect(o.runs("hourly")[0].Status.Result).To(Equal(v1.ResultFailed))
	o.Expect(o.runs("plain")[0].Status.Result).To(Equal(v1.ResultFailed))
	o.Expect(c.all()).To(HaveLen(2))
	o.Expect(o.condition("hourly", v1.ConditionMayBeQuiesced).Status).To(BeEquivalentTo("False"))
	o.expectHarmless("hourly")
	o.expectHarmless("plain")
	o.Expect(o.loggedErrors()).To(BeEmpty())
}

func TestWhatACommandPrintsIsToldShortAndClean(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	o.output = strings.Repeat(escape+"\xff\xfe", 100_000)
	o.start()
	o.claim("data")
	o.pod("db")
	o.schedule("hourly", `{schedule: "0 * * * *", preHooks: [{name: quiesce, podSelector: {}, expectOutput: "never said", command: [freeze]}]}`)
	o.tick(o.hour(0))
	r := o.runs("hourly")[0]
	o.Expect(r.Status.Result).To(Equal(v1.ResultFailed))
	o.Expect(r.Status.Hooks[0].Targets[0].Output).To(And(Not(BeEmpty()), WithTransform(func(s string) int { return len(s) }, BeNumerically("<=", 4096))))
	o.expectHarmless("hourly")
}

// Annotations of the operator's own names, as long as the API server takes them, on everything that it looks at.
func TestAnnotationsOfTheOperatorsOwnNamesMayHoldAnything(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	o.claim("data")
	o.pod("db")
	junk := map[string]string{}
	for _, key := range []string{v1.AnnotationRun, v1.AnnotationRunUID, v1.AnnotationClaimUID, v1.AnnotationRetry, v1.AnnotationRelease, v1.AnnotationExclude} {
		junk[key] = escape + strings.Repeat(key, 1000)
	}
	o.made("data-hourly-202601010000", "hourly", "data", "", 0, func(s *snapshotv1.VolumeSnapshot) { s.Annotations = junk })
	o.made("data-hourly-202601010100", "hourly", "data", "", 0, func(s *snapshotv1.VolumeSnapshot) {
		s.Annotations = junk
		s.Labels[v1.LabelWhen], s.Labels[v1.LabelConsistency], s.Labels[v1.LabelRetention] = "never", "perfect", "sometimes"
	})
	r := o.manual("hourly", "by-hand")
	b, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": junk}})
	o.Expect(err).NotTo(HaveOccurred())
	o.patch(&v1.SnapshotRun{}, r.Name, string(b))
	s := object(t, scheduleKind, o.namespace, `{metadata: {name: hourly}, spec: {schedule: "0 * * * *", runRetryLimit: 2, retention: {maxCount: 1}}}`)
	s.SetAnnotations(junk)
	o.Expect(api.Create(t.Context(), s)).To(Succeed())
	o.start()
	o.will(func() v1.RunPhase { return o.run("by-hand").Status.Phase }).Should(Equal(v1.PhaseCompleted))
	o.tick(o.hour(0))
	for _, r := range o.runs("hourly") {
		o.Expect(r.Status.Result).To(Equal(v1.ResultSucceeded), r.Name)
	}
	o.expectHarmless("hourly")
	o.Expect(o.loggedErrors()).To(BeEmpty())
}
