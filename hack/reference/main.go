// SPDX-License-Identifier: Apache-2.0

// Command reference FILE prints a document of the kubectl plugin: FILE up to its marker, and then what the commands say of themselves.
package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/stillpoint-operator/stillpoint/cmd/kubectl-stillpoint/command"
)

const marker = "<!-- What follows is generated: make generate. -->\n"

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("usage: reference FILE")
	}
	text, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	written, _, found := strings.Cut(string(text), marker)
	if !found {
		return fmt.Errorf("%s has no line %q", args[0], marker)
	}
	root := command.New(command.Options{IOStreams: genericiooptions.NewTestIOStreamsDiscard()})
	var b strings.Builder
	b.WriteString(written + marker)
	for _, c := range root.Commands() {
		if c.Name() != "help" {
			describe(&b, c)
		}
	}
	fmt.Fprintf(&b, "\n## Flags of all commands\n\n```text\n%s```\n", usages(root.PersistentFlags()))
	_, err = os.Stdout.WriteString(b.String())
	return err
}

func describe(b *strings.Builder, c *cobra.Command) {
	fmt.Fprintf(b, "\n### %s\n\n%s.\n\n", c.Name(), c.Short)
	long := c.Long
	if long == "" {
		long = c.Short + "."
	}
	fmt.Fprintf(b, "```text\n%s\n\nUsage:\n  %s\n", long, c.UseLine())
	if c.Example != "" {
		fmt.Fprintf(b, "\nExamples:\n%s\n", c.Example)
	}
	if flags := usages(c.LocalNonPersistentFlags()); flags != "" {
		fmt.Fprintf(b, "\nFlags:\n%s", flags)
	}
	b.WriteString("```\n")
}

// usages of flags, but --help.
func usages(flags *pflag.FlagSet) string {
	shown := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Name != "help" {
			shown.AddFlag(f)
		}
	})
	return shown.FlagUsages()
}
