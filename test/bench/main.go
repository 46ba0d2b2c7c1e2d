// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

// options of the command line.
type options struct {
	root    string
	command string
	pprof   string
	save    bool
	scale   float64
	rounds  int
}

// scaled is a scenario's number at the scale that was asked for.
func (o options) scaled(n int) int { return max(1, int(float64(n)*o.scale)) }

// scenario is a situation to measure.
type scenario struct {
	name string
	root bool // it starts the local cluster, which takes root
	run  func(ctx context.Context, w *world) ([]*result, error)
}

func scenarios() []scenario {
	return []scenario{
		midnight("midnight", 1000, 1, false, target{Ratio: 2.5}, target{Ratio: 6}),
		midnight("midnight-10000", 10000, 1, false, target{Ratio: 2.5}, target{Ratio: 6}),
		midnight("midnight-claims", 100, 50, false, target{}, target{}),
		midnight("midnight-hooks", 500, 1, true, target{}, target{}),
		requestsPerRun("requests", false, target{}),
		requestsPerRun("requests-hooks", true, target{}),
		idleRequests("idle", 1000, 10*time.Minute),
		memoryOfOthers("memory", 1000, 3, 20000),
		startUp("start", 10000, 5, 4),
		retention("retention-one", 1, 10000, 10),
		retention("retention-many", 1000, 100, 90),
		quiesceWindow("quiesce"),
	}
}

func main() {
	ctrl.SetLogger(logr.Discard())
	if err := bench(); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func bench() (err error) {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer cancel()
	var o options
	var names []string
	all := scenarios()
	for _, s := range all {
		names = append(names, s.name)
	}
	flag.StringVar(&o.root, "root", ".", "Directory of the repository.")
	flag.StringVar(&o.command, "operator-command", "", "Program that serves SnapshotSchedules, with its arguments, in the operator's place. It finds the cluster by KUBECONFIG.")
	flag.StringVar(&o.pprof, "pprof", "", "Address at which the operator serves its profiles while it is measured.")
	flag.BoolVar(&o.save, "save", false, "Write what was measured to docs/performance.")
	flag.Float64Var(&o.scale, "scale", 1, "Part of the full size; the targets are for 1. A small one shows in a minute whether a change was worth it.")
	flag.IntVar(&o.rounds, "rounds", 3, "How often each scenario runs.")
	flag.Usage = func() {
		fmt.Fprintf(flag.CommandLine.Output(), "bench [flags] [SCENARIO...]\nScenarios: %s\n", strings.Join(names, " "))
		flag.PrintDefaults()
	}
	flag.Parse()
	chosen := all
	if os.Geteuid() != 0 {
		chosen = slices.DeleteFunc(slices.Clone(all), func(s scenario) bool { return s.root })
	}
	if flag.NArg() > 0 {
		chosen = nil
		for _, name := range flag.Args() {
			i := slices.Index(names, name)
			if i < 0 {
				return fmt.Errorf("there is no scenario %q; there are: %s", name, strings.Join(names, " "))
			}
			chosen = append(chosen, all[i])
		}
	}
	if o.root, err = filepath.Abs(o.root); err != nil {
		return err
	}
	return measure(ctx, o, chosen)
}

func measure(ctx context.Context, o options, chosen []scenario) (err error) {
	w, err := start(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.stop()) }()
	if o.command == "" {
		build := exec.CommandContext(ctx, "hack/build.sh", "bench", filepath.Join(w.dir, "stillpoint"), ".")
		build.Dir, build.Stderr = o.root, os.Stderr
		err = build.Run()
	} else {
		err = w.trust(ctx)
	}
	if err != nil {
		return err
	}
	m, err := w.describe(ctx)
	if err != nil {
		return err
	}
	committed, err := read(o.root)
	if err != nil {
		return err
	}
	measured := &record{Machine: m, Rounds: o.rounds, Scale: o.scale}
	for _, s := range chosen {
		fmt.Fprintln(os.Stderr, "==>", s.name)
		results, failed := s.run(ctx, w)
		for _, r := range results {
			r.judge()
		}
		measured.Results = append(measured.Results, results...)
		if failed != nil {
			err = errors.Join(err, fmt.Errorf("measuring %s: %w", s.name, failed))
			break // what it left behind would be in the next one's numbers
		}
	}
	if err := errors.Join(err, table(os.Stdout, measured.Results, committed.Results)); err != nil || !o.save {
		return err
	}
	return committed.with(measured).save(o.root)
}
