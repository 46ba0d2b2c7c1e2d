// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"

	"github.com/stillpoint-operator/stillpoint/test/cluster"
)

func image(ctx context.Context, c *call) error {
	if len(c.args) < 2 {
		return flag.ErrHelp
	}
	cl, err := cluster.Attach(c.opts.StateDir)
	if err != nil {
		return err
	}
	switch {
	case c.args[0] == "load":
		for _, tar := range c.args[1:] {
			if err := cl.LoadImage(ctx, tar); err != nil {
				return err
			}
		}
		return nil
	case c.args[0] == "write" && len(c.args) == 3:
		entry, err := words(c.entry)
		if err != nil {
			return err
		}
		cmd, err := words(c.cmd)
		if err != nil {
			return err
		}
		tar, err := cl.WriteImage(c.args[1], c.args[2], entry, cmd)
		if err != nil {
			return err
		}
		fmt.Fprintln(c.out, tar)
		return cl.LoadImage(ctx, tar)
	}
	return flag.ErrHelp
}

func words(s string) ([]string, error) {
	if s == "" {
		return nil, nil
	}
	var w []string
	if err := json.Unmarshal([]byte(s), &w); err != nil {
		return nil, fmt.Errorf("%q is no JSON list of strings: %w", s, err)
	}
	return w, nil
}

func component(ctx context.Context, c *call) error {
	if len(c.args) != 2 {
		return flag.ErrHelp
	}
	cl, err := cluster.Attach(c.opts.StateDir)
	if err != nil {
		return err
	}
	name := c.args[1]
	switch c.args[0] {
	case "stop":
		return cl.StopComponent(name)
	case "kill":
		return cl.KillComponent(name)
	case "pause":
		return cl.Pause(name)
	case "resume":
		return cl.Resume(name)
	case "start":
		return cl.StartComponent(ctx, name)
	}
	return flag.ErrHelp
}

func kubeconfig(_ context.Context, c *call) error {
	if len(c.args) == 0 {
		return flag.ErrHelp
	}
	cl, err := cluster.Attach(c.opts.StateDir)
	if err != nil {
		return err
	}
	path, err := cl.CreateUserKubeconfig(c.args[0], c.args[1:]...)
	if err != nil {
		return err
	}
	fmt.Fprintln(c.out, path)
	return nil
}
