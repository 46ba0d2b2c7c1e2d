// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"bytes"
	"testing"
)

// FuzzLint: whatever a file holds, it is judged and not fallen over, and every finding has a place in it.
func FuzzLint(f *testing.F) {
	f.Add([]byte(schedule("  schedule: \"0 * * * *\"\n  preHooks:\n  - podSelector: {}\n    command: [fsfreeze, -f, /data]\n")))
	f.Add([]byte("apiVersion: v1\nkind: List\nitems: [1, null, {apiVersion: snapscheduler.backube/v1, kind: SnapshotRun}]\n"))
	f.Add([]byte("kind: SnapshotSchedule\nmetadata: 1\nspec: [*x]\n---\n&a [*a]\n"))
	f.Add([]byte("apiVersion: snapscheduler.backube/v1\nkind: SnapshotSchedule\nmetadata: {labels: {a: [b]}, annotations: 3}\nspec: {<<: {schedule: x}, claimSelector: null}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := Lint(t.Context(), []File{{Name: "a.yaml", Data: data, Named: true}}, Options{Now: now})
		if err != nil {
			t.Fatal(err)
		}
		lines := bytes.Count(data, []byte("\n")) + 1
		for _, x := range r.Findings {
			// yaml's own errors may name the line after the last.
			if x.Line < 1 || x.Line > lines+1 {
				t.Errorf("finding in line %d of %d: %+v", x.Line, lines, x)
			}
		}
	})
}
