// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"path"
	"regexp"
	"strings"
)

var (
	flagSpan  = regexp.MustCompile(`^--([a-z][a-z0-9-]*)`)
	pathSpan  = regexp.MustCompile(`^[\w.-]+(/[\w.-]+)+\.(go|yaml|md|sh|json|svg)$`)
	testSpan  = regexp.MustCompile(`^((?:Test|Fuzz|Benchmark)[A-Z]\w*)(\*?)$`)
	fieldSpan = regexp.MustCompile(`^(spec|status)(\.[a-zA-Z]+(\[[^\]]*\])?)+$`)
	valueSpan = regexp.MustCompile(`^[a-zA-Z]+(\.[a-zA-Z]+)+$`)
)

// elsewhere are names of others that look like ours.
var elsewhere = map[string]string{
	"--unbuffered":          "MariaDB's client",
	"--set":                 "helm",
	"--dry-run":             "kubectl",
	"status.creationTime":   "of a VolumeSnapshot",
	"status.readyToUse":     "of a VolumeSnapshot",
	"status.restoreSize":    "of a VolumeSnapshot",
	"status.error":          "of a VolumeSnapshot",
	"TestHooks":             "a mode of SnapshotRuns",
	"spec.source":           "of a VolumeSnapshot",
	"spec.dataSource":       "of a PersistentVolumeClaim",
	"spec.resources":        "of a PersistentVolumeClaim",
	"spec.accessModes":      "of a PersistentVolumeClaim",
	"spec.storageClassName": "of a PersistentVolumeClaim",
}

// names in the text: flags, files, tests, fields of the two kinds, values of the chart.
func (c *checker) names() {
	for _, s := range c.page.Spans {
		if _, ok := elsewhere[s.Text]; ok {
			continue
		}
		if found := flagSpan.FindStringSubmatch(s.Text); found != nil && found[1] != "zap-" && elsewhere[found[0]] == "" && !c.Flags[found[1]] && !c.pluginFlag(found[1]) {
			c.say(s.Line, "neither the operator nor the plugin has a flag %s", found[0])
		}
		if pathSpan.MatchString(s.Text) && !c.exists(s.Text) && !c.exists(path.Join(path.Dir(c.page.Path), s.Text)) {
			c.say(s.Line, "there is no %s", s.Text)
		}
		if found := testSpan.FindStringSubmatch(s.Text); found != nil && !c.hasTest(found[1], found[2] == "*") {
			c.say(s.Line, "there is no test %s", s.Text)
		}
		if fieldSpan.MatchString(s.Text) && !c.hasField(s.Text) {
			c.say(s.Line, "neither kind has a field %s", s.Text)
		}
		if first, _, _ := strings.Cut(s.Text, "."); valueSpan.MatchString(s.Text) && path.Ext(s.Text) != ".md" && path.Ext(s.Text) != ".go" && c.Values[first] != nil && !c.hasValue(s.Text) {
			c.say(s.Line, "the chart has no value %s", s.Text)
		}
	}
}

func (c *checker) hasTest(name string, prefix bool) bool {
	if !prefix {
		return c.Tests[name]
	}
	for test := range c.Tests {
		if strings.HasPrefix(test, name) {
			return true
		}
	}
	return false
}
