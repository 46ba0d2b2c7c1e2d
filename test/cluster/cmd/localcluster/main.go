// SPDX-License-Identifier: Apache-2.0

// Command localcluster runs a whole Kubernetes on this machine for tests and demonstrations: see package cluster.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/stillpoint-operator/stillpoint/test/cluster"
)

const usage = `localcluster runs a whole Kubernetes on this machine.

  localcluster up [--state DIR] [--sidecar-qps N] [--apiserver-arg ARG]...
                                     start it, or what is missing of it; builds it the first time
  localcluster down [--keep]         stop it and remove its data (--keep: not the data)
  localcluster status                which parts run, with their memory
  localcluster env                   lines for eval: KUBECONFIG and PATH
  localcluster leftovers             fail if anything of it is on the machine
  localcluster build                 only build the programs
  localcluster assets                print a directory with etcd, kube-apiserver and kubectl (for envtest)
  localcluster image load TAR        give a container image to the node
  localcluster image write DIR REF [--entrypoint JSON] [--cmd JSON]
                                     pack a directory as an image, load it, print the archive's path
  localcluster component stop|start|kill|pause|resume NAME
  localcluster kubeconfig USER [GROUP]...
                                     make a kubeconfig for a user, print its path
  localcluster packages NAME...      install Debian packages without starting their services

Every command takes --state DIR. State: $STILLPOINT_STATE, else ` + cluster.DefaultStateDir + `
Built programs: $STILLPOINT_CACHE, else stillpoint in the user's cache directory.
`

func main() { os.Exit(mainCode()) }

func mainCode() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := run(ctx, os.Args[1:], os.Stdout)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(os.Stderr, usage)
		return 2
	case ctx.Err() != nil:
		fmt.Fprintln(os.Stderr, "interrupted: the same command goes on where it stopped; localcluster down takes away what runs")
		return 130
	}
	fmt.Fprintln(os.Stderr, "error:", err)
	return 1
}

// call is one invocation: the flags of all commands, and what is left of the arguments.
type call struct {
	out   io.Writer
	opts  cluster.Options
	keep  bool
	entry string
	cmd   string
	args  []string
}

func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) == 0 {
		return flag.ErrHelp
	}
	commands := map[string]func(context.Context, *call) error{
		"up": up, "down": down, "status": status, "env": env, "leftovers": leftovers, "build": build, "assets": assets,
		"image": image, "images": image, "component": component, "kubeconfig": kubeconfig, "packages": packages,
	}
	command := commands[args[0]]
	if command == nil {
		return flag.ErrHelp
	}
	c := &call{out: out}
	f := flag.NewFlagSet(args[0], flag.ContinueOnError)
	f.SetOutput(io.Discard)
	f.StringVar(&c.opts.StateDir, "state", "", "")
	f.IntVar(&c.opts.SidecarQPS, "sidecar-qps", 0, "")
	f.Func("apiserver-arg", "", func(s string) error {
		c.opts.APIServerArgs = append(c.opts.APIServerArgs, s)
		return nil
	})
	f.BoolVar(&c.keep, "keep", false, "")
	f.StringVar(&c.entry, "entrypoint", "", "")
	f.StringVar(&c.cmd, "cmd", "", "")
	// flags may stand before, between and after the words
	for rest := args[1:]; len(rest) > 0; {
		if err := f.Parse(rest); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				return err
			}
			return fmt.Errorf("%w: localcluster without arguments shows what there is", err)
		}
		if rest = f.Args(); len(rest) > 0 {
			c.args, rest = append(c.args, rest[0]), rest[1:]
		}
	}
	return command(ctx, c)
}

func up(ctx context.Context, c *call) error {
	cl, err := cluster.Up(ctx, c.opts)
	if err != nil {
		return err
	}
	state := ""
	if c.opts.StateDir != "" {
		state = " --state " + c.opts.StateDir
	}
	fmt.Fprintf(c.out, `
Use it:     eval "$(go run ./test/cluster/cmd/localcluster env%s)"
            kubectl get nodes
 which is:  %s
Logs:       %s
Stop it:    go run ./test/cluster/cmd/localcluster down%s
`, state, strings.Join(exports(cl), "\n            "), cl.LogFile("*"), state)
	return nil
}

// exports are the shell lines that make the cluster usable. A proxy must not be asked for addresses of this machine.
func exports(cl *cluster.Cluster) []string {
	lines := []string{"export KUBECONFIG=" + cl.Kubeconfig(), "export PATH=" + cl.BinDir() + ":$PATH"}
	for _, v := range []string{"HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"} {
		if os.Getenv(v) != "" {
			return append(lines, "export NO_PROXY=198.18.0.0/15${NO_PROXY:+,$NO_PROXY} no_proxy=198.18.0.0/15${no_proxy:+,$no_proxy}")
		}
	}
	return lines
}

func down(ctx context.Context, c *call) error {
	cl, err := cluster.Open(c.opts.StateDir)
	if err != nil {
		return err
	}
	if err := cl.Down(ctx, c.keep); err != nil {
		return err
	}
	if c.keep {
		fmt.Fprintf(c.out, "down; the data is in %s\n", cl.StateDir())
		return nil
	}
	fmt.Fprintln(c.out, "down, nothing is left")
	return nil
}

func leftovers(ctx context.Context, c *call) error {
	cl, err := cluster.Open(c.opts.StateDir)
	if err != nil {
		return err
	}
	if err := cl.Leftovers(ctx); err != nil {
		return err
	}
	fmt.Fprintln(c.out, "nothing is left")
	return nil
}

func env(_ context.Context, c *call) error {
	cl, err := cluster.Attach(c.opts.StateDir)
	if err != nil {
		return err
	}
	for _, line := range exports(cl) {
		fmt.Fprintln(c.out, line)
	}
	return nil
}

func status(_ context.Context, c *call) error {
	cl, err := cluster.Attach(c.opts.StateDir)
	if err != nil {
		return err
	}
	list, err := cl.Status()
	if err != nil {
		return err
	}
	dead := 0
	for _, s := range list {
		state := fmt.Sprintf("running  pid %-7d %4d MiB", s.PID, s.RSS>>20)
		switch {
		case s.PID == 0:
			state, dead = "not running", dead+1
		case s.Paused:
			state = "paused" + state[len("paused"):]
		}
		fmt.Fprintf(c.out, "%-24s %s\n", s.Name, state)
	}
	if dead > 0 {
		return fmt.Errorf("%d parts do not run: localcluster up starts them", dead)
	}
	return nil
}

func build(ctx context.Context, c *call) error { return cluster.Build(ctx, c.opts) }

func assets(ctx context.Context, c *call) error {
	dir, err := cluster.Assets(ctx, c.opts)
	if err != nil {
		return err
	}
	fmt.Fprintln(c.out, dir)
	return nil
}

func packages(ctx context.Context, c *call) error {
	if len(c.args) == 0 {
		return flag.ErrHelp
	}
	return cluster.InstallPackages(ctx, os.Stderr, c.args...)
}
