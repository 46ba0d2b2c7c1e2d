// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

const (
	green, orange, red, blue = "green", "orange", "red", "blue"
	// of selects what the dashboard's variables name.
	of = `schedule_namespace=~"$namespace", schedule_name=~"$schedule"`
	by = `by (schedule_namespace, schedule_name)`
)

func ref[T any](v T) *T { return &v }

func source() common.DataSourceRef {
	return common.DataSourceRef{Type: ref("prometheus"), Uid: ref("${datasource}")}
}

func board(title, uid, description string) *dashboard.DashboardBuilder {
	return dashboard.NewDashboardBuilder("Stillpoint / "+title).Uid(uid).Description(description).Tags([]string{"stillpoint"}).
		Readonly().Tooltip(dashboard.DashboardCursorSyncCrosshair).Time("now-24h", "now").Refresh("1m").Timezone(common.TimeZoneBrowser).
		Link(dashboard.NewDashboardLinkBuilder("Stillpoint").Type(dashboard.DashboardLinkTypeDashboards).Tags([]string{"stillpoint"}).AsDropdown(true).KeepTime(true)).
		WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").Label("Prometheus").Type("prometheus"))
}

// variable whose values are those of a label.
func variable(name, label, query string) *dashboard.QueryVariableBuilder {
	return dashboard.NewQueryVariableBuilder(name).Label(label).Datasource(source()).
		Query(dashboard.StringOrMap{String: ref(query)}).Refresh(dashboard.VariableRefreshOnTimeRangeChanged).Sort(dashboard.VariableSortAlphabeticalAsc)
}

func all(v *dashboard.QueryVariableBuilder) *dashboard.QueryVariableBuilder {
	return v.IncludeAll(true).Multi(true).AllValue(".*").
		Current(dashboard.VariableOption{Text: dashboard.StringOrArrayOfString{ArrayOfString: []string{"All"}}, Value: dashboard.StringOrArrayOfString{ArrayOfString: []string{"$__all"}}})
}

// query over time.
func query(expr, legend string) *prometheus.DataqueryBuilder {
	return prometheus.NewDataqueryBuilder().Expr(expr).LegendFormat(legend).Range()
}

// now is a query of the present.
func now(expr, legend string) *prometheus.DataqueryBuilder {
	return prometheus.NewDataqueryBuilder().Expr(expr).LegendFormat(legend).Instant()
}

// step is a colour from a value on.
func step(from float64, colour string) dashboard.Threshold {
	return dashboard.Threshold{Value: &from, Color: colour}
}

func colours(base string, steps ...dashboard.Threshold) cog.Builder[dashboard.ThresholdsConfig] {
	return dashboard.NewThresholdsConfigBuilder().Mode(dashboard.ThresholdsModeAbsolute).Steps(append([]dashboard.Threshold{{Color: base}}, steps...))
}

// number is a panel with one number of the present, or one for each series.
func number(title, unit string, width uint32, thresholds cog.Builder[dashboard.ThresholdsConfig], target *prometheus.DataqueryBuilder) *stat.PanelBuilder {
	return stat.NewPanelBuilder().Title(title).Datasource(source()).Unit(unit).Span(width).Height(4).Thresholds(thresholds).WithTarget(target.RefId("A")).Orientation(common.VizOrientationAuto).
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"})).GraphMode(common.BigValueGraphModeNone).NoValue("-")
}

// words is a number panel that shows the name of its series.
func words(title string, width uint32, target *prometheus.DataqueryBuilder, colour map[string]string) *stat.PanelBuilder {
	p := number(title, "short", width, colours(blue), target).TextMode(common.BigValueTextModeName)
	for _, word := range sorted(colour) {
		p.OverrideByName(word, []dashboard.DynamicConfigValue{{Id: "color", Value: map[string]any{"mode": "fixed", "fixedColor": colour[word]}}})
	}
	return p
}

// graph over time.
func graph(title, unit, description string, targets ...*prometheus.DataqueryBuilder) *timeseries.PanelBuilder {
	p := timeseries.NewPanelBuilder().Title(title).Description(description).Datasource(source()).Unit(unit).Span(12).Height(8).Min(0).FillOpacity(10).
		ShowPoints(common.VisibilityModeAuto).Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending)).
		Legend(common.NewVizLegendOptionsBuilder().ShowLegend(true).Placement(common.LegendPlacementBottom).DisplayMode(common.LegendDisplayModeList))
	for i, t := range targets {
		p.WithTarget(t.RefId(string(rune('A' + i))))
	}
	return p
}

// bars over time, one upon the other: how often something happened.
func bars(title, description string, targets ...*prometheus.DataqueryBuilder) *timeseries.PanelBuilder {
	return graph(title, "short", description, targets...).DrawStyle(common.GraphDrawStyleBars).FillOpacity(70).LineWidth(1).ShowPoints(common.VisibilityModeNever).
		Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal))
}

// quantiles of a histogram in the last hour: most schedules have a run an hour or less.
func quantiles(metric, matchers string) []*prometheus.DataqueryBuilder {
	var out []*prometheus.DataqueryBuilder
	for _, q := range []string{"0.5", "0.95"} {
		out = append(out, query("histogram_quantile("+q+", sum by (le) (increase("+metric+"_bucket{"+matchers+"}[1h])))", "quantile "+q))
	}
	return append(out, query("sum (increase("+metric+"_sum{"+matchers+"}[1h])) / sum (increase("+metric+"_count{"+matchers+"}[1h]))", "mean"))
}
