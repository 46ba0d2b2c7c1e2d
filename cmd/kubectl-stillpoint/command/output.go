// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/stillpoint-operator/stillpoint/cmd/kubectl-stillpoint/words"
)

// output is the flag -o.
type output struct {
	format    string
	allowed   []string
	noHeaders bool
}

func (o *output) addFlags(cmd *cobra.Command, allowed ...string) {
	o.allowed = allowed
	cmd.Flags().StringVarP(&o.format, "output", "o", "", "Output format: "+strings.Join(allowed, "|")+".")
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(allowed, cobra.ShellCompDirectiveNoFileComp))
}

// addTableFlags for a command whose output is one table.
func (o *output) addTableFlags(cmd *cobra.Command) {
	o.addFlags(cmd, "wide", "json", "yaml", "name")
	cmd.Flags().BoolVar(&o.noHeaders, "no-headers", false, "Leave the headers of the table out.")
}

func (o *output) check() error {
	if o.format == "" || slices.Contains(o.allowed, o.format) {
		return nil
	}
	return fmt.Errorf("--output %s is not one of %s", o.format, strings.Join(o.allowed, ", "))
}

// objects reports whether the objects themselves are asked for.
func (o *output) objects() bool {
	return o.format == "json" || o.format == "yaml" || o.format == "name"
}

// print objects of one kind as kubectl does. list: also one alone is a list.
func (o *output) print(w io.Writer, kind schema.GroupVersionKind, list bool, objects ...client.Object) error {
	for _, x := range objects {
		x.GetObjectKind().SetGroupVersionKind(kind)
		x.SetManagedFields(nil)
	}
	if o.format == "name" {
		for _, x := range objects {
			if err := (&printers.NamePrinter{}).PrintObj(x, w); err != nil {
				return err
			}
		}
		return nil
	}
	var printer printers.ResourcePrinter = &printers.JSONPrinter{}
	if o.format == "yaml" {
		printer = &printers.YAMLPrinter{}
	}
	if !list && len(objects) == 1 {
		return printer.PrintObj(objects[0], w)
	}
	all := &corev1.List{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, Items: []runtime.RawExtension{}}
	for _, x := range objects {
		all.Items = append(all.Items, runtime.RawExtension{Object: x})
	}
	return printer.PrintObj(all, w)
}

// value in JSON or YAML, for what is no object of the API.
func (o *output) value(w io.Writer, v any) error {
	var text []byte
	var err error
	if o.format == "yaml" {
		text, err = yaml.Marshal(v)
	} else {
		text, err = marshalIndent(v)
	}
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
}

// table of columns, as kubectl's.
type table struct {
	w         io.Writer
	noHeaders bool
	headers   []string
	rows      [][]string
}

func (t *table) row(cells ...string) { t.rows = append(t.rows, cells) }

func (t *table) print() error {
	out := printers.GetNewTabWriter(t.w)
	if !t.noHeaders {
		fmt.Fprintln(out, strings.Join(t.headers, "\t"))
	}
	for _, r := range t.rows {
		fmt.Fprintln(out, strings.Join(r, "\t"))
	}
	return out.Flush()
}

// Colours, with codes of equal length: a column of which every cell has one stays straight.
const (
	plain  = "\x1b[39m"
	red    = "\x1b[31m"
	yellow = "\x1b[33m"
	green  = "\x1b[32m"
	reset  = "\x1b[0m"
)

// colours says whether w is a terminal that shows them, and nobody has switched them off.
func colours(w io.Writer) bool { return printers.AllowsColorOutput(w) }

// paint a text for w.
func paint(w io.Writer, colour, text string) string {
	if !colours(w) {
		return text
	}
	return colour + text + reset
}

func colourOf(h words.Health) string {
	switch {
	case h.Bad():
		return red
	case h.Doubtful():
		return yellow
	case h == words.OK, h == words.Running:
		return green
	}
	return plain
}
