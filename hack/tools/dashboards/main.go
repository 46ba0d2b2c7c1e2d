// SPDX-License-Identifier: Apache-2.0

// Command dashboards writes the Grafana dashboards into a directory. They are built with Grafana's own types, and what was written is read
// back with its strict reader, which refuses fields that a panel does not have, and validated by it.
//
//	go -C hack/tools/dashboards run . DIR
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: dashboards DIR")
		os.Exit(2)
	}
	runtime := cog.NewRuntime()
	runtime.RegisterPanelcfgVariant(stat.VariantConfig())
	runtime.RegisterPanelcfgVariant(table.VariantConfig())
	runtime.RegisterPanelcfgVariant(timeseries.VariantConfig())
	runtime.RegisterDataqueryVariant(prometheus.VariantConfig())
	for name, build := range map[string]func() *dashboard.DashboardBuilder{"overview": overview, "schedule": schedule, "operator": operator} {
		if err := write(filepath.Join(os.Args[1], "stillpoint-"+name+".json"), build()); err != nil {
			fmt.Fprintf(os.Stderr, "dashboard %s: %v\n", name, err)
			os.Exit(1)
		}
	}
}

func write(file string, b *dashboard.DashboardBuilder) error {
	built, err := b.Build()
	if err != nil {
		return fmt.Errorf("building: %w", err)
	}
	text, err := encode(built)
	if err != nil {
		return err
	}
	if err := problems(new(dashboard.Dashboard).UnmarshalJSONStrict(text)); err != nil {
		return fmt.Errorf("reading back: %w", err)
	}
	// The strict reader names every mistake, and drops panels that have none. So the other one tells whether all was read.
	var read dashboard.Dashboard
	if err := json.Unmarshal(text, &read); err != nil {
		return fmt.Errorf("reading back: %w", err)
	}
	if err := problems(read.Validate()); err != nil {
		return fmt.Errorf("validating: %w", err)
	}
	if again, err := encode(read); err != nil || !bytes.Equal(text, again) {
		return errors.New("reading back: what was read is not what was written")
	}
	return os.WriteFile(file, text, 0o644)
}

func encode(d dashboard.Dashboard) ([]byte, error) {
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(d); err != nil {
		return nil, fmt.Errorf("encoding: %w", err)
	}
	return text.Bytes(), nil
}

// problems is nil for an empty list of them, which the reader returns for a panel that is right.
func problems(err error) error {
	var list cog.BuildErrors
	if errors.As(err, &list) && len(list) == 0 {
		return nil
	}
	return err
}
