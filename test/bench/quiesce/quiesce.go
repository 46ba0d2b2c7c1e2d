// SPDX-License-Identifier: Apache-2.0

// Package quiesce measures the quiesce window on the local cluster: how long an application waits, between the end of its pre hook and the start of
// its post hook, for the snapshots of its claims. The baseline is what no operator can do without: the same claims' VolumeSnapshots created side
// by side by a bare client, until a watch has shown status.creationTime of the last one. Kubelet, snapshot controller, sidecar and driver are real.
//
// The window is what the run's record says: endTime of the pre hook to startTime of the post hook. Both are the operator's clock; what exec adds at
// either end (about 80 ms each) is no work of the operator's and in neither number.
//
//	world.go     the cluster, the operator's process, the application
//	sample.go    one snapshot of all claims: bare, and by the operator
package quiesce

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/stillpoint-operator/stillpoint/test/cluster"
)

// Target is the largest ratio of the window to the baseline that is good.
const Target = 1.2

// Options say what is measured.
type Options struct {
	// Operator is the path of the operator's program.
	Operator string
	// Root of the repository, whose config/ is applied.
	Root string
	// Claims of one run, each number a measurement.
	Claims []int
	// SidecarQPS of the CSI sidecars, each number a measurement of all Claims.
	SidecarQPS []int
	// Rounds of baseline and operator, alternating. Small numbers of claims are sampled several times a round: see samples.
	Rounds int
	// Out takes a line for every sample.
	Out io.Writer
}

// Default is what docs/performance.md shows. 5 is the sidecars' own QPS.
func Default() Options {
	return Options{Claims: []int{1, 10, 50}, SidecarQPS: []int{200, 5}, Rounds: 3}
}

// Result of one number of claims at one QPS. All times are in milliseconds; lists are in the order of their measurement.
type Result struct {
	Claims     int       `json:"claims"`
	SidecarQPS int       `json:"sidecarQPS"`
	Baseline   []float64 `json:"baselineMilliseconds"`
	Window     []float64 `json:"windowMilliseconds"`
	// Parts of the window: until the first snapshot was about to be created, until the last was seen cut, until the post hook started.
	Parts          []Parts `json:"partsMilliseconds"`
	MedianBaseline float64 `json:"medianBaselineMilliseconds"`
	MedianWindow   float64 `json:"medianWindowMilliseconds"`
	Ratio          float64 `json:"ratio"`
	Target         float64 `json:"target"`
	Met            bool    `json:"met"`
}

// Parts of a window, in milliseconds.
type Parts struct {
	Begin   float64 `json:"begin"`
	Cut     float64 `json:"cut"`
	Release float64 `json:"release"`
}

// samples a round: more of those whose window is short, so that one hiccup does not decide.
func samples(claims int) int {
	switch {
	case claims < 5:
		return 5
	case claims < 25:
		return 3
	}
	return 1
}

// Measure all. A cluster that runs already is used and left as it was found; one that was started here is stopped here.
func Measure(ctx context.Context, o Options) (results []Result, err error) {
	w, err := attach(ctx, o)
	if w != nil {
		defer func() {
			if e := w.leave(ctx); err == nil {
				err = e
			}
		}()
	}
	if err != nil {
		return nil, err
	}
	for _, qps := range o.SidecarQPS {
		if err := w.sidecars(ctx, qps); err != nil {
			return nil, err
		}
		for _, claims := range o.Claims {
			r, err := w.measure(ctx, claims, qps)
			if err != nil {
				return nil, fmt.Errorf("measuring %d claims at %d requests per second: %w", claims, qps, err)
			}
			results = append(results, r)
		}
	}
	return results, nil
}

func (w *world) measure(ctx context.Context, claims, qps int) (Result, error) {
	a, err := w.application(ctx, claims)
	if err != nil {
		return Result{}, err
	}
	r := Result{Claims: claims, SidecarQPS: qps, Target: Target}
	for i := range w.options.Rounds * samples(claims) {
		bare, err := a.bare(ctx, i)
		if err != nil {
			return r, fmt.Errorf("taking the baseline: %w", err)
		}
		window, parts, err := a.run(ctx, i)
		if err != nil {
			return r, err
		}
		r.Baseline, r.Window, r.Parts = append(r.Baseline, millis(bare)), append(r.Window, millis(window)), append(r.Parts, parts)
		fmt.Fprintf(w.options.Out, "%d claims, sidecar QPS %d: baseline %.0f ms, window %.0f ms = %.1f + %.0f + %.1f\n", claims, qps, millis(bare), millis(window),
			parts.Begin, parts.Cut, parts.Release)
	}
	r.MedianBaseline, r.MedianWindow = median(r.Baseline), median(r.Window)
	r.Ratio = r.MedianWindow / r.MedianBaseline
	r.Met = r.Ratio <= Target
	return r, a.remove(ctx)
}

func median(of []float64) float64 {
	s := slices.Sorted(slices.Values(of))
	if len(s)%2 == 1 {
		return s[len(s)/2]
	}
	return (s[len(s)/2-1] + s[len(s)/2]) / 2
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// sidecars get another QPS, if they have another. The rest of the cluster goes on.
func (w *world) sidecars(ctx context.Context, qps int) error {
	c, err := cluster.Up(ctx, cluster.Options{SidecarQPS: qps, Out: w.options.Out})
	if err != nil {
		return fmt.Errorf("setting the sidecars' QPS to %d: %w", qps, err)
	}
	w.local = c
	return nil
}
