// SPDX-License-Identifier: Apache-2.0

package naming

import (
	"strings"
	"testing"
)

func TestGroup(t *testing.T) {
	if got := Group("hourly", slot); got != "hourly-202603290130" {
		t.Errorf("got %s", got)
	}
	long, other := x(250), x(249)+"y"
	names := map[string]bool{}
	for _, name := range []string{Group(long, slot), Group(other, slot), GroupHashed(long, "r", slot), GroupHashed(long, "q", slot), GroupHashed("hourly", "r", slot),
		Group("hourly", slot)} {
		if names[name] || len(name) > maxName || !isSubdomain(name) || !strings.HasSuffix(name, "-202603290130") {
			t.Errorf("%s is no good name, or the second of its kind", name)
		}
		names[name] = true
	}
}

func TestMadeGroup(t *testing.T) {
	for _, tt := range []struct {
		name, schedule, uid string
		want                bool
	}{
		{"hourly-202603290130", "hourly", "", true},
		{"hourly-202603290130", "daily", "", false},
		{"hourly-202613290130", "hourly", "", false},
		{"hourly", "hourly", "", false},
		{"", "", "", false},
		{Group(x(250), slot), x(250), "", true},
		{GroupHashed("hourly", "r", slot), "hourly", "r", true},
		{GroupHashed("hourly", "r", slot), "hourly", "q", false},
		{GroupHashed("hourly", "r", slot), "daily", "r", false},
	} {
		if got := MadeGroup(tt.name, tt.schedule, tt.uid); got != tt.want {
			t.Errorf("%s of %s and %s: %v", tt.name, tt.schedule, tt.uid, got)
		}
	}
}
