// SPDX-License-Identifier: Apache-2.0

package command

import (
	"fmt"

	"github.com/spf13/cobra"
)

// forKubectl is the program by which kubectl asks a plugin to complete.
const forKubectl = `#!/bin/sh
# kubectl finds this as kubectl_complete-stillpoint in PATH.
exec kubectl stillpoint __complete "$@"
`

func (p *program) completion() *cobra.Command {
	return &cobra.Command{
		Use:   "completion kubectl|bash|zsh|fish|powershell",
		Short: "Completion of commands, flags, schedules, runs and snapshots in your shell",
		Long: `Completion of commands, flags, schedules, runs and snapshots.

kubectl completes its plugins by a program named kubectl_complete-stillpoint in PATH; the
argument kubectl prints it. The others print a script for who calls kubectl-stillpoint itself.`,
		Example: `  kubectl stillpoint completion kubectl > ~/.local/bin/kubectl_complete-stillpoint && chmod +x ~/.local/bin/kubectl_complete-stillpoint
  source <(kubectl-stillpoint completion bash)`,
		Args:      exactly(1, "one of kubectl, bash, zsh, fish, powershell"),
		ValidArgs: []string{"kubectl", "bash", "zsh", "fish", "powershell"},
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			root.Annotations = nil // the scripts are for the program's own name
			switch args[0] {
			case "kubectl":
				fmt.Fprint(p.Out, forKubectl)
				return nil
			case "bash":
				return root.GenBashCompletionV2(p.Out, true)
			case "zsh":
				return root.GenZshCompletion(p.Out)
			case "fish":
				return root.GenFishCompletion(p.Out, true)
			case "powershell":
				return root.GenPowerShellCompletionWithDesc(p.Out)
			}
			return fmt.Errorf("no completion for %q: there is kubectl, bash, zsh, fish, powershell", args[0])
		},
	}
}
