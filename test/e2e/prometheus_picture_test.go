// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"html"
	"math"
	"os"
	"slices"
	"sort"
	"strings"
	"time"
)

// The picture in docs: the overview dashboard, drawn from what Prometheus answered in the test. STILLPOINT_DASHBOARD_PICTURE names the file.

const (
	pictureWidth, margin = 1200, 12
	fine, bad, neutral   = "#73bf69", "#f2495c", "#5794f2"
)

type picture struct{ strings.Builder }

func (b *picture) box(x, y, w, h int, title string) {
	fmt.Fprintf(b, `<rect x="%d" y="%d" width="%d" height="%d" rx="3" fill="#181b1f" stroke="#2c3235"/>`+"\n", x, y, w, h)
	b.text(x+10, y+20, 13, "#ccccdc", title)
}

func (b *picture) text(x, y, size int, colour, s string) {
	fmt.Fprintf(b, `<text x="%d" y="%d" font-size="%d" fill="%s">%s</text>`+"\n", x, y, size, colour, html.EscapeString(s))
}

// drawOverview of the queries' answers.
func (p *prometheus) drawOverview(queries []dashboardQuery, file string) error {
	b := &picture{}
	const stat, table, graph = 90, 200, 230
	height := stat + table + 2*graph + 5*margin
	fmt.Fprintf(b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="Inter, Helvetica, Arial, sans-serif">`+"\n", pictureWidth, height, pictureWidth, height)
	fmt.Fprintf(b, `<rect width="%d" height="%d" fill="#111217"/>`+"\n", pictureWidth, height)
	x, graphs := margin, 0
	columns := map[string]map[string]measured{}
	for _, q := range queries {
		if q.Dashboard != "Stillpoint / Overview" {
			continue
		}
		y := stat + table + 3*margin + graphs/2*(graph+margin)
		var err error
		switch q.Panel {
		case "stat":
			err = p.drawNumber(b, q, x, margin, (pictureWidth-7*margin)/6, stat)
			x += (pictureWidth-7*margin)/6 + margin
		case "table":
			columns[q.RefID], err = p.bySchedule(q.Expr)
		default:
			w := (pictureWidth - 3*margin) / 2
			err = p.drawGraph(b, q, margin+graphs%2*(w+margin), y, w, graph)
			graphs++
		}
		if err != nil {
			return fmt.Errorf("%s: %w", q.Title, err)
		}
	}
	drawTable(b, columns, stat+2*margin, table)
	b.WriteString("</svg>\n")
	return os.WriteFile(file, []byte(b.String()), 0o644)
}

func (p *prometheus) drawNumber(b *picture, q dashboardQuery, x, y, w, h int) error {
	answer, err := p.query(q.Expr)
	if err != nil || len(answer) == 0 {
		return fmt.Errorf("no answer (%w)", err)
	}
	colour := neutral
	switch q.Title {
	case "May be quiesced", "Last run failed", "No success in time", "Not valid":
		colour = fine
		if answer[0].value > 0 {
			colour = bad
		}
	case "Operators that work":
		colour = fine
	}
	b.box(x, y, w, h, q.Title)
	b.text(x+w/2-12, y+68, 40, colour, fmt.Sprint(answer[0].value))
	return nil
}

func (p *prometheus) bySchedule(expr string) (map[string]measured, error) {
	answer, err := p.query(expr)
	out := map[string]measured{}
	for _, m := range answer {
		out[m.labels["schedule_name"]] = m
	}
	return out, err
}

func drawTable(b *picture, columns map[string]map[string]measured, y, h int) {
	b.box(margin, y, pictureWidth-2*margin, h, "Schedules")
	value := func(column, schedule, format string) string {
		m, ok := columns[column][schedule]
		if !ok || math.IsNaN(m.value) {
			return "-"
		}
		return fmt.Sprintf(format, m.value)
	}
	var names []string
	for name := range columns["ready"] {
		names = append(names, name)
	}
	sort.Strings(names)
	heads := []string{"Schedule", "State", "Last result", "Last success", "Next run in", "Time quiesced", "May be quiesced", "Ready snapshots"}
	for i, head := range heads {
		b.text(margin+14+i*145, y+50, 13, neutral, head)
	}
	for n, name := range names {
		next := "-"
		if m, ok := columns["next"][name]; ok {
			next = (time.Duration(m.value) * time.Second).String()
			if m.value > 86400 {
				next = fmt.Sprintf("%.0f days", m.value/86400)
			}
		}
		result := columns["result"][name].labels["result"]
		colour := map[string]string{"Succeeded": fine, "Failed": bad, "PartiallyFailed": "#ff9830"}[result]
		may, mayColour := "no", fine
		if columns["now"][name].value == 1 {
			may, mayColour = "yes", "#ff9830"
		}
		cells := [][2]string{{name, "#ccccdc"}, {columns["ready"][name].labels["reason"], fine}, {result, colour}, {value("success", name, "%.0f s ago"), "#ccccdc"}, {next, "#ccccdc"},
			{value("quiesced", name, "%.2f s"), "#ccccdc"}, {may, mayColour}, {value("snapshots", name, "%.0f"), "#ccccdc"}}
		for i, cell := range cells {
			b.text(margin+14+i*145, y+80+n*30, 14, cell[1], cell[0])
		}
	}
}

func (p *prometheus) drawGraph(b *picture, q dashboardQuery, x, y, w, h int) error {
	lines, err := p.queryRange(q.Expr, 4*time.Minute)
	if err != nil {
		return err
	}
	b.box(x, y, w, h, q.Title)
	top := 0.0
	for _, l := range lines {
		for _, v := range l.values {
			if !math.IsNaN(v) {
				top = max(top, v)
			}
		}
	}
	if top == 0 {
		top = 1
	}
	left, bottom, width, tall := x+50, y+h-50, w-70, h-90
	for _, f := range []float64{0, .5, 1} {
		level := bottom - int(f*float64(tall))
		fmt.Fprintf(b, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="#2c3235"/>`+"\n", left, level, left+width, level)
		b.text(x+10, level+4, 11, "#8e8e99", fmt.Sprintf("%.3g", f*top))
	}
	colours := []string{fine, "#f2cc0c", neutral, "#ff9830", bad, "#b877d9"}
	legend := x + 12
	for i, l := range lines {
		var path strings.Builder
		for k, v := range l.values {
			if !math.IsNaN(v) {
				fmt.Fprintf(&path, "%d,%d ", left+k*width/max(1, len(l.values)-1), bottom-int(v/top*float64(tall)))
			}
		}
		colour := colours[i%len(colours)]
		fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.TrimSpace(path.String()), colour)
		b.text(legend, y+h-14, 12, colour, l.name(q.Legend))
		legend += 30 + 7*len(l.name(q.Legend))
	}
	return nil
}

// curve is one series over time; NaN where it has no sample.
type curve struct {
	labels map[string]string
	values []float64
}

func (l curve) name(legend string) string {
	for k, v := range l.labels {
		legend = strings.ReplaceAll(legend, "{{"+k+"}}", v)
	}
	return legend
}

// queryRange asks for each second of the time until now.
func (p *prometheus) queryRange(expr string, span time.Duration) ([]curve, error) {
	now := time.Now().Unix()
	start := now - int64(span.Seconds())
	var data struct {
		Result []struct {
			Metric map[string]string `json:"metric"`
			Values [][]any           `json:"values"`
		} `json:"result"`
	}
	err := p.get("/api/v1/query_range", map[string]string{"query": expr, "start": fmt.Sprint(start), "end": fmt.Sprint(now), "step": "1"}, &data)
	if err != nil {
		return nil, err
	}
	var out []curve
	for _, r := range data.Result {
		l := curve{r.Metric, slices.Repeat([]float64{math.NaN()}, int(now-start)+1)}
		for _, pair := range r.Values {
			at, ok := pair[0].(float64)
			v, err := number(pair)
			if err != nil || !ok {
				return nil, fmt.Errorf("not a sample: %v (%w)", pair, err)
			}
			l.values[int64(at)-start] = v
		}
		out = append(out, l)
	}
	return out, nil
}
