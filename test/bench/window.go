// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/stillpoint-operator/stillpoint/test/bench/quiesce"
)

// quiesceWindow is measured on the local cluster, with a real kubelet and real storage: the sidecars' rate limits are a part of it.
func quiesceWindow(name string) scenario {
	return scenario{name: name, root: true, run: func(ctx context.Context, w *world) ([]*result, error) {
		if w.options.command != "" {
			return nil, errors.New("the window is read from the operator's own record of a run; another program has none")
		}
		o := quiesce.Default()
		o.Operator, o.Root, o.Rounds, o.Out = filepath.Join(w.dir, "stillpoint"), w.options.root, w.options.rounds, os.Stderr
		windows, err := quiesce.Measure(ctx, o)
		var results []*result
		for _, q := range windows {
			r := &result{Scenario: name, Unit: "ms", Target: target{Ratio: quiesce.Target},
				What: fmt.Sprintf("%d claims, sidecars' QPS %d: pre hook's end to post hook's start", q.Claims, q.SidecarQPS)}
			for i := range q.Window {
				r.add(q.Baseline[i], q.Window[i])
			}
			results = append(results, r)
		}
		return results, err
	}}
}
