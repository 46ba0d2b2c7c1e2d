// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// target that a result must not exceed; 0: no such bound.
type target struct {
	Ratio float64 `json:"ratio,omitempty"` // to the baseline
	Value float64 `json:"value,omitempty"` // in the result's unit
	None  bool    `json:"none,omitempty"`  // it must not happen at all
}

// result is one thing that was measured, once per round.
type result struct {
	Scenario string    `json:"scenario"`
	What     string    `json:"what"`
	Unit     string    `json:"unit"`
	Baseline []float64 `json:"baseline,omitempty"`
	Operator []float64 `json:"operator"`
	Target   target    `json:"target,omitzero"`
	Ratio    float64   `json:"ratio,omitempty"` // of the medians
	Median   float64   `json:"median"`          // of the operator
	Met      *bool     `json:"met,omitempty"`
	Note     string    `json:"note,omitempty"` // where it comes from
}

// add a round. A baseline of 0 is none.
func (r *result) add(baseline, operator float64) {
	if baseline > 0 {
		r.Baseline = append(r.Baseline, round(baseline))
	}
	r.Operator = append(r.Operator, round(operator))
}

// round to what a measurement can tell.
func round(v float64) float64 {
	var out float64
	_, _ = fmt.Sscanf(fmt.Sprintf("%.4g", v), "%g", &out)
	return out
}

// judge the rounds.
func (r *result) judge() {
	r.Median = median(r.Operator)
	if b := median(r.Baseline); b > 0 {
		r.Ratio = round(r.Median / b)
	}
	if r.Target == (target{}) || len(r.Operator) == 0 {
		return
	}
	met := (r.Target.Ratio == 0 || r.Ratio <= r.Target.Ratio) && (r.Target.Value == 0 || r.Median <= r.Target.Value) && (!r.Target.None || slices.Max(r.Operator) == 0)
	r.Met = &met
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return round((sorted[(n-1)/2] + sorted[n/2]) / 2)
}

func (r *result) verdict() string {
	switch {
	case r.Met == nil:
		return ""
	case *r.Met:
		return "met"
	default:
		return "MISSED"
	}
}

func (t target) String() string {
	var parts []string
	if t.Ratio > 0 {
		parts = append(parts, fmt.Sprintf("%gx", t.Ratio))
	}
	if t.Value > 0 {
		parts = append(parts, fmt.Sprintf("%g", t.Value))
	}
	if t.None {
		parts = append(parts, "none")
	}
	return strings.Join(parts, ", ")
}

// table of the results beside those that are committed.
func table(out io.Writer, results, before []*result) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SCENARIO\tWHAT\tUNIT\tBASELINE\tOPERATOR\tRATIO\tTARGET\tVERDICT\tCOMMITTED")
	for _, r := range results {
		committed := ""
		for _, b := range before {
			if b.Scenario == r.Scenario && b.What == r.What {
				committed = fmt.Sprintf("%g", b.Median)
				if b.Ratio > 0 {
					committed += fmt.Sprintf(" (%gx)", b.Ratio)
				}
			}
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%g\t%s\t%s\t%s\t%s\n", r.Scenario, r.What, r.Unit, blank(median(r.Baseline)), r.Median, blank(r.Ratio), r.Target, r.verdict(), committed)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, r := range results {
		if r.Note != "" {
			fmt.Fprintf(out, "\n%s, %s:\n%s\n", r.Scenario, r.What, r.Note)
		}
	}
	return nil
}

func blank(v float64) string {
	if v == 0 {
		return ""
	}
	return fmt.Sprintf("%g", v)
}
