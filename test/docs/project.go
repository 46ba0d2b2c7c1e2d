// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/yaml"

	"github.com/stillpoint-operator/stillpoint/cmd/kubectl-stillpoint/command"
)

// Project is what the pages speak of.
type Project struct {
	Root    string
	Targets map[string]bool // of make
	Flags   map[string]bool // of the operator
	Values  map[string]any  // of the chart
	Tests   map[string]bool // functions
	Schemas []map[string]any
	plugin  func() *cobra.Command
}

// Load the project at a directory.
func Load(root string) (*Project, error) {
	p := &Project{Root: root, Targets: map[string]bool{}, Flags: map[string]bool{}, Tests: map[string]bool{}}
	p.plugin = func() *cobra.Command {
		return command.New(command.Options{IOStreams: genericiooptions.NewTestIOStreamsDiscard()})
	}
	makefile, err := os.ReadFile(filepath.Join(root, "Makefile")) // #nosec G304 -- the project's own
	if err != nil {
		return nil, err
	}
	for _, found := range regexp.MustCompile(`(?m)^([a-z0-9-]+):`).FindAllSubmatch(makefile, -1) {
		p.Targets[string(found[1])] = true
	}
	if err := p.readYAML("helm/stillpoint/values.yaml", &p.Values); err != nil {
		return nil, err
	}
	for _, kind := range []string{"snapshotschedules", "snapshotruns"} {
		definition := map[string]any{}
		if err := p.readYAML("config/crd/snapscheduler.backube_"+kind+".yaml", &definition); err != nil {
			return nil, err
		}
		version := definition["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any)
		p.Schemas = append(p.Schemas, version["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any))
	}
	if err := p.operatorFlags(); err != nil {
		return nil, err
	}
	return p, p.testFunctions()
}

func (p *Project) readYAML(path string, into any) error {
	data, err := os.ReadFile(filepath.Join(p.Root, path)) // #nosec G304 -- the project's own
	if err != nil {
		return err
	}
	if err := yaml.Unmarshal(data, into); err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	return nil
}

// operatorFlags are those that main.go defines, and zap's.
func (p *Project) operatorFlags() error {
	file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Root, "main.go"), nil, 0)
	if err != nil {
		return err
	}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) < 3 {
			return true
		}
		if f, ok := call.Fun.(*ast.SelectorExpr); ok && strings.HasSuffix(f.Sel.Name, "Var") {
			if name, ok := call.Args[1].(*ast.BasicLit); ok && name.Kind == token.STRING {
				if name, err := strconv.Unquote(name.Value); err == nil {
					p.Flags[name] = true
				}
			}
		}
		return true
	})
	set := flag.NewFlagSet("", flag.ContinueOnError)
	(&zap.Options{}).BindFlags(set)
	set.VisitAll(func(f *flag.Flag) { p.Flags[f.Name] = true })
	return nil
}

var testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)

func (p *Project) testFunctions() error {
	return filepath.WalkDir(p.Root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "dist" || d.Name() == "bin") {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, "_test.go") {
			source, err := os.ReadFile(path) // #nosec G304 G122 -- the project's own
			if err != nil {
				return err
			}
			for _, found := range testFunction.FindAllSubmatch(source, -1) {
				p.Tests[string(found[1])] = true
			}
		}
		return nil
	})
}

// hasValue says whether the chart has a value of this path. Below a value that is an empty map or list, anything may stand.
func (p *Project) hasValue(path string) bool {
	var at any = p.Values
	for _, key := range strings.Split(path, ".") {
		fields, ok := at.(map[string]any)
		if !ok {
			return false
		}
		if len(fields) == 0 {
			return true
		}
		if at, ok = fields[key]; !ok {
			return false
		}
	}
	return true
}

// hasField says whether one of the two kinds has a field of this path, as in spec.preHooks[].name.
func (p *Project) hasField(path string) bool {
	for _, schema := range p.Schemas {
		at, found := schema, true
		for _, key := range strings.Split(regexp.MustCompile(`\[.*?\]`).ReplaceAllString(path, ""), ".") {
			for at["items"] != nil {
				at = at["items"].(map[string]any)
			}
			fields, _ := at["properties"].(map[string]any)
			if at, found = fields[key].(map[string]any); !found {
				break
			}
		}
		if found {
			return true
		}
	}
	return false
}

// pluginAccepts a command line of kubectl stillpoint. A part of one may be short of arguments.
func (p *Project) pluginAccepts(args []string, part bool) error {
	root := p.plugin()
	cmd, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	if cmd == root && len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		return fmt.Errorf("it has no command %s", rest[0])
	}
	cmd.InitDefaultHelpFlag()
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	if part {
		return nil
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

// pluginFlag says whether a command of the plugin has a flag of this name.
func (p *Project) pluginFlag(name string) bool {
	root := p.plugin()
	found := root.PersistentFlags().Lookup(name) != nil
	for _, c := range root.Commands() {
		found = found || c.Flags().Lookup(name) != nil
	}
	return found || name == "help"
}
