// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/stillpoint-operator/stillpoint/cmd/kubectl-stillpoint/lint"
)

type lintOptions struct {
	output
	files  []string
	strict bool
}

func (p *program) lint() *cobra.Command {
	o := &lintOptions{}
	var rules strings.Builder
	for _, r := range lint.Rules {
		fmt.Fprintf(&rules, "  %-20s %-8s %s\n", r.ID, r.Level, r.Text)
	}
	cmd := &cobra.Command{
		Use:   "lint -f FILE|DIR",
		Short: "Judge schedules in files without a cluster, for GitOps repositories and CI",
		Long: `Judge SnapshotSchedules and SnapshotRuns in YAML or JSON files, without a cluster: everything
that the API server would refuse, by its own code, and then what the schedule means and whether
its hooks release what they quiesce. Directories are searched for .yaml, .yml and .json; other
kinds of objects are passed over.

` + rules.String() + `
Exit code: 0 nothing worse than warnings (with --strict: than notes), 2 otherwise, 1 a file could not be read or nothing to judge was found.`,
		Example: `  kubectl stillpoint lint -f deploy/
  kustomize build overlays/prod | kubectl stillpoint lint -f -
  kubectl stillpoint lint -f deploy/ --strict -o sarif > stillpoint.sarif`,
		Args: none,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return p.lintFiles(cmd.Context(), o)
		},
	}
	cmd.Flags().StringSliceVarP(&o.files, "filename", "f", nil, "File or directory, or - for standard input; may be repeated.")
	cmd.Flags().BoolVar(&o.strict, "strict", false, "Warnings fail, too.")
	o.addFlags(cmd, "sarif", "junit")
	_ = cmd.MarkFlagFilename("filename", "yaml", "yml", "json")
	return cmd
}

func (p *program) lintFiles(ctx context.Context, o *lintOptions) error {
	if len(o.files) == 0 {
		return errors.New("nothing to judge: name files or directories with -f, or - for standard input")
	}
	files, err := p.read(o.files)
	if err != nil {
		return err
	}
	namespace := ""
	if p.flags.Namespace != nil {
		namespace = *p.flags.Namespace // the context's is not asked: this command needs no cluster
	}
	report, err := lint.Lint(ctx, files, lint.Options{Namespace: namespace, Now: p.Clock.Now()})
	if err != nil {
		return err
	}
	switch o.format {
	case "sarif":
		err = report.SARIF(p.Out, p.Version.Version)
	case "junit":
		err = report.JUnit(p.Out, o.strict)
	default:
		report.Text(p.Out, func(l lint.Level, text string) string {
			return paint(p.Out, map[lint.Level]string{lint.Error: red, lint.Warning: yellow, lint.Note: plain}[l], text)
		})
	}
	switch {
	case err != nil:
		return fmt.Errorf("writing the report: %w", err)
	case report.Count(lint.Error) > 0, o.strict && report.Count(lint.Warning) > 0:
		return exitWith(ExitFailed)
	case len(report.Objects) == 0:
		return fmt.Errorf("no SnapshotSchedule and no SnapshotRun was found in %s", strings.Join(o.files, ", "))
	}
	return nil
}

// read files, the files of directories, and standard input.
func (p *program) read(names []string) ([]lint.File, error) {
	var out []lint.File
	add := func(name string, named bool) error {
		data, err := os.ReadFile(name) //nolint:gosec // reading what the user names is what it is for
		if err != nil {
			return err
		}
		out = append(out, lint.File{Name: name, Data: data, Named: named})
		return nil
	}
	for _, name := range names {
		if name == "-" {
			data, err := io.ReadAll(p.In)
			if err != nil {
				return nil, fmt.Errorf("reading standard input: %w", err)
			}
			out = append(out, lint.File{Name: "<stdin>", Data: data, Named: true})
			continue
		}
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			if err := add(name, true); err != nil {
				return nil, err
			}
			continue
		}
		err = filepath.WalkDir(name, func(path string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case d.IsDir() && path != name && strings.HasPrefix(d.Name(), "."):
				return fs.SkipDir // .git and its like
			case !d.Type().IsRegular() || !slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)):
				return nil
			}
			return add(path, false)
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}
