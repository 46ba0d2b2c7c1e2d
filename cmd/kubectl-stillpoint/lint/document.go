// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	kyaml "sigs.k8s.io/yaml"
)

// document is one object of a file. The values are read exactly as kubectl reads them; the nodes are there for their lines.
type document struct {
	file   string
	offset int // lines of the file before the document
	node   *yaml.Node
	fields map[string]any
}

// chunk is the text between two separators.
type chunk struct {
	offset int
	text   []byte
}

// split a file at its separators, as kubectl does: a line of "---", perhaps with a comment.
func split(data []byte) []chunk {
	var out []chunk
	var text []byte
	start := 0
	lines := bytes.SplitAfter(data, []byte("\n"))
	for i, line := range lines {
		if rest, ok := bytes.CutPrefix(line, []byte("---")); ok {
			if rest = bytes.TrimSpace(rest); len(rest) == 0 || rest[0] == '#' {
				out = append(out, chunk{start, text})
				text, start = nil, i+1
				continue
			}
		}
		text = append(text, line...)
	}
	return append(out, chunk{start, text})
}

// syntaxError is why a chunk is not YAML.
type syntaxError struct {
	line    int
	message string
}

func (e *syntaxError) Error() string { return e.message }

var yamlLine = regexp.MustCompile(`^(?:yaml: )?(?:unmarshal errors:\s*)?line (\d+): `)

func newSyntaxError(offset int, err error) *syntaxError {
	message := strings.TrimPrefix(err.Error(), "error converting YAML to JSON: ")
	if m := yamlLine.FindStringSubmatch(message); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			return &syntaxError{line: offset + n, message: message[len(m[0]):]}
		}
	}
	return &syntaxError{line: offset + 1, message: strings.TrimPrefix(message, "yaml: ")}
}

// parse a chunk; nil: it holds nothing.
func parse(file string, c chunk) (*document, error) {
	var root yaml.Node
	if err := yaml.Unmarshal(c.text, &root); err != nil {
		return nil, newSyntaxError(c.offset, err)
	}
	if len(root.Content) == 0 || root.Content[0].Tag == "!!null" {
		return nil, nil //nolint:nilnil // an empty document is none
	}
	// Duplicate keys are reported with their lines; here the last one counts, as for a lenient client.
	raw, err := kyaml.YAMLToJSON(c.text)
	if err != nil {
		return nil, newSyntaxError(c.offset, err)
	}
	var fields map[string]any
	if err := utiljson.Unmarshal(raw, &fields); err != nil {
		return nil, &syntaxError{line: c.offset + root.Content[0].Line, message: "the document is not an object with fields"}
	}
	return &document{file: file, offset: c.offset, node: root.Content[0], fields: fields}, nil
}

// items of a List, or the document itself.
func (d *document) items() []*document {
	list, ok := d.fields["items"].([]any)
	kind, _ := d.fields["kind"].(string)
	if !ok || !strings.HasSuffix(kind, "List") {
		return []*document{d}
	}
	nodes := child(d.node, "items")
	var out []*document
	for i := range list {
		fields, ok := list[i].(map[string]any)
		if !ok || nodes == nil || i >= len(nodes.Content) {
			continue
		}
		out = append(out, &document{file: d.file, offset: d.offset, node: resolve(nodes.Content[i]), fields: fields})
	}
	return out
}

func resolve(n *yaml.Node) *yaml.Node {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// entry of a mapping: its key and its value; nil: there is none.
func entry(n *yaml.Node, name string) (key, value *yaml.Node) {
	n = resolve(n)
	if n == nil || n.Kind != yaml.MappingNode {
		return nil, nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i], resolve(n.Content[i+1])
		}
	}
	return nil, nil
}

func child(n *yaml.Node, name string) *yaml.Node {
	_, value := entry(n, name)
	return value
}

// locate a field, or the nearest thing around it that exists.
func (d *document) locate(path string) (line, column int) {
	at, n := d.node, d.node
	for _, step := range steps(path) {
		if n == nil {
			break
		}
		if i, err := strconv.Atoi(step); err == nil && n.Kind == yaml.SequenceNode {
			if i >= len(n.Content) {
				break
			}
			at = n.Content[i]
			n = resolve(at)
			continue
		}
		key, value := entry(n, step)
		if key == nil {
			break
		}
		at, n = key, value
	}
	return d.offset + at.Line, at.Column
}

var pathStep = regexp.MustCompile(`\[([^\]]*)\]|([^.\[\]]+)`)

// steps of a path as field.Path writes it: spec.preHooks[0].command, metadata.labels[app].
func steps(path string) []string {
	var out []string
	for _, m := range pathStep.FindAllStringSubmatch(path, -1) {
		out = append(out, m[1]+m[2])
	}
	return out
}

// duplicates are keys that stand twice in a mapping, with their paths.
func (d *document) duplicates(report func(path string, line, column, first int)) {
	var walk func(n *yaml.Node, path string)
	walk = func(n *yaml.Node, path string) {
		if n.Kind == yaml.SequenceNode {
			for i, item := range n.Content {
				walk(item, fmt.Sprintf("%s[%d]", path, i))
			}
			return
		}
		if n.Kind != yaml.MappingNode {
			return // an alias was walked where its anchor is
		}
		seen := map[string]int{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			at := strings.TrimPrefix(path+"."+key.Value, ".")
			if first, ok := seen[key.Value]; ok {
				report(at, d.offset+key.Line, key.Column, d.offset+first)
			} else {
				seen[key.Value] = key.Line
			}
			walk(n.Content[i+1], at)
		}
	}
	walk(d.node, "")
}

func asSyntaxError(err error) *syntaxError {
	var s *syntaxError
	if errors.As(err, &s) {
		return s
	}
	return &syntaxError{line: 1, message: err.Error()}
}
