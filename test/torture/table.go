// SPDX-License-Identifier: Apache-2.0

package torture

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Phases that kills are to hit, in order.
var Phases = []string{"Pending", "Planned", "PreHooks", "Snapshotting", "PostHooks", "AwaitingReady"}

// Kills of operators that worked.
func (e *Evidence) Kills() int { return len(e.blows(Leader, "SIGKILL")) }

// KillsIn says how many kills found a run in a phase, and how many runs they found.
func (e *Evidence) KillsIn(phase string) (kills, runs int) {
	for _, b := range e.blows(Leader, "SIGKILL") {
		hit := 0
		for _, h := range b.Hits {
			if h.Phase == phase {
				hit++
			}
		}
		if hit > 0 {
			kills++
		}
		runs += hit
	}
	return kills, runs
}

func (e *Evidence) blows(victim, how string) []Blow {
	var out []Blow
	for _, b := range e.Blows {
		if b.Victim == victim && b.How == how {
			out = append(out, b)
		}
	}
	return out
}

// Table is the report for people.
func (e *Evidence) Table(p Promise, v *Verdict) string {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	kills := e.blows(Leader, "SIGKILL")
	fmt.Fprintf(w, "seed %d, %s\n\n", e.Seed, e.Lasted.Round(time.Second))
	fmt.Fprintf(w, "SIGKILLs of the leader\t%d\n", len(kills))
	for _, hastened := range []bool{false, true} {
		var of []Blow
		for _, k := range kills {
			if k.Hastened == hastened {
				of = append(of, k)
			}
		}
		how := "the lease ran out"
		if hastened {
			how = "the lease was deleted at once"
		}
		fmt.Fprintf(w, "  %s\t%d\tthe next operator worked after %s\n", how, len(of), spread(of))
	}
	fmt.Fprintf(w, "\nphase at the kill\tkills\truns\n")
	for _, phase := range Phases {
		n, runs := e.KillsIn(phase)
		fmt.Fprintf(w, "  %s\t%d\t%d\n", phase, n, runs)
	}
	fmt.Fprintf(w, "\nother blows\n")
	e.others(w)
	for _, h := range e.Handovers {
		fmt.Fprintf(w, "  hand-over\t\tlease taken after %s, work after %s\n", seconds(h.Acquired), seconds(h.Works))
	}
	e.results(w)
	e.labels(w)
	e.longest(w, p, v)
	fmt.Fprintf(w, "\nfaults\n")
	for _, f := range Faults {
		fmt.Fprintf(w, "  %s\t%d\n", f, len(v.Found[f]))
	}
	for _, f := range Faults {
		for _, words := range v.Found[f] {
			fmt.Fprintf(w, "%s: %s\n", strings.ToUpper(string(f)), words)
		}
	}
	_ = w.Flush()
	return b.String()
}

func (e *Evidence) others(w *tabwriter.Writer) {
	of := map[string][]Blow{}
	for _, b := range e.Blows {
		if b.Victim != Leader || b.How != "SIGKILL" {
			what := b.How + " of " + b.Victim
			of[what] = append(of[what], b)
		}
	}
	for _, what := range slices.Sorted(maps.Keys(of)) {
		fmt.Fprintf(w, "  %s\t%d\tover after %s\n", what, len(of[what]), spread(of[what]))
	}
}

func (e *Evidence) results(w *tabwriter.Writer) {
	fmt.Fprintf(w, "\nruns\tSucceeded\tPartiallyFailed\tFailed\tothers\n")
	for _, kind := range []Kind{Hooks, Held, Plain} {
		n := map[string]int{}
		all := 0
		for i := range e.Runs {
			if r := &e.Runs[i]; r.Kind == kind {
				n[r.Result]++
				all++
			}
		}
		fmt.Fprintf(w, "  %s: %d\t%d\t%d\t%d\t%d\n", kind, all, n["Succeeded"], n["PartiallyFailed"], n["Failed"], all-n["Succeeded"]-n["PartiallyFailed"]-n["Failed"])
	}
	for _, s := range e.Slots {
		fmt.Fprintf(w, "  slots of %s: %d\tmissed %d\n", s.Schedule, len(s.Due), s.Missed)
	}
}

func (e *Evidence) labels(w *tabwriter.Writer) {
	kind := map[string]Kind{}
	for i := range e.Apps {
		kind[e.Apps[i].Name] = e.Apps[i].Kind
	}
	fmt.Fprintf(w, "\nsnapshots\tall\ttheir file system frozen\n")
	for _, label := range []string{"application", "crash", ""} {
		all, clean := 0, 0
		for i := range e.Snapshots {
			if s := &e.Snapshots[i]; s.Label == label {
				all++
				if s.Clean {
					clean++
				}
			}
		}
		name := label
		if name == "" {
			name = "no label"
		}
		fmt.Fprintf(w, "  %s\t%d\t%d\n", name, all, clean)
	}
}

// longest blocks of each kind, and the one that came nearest to its bound.
func (e *Evidence) longest(w *tabwriter.Writer, p Promise, v *Verdict) {
	fmt.Fprintf(w, "\nlongest block of a writer\tlasted\tpromised\trun\n")
	for _, kind := range []Kind{Hooks, Held, Plain} {
		var longest, nearest *Block
		for i := range v.Blocks {
			b := &v.Blocks[i]
			if b.Kind != kind {
				continue
			}
			if longest == nil || b.For > longest.For {
				longest = b
			}
			if nearest == nil || b.For.Seconds()/b.Bound.Seconds() > nearest.For.Seconds()/nearest.Bound.Seconds() {
				nearest = b
			}
		}
		if longest == nil {
			fmt.Fprintf(w, "  %s\tbelow %s\n", kind, seconds(worthTelling))
			continue
		}
		fmt.Fprintf(w, "  %s, longest\t%s\t%s\t%s (%s)\n", kind, seconds(longest.For), seconds(longest.Bound), longest.Run, longest.Why)
		fmt.Fprintf(w, "  %s, nearest to its bound\t%s\t%s\t%s (%s)\n", kind, seconds(nearest.For), seconds(nearest.Bound), nearest.Run, nearest.Why)
	}
	fmt.Fprintf(w, "  promised: %s for hooks and cut, %s for lease and take-over (%s without the lease), %s until a pre hook of unknown end is released again, %s for the switch of a held command\n",
		seconds(p.Quiet), seconds(p.Takeover), seconds(p.Hastened), seconds(p.Unknown), seconds(p.Switch))
}

// spread of how long blows lasted.
func spread(blows []Blow) string {
	if len(blows) == 0 {
		return "-"
	}
	var d []time.Duration
	for _, b := range blows {
		d = append(d, b.Over.Sub(b.At))
	}
	slices.Sort(d)
	return fmt.Sprintf("%s (median), %s at most", seconds(d[len(d)/2]), seconds(d[len(d)-1]))
}
