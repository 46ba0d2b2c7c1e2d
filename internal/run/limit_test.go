// SPDX-License-Identifier: Apache-2.0

package run

import (
	"testing"
	"time"

	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

func TestHowLongAPlanMayQuiesce(t *testing.T) {
	held := v1.PlannedHook{TimeoutSeconds: 10, Mode: v1.ModeHold, ReleaseTimeoutSeconds: 60}
	for name, c := range map[string]struct {
		plan *v1.RunPlan
		want time.Duration
	}{
		"no plan": {nil, 0},
		"all that hooks and the cut may take": {&v1.RunPlan{SnapshotTimeoutSeconds: 300,
			PreHooks:  []v1.PlannedHook{{TimeoutSeconds: 10}, {TimeoutSeconds: 20, BackoffLimit: ptr.To(int32(2))}},
			PostHooks: []v1.PlannedHook{{TimeoutSeconds: 5}}}, (10 + 3*20 + 2*10 + 300 + 5) * time.Second},
		"held commands and their end":          {&v1.RunPlan{SnapshotTimeoutSeconds: 100, PreHooks: []v1.PlannedHook{held, held}}, (20 + 100 + 120) * time.Second},
		"maxQuiesceSeconds is over everything": {&v1.RunPlan{SnapshotTimeoutSeconds: 300, MaxQuiesceSeconds: 30, PreHooks: []v1.PlannedHook{{TimeoutSeconds: 100}}, PostHooks: []v1.PlannedHook{{TimeoutSeconds: 100}}}, 30 * time.Second},
		"but for the end of what was held":     {&v1.RunPlan{MaxQuiesceSeconds: 30, PreHooks: []v1.PlannedHook{held}}, 90 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			if got := QuiesceLimit(c.plan); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}
