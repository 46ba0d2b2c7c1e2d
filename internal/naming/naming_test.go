// SPDX-License-Identifier: Apache-2.0

package naming

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"
)

var slot = time.Date(2026, 3, 29, 1, 30, 0, 0, time.UTC)

// x returns a name of n bytes.
func x(n int) string { return strings.Repeat("x", n) }

// Hashes are written out: another one would make a run take its snapshots twice.
func TestSnapshot(t *testing.T) {
	vienna := time.FixedZone("CEST", 7200)
	dots := strings.Repeat("a.", 119) + "a" // 239 bytes, every second one a dot
	tests := map[string]struct {
		claim, schedule string
		at              time.Time
		want            string
	}{
		"the name that snapscheduler gives":        {"data", "hourly", slot, "data-hourly-202603290130"},
		"the minute is in UTC":                     {"data", "hourly", slot.In(vienna), "data-hourly-202603290130"},
		"seconds do not count":                     {"data", "hourly", slot.Add(59 * time.Second), "data-hourly-202603290130"},
		"names with dots":                          {"data.db", "every.hour", slot, "data.db-every.hour-202603290130"},
		"239 characters fit":                       {x(200), x(39), slot, x(200) + "-" + x(39) + "-202603290130"},
		"240 characters are cut and hashed":        {x(200), x(40), slot, x(200) + "-" + x(28) + "-la4vk6bovj-202603290130"},
		"a cut after a dot takes the dot off":      {dots, "b", slot, strings.TrimSuffix(dots[:229], ".") + "-vzcsxocxha-202603290130"},
		"a name that is none is made one":          {"Data_1", "hourly", slot, "data-1-hourly-zhio6a2s6p-202603290130"},
		"a claim that is only signs":               {"__", "..", slot, "2fsb5wp3dx-202603290130"},
		"the longest names that exist":             {x(253), x(253), slot, x(229) + "-xmartc7xxl-202603290130"},
		"a schedule that ends where a claim began": {"a", "b-c", slot, "a-b-c-202603290130"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := Snapshot(tt.claim, tt.schedule, tt.at)
			if got != tt.want {
				t.Errorf("Snapshot = %q (%d bytes), want %q", got, len(got), tt.want)
			}
			checkName(t, got, 253)
		})
	}
}

func checkName(t *testing.T, name string, limit int) {
	t.Helper()
	if faults := validation.IsDNS1123Subdomain(name); len(faults) > 0 || len(name) > limit {
		t.Errorf("%q (%d bytes) is no name: %v", name, len(name), faults)
	}
}

func TestSnapshotHashedTellsApart(t *testing.T) {
	names := map[string]string{
		"claim a-b of schedule c":  SnapshotHashed("a-b", "c", "1", slot),
		"claim a of schedule b-c":  SnapshotHashed("a", "b-c", "1", slot),
		"another run":              SnapshotHashed("a", "b-c", "2", slot),
		"another minute":           SnapshotHashed("a", "b-c", "2", slot.Add(time.Minute)),
		"a long claim":             SnapshotHashed(x(253), "c", "1", slot),
		"a claim one byte shorter": SnapshotHashed(x(252), "c", "1", slot),
		"no run":                   SnapshotHashed("a", "b-c", "", slot),
		"the plain name":           Snapshot("a", "b-c", slot),
	}
	seen := map[string]string{}
	for about, name := range names {
		checkName(t, name, 253)
		if other, ok := seen[name]; ok {
			t.Errorf("%s and %s share %q", about, other, name)
		}
		seen[name] = about
		if about != "another minute" && !strings.HasSuffix(name, "-202603290130") {
			t.Errorf("%s: %q does not end with its minute", about, name)
		}
	}
	if got, want := SnapshotHashed("a", "b-c", "1", slot), "a-b-c-"; !strings.HasPrefix(got, want) {
		t.Errorf("%q does not begin with %q", got, want)
	}
}

func TestRun(t *testing.T) {
	tests := map[string]struct {
		schedule string
		retry    int
		want     string
	}{
		"schedule and slot":                    {"hourly", 0, "hourly-202603290130"},
		"a repetition":                         {"hourly", 2, "hourly-202603290130-r2"},
		"a negative repetition is none":        {"hourly", -1, "hourly-202603290130"},
		"the longest that fits":                {x(50), 0, x(50) + "-202603290130"},
		"one more is cut and hashed":           {x(51), 0, x(39) + "-rgjzhwvnp7-202603290130"},
		"a repetition of one that just fits":   {x(50), 1, x(36) + "-3kddz6lcwp-202603290130-r1"},
		"the longest name of a schedule":       {x(253), 12, x(35) + "-agvjkkfmir-202603290130-r12"},
		"a cut after a dot takes the dot off":  {strings.Repeat("a.", 100) + "a", 0, strings.Repeat("a.", 19) + "a-l7jchuxwqi-202603290130"},
		"a name that is none is made one":      {"Hourly!", 0, "hourly-qb2n5zsr7k-202603290130"},
		"a repetition whose number is absurd":  {"hourly", 1<<63 - 1, "hourly-202603290130-r9223372036854775807"},
		"an absurd number and a long schedule": {x(60), 1<<63 - 1, x(18) + "-f6va2u4h7w-202603290130-r9223372036854775807"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := RetryRun(tt.schedule, slot, tt.retry)
			if got != tt.want {
				t.Errorf("RetryRun = %q, want %q", got, tt.want)
			}
			checkName(t, got, 63)
			if tt.retry <= 0 && got != Run(tt.schedule, slot) {
				t.Errorf("Run = %q, want %q", Run(tt.schedule, slot), got)
			}
		})
	}
}

func TestScheduleLabel(t *testing.T) {
	tests := map[string]struct{ schedule, want string }{
		"a short name is its own label":    {"hourly", "hourly"},
		"a name with dots is one as well":  {"every.hour", "every.hour"},
		"63 bytes fit":                     {x(63), x(63)},
		"64 bytes are cut and hashed":      {x(64), x(52) + "-3cblohqjt5"},
		"65 bytes have another hash":       {x(65), x(52) + "-q2zseinjdg"},
		"no name has a label all the same": {"", "gp74isuriy"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := ScheduleLabel(tt.schedule)
			if got != tt.want {
				t.Errorf("ScheduleLabel = %q, want %q", got, tt.want)
			}
			if faults := validation.IsValidLabelValue(got); len(faults) > 0 {
				t.Errorf("%q: %v", got, faults)
			}
			if again := ScheduleLabel(got); again != got {
				t.Errorf("the label of a label is %q", again)
			}
		})
	}
}

func TestPlanSnapshots(t *testing.T) {
	long := []string{x(253), x(252), x(251) + "y", x(250) + "yy"}
	// The name of this claim makes the plain form of its snapshot equal to the
	// cut form of the first long one.
	cut := strings.TrimSuffix(Snapshot(x(253), "s", slot), "-202603290130")
	mimic := strings.TrimSuffix(cut, "-s")
	tests := map[string]struct {
		schedule string
		claims   []string
	}{
		"no claims":           {"hourly", nil},
		"short names":         {"hourly", []string{"a", "b", "a-b", "a.b"}},
		"a claim named twice": {"hourly", []string{"a", "a"}},
		"long names":          {x(253), long},
		"a claim that is named like the hashed form of another": {"s", append([]string{mimic, cut}, long...)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			input := slices.Clone(tt.claims)
			names := PlanSnapshots(tt.schedule, tt.claims, slot)
			if !slices.Equal(input, tt.claims) {
				t.Error("the claims were reordered")
			}
			claimOf := map[string]string{}
			for _, claim := range tt.claims {
				checkName(t, names[claim], 253)
				if other, ok := claimOf[names[claim]]; ok && other != claim {
					t.Errorf("%q and %q share %q", claim, other, names[claim])
				}
				claimOf[names[claim]] = claim
			}
			slices.Reverse(input)
			if again := PlanSnapshots(tt.schedule, input, slot); fmt.Sprint(again) != fmt.Sprint(names) {
				t.Errorf("another order gives other names: %v and %v", again, names)
			}
		})
	}
}

// A name tells whose a snapshot is, whatever its labels say.
func TestMade(t *testing.T) {
	at := time.Date(2026, 3, 29, 1, 30, 0, 0, time.UTC)
	long, other := x(230), strings.Repeat("y", 230)
	cut := (long + "-" + other)[:240] + "-202603290130" // as snapscheduler names it
	for _, tt := range []struct {
		name, claim, schedule, uid string
		want                       bool
	}{
		{"data-hourly-202603290130", "data", "hourly", "", true},
		{"data-hourly-202603290130", "data", "hourly", "anything", true},
		{"data-hourly-202603290130", "data", "daily", "", false},
		{"data-hourly-202603290130", "wal", "hourly", "", false},
		{"data-hourly-202603290130", "data-hourly", "", "", false},
		{"a-b-c-202603290130", "a", "b-c", "", true},
		{"a-b-c-202603290130", "a-b", "c", "", true},
		{"data-hourly-202613290130", "data", "hourly", "", false},
		{"data-hourly-20260329013", "data", "hourly", "", false},
		{"data-hourly-2026-03-29", "data", "hourly", "", false},
		{"data-hourly-", "data", "hourly", "", false},
		{"data-hourly", "data", "hourly", "", false},
		{"precious", "data", "hourly", "", false},
		{"", "", "", "", false},
		{"202603290130", "data", "hourly", "", false},
		{Snapshot(long, other, at), long, other, "", true},
		{Snapshot(long, other, at), long, x(230), "", false},
		{cut, long, other, "", true},
		{cut, long, "hourly", "", false},
		{cut[:100] + "-202603290130", long, other, "", false},
		{SnapshotHashed("data", "hourly", "uid", at), "data", "hourly", "uid", true},
		{SnapshotHashed("data", "hourly", "uid", at), "data", "hourly", "forged", false},
		{SnapshotHashed("data", "hourly", "uid", at), "data", "daily", "uid", false},
	} {
		if got := Made(tt.name, tt.claim, tt.schedule, tt.uid); got != tt.want {
			t.Errorf("Made(%q, %q, %q, %q) = %v", tt.name, tt.claim, tt.schedule, tt.uid, got)
		}
	}
}

func FuzzNames(f *testing.F) {
	f.Add("a-b", "c", "a", "b-c", int64(1774747800), 0, "uid")
	f.Add(x(253), x(253), x(252), x(253), int64(0), 1, "")
	f.Add("Ä_.", "", "..", "-", int64(-1<<60), 1<<62, "\x00")
	f.Add("a."+x(230), "b.c.d.e.f", "a", x(63), int64(253402300800), 3, "x")
	f.Fuzz(func(t *testing.T, claim, schedule, otherClaim, otherSchedule string, unix int64, retry int, uid string) {
		at := time.Unix(unix, 0)
		plain := Snapshot(claim, schedule, at)
		checkName(t, plain, 253)
		checkName(t, SnapshotHashed(claim, schedule, uid, at), 253)
		checkName(t, Run(schedule, at), 63)
		checkName(t, RetryRun(schedule, at, retry), 63)
		if faults := validation.IsValidLabelValue(ScheduleLabel(schedule)); len(faults) > 0 {
			t.Errorf("label %q: %v", ScheduleLabel(schedule), faults)
		}
		if _, err := time.Parse(minutes, When(at)); err == nil && (!Made(plain, claim, schedule, "") || !Made(SnapshotHashed(claim, schedule, uid, at), claim, schedule, uid)) {
			t.Errorf("%q and %q are not known for this schedule's", plain, SnapshotHashed(claim, schedule, uid, at))
		}
		if valid := claim + "-" + schedule + "-" + When(at); len(validation.IsDNS1123Subdomain(valid)) == 0 && plain != valid {
			t.Errorf("the name is %q although %q fits", plain, valid)
		}
		if claim == otherClaim && schedule == otherSchedule {
			return
		}
		if SnapshotHashed(claim, schedule, uid, at) == SnapshotHashed(otherClaim, otherSchedule, uid, at) {
			t.Errorf("%q of %q and %q of %q share a hashed name", claim, schedule, otherClaim, otherSchedule)
		}
		if schedule != otherSchedule && Run(schedule, at) == Run(otherSchedule, at) {
			t.Errorf("%q and %q share a run", schedule, otherSchedule)
		}
		if schedule == otherSchedule {
			names := PlanSnapshots(schedule, []string{claim, otherClaim}, at)
			if names[claim] == names[otherClaim] {
				t.Errorf("%q and %q share %q", claim, otherClaim, names[claim])
			}
		}
	})
}
