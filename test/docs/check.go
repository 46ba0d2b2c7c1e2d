// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Check the pages against the project, and say what is not true.
func Check(pages []*Page, project *Project) []string {
	c := &checker{Project: project, pages: map[string]*Page{}}
	for _, p := range pages {
		c.pages[filepath.ToSlash(p.Path)] = p
	}
	for _, p := range pages {
		c.page = p
		c.links()
		c.blocks()
		c.commands()
		c.names()
	}
	return c.wrong
}

type checker struct {
	*Project
	pages map[string]*Page
	page  *Page
	wrong []string
}

func (c *checker) say(line int, format string, args ...any) {
	c.wrong = append(c.wrong, fmt.Sprintf("%s:%d: %s", c.page.Path, line, fmt.Sprintf(format, args...)))
}

func (c *checker) exists(name string) bool {
	_, err := os.Stat(filepath.Join(c.Root, filepath.FromSlash(name)))
	return err == nil
}

// links to other pages, their headings and files. What is elsewhere is not asked.
func (c *checker) links() {
	for _, l := range c.page.Links {
		u, err := url.Parse(l.Text)
		if err != nil {
			c.say(l.Line, "link %s: %v", l.Text, err)
			continue
		}
		if u.Scheme != "" {
			continue
		}
		target := filepath.ToSlash(c.page.Path)
		if u.Path != "" {
			target = path.Join(path.Dir(target), u.Path)
		}
		if c.pages[target] == nil && !c.exists(target) {
			c.say(l.Line, "link %s: there is no %s", l.Text, target)
			continue
		}
		if u.Fragment == "" {
			continue
		}
		if page := c.pages[target]; page == nil || !slices.Contains(page.Anchors, u.Fragment) {
			c.say(l.Line, "link %s: %s has no such heading", l.Text, target)
		}
	}
}

var languages = []string{"yaml", "sh", "console", "text", "promql", "mermaid"}

// blocks have a known language and mark, and YAML can be read. Fragments of a spec and objects are applied in test/integration.
func (c *checker) blocks() {
	for _, b := range c.page.Blocks {
		if !slices.Contains(languages, b.Lang) {
			c.say(b.Line, "a block needs a language, one of %v, and has %q", languages, b.Lang)
		}
		if b.Lang != "yaml" {
			continue
		}
		for _, document := range Documents(b.Text) {
			fields := map[string]any{}
			if err := yaml.UnmarshalStrict([]byte(document), &fields); err != nil {
				c.say(b.Line, "%v", err)
				continue
			}
			switch b.Mark {
			case "":
				if fields["apiVersion"] == nil || fields["kind"] == nil {
					c.say(b.Line, "YAML without apiVersion and kind must be marked: <!-- fragment -->")
				}
			case "fragment", "fragment: spec":
			case "fragment: values":
				c.values(b.Line, "", fields)
			default:
				c.say(b.Line, "YAML with the mark %q: known are fragment, fragment: spec, fragment: values", b.Mark)
			}
		}
	}
}

func (c *checker) values(line int, above string, fields map[string]any) {
	for key, value := range fields {
		if !c.hasValue(above + key) {
			c.say(line, "the chart has no value %s", above+key)
		} else if below, ok := value.(map[string]any); ok {
			c.values(line, above+key+".", below)
		}
	}
}

// Documents of a YAML text.
func Documents(text string) []string {
	return regexp.MustCompile(`(?m)^---\s*$`).Split(text, -1)
}

func (c *checker) commands() {
	found, err := c.page.Commands()
	if err != nil {
		c.wrong = append(c.wrong, err.Error())
	}
	for _, command := range found {
		c.command(command, false)
	}
	for _, command := range c.page.SpanCommands() {
		c.command(command, true)
	}
}

// utilities that need no explanation.
var utilities = []string{"grep", "sed", "date", "sleep", "cat", "eval", "diff", "echo", "cd", "export", "jq", "cp", "chmod"}

func (c *checker) command(cmd Command, part bool) {
	name, args := cmd.Words[0], cmd.Words[1:]
	switch {
	case name == "kubectl" && len(args) > 0 && args[0] == "stillpoint":
		if err := c.pluginAccepts(args[1:], part); err != nil {
			c.say(cmd.Line, "kubectl stillpoint: %v", err)
		}
	case name == "kubectl": // test/integration gives it to kubectl
		if i := slices.Index(args, "--"); i >= 0 && i+1 < len(args) && path.Base(args[i+1]) == "stillpoint" {
			c.operator(cmd.Line, args[i+2:])
		}
	case path.Base(name) == "stillpoint":
		c.operator(cmd.Line, args)
	case name == "make":
		for _, target := range args {
			if !strings.Contains(target, "=") && target != "TARGET" && !c.Targets[target] {
				c.say(cmd.Line, "make has no target %s", target)
			}
		}
	case name == "helm":
		c.helm(cmd.Line, args)
	case name == "go":
		for _, arg := range args {
			if dir := strings.TrimSuffix(arg, "/..."); strings.HasPrefix(arg, "./") && !c.exists(dir) {
				c.say(cmd.Line, "there is no %s", dir)
			}
		}
	case slices.Contains(utilities, name):
	default:
		c.say(cmd.Line, "nothing is known about the command %s: mark its block <!-- not run: WHY -->", name)
	}
}

func (c *checker) operator(line int, args []string) {
	for _, arg := range args {
		if name, ok := strings.CutPrefix(arg, "--"); ok {
			name, _, _ = strings.Cut(name, "=")
			if !c.Flags[name] {
				c.say(line, "the operator has no flag --%s", name)
			}
		}
	}
}

func (c *checker) helm(line int, args []string) {
	if len(args) > 0 && !slices.Contains([]string{"install", "upgrade", "uninstall", "test", "template", "lint", "get", "list", "rollback"}, args[0]) {
		c.say(line, "helm has no command %s", args[0])
	}
	for i, arg := range args {
		if strings.HasPrefix(arg, "helm/") && !c.exists(arg) {
			c.say(line, "there is no chart %s", arg)
		}
		if i > 0 && strings.HasPrefix(args[i-1], "--set") {
			for _, value := range strings.Split(arg, ",") {
				key, _, _ := strings.Cut(value, "=")
				if key = regexp.MustCompile(`\[\d+\]|\{.*`).ReplaceAllString(key, ""); !c.hasValue(key) {
					c.say(line, "the chart has no value %s", key)
				}
			}
		}
	}
}
