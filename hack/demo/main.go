// SPDX-License-Identifier: Apache-2.0

// Command demo shows what Stillpoint does, on a Kubernetes of this machine's own: a PostgreSQL that is being written to
// is quiesced, snapshotted, released and restored, and the rows are counted.
//
//	go run ./hack/demo                        # make demo: the local cluster, the operator, the application, one run, a restore
//	go run ./hack/demo down                   # make demo-down: takes all of it away
//	go run ./hack/demo down --keep-cluster    # takes away the application and the operator only
//
// What is applied is in the YAML files of this directory, to be read and used elsewhere.
//
//	main.go         the order of things; what happens on failure
//	operator.go     builds the operator, gives it the rights of config/rbac and no others, starts it
//	process.go      the operator's process: it outlives this program, and only it is ever stopped
//	application.go  PostgreSQL and its writer
//	follow.go       the schedule and the next slot's run, as it goes
//	restore.go      the second PostgreSQL, and the count
//	report.go       tables and the last screen
//	kubectl.go      the cluster's own kubectl
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/stillpoint-operator/stillpoint/test/cluster"
)

const usage = `usage:
  go run ./hack/demo                        (make demo)       show a PostgreSQL being snapshotted and restored
  go run ./hack/demo down                   (make demo-down)  take all of it away, the local cluster too
  go run ./hack/demo down --keep-cluster    take away the application and the operator only
`

func main() { os.Exit(run(os.Args[1:])) }

func run(args []string) (exitCode int) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	d := &demo{begin: time.Now(), out: os.Stdout}
	var err error
	switch {
	case len(args) == 0:
		err = d.show(ctx)
	case slices.Equal(args, []string{"down"}):
		err = d.down(ctx, false)
	case slices.Equal(args, []string{"down", "--keep-cluster"}):
		err = d.down(ctx, true)
	default:
		fmt.Fprint(os.Stderr, usage)
		return 2
	}
	if err != nil {
		// a second Ctrl-C must not keep things from being put in order
		d.explain(context.WithoutCancel(ctx), err, ctx.Err() != nil)
		return 1
	}
	return 0
}

// demo is one call of this program.
type demo struct {
	begin   time.Time
	out     *os.File
	root    string           // of the project
	cluster *cluster.Cluster // once it is up
	pods    []string         // UIDs of pods whose file systems a hook may freeze
	unlock  func()
}

// say writes a line for a step, with the seconds since the start.
func (d *demo) say(format string, args ...any) {
	fmt.Fprintf(d.out, "%6.1f s  %s\n", time.Since(d.begin).Seconds(), fmt.Sprintf(format, args...))
}

func (d *demo) show(ctx context.Context) error {
	var err error
	if d.root, err = projectRoot(ctx); err != nil {
		return err
	}
	if err := d.clusterUp(ctx); err != nil {
		return fmt.Errorf("starting the local cluster: %w", err)
	}
	if d.unlock, err = d.lock(); err != nil {
		return err
	}
	defer d.unlock()
	if err := d.operatorUp(ctx); err != nil {
		return fmt.Errorf("starting the operator: %w", err)
	}
	if err := d.clearNamespace(ctx); err != nil {
		return fmt.Errorf("removing the earlier demo: %w", err)
	}
	if err := d.applicationUp(ctx); err != nil {
		return fmt.Errorf("starting the application: %w", err)
	}
	run, err := d.followNextRun(ctx)
	if err != nil {
		return fmt.Errorf("following the schedule's next run: %w", err)
	}
	if err := d.showRun(ctx, run); err != nil {
		return fmt.Errorf("showing the run: %w", err)
	}
	seen, err := d.restore(ctx, run)
	if err != nil {
		return fmt.Errorf("restoring from the snapshot: %w", err)
	}
	fmt.Fprint(d.out, seen.screen(time.Since(d.begin)))
	return nil
}

// projectRoot finds go.mod, since the operator is built from there.
func projectRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	file := strings.TrimSpace(string(out))
	if err != nil || filepath.Base(file) != "go.mod" {
		return "", errors.New("the project's go.mod is not found: run this in a clone of the project, with Go installed")
	}
	return filepath.Dir(file), nil
}

func (d *demo) clusterUp(ctx context.Context) error {
	d.say("the local cluster: a real Kubernetes on this machine (the first time it is built: about 15 minutes)")
	c, err := cluster.Up(ctx, cluster.Options{Out: &indented{d: d}})
	if err != nil {
		return err
	}
	d.cluster = c
	if found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres"); len(found) > 0 {
		return nil
	}
	d.say("PostgreSQL: Debian's package, whose programs run in pods; no service is started on this machine")
	return cluster.InstallPackages(ctx, &indented{d: d}, "postgresql")
}

// indented passes on the lines of package cluster, in this program's form.
type indented struct {
	d    *demo
	rest string
}

var ownSeconds = regexp.MustCompile(`^\s*\d+\.\ds\s+`)

func (w *indented) Write(p []byte) (int, error) {
	lines := strings.Split(w.rest+string(p), "\n")
	w.rest = lines[len(lines)-1]
	for _, line := range lines[:len(lines)-1] {
		w.d.say("  %s", ownSeconds.ReplaceAllString(line, ""))
	}
	return len(p), nil
}

// dir is where this program keeps the operator's binary and which process it is. It goes with the cluster's state.
func (d *demo) dir() string { return filepath.Join(d.cluster.StateDir(), "demo") }

// lock keeps two demos from working at a time.
func (d *demo) lock() (unlock func(), err error) {
	if err := os.MkdirAll(d.dir(), 0o755); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(d.dir(), "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, errors.New("another make demo or make demo-down is at work on this machine: wait for its end, or stop it with Ctrl-C")
	}
	return func() { f.Close() }, nil
}

// down takes the demo away: the operator first, which releases what it has quiesced.
func (d *demo) down(ctx context.Context, keepCluster bool) error {
	var err error
	if d.cluster, err = cluster.Open(""); err != nil {
		return err
	}
	_, statErr := os.Stat(d.cluster.StateDir())
	if there := statErr == nil; there {
		if d.unlock, err = d.lock(); err != nil {
			return err
		}
		defer d.unlock()
		if keepCluster {
			if err := d.clearNamespace(ctx); err != nil {
				return fmt.Errorf("removing the application: %w", err)
			}
		}
		if err := d.operatorDown(); err != nil {
			return fmt.Errorf("stopping the operator: %w", err)
		}
		if err := os.RemoveAll(d.dir()); err != nil {
			return err
		}
	}
	if keepCluster {
		d.say("the application and the operator are gone; the local cluster runs on")
		return nil
	}
	if err := d.cluster.Down(ctx, false); err != nil {
		return err
	}
	d.say("down: nothing runs and no data is left (the built programs stay cached, Debian packages stay installed)")
	return nil
}

// explain says in words why it ended early, after it has made sure that no file system stays frozen.
func (d *demo) explain(ctx context.Context, err error, interrupted bool) {
	report := func(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }
	fmt.Fprintln(os.Stderr)
	if interrupted {
		report("Interrupted after %.0f s, while %s.", time.Since(d.begin).Seconds(), firstPart(err))
	} else {
		report("error: %v", err)
	}
	if d.cluster == nil {
		report("make demo goes on where it stopped; make demo-down takes away what runs.")
		return
	}
	if d.unlock == nil { // another one is at work
		return
	}
	report("%s", d.settle(ctx))
	report("Logs: %s (the operator), %s (the cluster)", d.operatorLog(), d.cluster.LogFile("*"))
	report("The cluster stays as it is. make demo starts anew; make demo-down takes everything away.")
}

// firstPart is what was being done, without what went wrong with it.
func firstPart(err error) string {
	what, _, _ := strings.Cut(err.Error(), ": ")
	return what
}

// settle makes the schedule quiesce nothing more, and sees to it that what is quiesced is released.
func (d *demo) settle(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	_, err := d.kubectl(ctx, "", "-n", namespace, "patch", "snapshotschedule", scheduleName, "--type=merge", "-p", `{"spec":{"disabled":true}}`)
	disabled := err == nil // else there is no schedule yet
	if d.operatorDied() == nil {
		d.waitReleased(ctx, 15*time.Second)
	}
	thawed, err := d.thaw(ctx)
	switch {
	case err != nil:
		return fmt.Sprintf("A file system may be FROZEN: %v. make demo-down thaws it.", err)
	case thawed > 0:
		return "PostgreSQL's file system was frozen and has been thawed."
	case disabled:
		return "No file system is frozen, and the schedule is disabled."
	}
	return "Nothing was quiesced."
}
