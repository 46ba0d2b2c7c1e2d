// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"

	"github.com/spf13/cobra"
)

func (p *program) version() *cobra.Command {
	o := &output{}
	cmd := &cobra.Command{
		Use:   "version",
		Short: "The version of this plugin, its commit and its date",
		Args:  none,
		RunE: func(*cobra.Command, []string) error {
			if err := o.check(); err != nil {
				return err
			}
			if o.format != "" {
				return o.value(p.Out, p.Version)
			}
			v := p.Version
			fmt.Fprintf(p.Out, "kubectl-stillpoint %s", v.Version)
			if v.Commit != "" {
				fmt.Fprintf(p.Out, " (commit %s of %s, %s)", v.Commit, v.Date, v.Go)
			}
			fmt.Fprintln(p.Out)
			return nil
		},
	}
	o.addFlags(cmd, "json", "yaml")
	return cmd
}
