// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
)

// The parts of SARIF 2.1.0 that code hosts read.
type (
	sarifLog struct {
		Schema  string     `json:"$schema"`
		Version string     `json:"version"`
		Runs    []sarifRun `json:"runs"`
	}
	sarifRun struct {
		Tool    sarifTool     `json:"tool"`
		Results []sarifResult `json:"results"`
	}
	sarifTool struct {
		Driver sarifDriver `json:"driver"`
	}
	sarifDriver struct {
		Name           string      `json:"name"`
		Version        string      `json:"version,omitempty"`
		InformationURI string      `json:"informationUri"`
		Rules          []sarifRule `json:"rules"`
	}
	sarifRule struct {
		ID                   string       `json:"id"`
		ShortDescription     sarifText    `json:"shortDescription"`
		DefaultConfiguration sarifDefault `json:"defaultConfiguration"`
	}
	sarifDefault struct {
		Level Level `json:"level"`
	}
	sarifText struct {
		Text string `json:"text"`
	}
	sarifResult struct {
		RuleID    string          `json:"ruleId"`
		RuleIndex int             `json:"ruleIndex"`
		Level     Level           `json:"level"`
		Message   sarifText       `json:"message"`
		Locations []sarifLocation `json:"locations"`
	}
	sarifLocation struct {
		Physical sarifPhysical  `json:"physicalLocation"`
		Logical  []sarifLogical `json:"logicalLocations,omitempty"`
	}
	sarifPhysical struct {
		Artifact sarifArtifact `json:"artifactLocation"`
		Region   sarifRegion   `json:"region"`
	}
	sarifArtifact struct {
		URI string `json:"uri"`
	}
	sarifRegion struct {
		StartLine   int `json:"startLine"`
		StartColumn int `json:"startColumn"`
	}
	sarifLogical struct {
		FullyQualifiedName string `json:"fullyQualifiedName"`
	}
)

// SARIF writes a report as a SARIF 2.1.0 log. version is this program's.
func (r *Report) SARIF(w io.Writer, version string) error {
	run := sarifRun{Results: []sarifResult{}, Tool: sarifTool{sarifDriver{Name: "kubectl-stillpoint", Version: version,
		InformationURI: "https://github.com/stillpoint-operator/stillpoint", Rules: []sarifRule{}}}}
	index := map[string]int{}
	for i, rule := range Rules {
		index[rule.ID] = i
		run.Tool.Driver.Rules = append(run.Tool.Driver.Rules, sarifRule{rule.ID, sarifText{rule.Text}, sarifDefault{rule.Level}})
	}
	for i := range r.Findings {
		f := &r.Findings[i]
		at := sarifLocation{Physical: sarifPhysical{sarifArtifact{filepath.ToSlash(f.File)}, sarifRegion{max(1, f.Line), max(1, f.Column)}}}
		if f.Object != "" {
			at.Logical = []sarifLogical{{strings.TrimSuffix(f.Object+": "+f.Path, ": ")}}
		}
		run.Results = append(run.Results, sarifResult{RuleID: f.Rule, RuleIndex: index[f.Rule], Level: f.Level, Message: sarifText{f.sentence()}, Locations: []sarifLocation{at}})
	}
	out := json.NewEncoder(w)
	out.SetIndent("", "  ")
	out.SetEscapeHTML(false)
	return out.Encode(sarifLog{Schema: "https://json.schemastore.org/sarif-2.1.0.json", Version: "2.1.0", Runs: []sarifRun{run}})
}

// sentence is the message with the field it is about.
func (f *Finding) sentence() string {
	return strings.TrimPrefix(f.Path+": "+f.Message, ": ")
}
