// SPDX-License-Identifier: Apache-2.0

package command

import (
	"regexp"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

var shown = regexp.MustCompile("kubectl stillpoint ([^`|>&\n:;,]*)")

// parses reports what is wrong with a command line, without running it.
func parses(line string) error {
	args := strings.Fields(strings.ReplaceAll(line, "''", "EMPTY"))
	for i := range args {
		args[i] = strings.ReplaceAll(args[i], "EMPTY", "")
	}
	root := New(Options{IOStreams: genericiooptions.NewTestIOStreamsDiscard()})
	cmd, rest, err := root.Find(args)
	if err != nil {
		return err
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	return cmd.ValidateArgs(cmd.Flags().Args())
}

// Every command says what it does, takes no flag that it does not document, and completes or refuses its arguments.
func TestCommandsAreDocumented(t *testing.T) {
	g := NewWithT(t)
	root := New(Options{IOStreams: genericiooptions.NewTestIOStreamsDiscard()})
	for _, c := range root.Commands() {
		if c.Name() == "help" {
			continue
		}
		g.Expect(c.Short).NotTo(BeEmpty(), c.Name())
		g.Expect(c.Short).NotTo(HaveSuffix("."), c.Name())
		g.Expect(c.Long != "" || c.Name() == "version").To(BeTrue(), c.Name())
		g.Expect(c.Args).NotTo(BeNil(), "%s takes any arguments", c.Name())
		for _, line := range strings.Split(c.Long, "\n") {
			g.Expect(len([]rune(line))).To(BeNumerically("<=", 140), "%s: a line too long for a terminal: %s", c.Name(), line)
		}
		for _, example := range shown.FindAllStringSubmatch(c.Example, -1) {
			g.Expect(parses(example[1])).To(Succeed(), example[0])
		}
		if strings.Contains(c.Use, "NAME") {
			g.Expect(c.ValidArgsFunction).NotTo(BeNil(), "%s completes no names", c.Name())
		}
	}
}

func TestExitCodesOfErrors(t *testing.T) {
	g := NewWithT(t)
	for _, args := range [][]string{{"--nonsense"}, {"nonsense"}, {"run"}, {"lint"}, {"list", "x"}} {
		streams, _, out, errOut := genericiooptions.NewTestIOStreams()
		g.Expect(Execute(t.Context(), Options{IOStreams: streams}, args)).To(Equal(ExitError), "%v", args)
		g.Expect(out.String()).To(BeEmpty(), "%v", args)
		g.Expect(strings.Count(errOut.String(), "error: ")).To(Equal(1), "%v: %s", args, errOut)
	}
	streams, _, out, _ := genericiooptions.NewTestIOStreams()
	g.Expect(Execute(t.Context(), Options{IOStreams: streams}, nil)).To(Equal(ExitOK))
	g.Expect(out.String()).To(ContainSubstring("At 3 a.m."))
	g.Expect(Execute(t.Context(), Options{IOStreams: streams}, []string{"run", "--help"})).To(Equal(ExitOK))
}
