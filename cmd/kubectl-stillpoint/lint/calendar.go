// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/stillpoint-operator/stillpoint/internal/calendar"
	"github.com/stillpoint-operator/stillpoint/internal/run"
	"github.com/stillpoint-operator/stillpoint/internal/snapshots"
)

const (
	pathSchedule  = "spec.schedule"
	pathRetention = "spec.retention"
)

// calendar reports schedules that cannot be read, and those that hardly mean what they say.
func (l *linter) calendar(o *object) {
	_, err := calendar.Parse(o.schedule.Spec.Schedule, o.schedule.Spec.TimeZone)
	var mistake *calendar.Error
	if errors.As(err, &mistake) {
		if !o.said(pathSchedule) && !o.said(mistake.Field) {
			l.find(o, "calendar", mistake.Field, "%s", mistake.Message)
		}
		return
	}
	for _, doubt := range doubts(o.schedule.Spec.Schedule) {
		l.find(o, "calendar-meaning", pathSchedule, "%s", doubt)
	}
}

var steps60 = regexp.MustCompile(`^(?:\*|0-59)/(\d+)$`)

// doubts about a schedule that is valid, in words.
func doubts(schedule string) []string {
	fields := strings.Fields(schedule)
	if len(fields) > 0 && strings.Contains(fields[0], "TZ=") {
		fields = fields[1:]
	}
	if len(fields) != 5 {
		return nil
	}
	every := func(f string) bool { return f == "*" || f == "?" }
	var out []string
	if every(fields[0]) && !every(fields[1]) {
		out = append(out, fmt.Sprintf("%q fires every minute of those hours; for once an hour write 0 in place of the first *", schedule))
	}
	if m := steps60.FindStringSubmatch(fields[0]); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil && n > 0 && 60%n != 0 && n < 60 {
			out = append(out, fmt.Sprintf("%s does not divide the hour: it fires at minute 0 of every hour again; for even distances write @every %dm", fields[0], n))
		}
	}
	if !every(fields[2]) && !every(fields[4]) && !strings.HasPrefix(fields[2], "*") && !strings.HasPrefix(fields[4], "*") {
		out = append(out, fmt.Sprintf("%q restricts the day of the month and the day of the week: either one is enough, as in every cron, so it fires on more days than both together", schedule))
	}
	if fields[2] == "31" && every(fields[3]) {
		out = append(out, "day 31 comes in seven months of the year only")
	}
	return out
}

// retention reports rules and selectors that cannot be read.
func (l *linter) retention(o *object) {
	if _, err := snapshots.Rules(&o.schedule.Spec.Retention, nil, 0); err != nil && !o.said(pathRetention) {
		l.find(o, "retention", pathRetention+".expires", "%s", err)
	}
	if _, err := metav1.LabelSelectorAsSelector(&o.schedule.Spec.ClaimSelector); err != nil && !o.said("spec.claimSelector") {
		l.find(o, "selector", "spec.claimSelector", "%s", err)
	}
	if why := run.GroupProblem(o.schedule); why != "" {
		path, what, _ := strings.Cut(why, ": ")
		l.find(o, "group", path, "%s", what)
	}
}
