// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"io"
	"strings"
)

// Text writes a report for people: a line for each finding, as compilers do, and the sum. paint colours a word by its level.
func (r *Report) Text(w io.Writer, paint func(Level, string) string) {
	for i := range r.Findings {
		f := &r.Findings[i]
		about := ""
		if f.Object != "" {
			about = f.Object + ": "
		}
		fmt.Fprintf(w, "%s:%d:%d: %s: %s%s [%s]\n", f.File, f.Line, f.Column, paint(f.Level, string(f.Level)), about, f.sentence(), f.Rule)
	}
	var sums []string
	for _, level := range []Level{Error, Warning, Note} {
		if n := r.Count(level); n > 0 {
			sums = append(sums, plural(n, string(level)))
		}
	}
	if len(sums) == 0 {
		sums = append(sums, "nothing to find fault with")
	}
	fmt.Fprintf(w, "%s in %s of %s\n", strings.Join(sums, ", "), plural(len(r.Objects), "object"), plural(r.Files, "file"))
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}
