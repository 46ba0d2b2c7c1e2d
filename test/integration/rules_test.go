// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// rule is one rule of a CRD: specs that it lets through, and specs that it refuses with words that name the field
// and the way out. A refused spec breaks this rule only.
type rule struct {
	accepts, refuses []string
	saying           []string
}

// hooked is a spec with these hooks in a list.
func hooked(list string, hooks ...string) string {
	return fmt.Sprintf(`{schedule: "@daily", %s: [%s]}`, list, strings.Join(hooks, ", "))
}

// pre and post are specs with one hook that has these fields besides what every hook needs.
func pre(fields string) string  { return hooked("preHooks", with(fields)) }
func post(fields string) string { return hooked("postHooks", with(fields)) }
func with(fields string) string { return "{podSelector: {}, command: [sync], " + fields + "}" }

// held is a pre hook in mode Hold with these fields.
func held(fields string) string { return pre("mode: Hold, " + fields) }

// at is a spec with this schedule, daily one with this further field.
func at(schedule string) string { return fmt.Sprintf("{schedule: %q}", schedule) }
func daily(field string) string { return `{schedule: "@daily", ` + field + "}" }

func each(spec func(string) string, values ...string) []string {
	var specs []string
	for _, value := range values {
		specs = append(specs, spec(value))
	}
	return specs
}

// bounds is the rule for an integer field from low to high.
func bounds(spec func(string) string, path string, low, high int) rule {
	name := path[strings.LastIndex(path, ".")+1:]
	value := func(n int) string { return spec(fmt.Sprintf("%s: %d", name, n)) }
	return rule{
		accepts: []string{value(low), value(high)},
		refuses: []string{value(low - 1), value(high + 1)},
		saying:  []string{path + " in body should be "},
	}
}

// atLeast is the rule for an integer field without upper limit.
func atLeast(spec func(string) string, path string, low int) rule {
	r := bounds(spec, path, low, 1_000_000)
	r.refuses = r.refuses[:1]
	r.saying = []string{fmt.Sprintf("%s in body should be greater than or equal to %d", path, low)}
	return r
}

// choice is the rule for a field with a few words to choose from.
func choice(spec func(string) string, path string, words ...string) rule {
	name := path[strings.LastIndex(path, ".")+1:]
	value := func(word string) string { return spec(fmt.Sprintf("%s: %q", name, word)) }
	r := rule{refuses: each(value, "Sometimes", strings.ToLower(words[0]), ""), saying: []string{path + ": Unsupported value", "supported values:"}}
	for _, word := range words {
		r.accepts = append(r.accepts, value(word))
		r.saying = append(r.saying, fmt.Sprintf("%q", word))
	}
	return r
}

// text is the rule for the length of a text.
func text(spec func(string) string, path string, length int) rule {
	name := path[strings.LastIndex(path, ".")+1:]
	value := func(n int) string { return spec(fmt.Sprintf("%s: %q", name, strings.Repeat("a", n))) }
	return rule{
		accepts: []string{value(1), value(length)},
		refuses: []string{value(length + 1)},
		saying:  []string{path + ": Too long", fmt.Sprint(length)},
	}
}

// hookRules are the rules that hold for the hooks of both lists.
func hookRules(list string) map[string]rule {
	hook := func(fields string) string { return hooked(list, with(fields)) }
	bare := func(fields string) string { return hooked(list, "{"+fields+"}") }
	path := "spec." + list + "[0]."
	many := func(n int) string {
		return hooked(list, strings.TrimSuffix(strings.Repeat("{podSelector: {}, command: [sync]}, ", n), ", "))
	}
	words := func(n, length int) string {
		word := strings.Repeat("a", length)
		return bare("podSelector: {}, command: [" + strings.TrimSuffix(strings.Repeat(word+", ", n), ", ") + "]")
	}
	label := rule{
		accepts: each(hook, "container: db", "container: a-1", `container: ""`),
		refuses: each(hook, "container: Db", "container: db-", "container: a.b"),
		saying:  []string{path + "container", "container must be lower-case letters, digits and '-'"},
	}
	space := rule{
		accepts: each(hook, "namespace: shop", "namespace: shop-2", `namespace: ""`),
		refuses: each(hook, "namespace: Shop", "namespace: -shop", "namespace: sh_op"),
		saying:  []string{path + "namespace", "namespace must be lower-case letters, digits and '-'"},
	}
	var longNames []string
	for i := range 32 {
		longNames = append(longNames, with(fmt.Sprintf("name: %s-%02d", strings.Repeat("a", 60), i)))
	}
	rules := map[string]rule{
		"podSelector must be there": {
			accepts: each(bare, "command: [sync], podSelector: {}", "command: [sync], podSelector: {matchLabels: {app: db}}",
				"command: [sync], podSelector: {matchExpressions: [{key: app, operator: Exists}]}"),
			refuses: each(bare, "command: [sync]"),
			saying:  []string{path + "podSelector: Required value", "podSelector is missing: name the pods' labels, or write {} for every pod of the namespace"},
		},
		"command must be there and name a program": {
			accepts: each(bare, "podSelector: {}, command: [sync]", `podSelector: {}, command: [sh, -c, ""]`),
			refuses: each(bare, "podSelector: {}", "podSelector: {}, command: []", `podSelector: {}, command: [""]`, `podSelector: {}, command: ["", sync]`),
			saying:  []string{path + "command: Required value", "command is missing or empty: name the program to run, for example [\"fsfreeze\", "},
		},
		"command has at most 64 items": {
			accepts: []string{words(1, 1), words(64, 1)},
			refuses: []string{words(65, 1)},
			saying:  []string{path + "command: Too many: 65: must have at most 64 items"},
		},
		"an item of command has at most 4096 characters": {
			accepts: []string{words(1, 4096)},
			refuses: []string{words(1, 4097)},
			saying:  []string{path + "command[0]: Too long", "4096"},
		},
		"a command of the largest size is possible": {
			accepts: []string{words(64, 4096)},
			refuses: []string{words(65, 1)},
			saying:  []string{"64"},
		},
		"a list has at most 32 hooks": {
			accepts: []string{many(1), many(32), hooked(list)},
			refuses: []string{many(33)},
			saying:  []string{"spec." + list + ": Too many: 33: must have at most 32 items"},
		},
		"a name is made of lower-case letters, digits and dashes": {
			accepts: each(hook, "name: flush", "name: f", "name: 1-f-2"),
			refuses: each(hook, "name: Flush", "name: flush-", "name: -flush", "name: fl_ush", "name: fl.ush", "name: fl ush", `name: ""`, `name: "flush\n"`),
			saying:  []string{path + "name", "name must be lower-case letters, digits and '-', beginning and ending with a letter or digit"},
		},
		"a name is not one that unnamed hooks have": {
			accepts: each(hook, "name: pre", "name: post-mortem", "name: pre-0-a", "name: x-pre-0"),
			refuses: each(hook, "name: pre-0", "name: post-1", "name: pre-31"),
			saying:  []string{path + "name", "names like pre-0 and post-0 are the defaults of unnamed hooks; choose another name"},
		},
		"a name is used once in a list": {
			accepts: []string{
				hooked(list, with("name: a"), with("name: b"), with("container: c"), with("container: c")),
				hooked(list, longNames...),
				`{schedule: "@daily", preHooks: [` + with("name: a") + "], postHooks: [" + with("name: a") + "]}",
			},
			refuses: []string{
				hooked(list, with("name: a"), with("name: a")),
				hooked(list, with("name: a"), with("container: c"), with("name: b"), with("name: a")),
			},
			saying: []string{"spec." + list, "two hooks of " + list + " have the same name: give each a name of its own"},
		},
		"the length of name":              text(hook, path+"name", 63),
		"the length of container":         text(hook, path+"container", 63),
		"the length of namespace":         text(hook, path+"namespace", 63),
		"the length of expectOutput":      text(hook, path+"expectOutput", 1024),
		"the bounds of timeoutSeconds":    bounds(hook, path+"timeoutSeconds", 1, 14400),
		"the bounds of backoffLimit":      bounds(hook, path+"backoffLimit", 0, 100),
		"the words for targetPolicy":      choice(hook, path+"targetPolicy", "All", "One"),
		"a container has a possible name": label,
		"a namespace has a possible name": space,
		"skipIfNoSelectorFound is yes or no": {
			accepts: each(hook, "skipIfNoSelectorFound: true", "skipIfNoSelectorFound: false"),
			refuses: each(hook, "skipIfNoSelectorFound: Always"),
			saying:  []string{path + "skipIfNoSelectorFound", "boolean"},
		},
	}
	return rules
}

func preHookRules() map[string]rule {
	rules := hookRules("preHooks")
	const path = "spec.preHooks[0]."
	rules["the words for onError"] = choice(pre, path+"onError", "Fail", "Continue")
	rules["the words for mode"] = rule{
		accepts: append(each(pre, "mode: Run"), held("expectOutput: ready, expectReleaseOutput: released")),
		refuses: each(pre, "mode: Freeze", "mode: hold", `mode: ""`),
		saying:  []string{path + "mode: Unsupported value", `"Hold"`, `"Run"`},
	}
	rules["a held command says when it is ready"] = rule{
		accepts: each(held, "expectOutput: ready, expectReleaseOutput: released"),
		refuses: each(held, "expectReleaseOutput: released", `expectOutput: "", expectReleaseOutput: released`),
		saying:  []string{path + "expectOutput: Required value", "mode Hold needs expectOutput: the text by which the command says that the application is quiesced"},
	}
	rules["a held command says when it has released"] = rule{
		accepts: each(held, "expectOutput: ready, expectReleaseOutput: released, releaseTimeoutSeconds: 60"),
		refuses: each(held, "expectOutput: ready", `expectOutput: ready, expectReleaseOutput: ""`),
		saying:  []string{path + "expectReleaseOutput: Required value", "mode Hold needs expectReleaseOutput: the text by which the command says that the application is released"},
	}
	rules["expectReleaseOutput is for held commands"] = rule{
		accepts: append(each(pre, `expectReleaseOutput: ""`), held("expectOutput: ready, expectReleaseOutput: released")),
		refuses: each(pre, "expectReleaseOutput: released", "mode: Run, expectReleaseOutput: released"),
		saying:  []string{path + "expectReleaseOutput: Forbidden", "expectReleaseOutput is only for mode Hold: set mode: Hold or remove it"},
	}
	rules["releaseTimeoutSeconds is for held commands"] = rule{
		accepts: each(held, "expectOutput: ready, expectReleaseOutput: released, releaseTimeoutSeconds: 1"),
		refuses: each(pre, "releaseTimeoutSeconds: 60", "mode: Run, releaseTimeoutSeconds: 60"),
		saying:  []string{path + "releaseTimeoutSeconds: Forbidden", "releaseTimeoutSeconds is only for mode Hold: set mode: Hold or remove it"},
	}
	full := func(field string) string { return held("expectOutput: ready, expectReleaseOutput: released, " + field) }
	rules["the bounds of releaseTimeoutSeconds"] = bounds(full, path+"releaseTimeoutSeconds", 1, 14400)
	rules["the length of expectReleaseOutput"] = text(func(field string) string { return held("expectOutput: ready, " + field) }, path+"expectReleaseOutput", 1024)
	return rules
}

func postHookRules() map[string]rule {
	rules := hookRules("postHooks")
	rules["the words for executionPolicy"] = choice(post, "spec.postHooks[0].executionPolicy", "Always", "OnSuccess", "OnFailure")
	return rules
}

func calendarRules() map[string]rule {
	const schedule = "spec.schedule"
	return map[string]rule{
		"a schedule must be there": {
			accepts: each(at, "@daily"),
			refuses: []string{"{}", "{disabled: true}", "{timeZone: UTC}"},
			saying:  []string{schedule + ": Required value", `schedule is missing: give a cron expression such as "0 * * * *" or a macro such as @daily`},
		},
		"a schedule is five fields or a macro": {
			accepts: each(at,
				"@hourly", "@daily", "@midnight", "@weekly", "@monthly", "@yearly", "@annually", "@every 1h", "0 * * * *", "* * * * *",
				"  0  5\t*  * * ", "0 5 * * *\n", " @daily ", "CRON_TZ=Europe/Vienna 0 5 * * *", "TZ=America/New_York @daily",
				"TZ=Asia/Tokyo\t0 5 * * *", "  CRON_TZ=UTC   @every 2h", "CRON_TZ=Etc/GMT-5 0 5 * * *", "CRON_TZ= 0 5 * * *"),
			refuses: each(at,
				"", " ", "0 0 5 * * *", "0 5 * *", "0", "hourly", "@hourlyfoo", "@hourly foo", "@Hourly", "@reboot", "@", "@every1h", "@everyday",
				"@daily 0 5 * * *", "0 5 * * @daily", "CRON_TZ=Europe/Vienna", "CRON_TZ=Europe/Vienna ", "TZ=UTC TZ=UTC", "TZ=UTC CRON_TZ=UTC 0 5 * * *",
				"TZ=UTC 5 * * *", "CRON_TZ=UTC@daily", "0 5 * * * # at five", "cron_tz=UTC 0 5 * * *"),
			saying: []string{schedule, `schedule must be five cron fields ("0 3 * * *"), or @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually, or @every with a duration ("@every 6h")`},
		},
		"the length of schedule": {
			accepts: each(at, "0,"+strings.Repeat("1,", 200)+"2 * * * *", strings.Repeat("1-2,", 125)+"3 * * * *", strings.Repeat(" ", 503)+"0 0 * * *"),
			refuses: each(at, strings.Repeat(" ", 504)+"0 0 * * *"),
			saying:  []string{schedule + ": Too long", "512"},
		},
		"a minute is 0 to 59": {
			accepts: each(at, "0 * * * *", "00 * * * *", "5 * * * *", "59 * * * *", "*/5 * * * *", "0-30/10 * * * *", "5/20 * * * *", "0,15,30-35,45 * * * *",
				"1-3,7 * * * *", "? * * * *", "*/15,7 * * * *", "TZ=UTC 59 * * * *", "*/100 * * * *", "*/05 * * * *"),
			refuses: each(at, "60 * * * *", "100 * * * *", "1234 * * * *", "5, * * * *", ",5 * * * *", "1,,2 * * * *", ", * * * *", "*/0 * * * *", "*/00 * * * *", "*/ * * * *", "5/ * * * *",
				"-5 * * * *", "5- * * * *", "1-2-3 * * * *", "0-60 * * * *", "*-5 * * * *", "** * * * *", "*5 * * * *", "MON * * * *", "*/5/5 * * * *", "1.5 * * * *", "+5 * * * *", "*/x * * * *", "TZ=UTC 60 * * * *", "H * * * *"),
			saying: []string{schedule, "minute, the first field of schedule, must be 0-59, or *, with lists (0,30), ranges (0-10) and steps (*/15)"},
		},
		"an hour is 0 to 23": {
			accepts: each(at, "0 0 * * *", "0 07 * * *", "0 23 * * *", "0 */6 * * *", "0 1-3,7 * * *", "0 20/2 * * *", "0 8-18/2 * * *", "0 ? * * *", "TZ=UTC 0 23 * * *"),
			refuses: each(at, "0 24 * * *", "0 5, * * *", "0 ,5 * * *", "0 */0 * * *", "0 1-24 * * *", "0 MON * * *", "0 235 * * *", "TZ=UTC 0 24 * * *", "TZ=UTC 5 24 5 * *"),
			saying:  []string{schedule, "hour, the second field of schedule, must be 0-23, or *, with lists (1,13), ranges (1-5) and steps (*/6)"},
		},
		"a day of month is 1 to 31": {
			accepts: each(at, "0 0 1 * *", "0 0 01 * *", "0 0 31 * *", "0 0 ? * *", "0 0 */2 * *", "0 0 1-7 * *", "0 0 1-3,7 * *", "0 0 10/5 * *", "TZ=UTC 0 0 31 * *"),
			refuses: each(at, "0 0 0 * *", "0 0 32 * *", "0 0 L * *", "0 0 15W * *", "0 0 1, * *", "0 0 */0 * *", "0 0 0-5 * *", "0 0 311 * *", "TZ=UTC 0 0 32 * *"),
			saying:  []string{schedule, "day of month, the third field of schedule, must be 1-31, or * or ?, with lists (1,15), ranges (1-7) and steps (*/2)"},
		},
		"a month is 1 to 12 or a name": {
			accepts: each(at, "0 0 1 1 *", "0 0 1 12 *", "0 0 1 JAN *", "0 0 1 feb,Mar *", "0 0 1 APR-JUN *", "0 0 1 3-4,7 *", "0 0 1 */3 *", "0 0 1 JAN-12/2 *", "0 0 1 ? *", "TZ=UTC 0 0 1 DEC *"),
			refuses: each(at, "0 0 1 0 *", "0 0 1 13 *", "0 0 1 FOO *", "0 0 1 JANUARY *", "0 0 1 MON *", "0 0 1 1, *", "0 0 1 JAN, *", "0 0 1 */0 *", "0 0 1 JANFEB *", "0 0 1 123 *", "TZ=UTC 0 0 1 13 *"),
			saying:  []string{schedule, "month, the fourth field of schedule, must be 1-12 or JAN-DEC, or *, with lists (1,7), ranges (3-5) and steps (*/3)"},
		},
		"a day of week is 0 to 7 or a name": {
			accepts: each(at, "0 0 * * 0", "0 0 * * 7", "0 0 * * 07", "0 0 * * MON", "0 0 * * mon-Fri", "0 0 * * sat-SUN", "0 0 * * 5-7", "0 0 * * 1,3,SUN", "0 0 * * ?", "0 0 * * */2", "0 0 * * 1-3,7", "TZ=UTC 0 0 * * 7"),
			refuses: each(at, "0 0 * * 8", "0 0 * * 77", "0 0 * * MONDAY", "0 0 * * JAN", "0 0 * * 1,", "0 0 * * MON#2", "0 0 * * 5L", "0 0 * * */0", "0 0 * * 1-8", "0 0 * * MONTUE", "TZ=UTC 0 0 * * 8"),
			saying:  []string{schedule, "day of week, the fifth field of schedule, must be 0-7 or SUN-SAT, or * or ?, with lists (1,3), ranges (MON-FRI) and steps (*/2)"},
		},
		"a range runs forwards": {
			accepts: each(at, "3-5 * * * *", "9-10 * * * *", "5-5 * * * *", "09-10 * * * *", "CRON_TZ=Etc/GMT-5 0 1-3,5-7 * * *"),
			refuses: each(at, "5-3 * * * *", "10-9 * * * *", "0 1-3,7-5 * * *", "0 0 * * 6-0", "0 0 20-10/2 * *", "TZ=UTC 0 22-6 * * *"),
			saying:  []string{schedule, "a range of schedule runs backwards: write the smaller number first, for example 3-5"},
		},
		"a schedule has a day on which it fires": {
			accepts: each(at, "0 0 29 2 *", "0 0 30 4 *", "0 0 31 1 *", "0 0 31 2,3 *", "0 0 29,30 2 *", "0 0 30 2 MON", "0 0 30 2 7", "0 0 31 12 *", "0 0 31 * *", "0 0 31 2-4 *", "0 0 30,31 4 *", "TZ=UTC 0 0 29 FEB ?"),
			refuses: each(at, "0 0 30 2 *", "0 0 31 2 *", "0 0 31 4 *", "0 0 30,31 2 *", "0 0 30-31 feb ?", "0 0 31 2,4,6,9,11 ?", "0 0 31 APR,nov *", "0 0 31 06 *", "CRON_TZ=UTC  0  0  30  02  * "),
			saying:  []string{schedule, "schedule never fires: no such month has that day; choose an earlier day of month or another month"},
		},
		"@every has a duration of a minute or more": {
			accepts: each(at, "@every 1m", "@every 60s", "@every 1h", "@every 1h30m", "@every 1h30m10s", "@every 1.5h", "@every 90m", "@every   2h ", "@every 0h1m", "@every 999999h", "TZ=UTC @every 6h"),
			refuses: each(at, "@every", "@every ", "@every 1h 30m", "TZ=UTC @every", "@every 59s", "@every 0h", "@every 0.5m", "@every 1m-1s", "@every -1h", "@every 1d", "@every day", "@every 60", "@every h", "@every 1", "@every 30m1h", "@every 9999999h", "@every 1hour", "@every 1H", "@every .", "@every 1h,2h"),
			saying:  []string{schedule, `@every in schedule needs a duration of one minute or more, in h, m and s, for example "@every 6h" or "@every 1h30m"`},
		},
		"the operator's own zone is no zone": {
			accepts: each(at, "CRON_TZ=Europe/Vienna 0 5 * * *", "TZ=UTC 0 5 * * *", "TZ=Local/Time 0 5 * * *"),
			refuses: each(at, "CRON_TZ=Local 0 5 * * *", "TZ=local @daily"),
			saying:  []string{schedule, "the time zone in schedule must be an IANA name such as Europe/Vienna"},
		},
		"timeZone is a possible name": {
			accepts: each(daily, "timeZone: Europe/Vienna", "timeZone: UTC", "timeZone: America/Argentina/Buenos_Aires", "timeZone: Etc/GMT+5", "timeZone: America/Port-au-Prince", "timeZone: EST5EDT"),
			refuses: each(daily, `timeZone: ""`, "timeZone: Local", "timeZone: local", "timeZone: ../../etc/passwd", "timeZone: Europe/", "timeZone: /UTC", "timeZone: Europe//Vienna", `timeZone: " UTC"`, "timeZone: +02:00"),
			saying:  []string{"spec.timeZone", "timeZone must be an IANA name such as Europe/Vienna or UTC; remove the field for UTC"},
		},
		"the length of timeZone": text(daily, "spec.timeZone", 64),
		"the zone is named once": {
			accepts: []string{`{schedule: "0 5 * * *", timeZone: UTC}`, `{schedule: "TZ=UTC 0 5 * * *"}`},
			refuses: []string{`{schedule: "TZ=UTC 0 5 * * *", timeZone: UTC}`, `{schedule: "CRON_TZ=Europe/Vienna @daily", timeZone: Europe/Vienna}`, `{schedule: " TZ=UTC @every 6h", timeZone: Asia/Tokyo}`},
			saying:  []string{"spec.timeZone", "timeZone and a CRON_TZ= or TZ= prefix in schedule exclude each other: remove one of them"},
		},
	}
}

func scheduleRules() map[string]rule {
	retention := func(field string) string { return daily("retention: {" + field + "}") }
	template := func(field string) string { return daily("snapshotTemplate: {" + field + "}") }
	rules := map[string]rule{
		"expires is a whole number of h, m or s": {
			accepts: each(retention, "expires: 168h", "expires: 90m", "expires: 3600s", "expires: 0h"),
			refuses: each(retention, "expires: 7d", "expires: 1.5h", "expires: -1h", `expires: ""`, "expires: 168H", "expires: 1h30m", `expires: " 1h"`, "expires: h", `expires: "168"`),
			saying:  []string{"spec.retention.expires", "expires must be a whole number followed by h, m or s, for example 168h"},
		},
		"the length of expires": {
			accepts: each(retention, "expires: 000000000000001h"),
			refuses: each(retention, "expires: 0000000000000001h"),
			saying:  []string{"spec.retention.expires: Too long", "16"},
		},
		"both limits of snapscheduler go together": {
			accepts: each(retention, "expires: 168h, maxCount: 10", "expires: 168h, keepLast: 3, keepDaily: 7, expireLast: true"),
			refuses: each(retention, "expires: 168h, maxCount: 0"),
			saying:  []string{"spec.retention.maxCount"},
		},
		"the bounds of maxCount":                   atLeast(retention, "spec.retention.maxCount", 1),
		"the bounds of startingDeadlineSeconds":    atLeast(daily, "spec.startingDeadlineSeconds", 1),
		"the bounds of spreadSeconds":              bounds(daily, "spec.spreadSeconds", 0, 86400),
		"the bounds of runRetryLimit":              bounds(daily, "spec.runRetryLimit", 0, 20),
		"the bounds of snapshotTimeoutSeconds":     bounds(daily, "spec.snapshotTimeoutSeconds", 1, 14400),
		"the bounds of maxQuiesceSeconds":          bounds(daily, "spec.maxQuiesceSeconds", 1, 86400),
		"the bounds of successfulRunsHistoryLimit": bounds(daily, "spec.successfulRunsHistoryLimit", 0, 100),
		"the bounds of failedRunsHistoryLimit":     bounds(daily, "spec.failedRunsHistoryLimit", 0, 100),
		"the words for ownerReferencePolicy":       choice(template, "spec.snapshotTemplate.ownerReferencePolicy", "None", "Schedule"),
		"the length of snapshotClassName":          text(template, "spec.snapshotTemplate.snapshotClassName", 253),
		"the length of groupSnapshotClassName":     text(template, "spec.snapshotTemplate.groupSnapshotClassName", 253),
		"the length of serviceAccountName":         text(daily, "spec.serviceAccountName", 253),
		"a StorageClass is named once": {
			accepts: each(daily, "storageClassNames: [fast, slow]", "storageClassNames: []"),
			refuses: each(daily, "storageClassNames: [fast, fast]"),
			saying:  []string{"spec.storageClassNames[1]: Duplicate value", `"fast"`},
		},
		"at most 64 StorageClasses": {
			accepts: each(daily, "storageClassNames: ["+numbered("class-%d", 64)+"]"),
			refuses: each(daily, "storageClassNames: ["+numbered("class-%d", 65)+"]"),
			saying:  []string{"spec.storageClassNames: Too many: 65: must have at most 64 items"},
		},
		"the length of a StorageClass": {
			accepts: each(daily, "storageClassNames: ["+strings.Repeat("a", 253)+"]"),
			refuses: each(daily, "storageClassNames: ["+strings.Repeat("a", 254)+"]"),
			saying:  []string{"spec.storageClassNames[0]: Too long", "253"},
		},
	}
	for _, keep := range []string{"keepLast", "keepHourly", "keepDaily", "keepWeekly", "keepMonthly", "keepYearly"} {
		rules["the bounds of "+keep] = atLeast(retention, "spec.retention."+keep, 0)
	}
	return rules
}

func runRules() map[string]rule {
	named := func(field string) string { return "{scheduleName: hourly, " + field + "}" }
	return map[string]rule{
		"a run names its schedule": {
			accepts: []string{"{scheduleName: hourly}"},
			refuses: []string{"{}", "{mode: TestHooks}"},
			saying:  []string{"spec.scheduleName: Required value"},
		},
		"the name of the schedule is not empty": {
			accepts: []string{"{scheduleName: h}", "{scheduleName: " + strings.Repeat("h", 253) + "}"},
			refuses: []string{`{scheduleName: ""}`},
			saying:  []string{"spec.scheduleName in body should be at least 1 chars long"},
		},
		"the length of the schedule's name": {
			accepts: []string{"{scheduleName: " + strings.Repeat("h", 253) + "}"},
			refuses: []string{"{scheduleName: " + strings.Repeat("h", 254) + "}"},
			saying:  []string{"spec.scheduleName: Too long", "253"},
		},
		"the words for mode": choice(named, "spec.mode", "Snapshot", "TestHooks", "Release"),
		"slot is a time": {
			accepts: each(named, `slot: "2026-01-10T10:00:00Z"`),
			refuses: each(named, "slot: noon"),
			saying:  []string{"spec.slot", "must be of type date-time"},
		},
	}
}

func numbered(format string, n int) string {
	var words []string
	for i := range n {
		words = append(words, fmt.Sprintf(format, i))
	}
	return strings.Join(words, ", ")
}

func TestRules(t *testing.T) {
	namespace := Namespace(t)
	for name, table := range map[string]struct {
		kind  string
		rules map[string]rule
	}{
		"schedule, when":       {scheduleKind, calendarRules()},
		"schedule, the rest":   {scheduleKind, scheduleRules()},
		"schedule, pre hooks":  {scheduleKind, preHookRules()},
		"schedule, post hooks": {scheduleKind, postHookRules()},
		"run":                  {runKind, runRules()},
	} {
		t.Run(name, func(t *testing.T) {
			for name, r := range table.rules {
				t.Run(name, func(t *testing.T) {
					r.check(t, table.kind, namespace)
				})
			}
		})
	}
}

func (r rule) check(t *testing.T, kind, namespace string) {
	g := NewWithT(t)
	g.Expect(r.accepts).NotTo(BeEmpty())
	g.Expect(r.refuses).NotTo(BeEmpty())
	for _, spec := range r.accepts {
		o := object(t, kind, namespace, "spec: "+spec)
		if err := api.Create(t.Context(), o); err != nil {
			t.Errorf("refused: %s\n%v", short(spec), err)
		}
	}
	for _, spec := range r.refuses {
		o := object(t, kind, namespace, "spec: "+spec)
		err := api.Create(t.Context(), o)
		if err == nil {
			t.Errorf("accepted: %s", short(spec))
			continue
		}
		expectRefused(t, err, short(spec), r.saying...)
	}
}

// expectRefused expects that the API server found one fault and named it in these words.
func expectRefused(t *testing.T, err error, what string, saying ...string) {
	t.Helper()
	if !apierrors.IsInvalid(err) {
		t.Errorf("%s: not refused for what it says: %v", what, err)
		return
	}
	for _, words := range saying {
		if !strings.Contains(err.Error(), words) {
			t.Errorf("%s: the message does not say %q:\n%v", what, words, err)
		}
	}
	var status apierrors.APIStatus
	faults := 0
	if errors.As(err, &status) {
		for _, cause := range status.Status().Details.Causes {
			if !strings.Contains(cause.Message, "some validation rules were not checked") {
				faults++
			}
		}
	}
	if faults != 1 {
		t.Errorf("%s: one fault is reported %d times:\n%v", what, faults, err)
	}
}

// short leaves the middle of a long text out.
func short(text string) string {
	if len(text) > 300 {
		return text[:150] + " ... " + text[len(text)-150:]
	}
	return text
}

// A rule that is in the CRD and in no table would be one that nobody has seen at work.
func TestEveryMessageIsTested(t *testing.T) {
	tables := map[string][]map[string]rule{
		"snapshotschedules.snapscheduler.backube": {calendarRules(), scheduleRules(), preHookRules(), postHookRules()},
		"snapshotruns.snapscheduler.backube":      {runRules(), {"a change": {saying: []string{specCannotChange}}}},
	}
	for name, rules := range tables {
		t.Run(name, func(t *testing.T) {
			var said strings.Builder
			for _, table := range rules {
				for _, r := range table {
					fmt.Fprintln(&said, strings.Join(r.saying, "\n"))
				}
			}
			walk(schemaOf(t, name), "", func(path string, schema apiextensionsv1.JSONSchemaProps) {
				for _, v := range schema.XValidations {
					if len(v.Message) == 0 {
						t.Errorf("%s: the rule %s has no message", path, v.Rule)
					}
					tested := false
					for line := range strings.Lines(said.String()) {
						line = strings.TrimSuffix(line, "\n")
						tested = tested || (len(line) > 40 && strings.HasPrefix(v.Message, line))
					}
					if !tested {
						t.Errorf("%s: no case is refused with %q", path, v.Message)
					}
				}
			})
		})
	}
}

func schemaOf(t testing.TB, name string) apiextensionsv1.JSONSchemaProps {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := api.Get(t.Context(), client.ObjectKey{Name: name}, crd); err != nil {
		t.Fatal(err)
	}
	for _, version := range crd.Spec.Versions {
		if version.Name == "v1" {
			return *version.Schema.OpenAPIV3Schema
		}
	}
	t.Fatalf("%s has no version v1", name)
	return apiextensionsv1.JSONSchemaProps{}
}

// walk visits a schema and all below it. A list's items are "[]", a map's values "{}".
func walk(schema apiextensionsv1.JSONSchemaProps, path string, visit func(string, apiextensionsv1.JSONSchemaProps)) {
	visit(path, schema)
	for name, property := range schema.Properties {
		walk(property, strings.TrimPrefix(path+"."+name, "."), visit)
	}
	if schema.Items != nil && schema.Items.Schema != nil {
		walk(*schema.Items.Schema, path+"[]", visit)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil {
		walk(*schema.AdditionalProperties.Schema, path+"{}", visit)
	}
}
