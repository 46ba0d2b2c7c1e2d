// SPDX-License-Identifier: Apache-2.0

package run

import (
	"time"

	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// QuiesceLimit is how long the plan allows a run to keep its application quiesced, from its first pre hook on: maxQuiesceSeconds and the
// time that held commands may take to end; without it, all the time that the hooks and the cut may take, one attempt of each post hook included.
// A release that fails takes longer: that is when somebody must be told.
func QuiesceLimit(p *v1.RunPlan) time.Duration {
	if p == nil {
		return 0
	}
	var held, hooks time.Duration
	for i := range p.PreHooks {
		h := &p.PreHooks[i]
		retries := time.Duration(ptr.Deref(h.BackoffLimit, 0))
		hooks += (retries+1)*seconds(h.TimeoutSeconds) + retries*maxPreBackoff
		if h.Mode == v1.ModeHold {
			held += seconds(h.ReleaseTimeoutSeconds)
		}
	}
	if p.MaxQuiesceSeconds > 0 {
		return seconds(p.MaxQuiesceSeconds) + held
	}
	for i := range p.PostHooks {
		hooks += seconds(p.PostHooks[i].TimeoutSeconds)
	}
	return hooks + seconds(p.SnapshotTimeoutSeconds) + held
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }
