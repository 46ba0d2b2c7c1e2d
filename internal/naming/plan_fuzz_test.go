// SPDX-License-Identifier: Apache-2.0

package naming

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// FuzzPlanSnapshots names the snapshots of any claims: each has a name of its own, whatever their order.
func FuzzPlanSnapshots(f *testing.F) {
	f.Add("hourly", "data\nwal\ndata", int64(1774747800))
	f.Add("b-c", "a\na-b\n", int64(0))
	f.Add(x(253), x(253)+"\n"+x(252)+"\n"+x(251)+"y", int64(1774747800))
	f.Add("s", strings.TrimSuffix(strings.TrimSuffix(Snapshot(x(253), "s", slot), "-202603290130"), "-s")+"\n"+x(253), slot.Unix())
	f.Add("Ä", ".\n-\n_", int64(-1<<40))
	f.Fuzz(func(t *testing.T, schedule, list string, unix int64) {
		claims, at := strings.Split(list, "\n"), time.Unix(unix, 0)
		names := PlanSnapshots(schedule, claims, at)
		taken := map[string]string{}
		for _, claim := range claims {
			name, ok := names[claim]
			checkName(t, name, 253)
			if other, twice := taken[name]; !ok || (twice && other != claim) {
				t.Fatalf("%q and %q share %q", claim, other, name)
			}
			taken[name] = claim
			if !strings.HasSuffix(name, "-"+When(at)) && name != "" && !strings.Contains(name, When(at)) {
				t.Fatalf("%q does not say when", name)
			}
		}
		slices.Reverse(claims)
		if again := PlanSnapshots(schedule, claims, at); !maps.Equal(names, again) {
			t.Fatalf("another order of claims gives other names: %v, %v", names, again)
		}
	})
}
