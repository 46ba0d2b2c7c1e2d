// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// Command is one command of a command line, its words without quotes. What only a shell could know stands as "X".
type Command struct {
	Words []string
	Input string // of a here-document
	Line  int
}

const notRun = "not run:"

// Commands of the page's shell blocks, but those that are marked as not run.
func (p *Page) Commands() ([]Command, error) {
	var out []Command
	for _, b := range p.Blocks {
		if strings.HasPrefix(b.Mark, notRun) {
			continue
		}
		source := b.Text
		switch b.Lang {
		case "sh":
		case "console":
			var lines []string
			for line := range strings.Lines(source) {
				line, isCommand := strings.CutPrefix(line, "$ ")
				if !isCommand {
					line = "\n"
				}
				lines = append(lines, line)
			}
			source = strings.Join(lines, "")
		default:
			continue
		}
		found, err := commandsOf(source)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: this is no shell: %w", p.Path, b.Line, err)
		}
		for _, c := range found {
			c.Line += b.Line - 1
			out = append(out, c)
		}
	}
	return out, nil
}

// SpanCommands are those that stand within the text. They may be short of arguments.
func (p *Page) SpanCommands() []Command {
	var out []Command
	for _, s := range p.Spans {
		if name, _, more := strings.Cut(s.Text, " "); !more || (name != "kubectl" && name != "make" && name != "helm") {
			continue
		}
		found, err := commandsOf(s.Text)
		if err != nil {
			continue // a figure of speech
		}
		for _, c := range found {
			c.Line = s.Line
			out = append(out, c)
		}
	}
	return out
}

func commandsOf(source string) ([]Command, error) {
	file, err := syntax.NewParser().Parse(strings.NewReader(source), "")
	if err != nil {
		return nil, err
	}
	var out []Command
	syntax.Walk(file, func(n syntax.Node) bool {
		stmt, ok := n.(*syntax.Stmt)
		if !ok {
			return true
		}
		call, ok := stmt.Cmd.(*syntax.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		c := Command{Line: int(call.Pos().Line())} // #nosec G115 -- a page has fewer lines
		for _, w := range call.Args {
			c.Words = append(c.Words, plain(w.Parts))
		}
		for _, r := range stmt.Redirs {
			if r.Hdoc != nil {
				c.Input = plain(r.Hdoc.Parts)
			}
		}
		out = append(out, c)
		return true
	})
	return out, nil
}

func plain(parts []syntax.WordPart) string {
	var out strings.Builder
	for _, part := range parts {
		switch part := part.(type) {
		case *syntax.Lit:
			out.WriteString(strings.ReplaceAll(part.Value, `\`, ""))
		case *syntax.SglQuoted:
			out.WriteString(part.Value)
		case *syntax.DblQuoted:
			out.WriteString(plain(part.Parts))
		default:
			out.WriteString("X")
		}
	}
	return out.String()
}
