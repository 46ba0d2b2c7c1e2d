// SPDX-License-Identifier: Apache-2.0

// Command quiesce runs one scenario of the benchmarks, the quiesce window, and prints its results as JSON. It starts the local cluster: root.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/stillpoint-operator/stillpoint/test/bench/quiesce"
)

func main() {
	o := quiesce.Default()
	o.Out = os.Stderr
	flag.StringVar(&o.Operator, "operator", "bin/stillpoint", "The operator's program.")
	flag.StringVar(&o.Root, "root", ".", "Root of the repository.")
	flag.IntVar(&o.Rounds, "rounds", o.Rounds, "How often baseline and operator alternate.")
	flag.Func("claims", "Comma-separated numbers of claims of a run.", numbers(&o.Claims))
	flag.Func("sidecar-qps", "Comma-separated rate limits of the CSI sidecars, in requests per second.", numbers(&o.SidecarQPS))
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	results, err := quiesce.Measure(ctx, o)
	if err == nil {
		out := json.NewEncoder(os.Stdout)
		out.SetIndent("", "  ")
		err = out.Encode(results)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "measuring the quiesce window:", err)
		os.Exit(1)
	}
}

func numbers(into *[]int) func(string) error {
	return func(text string) error {
		*into = nil
		for _, word := range strings.Split(text, ",") {
			n, err := strconv.Atoi(word)
			if err != nil || n < 1 {
				return fmt.Errorf("%q is no number above 0", word)
			}
			*into = append(*into, n)
		}
		return nil
	}
}
