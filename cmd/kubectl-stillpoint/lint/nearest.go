// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"slices"
	"strings"
)

// nearest field to one that does not exist, among its siblings; empty: none is near.
func (s *schema) nearest(path string) string {
	at := s.structural
	all := steps(path)
	for _, step := range all[:len(all)-1] {
		if next, ok := at.Properties[step]; ok {
			at = &next
			continue
		}
		if at.Items == nil {
			return ""
		}
		at = at.Items
	}
	wrong := all[len(all)-1]
	best, distance := "", max(2, len(wrong)/3)+1
	for _, name := range sortedKeys(at.Properties) {
		if d := edits(strings.ToLower(wrong), strings.ToLower(name)); d < distance {
			best, distance = name, d
		}
	}
	return best
}

func sortedKeys[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// edits is how many letters must be inserted, removed or changed to make a into b.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := diagonal
			if a[i-1] != b[j-1] {
				change++
			}
			diagonal = row[j]
			row[j] = min(change, row[j]+1, row[j-1]+1)
		}
	}
	return row[len(b)]
}
