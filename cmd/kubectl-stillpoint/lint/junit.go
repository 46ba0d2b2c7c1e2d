// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"encoding/xml"
	"fmt"
	"io"
	"strings"
)

type (
	junitSuites struct {
		XMLName  xml.Name     `xml:"testsuites"`
		Name     string       `xml:"name,attr"`
		Tests    int          `xml:"tests,attr"`
		Failures int          `xml:"failures,attr"`
		Suites   []junitSuite `xml:"testsuite"`
	}
	junitSuite struct {
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Cases    []junitCase `xml:"testcase"`
	}
	junitCase struct {
		Name    string        `xml:"name,attr"`
		Class   string        `xml:"classname,attr"`
		File    string        `xml:"file,attr"`
		Line    int           `xml:"line,attr"`
		Failure *junitFailure `xml:"failure,omitempty"`
		Output  string        `xml:"system-out,omitempty"`
	}
	junitFailure struct {
		Type    string `xml:"type,attr"`
		Message string `xml:"message,attr"`
		Text    string `xml:",chardata"`
	}
)

// JUnit writes a report as JUnit XML: a suite for each file, a case for each object. A case fails with its errors, and with its warnings
// if strict; what does not fail it is its output.
func (r *Report) JUnit(w io.Writer, strict bool) error {
	all := junitSuites{Name: "kubectl stillpoint lint"}
	suite := func(file string) *junitSuite {
		for i := range all.Suites {
			if all.Suites[i].Name == file {
				return &all.Suites[i]
			}
		}
		all.Suites = append(all.Suites, junitSuite{Name: file})
		return &all.Suites[len(all.Suites)-1]
	}
	for _, o := range r.Objects {
		suite(o.File).add(junitCase{Name: o.Name, Class: o.File, File: o.File, Line: o.Line}, r.about(o.File, o.Name), strict)
	}
	for i := range r.Findings {
		if f := &r.Findings[i]; f.Object == "" { // of the file: it could not be read
			suite(f.File).add(junitCase{Name: "YAML", Class: f.File, File: f.File, Line: f.Line}, []*Finding{f}, strict)
		}
	}
	for i := range all.Suites {
		all.Tests += all.Suites[i].Tests
		all.Failures += all.Suites[i].Failures
	}
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	out := xml.NewEncoder(w)
	out.Indent("", "  ")
	if err := out.Encode(all); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

func (r *Report) about(file, object string) []*Finding {
	var out []*Finding
	for i := range r.Findings {
		if f := &r.Findings[i]; f.File == file && f.Object == object {
			out = append(out, f)
		}
	}
	return out
}

func (s *junitSuite) add(c junitCase, findings []*Finding, strict bool) {
	var bad, rest []string
	kind, first := "", ""
	for _, f := range findings {
		line := fmt.Sprintf("%s:%d:%d: %s [%s]", f.File, f.Line, f.Column, f.sentence(), f.Rule)
		if f.Level == Error || (strict && f.Level == Warning) {
			if len(bad) == 0 {
				kind, first = f.Rule, f.sentence()
			}
			bad = append(bad, line)
		} else {
			rest = append(rest, string(f.Level)+": "+line)
		}
	}
	s.Tests++
	if len(bad) > 0 {
		s.Failures++
		c.Failure = &junitFailure{Type: kind, Message: first, Text: strings.Join(bad, "\n")}
	}
	c.Output = strings.Join(rest, "\n")
	s.Cases = append(s.Cases, c)
}
