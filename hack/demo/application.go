// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

//go:embed *.yaml
var manifests embed.FS

const (
	namespace    = "demo"
	scheduleName = "every-minute"
	claimName    = "data-postgres-0"
	ownerLabel   = "app.kubernetes.io/part-of"
	ownerValue   = "stillpoint-demo"
)

// apply applies a file of this directory, with the version of PostgreSQL that is installed.
func (d *demo) apply(ctx context.Context, file string, replace ...string) error {
	b, err := manifests.ReadFile(file)
	if err != nil {
		return err
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if err != nil || len(found) == 0 {
		return errors.New("no PostgreSQL server is in /usr/lib/postgresql: install Debian's package postgresql")
	}
	bin := filepath.Dir(found[len(found)-1])
	text := strings.NewReplacer(append(replace, "/usr/lib/postgresql/15/bin", bin)...).Replace(string(b))
	_, err = d.kubectl(ctx, text, "apply", "-f", "-")
	return err
}

func (d *demo) applicationUp(ctx context.Context) error {
	d.say("the application: PostgreSQL with a volume of its own (hack/demo/postgres.yaml)")
	if err := d.apply(ctx, "postgres.yaml"); err != nil {
		return err
	}
	if err := d.rolledOut(ctx, "statefulset/postgres"); err != nil {
		return err
	}
	if err := d.findPods(ctx); err != nil {
		return err
	}
	d.say("the application: a writer, one row after another (hack/demo/writer.yaml)")
	if err := d.apply(ctx, "writer.yaml"); err != nil {
		return err
	}
	if err := d.rolledOut(ctx, "deployment/writer"); err != nil {
		return err
	}
	for deadline := time.Now().Add(30 * time.Second); ; {
		rows, err := d.count(ctx, "postgres-0", "SELECT count(*) FROM events")
		if err == nil && rows > 0 {
			d.say("the application: %d rows so far", rows)
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the writer wrote nothing for 30 s (kubectl -n %s logs deploy/writer): %w", namespace, err)
		}
		if err := sleep(ctx, 500*time.Millisecond); err != nil {
			return err
		}
	}
}

// rolledOut waits until a workload's pods are ready. If they are not in time, it says what their containers wait for.
func (d *demo) rolledOut(ctx context.Context, workload string) error {
	_, err := d.kubectl(ctx, "", "-n", namespace, "rollout", "status", workload, "--timeout=120s")
	if err == nil || ctx.Err() != nil {
		return err
	}
	_, app, _ := strings.Cut(workload, "/")
	state, stateErr := d.kubectl(ctx, "", "-n", namespace, "get", "pods", "-l", "app="+app, "--no-headers")
	if state = strings.Join(strings.Fields(state), " "); stateErr != nil || state == "" {
		state = "no pod was created"
	}
	return fmt.Errorf("%s is not ready after 120 s (%s); kubectl -n %s describe pods -l app=%s says more: %w", workload, state, namespace, app, err)
}

// count runs a query that gives one number.
func (d *demo) count(ctx context.Context, pod, query string) (int64, error) {
	out, err := d.kubectl(ctx, "", "-n", namespace, "exec", pod, "-c", "postgres", "--", "psql", "-XAtqc", query)
	if err != nil {
		return 0, err
	}
	var n int64
	if _, err := fmt.Sscan(out, &n); err != nil {
		return 0, fmt.Errorf("%q gave %q, which is no number", query, out)
	}
	return n, nil
}

// clearNamespace removes what an earlier demo left. Runs go first: while their pods exist, the operator can release them.
func (d *demo) clearNamespace(ctx context.Context) error {
	out, err := d.kubectl(ctx, "", "get", "namespace", namespace, "--ignore-not-found", "-o", `jsonpath={.metadata.name}/{.metadata.labels.app\.kubernetes\.io/part-of}`)
	if err != nil || out == "" {
		return err
	}
	if out != namespace+"/"+ownerValue {
		return fmt.Errorf("the namespace %s exists and is not of this demo (it lacks the label %s=%s): rename or delete it first", namespace, ownerLabel, ownerValue)
	}
	d.say("removing the namespace %s of an earlier demo", namespace)
	if err := d.findPods(ctx); err != nil {
		return err
	}
	_, err = d.kubectl(ctx, "", "-n", namespace, "delete", "snapshotschedules,snapshotruns", "--all", "--timeout=60s")
	if ctx.Err() != nil {
		return err
	}
	if _, thawErr := d.thaw(ctx); thawErr != nil {
		return thawErr
	}
	if err != nil {
		// the application is released by now, so nothing is owed to it any more
		d.say("  runs did not end within 60 s: dropping their finalizers")
		if err := d.dropFinalizers(ctx); err != nil {
			return err
		}
	}
	// a namespace whose pods are gone goes faster: its controller looks again after long pauses
	if _, err := d.kubectl(ctx, "", "-n", namespace, "delete", "deployments,statefulsets,pods", "--all", "--timeout=60s"); err != nil {
		return err
	}
	_, err = d.kubectl(ctx, "", "delete", "namespace", namespace, "--timeout=120s")
	d.pods = nil
	return err
}

func (d *demo) dropFinalizers(ctx context.Context) error {
	var runs v1.SnapshotRunList
	if err := d.get(ctx, &runs, "-n", namespace, "snapshotruns"); err != nil {
		return err
	}
	for _, r := range runs.Items {
		if _, err := d.kubectl(ctx, "", "-n", namespace, "patch", "snapshotrun", r.Name, "--type=merge", "-p", `{"metadata":{"finalizers":null}}`); err != nil {
			return err
		}
	}
	return nil
}

// findPods remembers which pods a hook may freeze, for when the API server can no longer be asked.
func (d *demo) findPods(ctx context.Context) error {
	out, err := d.kubectl(ctx, "", "-n", namespace, "get", "pods", "-l", "app=postgres", "-o", "jsonpath={.items[*].metadata.uid}")
	if err == nil {
		d.pods = strings.Fields(out)
	}
	return err
}

// waitReleased waits until no run has an application quiesced, at most so long.
func (d *demo) waitReleased(ctx context.Context, atMost time.Duration) {
	for deadline := time.Now().Add(atMost); time.Now().Before(deadline); {
		var runs v1.SnapshotRunList
		if d.get(ctx, &runs, "-n", namespace, "snapshotruns") != nil {
			return
		}
		quiesced := false
		for _, r := range runs.Items {
			quiesced = quiesced || r.Status.QuiescedTime != nil && r.Status.ReleasedTime == nil && r.Status.Phase != v1.PhaseCompleted
		}
		if !quiesced || sleep(ctx, 300*time.Millisecond) != nil {
			return
		}
	}
}

// thaw thaws the application's volumes on the machine itself, whatever became of operator, pods and API server. It
// returns how many were frozen.
func (d *demo) thaw(ctx context.Context) (thawed int, err error) {
	for _, uid := range d.pods {
		mounts, err := filepath.Glob(filepath.Join(d.cluster.StateDir(), "kubelet", "pods", uid, "volumes", "kubernetes.io~csi", "*", "mount"))
		if err != nil {
			return thawed, err
		}
		for _, m := range mounts {
			out, err := exec.CommandContext(ctx, "fsfreeze", "--unfreeze", m).CombinedOutput()
			switch {
			case err == nil:
				thawed++
			case !strings.Contains(string(out), "Invalid argument"): // which it says when nothing is frozen
				return thawed, fmt.Errorf("thawing %s: %s", m, strings.TrimSpace(string(out)))
			}
		}
	}
	return thawed, nil
}
