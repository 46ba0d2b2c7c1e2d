// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/utils/clock"
)

// Options of the whole program.
type Options struct {
	genericiooptions.IOStreams
	Clock   clock.WithTicker
	Zone    *time.Location // in which times are shown
	Version Version
}

// Version of the program, as it was built.
type Version struct {
	Version string `json:"version"`
	Commit  string `json:"commit,omitempty"`
	Date    string `json:"date,omitempty"` // of the commit
	Go      string `json:"go"`
}

// Execute a command line, print what is wrong with it, and return the exit code.
func Execute(ctx context.Context, o Options, args []string) int {
	p := newProgram(o)
	root := p.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	if err != nil && err.Error() != "" {
		fmt.Fprintln(o.ErrOut, "error: "+p.explain(err))
	}
	return codeOf(err)
}

// New is the command with all its subcommands, for documentation and completion.
func New(o Options) *cobra.Command {
	return newProgram(o).root()
}

func newProgram(o Options) *program {
	flags := genericclioptions.NewConfigFlags(true).WithWarningPrinter(o.IOStreams)
	flags.CacheDir = nil // nothing is discovered, so nothing is cached
	return &program{Options: o, flags: flags}
}

// program is one invocation.
type program struct {
	Options
	flags *genericclioptions.ConfigFlags
	kube  *kube // once connected
}

const (
	groupLook    = "look"
	groupAct     = "act"
	groupRestore = "restore"
	groupOther   = "other"
)

func (p *program) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "kubectl-stillpoint",
		Short: "Application-consistent snapshots: see, plan, run, release, restore",
		Long: `See, plan, run, release and restore the snapshots that Stillpoint takes.

At 3 a.m.:
  kubectl stillpoint list -A                       what is wrong, worst first
  kubectl stillpoint release NAME --wait           an application is still quiesced: run its post hooks now
  kubectl stillpoint restore NAME --dry-run        what would be restored, and as what`,
		Annotations:                map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl stillpoint"},
		SilenceErrors:              true,
		SilenceUsage:               true,
		SuggestionsMinimumDistance: 2,
		RunE:                       func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(p.In)
	root.SetOut(p.Out)
	root.SetErr(p.ErrOut)
	p.flags.AddFlags(root.PersistentFlags())
	root.AddGroup(&cobra.Group{ID: groupLook, Title: "Look (nothing is changed):"}, &cobra.Group{ID: groupAct, Title: "Act:"},
		&cobra.Group{ID: groupRestore, Title: "Snapshots:"}, &cobra.Group{ID: groupOther, Title: "Other:"})
	add := func(group string, commands ...*cobra.Command) {
		for _, c := range commands {
			c.GroupID = group
			root.AddCommand(c)
		}
	}
	add(groupLook, p.list(), p.plan(), p.history(), p.describe(), p.lint())
	add(groupAct, p.run(), p.testHooks(), p.release(), p.cancel(), p.suspend(), p.resume())
	add(groupRestore, p.restore(), p.keep(), p.unkeep())
	add(groupOther, p.version(), p.completion())
	root.SetHelpCommandGroupID(groupOther)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w\nsee: %s --help", err, cmd.CommandPath())
	})
	_ = root.RegisterFlagCompletionFunc("namespace", p.completeNamespaces)
	return root
}

// exactly n arguments, with a sentence that says which.
func exactly(n int, what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == n {
			return nil
		}
		return fmt.Errorf("%s needs %s\nusage: %s", cmd.CommandPath(), what, cmd.UseLine())
	}
}

// some arguments: one or more.
func some(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return nil
		}
		return fmt.Errorf("%s needs %s\nusage: %s", cmd.CommandPath(), what, cmd.UseLine())
	}
}

// none takes no arguments.
func none(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("%s takes no arguments, and got %q\nusage: %s", cmd.CommandPath(), args[0], cmd.UseLine())
}
