// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"slices"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/table"
)

var results = map[string]string{"Succeeded": green, "PartiallyFailed": orange, "Failed": red, "Skipped": blue}

func sorted(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }

// overview: every schedule at a glance.
func overview() *dashboard.DashboardBuilder {
	const inNamespace = `schedule_namespace=~"$namespace"`
	return board("Overview", "stillpoint-overview", "Every schedule: is it fine, when did it last succeed, when does it run next.").
		WithVariable(all(variable("namespace", "Namespace", "label_values(stillpoint_schedule_ready, schedule_namespace)"))).
		WithPanel(number("Schedules", "short", 4, colours(blue), now(`count(max `+by+` (stillpoint_schedule_ready{`+inNamespace+`}))`, "schedules"))).
		WithPanel(number("May be quiesced", "short", 4, colours(green, step(1, orange)), now(`sum(max `+by+` (stillpoint_may_be_quiesced{`+inNamespace+`}))`, "applications"))).
		WithPanel(number("Last run failed", "short", 4, colours(green, step(1, red)),
			now(`count(max `+by+` (stillpoint_last_run_info{`+inNamespace+`, result=~"Failed|PartiallyFailed"})) or vector(0)`, "schedules"))).
		WithPanel(number("No success in time", "short", 4, colours(green, step(1, red)), now(`count(time() > max `+by+` (stillpoint_success_due_timestamp_seconds{`+inNamespace+`})) or vector(0)`, "schedules"))).
		WithPanel(number("Not valid", "short", 4, colours(green, step(1, red)), now(`count(max `+by+` (stillpoint_schedule_ready{`+inNamespace+`}) == 0) or vector(0)`, "schedules"))).
		WithPanel(number("Operators that work", "short", 4, colours(red, step(1, green), step(2, red)), now(`sum(stillpoint_leader) or vector(0)`, "operators"))).
		WithPanel(schedulesTable(inNamespace)).
		WithPanel(bars("Runs by result", "Completed runs.", query(`sum by (result) (increase(stillpoint_runs_total{`+inNamespace+`}[$__rate_interval]))`, "{{result}}"))).
		WithPanel(graph("Time quiesced", "s", "How long runs kept their applications quiesced, on average over an hour.",
			query(`sum `+by+` (increase(stillpoint_quiesce_seconds_sum{`+inNamespace+`}[1h])) / sum `+by+` (increase(stillpoint_quiesce_seconds_count{`+inNamespace+`}[1h]))`, "{{schedule_namespace}}/{{schedule_name}}"))).
		WithPanel(graph("Snapshots by state", "short", "VolumeSnapshots that exist.", query(`sum by (state) (stillpoint_snapshots{`+inNamespace+`})`, "{{state}}"))).
		WithPanel(bars("Snapshots that retention deleted", "By the rule that did not keep them.", query(`sum by (rule) (increase(stillpoint_retention_deletions_total{`+inNamespace+`}[$__rate_interval]))`, "{{rule}}")))
}

func schedulesTable(matchers string) *table.PanelBuilder {
	column := func(id, expr string) *prometheus.DataqueryBuilder {
		return prometheus.NewDataqueryBuilder().RefId(id).Expr(expr).Instant().Format(prometheus.PromQueryFormatTable)
	}
	override := func(id string, value any) dashboard.DynamicConfigValue {
		return dashboard.DynamicConfigValue{Id: id, Value: value}
	}
	coloured := override("custom.cellOptions", map[string]any{"type": "color-text"})
	thresholds := func(base string, from float64, colour string) dashboard.DynamicConfigValue {
		return override("thresholds", map[string]any{"mode": "absolute", "steps": []map[string]any{{"color": base, "value": nil}, {"color": colour, "value": from}}})
	}
	var mapped []map[string]any
	for i, result := range sorted(results) {
		mapped = append(mapped, map[string]any{"type": "value", "options": map[string]any{result: map[string]any{"color": results[result], "index": i, "text": result}}})
	}
	return table.NewPanelBuilder().Title("Schedules").Datasource(source()).Span(24).Height(10).Footer(common.NewTableFooterOptionsBuilder().Show(false).Reducer([]string{})).
		WithTarget(column("ready", `max by (schedule_namespace, schedule_name, reason) (stillpoint_schedule_ready{`+matchers+`})`)).
		WithTarget(column("success", `time() - max `+by+` (stillpoint_last_success_timestamp_seconds{`+matchers+`})`)).
		WithTarget(column("result", `max by (schedule_namespace, schedule_name, result) (stillpoint_last_run_info{`+matchers+`})`)).
		WithTarget(column("next", `max `+by+` (stillpoint_next_run_timestamp_seconds{`+matchers+`}) - time()`)).
		WithTarget(column("quiesced", `sum `+by+` (increase(stillpoint_quiesce_seconds_sum{`+matchers+`}[$__range])) / (sum `+by+` (increase(stillpoint_quiesce_seconds_count{`+matchers+`}[$__range])) > 0)`)).
		WithTarget(column("now", `max `+by+` (stillpoint_may_be_quiesced{`+matchers+`})`)).
		WithTarget(column("snapshots", `sum `+by+` (max by (schedule_namespace, schedule_name, state) (stillpoint_snapshots{`+matchers+`, state="Ready"}))`)).
		WithTransformation(dashboard.DataTransformerConfig{Id: "merge", Options: map[string]any{}}).
		WithTransformation(dashboard.DataTransformerConfig{Id: "organize", Options: map[string]any{
			"excludeByName": map[string]any{"Time": true, "Value #ready": true, "Value #result": true},
			"indexByName":   map[string]any{"schedule_namespace": 0, "schedule_name": 1, "reason": 2, "result": 3, "Value #success": 4, "Value #next": 5, "Value #quiesced": 6, "Value #now": 7, "Value #snapshots": 8},
			"renameByName": map[string]any{"schedule_namespace": "Namespace", "schedule_name": "Schedule", "reason": "State", "result": "Last result", "Value #success": "Last success",
				"Value #next": "Next run in", "Value #quiesced": "Time quiesced", "Value #now": "May be quiesced", "Value #snapshots": "Ready snapshots"}}}).
		SortBy([]cog.Builder[common.TableSortByFieldState]{common.NewTableSortByFieldStateBuilder().DisplayName("Last success").Desc(true)}).
		OverrideByName("Schedule", []dashboard.DynamicConfigValue{override("links", []map[string]any{{"title": "this schedule in depth",
			"url": "/d/stillpoint-schedule?${datasource:queryparam}&var-namespace=${__data.fields.Namespace}&var-schedule=${__value.raw}&${__url_time_range}"}})}).
		OverrideByName("State", []dashboard.DynamicConfigValue{coloured, override("mappings", []map[string]any{
			{"type": "value", "options": map[string]any{"Scheduled": map[string]any{"color": green, "index": 0}, "Disabled": map[string]any{"color": blue, "index": 1}}},
			{"type": "regex", "options": map[string]any{"pattern": "Invalid.*|NeverFires", "result": map[string]any{"color": red, "index": 2}}}})}).
		OverrideByName("Last result", []dashboard.DynamicConfigValue{coloured, override("mappings", mapped)}).
		OverrideByName("Last success", []dashboard.DynamicConfigValue{override("unit", "s"), override("decimals", 1)}).
		OverrideByName("Next run in", []dashboard.DynamicConfigValue{override("unit", "s"), override("decimals", 1)}).
		OverrideByName("Time quiesced", []dashboard.DynamicConfigValue{override("unit", "s"), override("decimals", 2)}).
		OverrideByName("May be quiesced", []dashboard.DynamicConfigValue{coloured, thresholds(green, 1, orange), override("mappings", []map[string]any{
			{"type": "value", "options": map[string]any{"0": map[string]any{"text": "no", "index": 0}, "1": map[string]any{"text": "yes", "index": 1}}}})})
}

// schedule: one in depth.
func schedule() *dashboard.DashboardBuilder {
	age := func(expr string) *prometheus.DataqueryBuilder { return now(expr, "age") }
	const reasons = `sum by (stage, reason) (increase(stillpoint_hook_runs_total{` + of
	return board("Schedule", "stillpoint-schedule", "One schedule in depth: runs, hooks, snapshots, failures.").
		WithVariable(variable("namespace", "Namespace", "label_values(stillpoint_schedule_ready, schedule_namespace)")).
		WithVariable(variable("schedule", "Schedule", `label_values(stillpoint_schedule_ready{schedule_namespace=~"$namespace"}, schedule_name)`)).
		WithPanel(words("Last result", 4, now(`max by (result) (stillpoint_last_run_info{`+of+`})`, "{{result}}"), results)).
		WithPanel(number("Last success", "s", 4, colours(green), age(`time() - max(stillpoint_last_success_timestamp_seconds{`+of+`})`)).Description("How long ago a run succeeded.")).
		WithPanel(number("Success due in", "s", 4, colours(red, step(0, green)), age(`max(stillpoint_success_due_timestamp_seconds{`+of+`}) - time()`)).Description("Below 0: no success for twice the interval.")).
		WithPanel(number("Next run in", "s", 4, colours(blue), age(`max(stillpoint_next_run_timestamp_seconds{`+of+`}) - time()`))).
		WithPanel(number("May be quiesced", "short", 4, colours(green, step(1, orange)), now(`max(stillpoint_may_be_quiesced{`+of+`})`, "may be quiesced")).
			Mappings([]dashboard.ValueMapping{{ValueMap: &dashboard.ValueMap{Type: "value", Options: map[string]dashboard.ValueMappingResult{"0": {Text: ref("no")}, "1": {Text: ref("yes")}}}}})).
		WithPanel(number("Oldest ready snapshot", "s", 4, colours(blue), age(`time() - min(stillpoint_oldest_snapshot_timestamp_seconds{`+of+`, state="Ready"})`)).Description("How far back can be restored.")).
		WithRow(dashboard.NewRowBuilder("Runs and hooks")).
		WithPanel(bars("Runs by result", "Completed runs.", query(`sum by (result) (increase(stillpoint_runs_total{`+of+`}[$__rate_interval]))`, "{{result}}"))).
		WithPanel(graph("Time quiesced", "s", "From the first pre hook of a run until its post hooks had ended.", quantiles("stillpoint_quiesce_seconds", of)...)).
		WithPanel(graph("Hooks: time by stage", "s", "How long attempts that succeeded took, on average over an hour.",
			query(`sum by (stage) (increase(stillpoint_hook_seconds_sum{`+of+`, reason="Completed"}[1h])) / sum by (stage) (increase(stillpoint_hook_seconds_count{`+of+`, reason="Completed"}[1h]))`, "{{stage}}"))).
		WithPanel(graph("Start delay", "s", "From when a run was due until it began: the operator was busy or away, or a run waited for another one's lock.", quantiles("stillpoint_start_delay_seconds", of)...)).
		WithRow(dashboard.NewRowBuilder("Snapshots")).
		WithPanel(graph("Snapshots by state", "short", "VolumeSnapshots that exist.", query(`sum by (state) (stillpoint_snapshots{`+of+`})`, "{{state}}"))).
		WithPanel(graph("Ready snapshots by claim", "short", "", query(`max by (pvc_name) (snapscheduler_snapshot_current_ready_count{`+of+`})`, "{{pvc_name}}"))).
		WithPanel(graph("Time to the cut", "s", "From the creation of a snapshot until its content was fixed: the application waits for that.", quantiles("stillpoint_snapshot_cut_seconds", of)...)).
		WithPanel(graph("Time to ready", "s", "From the creation of a snapshot until it could be restored from.", quantiles("stillpoint_snapshot_ready_seconds", of)...)).
		WithPanel(bars("Snapshots that retention deleted", "By the rule that did not keep them.", query(`sum by (rule) (increase(stillpoint_retention_deletions_total{`+of+`}[$__rate_interval]))`, "{{rule}}"))).
		WithPanel(bars("Snapshots created and ready", "", query(`sum(increase(snapscheduler_snapshot_create_total{`+of+`}[$__rate_interval]))`, "created"),
			query(`sum(increase(snapscheduler_snapshot_ready_total{`+of+`}[$__rate_interval]))`, "ready"))).
		WithRow(dashboard.NewRowBuilder("Failures")).
		WithPanel(bars("Hooks that failed, by reason", "Attempts that did not succeed.", query(reasons+`, reason!="Completed"}[$__rate_interval]))`, "{{stage}} {{reason}}"))).
		WithPanel(bars("Snapshots that could not be created", "Attempts, by claim.", query(`sum by (pvc_name) (increase(snapscheduler_snapshot_create_error_total{`+of+`}[$__rate_interval]))`, "{{pvc_name}}"))).
		WithPanel(bars("Missed slots by reason", "", query(`sum by (reason) (increase(stillpoint_missed_slots_total{`+of+`}[$__rate_interval]))`, "{{reason}}"))).
		WithPanel(graph("What is wrong now", "short", "", query(`max by (stage) (stillpoint_failed_hooks{`+of+`})`, "failed hooks: {{stage}}"),
			query(`max(stillpoint_claims_left_out{`+of+`})`, "claims left out"), query(`max(stillpoint_retention_failing{`+of+`})`, "retention fails")))
}

// operator: its health.
func operator() *dashboard.DashboardBuilder {
	const ours = `controller=~"snapshotschedule|snapshotrun"`
	// What every process exports is the operator's where the target exports stillpoint_leader too.
	const here = ` and on (job, instance) stillpoint_leader`
	return board("Operator", "stillpoint-operator", "Is the operator healthy, and does it keep up.").
		WithPanel(number("Operators that work", "short", 6, colours(red, step(1, green), step(2, red)), now(`sum(stillpoint_leader) or vector(0)`, "operators"))).
		WithPanel(number("Hooks in flight", "short", 6, colours(blue), now(`sum(stillpoint_hooks_in_flight)`, "commands"))).
		WithPanel(number("Hooks that wait for a slot", "short", 6, colours(green, step(1, orange)), now(`sum(stillpoint_hooks_queued)`, "commands"))).
		WithPanel(number("Retention fails", "short", 6, colours(green, step(1, red)), now(`sum(max `+by+` (stillpoint_retention_failing))`, "schedules"))).
		WithPanel(graph("Who works", "short", "1: has the lease.", query(`stillpoint_leader`, "{{instance}}")).Max(1)).
		WithPanel(graph("Hooks", "short", "Commands by lane: in flight, waiting for a slot (--max-concurrent-hooks), held.", query(`sum by (lane) (stillpoint_hooks_in_flight)`, "in flight: {{lane}}"),
			query(`sum by (lane) (stillpoint_hooks_queued)`, "waiting: {{lane}}"), query(`sum(stillpoint_hooks_held)`, "held"))).
		WithPanel(graph("Reconciles", "ops", "", query(`sum by (controller, result) (rate(controller_runtime_reconcile_total{`+ours+`}[$__rate_interval]))`, "{{controller}} {{result}}"))).
		WithPanel(graph("Time of a reconcile", "s", "0.95 of all are faster.", query(`histogram_quantile(0.95, sum by (le, controller) (rate(controller_runtime_reconcile_time_seconds_bucket{`+ours+`}[$__rate_interval])))`, "{{controller}}"))).
		WithPanel(graph("Work queues", "short", "Objects that wait to be reconciled.", query(`sum by (controller) (workqueue_depth{`+ours+`})`, "{{controller}}"))).
		WithPanel(graph("Requests to the API server", "reqps", "By answer.", query(`sum by (method, code) (rate(rest_client_requests_total[$__rate_interval])`+here+`)`, "{{method}} {{code}}"))).
		WithPanel(graph("Memory", "bytes", "", query(`process_resident_memory_bytes`+here, "{{instance}}"))).
		WithPanel(graph("Processors", "short", "", query(`rate(process_cpu_seconds_total[$__rate_interval])`+here, "{{instance}}"))).
		WithPanel(graph("Goroutines", "short", "", query(`go_goroutines`+here, "{{instance}}"))).
		WithPanel(graph("Series", "short", "Samples that a scrape of the operator brings.", query(`scrape_samples_scraped`+here, "{{instance}}")))
}
