// SPDX-License-Identifier: Apache-2.0

package words

import (
	"fmt"
	"strings"
	"time"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
)

// Ago is how long ago a time was, as kubectl writes ages; "-" for none.
func Ago(t time.Time, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return duration.HumanDuration(now.Sub(t))
}

// In is how soon a time comes, "-" for none; one that has passed is "now" or, after a minute, so long ago.
func In(t time.Time, now time.Time) string {
	switch d := t.Sub(now); {
	case t.IsZero():
		return "-"
	case d >= 0:
		return "in " + duration.HumanDuration(d)
	case d > -time.Minute:
		return "now"
	default:
		return duration.HumanDuration(-d) + " ago"
	}
}

// Took is a duration with as many digits as a person reads.
func Took(d time.Duration) string {
	switch {
	case d < 0:
		return "0s"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// Moment writes a time in a zone, and in UTC if that is another.
func Moment(t time.Time, zone *time.Location) string {
	local := t.In(zone)
	text := local.Format("Mon 2006-01-02 15:04:05 MST")
	if _, offset := local.Zone(); offset != 0 {
		text += " (" + t.UTC().Format("15:04:05") + " UTC)"
	}
	return text
}

func micro(t *metav1.MicroTime) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}

// Printable takes out of a command's output what would do something to a terminal, and keeps its lines.
func Printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' {
			return r
		}
		if !unicode.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, s)
}

// Tail is the last lines of a text, without empty ones at its end.
func Tail(text string, lines int) []string {
	text = strings.TrimRight(Printable(text), " \t\n")
	if text == "" {
		return nil
	}
	all := strings.Split(text, "\n")
	if len(all) > lines {
		all = append([]string{fmt.Sprintf("(%d lines before)", len(all)-lines)}, all[len(all)-lines:]...)
	}
	return all
}

// Short cuts a text to so many characters.
func Short(text string, limit int) string {
	text = strings.Join(strings.Fields(Printable(text)), " ")
	runes := []rune(text)
	if len(runes) <= limit {
		return text
	}
	return string(runes[:limit-1]) + "…"
}
