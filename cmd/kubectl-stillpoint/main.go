// SPDX-License-Identifier: Apache-2.0

// Command kubectl-stillpoint is the kubectl plugin: kubectl stillpoint list, plan, run, release, restore, ...
package main

import (
	"context"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/stillpoint-operator/stillpoint/cmd/kubectl-stillpoint/command"
	"github.com/stillpoint-operator/stillpoint/internal/build"
)

func main() { os.Exit(run()) }

func run() int {
	// What libraries have to say goes to nobody: errors are returned and explained.
	klog.SetLogger(logr.Discard())
	log.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends the program at once.
	context.AfterFunc(ctx, stop)
	return command.Execute(ctx, command.Options{
		IOStreams: genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr},
		Clock:     clock.RealClock{},
		Zone:      time.Local,
		Version:   command.Version{Version: build.Version, Commit: build.Commit, Date: build.Date, Go: runtime.Version()},
	}, os.Args[1:])
}
