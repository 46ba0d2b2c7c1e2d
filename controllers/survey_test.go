// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"testing"

	. "github.com/onsi/gomega"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/internal/run"
)

// A schedule gets hooks while a run without them is at its beginning: what was surveyed for that run knows nothing of their pods.
func TestAScheduleThatGetsHooksIsSurveyedAgain(t *testing.T) {
	g := NewWithT(t)
	mem := &runMemory{survey: &run.Survey{Claims: []run.Claim{{Name: "data"}}}}
	o, s := &v1.SnapshotRun{}, &v1.SnapshotSchedule{}
	r := &RunReconciler{}
	before, err := r.surveyOnce(t.Context(), o, s, mem)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(before).To(BeIdenticalTo(mem.survey))
	s.Spec.PreHooks = []v1.PreHook{{}} // one that cannot be planned: its survey asks nobody
	after, err := r.surveyOnce(t.Context(), o, s, mem)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(after).NotTo(BeIdenticalTo(before))
}
