// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/stillpoint-operator/stillpoint/cmd/kubectl-stillpoint/words"
)

// fewDeletions are shown one by one; of more, the first.
const fewDeletions = 20

// print a plan for people; wide: with every snapshot, also those that stay.
func (m *Plan) print(p *program, wide bool) error {
	w := p.Out
	fmt.Fprintf(w, "Plan of schedule %s/%s (nothing is changed)\n\n", m.Namespace, m.Schedule)
	m.verdict(p)
	m.slots(p)
	if err := m.claims(w); err != nil {
		return err
	}
	m.hooks(p)
	m.retention(p, wide)
	if len(m.Unknown) > 0 {
		fmt.Fprintf(w, "\nUNKNOWN\n  %s\n", strings.Join(m.Unknown, "\n  "))
	}
	return nil
}

func (m *Plan) verdict(p *program) {
	w := p.Out
	switch m.Outcome {
	case outcomePlanned:
		what := fmt.Sprintf("would take %s", words.Plural(len(m.Claims), "snapshot"))
		if len(m.Hooks) > 0 {
			what += fmt.Sprintf(" with %s", words.Plural(len(m.Hooks), "hook"))
		}
		fmt.Fprintf(w, "A run %s.\n", paint(w, green, what))
	case outcomeSkipped:
		fmt.Fprintf(w, "A run %s: %s\n", paint(w, yellow, "would be skipped"), m.Message)
	case outcomeFailed:
		fmt.Fprintf(w, "A run %s before it quiesces anything: %s\n", paint(w, red, "would fail"), m.Message)
	default:
		fmt.Fprintf(w, "What a run would do is %s.\n", paint(w, yellow, "not known"))
	}
	if m.Suspended {
		fmt.Fprintln(w, "The schedule is suspended: no runs are started (kubectl stillpoint resume).")
	}
}

func (m *Plan) slots(p *program) {
	fmt.Fprintln(p.Out, "\nNEXT SLOTS")
	if len(m.Slots) == 0 {
		fmt.Fprintln(p.Out, "  none: the schedule cannot be read")
		return
	}
	zone, err := time.LoadLocation(m.TimeZone)
	if err != nil {
		zone = time.UTC
	}
	for _, s := range m.Slots {
		spread := ""
		if d := s.Starts.Sub(s.Slot); d > 0 {
			spread = fmt.Sprintf(", starts %s later (spreadSeconds)", words.Took(d))
		}
		fmt.Fprintf(p.Out, "  %s, %s%s\n", words.Moment(s.Slot, zone), words.In(s.Slot, p.Clock.Now()), spread)
	}
}

func (m *Plan) claims(w io.Writer) error {
	fmt.Fprintln(w, "\nCLAIMS")
	if len(m.Claims) > 0 {
		t := &table{w: w, headers: []string{"  CLAIM", "CLASS", "DRIVER", "SNAPSHOT"}}
		for _, c := range m.Claims {
			class := c.Class
			if class == "" {
				class = "(default)"
			}
			t.row("  "+c.Claim, class, c.Driver, c.Snapshot)
		}
		if err := t.print(); err != nil {
			return err
		}
	} else {
		fmt.Fprintln(w, "  none")
	}
	for _, l := range m.LeftOut {
		fmt.Fprintf(w, "  left out: %s\n", l)
	}
	return nil
}

func (m *Plan) hooks(p *program) {
	w := p.Out
	fmt.Fprintln(w, "\nHOOKS")
	if len(m.Hooks) == 0 {
		fmt.Fprintln(w, "  none: snapshots are like after a power cut")
		return
	}
	for _, h := range m.Hooks {
		mode := ""
		if h.Mode != "" {
			mode = ", held"
		}
		fmt.Fprintf(w, "  %-4s %s  (%s of namespace %s with %s, %s%s)\n", strings.ToLower(string(h.Stage)), h.Name, map[bool]string{true: "one pod", false: "all pods"}[h.Policy == "One"], h.Namespace, h.Selector, h.Timeout, mode)
		for _, c := range h.Containers {
			fmt.Fprintf(w, "         in %s\n", c)
		}
		if len(h.Containers) == 0 && len(h.Problems) == 0 {
			fmt.Fprintf(w, "         %s\n", paint(w, yellow, "in no pod: none is running that matches"))
		}
		for _, x := range h.Problems {
			fmt.Fprintf(w, "         %s\n", paint(w, red, x))
		}
	}
	fmt.Fprintf(w, "  as %s\n", m.Account.Name)
	for _, r := range m.Account.Rights {
		may := paint(w, green, "may")
		if !r.Allowed {
			may = paint(w, red, "may not")
		}
		fmt.Fprintf(w, "         %s run commands in pods of namespace %s\n", may, r.Namespace)
	}
}

func (m *Plan) retention(p *program, wide bool) {
	w := p.Out
	fmt.Fprintf(w, "\nRETENTION  %s\n", m.Retention.Rules)
	if len(m.Retention.Delete) == 0 {
		fmt.Fprintf(w, "  deletes nothing now, keeps %s\n", words.Plural(len(m.Retention.Keep), "snapshot"))
	} else {
		fmt.Fprintf(w, "  deletes %s now, keeps %d:\n", words.Plural(len(m.Retention.Delete), "snapshot"), len(m.Retention.Keep))
	}
	for i, d := range m.Retention.Delete {
		if i == fewDeletions && !wide {
			fmt.Fprintf(w, "    and %d more (see -o wide)\n", len(m.Retention.Delete)-i)
			break
		}
		fmt.Fprintf(w, "    %s: %s\n", d.Snapshot, d.Reason)
	}
	if wide && len(m.Retention.Keep) > 0 {
		fmt.Fprintln(w, "  keeps:")
		for _, d := range m.Retention.Keep {
			fmt.Fprintf(w, "    %s: %s\n", d.Snapshot, d.Reason)
		}
	}
	if m.Retention.Next != nil {
		fmt.Fprintf(w, "  time alone changes this %s\n", words.In(*m.Retention.Next, p.Clock.Now()))
	}
}
