// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"html"
)

// Sizes of the picture, in pixels.
const (
	plotWidth, plotBar, plotGap, plotText, plotTop = 900, 18, 10, 500, 40
)

// plot the ratios to the baselines: a bar each, its rounds as dots, its target as a line.
func plot(r *record) []byte {
	var rows []*result
	most := 1.0
	for _, x := range r.Results {
		if x.Ratio > 0 {
			rows = append(rows, x)
			most = max(most, x.Ratio, x.Target.Ratio)
		}
	}
	scale := (plotWidth - plotText - 70) / most
	height := plotTop + len(rows)*(plotBar+plotGap) + 10
	var b bytes.Buffer
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", plotWidth, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", plotWidth, height)
	fmt.Fprintf(&b, `<text x="10" y="22" font-size="14">How many times as long as a bare client for the same work (median of %d; dots: each round; line: target)</text>`+"\n", r.Rounds)
	for i, x := range rows {
		y := plotTop + i*(plotBar+plotGap)
		color := "#4878a8"
		if x.Met != nil && !*x.Met {
			color = "#c0504d"
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", plotText-8, y+13, html.EscapeString(x.What))
		fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%.1f" height="%d" fill="%s"/>`+"\n", plotText, y, x.Ratio*scale, plotBar, color)
		for k := range min(len(x.Operator), len(x.Baseline)) {
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%d" r="2.5" fill="#202020"/>`+"\n", plotText+min(most, x.Operator[k]/x.Baseline[k])*scale, y+plotBar/2)
		}
		if x.Target.Ratio > 0 {
			fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="2" height="%d" fill="#202020"/>`+"\n", plotText+x.Target.Ratio*scale, y-3, plotBar+6)
		}
		fmt.Fprintf(&b, `<text x="%.1f" y="%d">%gx</text>`+"\n", plotText+max(x.Ratio, x.Target.Ratio)*scale+8, y+13, x.Ratio)
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}
