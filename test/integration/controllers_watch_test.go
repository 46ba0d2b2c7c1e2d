// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/hooks"
)

// begins: a reconcile of a schedule has read it. There is one worker, so the one before is over.
func (in *instance) begins(s *v1.SnapshotSchedule) {
	in.mu.Lock()
	defer in.mu.Unlock()
	before := in.passes[s.Name]
	if !before.conflict && before.poke > in.clean[s.Name] {
		in.clean[s.Name] = before.poke
	}
	poke, err := strconv.Atoi(s.Annotations[annotationPoke])
	if err != nil {
		poke = 0 // not poked yet
	}
	in.passes[s.Name] = passage{poke: poke}
	in.reconciles[s.Name]++
}

// conflicted: its status was not written because somebody else had written the schedule. It will be repeated.
func (in *instance) conflicted(schedule string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.passes[schedule] = passage{poke: in.passes[schedule].poke, conflict: true}
}

// seen is the newest poke that a reconcile has seen.
func (in *instance) seen(schedule string) int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.passes[schedule].poke
}

// done is the newest poke that a reconcile has seen and come to its end.
func (in *instance) done(schedule string) int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.clean[schedule]
}

// reconcilesOf a schedule since the instance started.
func (in *instance) reconcilesOf(schedule string) int {
	in.mu.Lock()
	defer in.mu.Unlock()
	return in.reconciles[schedule]
}

func (o *operator) currentSkew() (time.Duration, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.skew()
}

// recording sends events to the API server and remembers them.
type recording struct {
	recorder.EventRecorder
	o *operator
}

func (r recording) Eventf(regarding, related runtime.Object, typ, reason, action, note string, args ...any) {
	if about, ok := regarding.(client.Object); ok {
		r.o.mu.Lock()
		r.o.events = append(r.o.events, occurrence{about.GetName(), typ, reason, fmt.Sprintf(note, args...)})
		r.o.mu.Unlock()
	}
	r.EventRecorder.Eventf(regarding, related, typ, reason, action, note, args...)
}

// scheduleClient is what the schedule controller works with.
type scheduleClient struct {
	client.Client
	o  *operator
	in *instance
}

func (c scheduleClient) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	err := c.Client.Get(ctx, key, into, opts...)
	if s, ok := into.(*v1.SnapshotSchedule); ok && err == nil {
		c.in.begins(s)
	}
	return err
}

func (c scheduleClient) Status() client.SubResourceWriter {
	return statusWriter{faultyWriter{c.Client.Status(), c.o}, c.in}
}

// faultyWriter fails as the test says.
type faultyWriter struct {
	client.SubResourceWriter
	o *operator
}

func (w faultyWriter) Patch(ctx context.Context, changed client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	w.o.mu.Lock()
	before, after := w.o.beforeWrite, w.o.afterWrite
	w.o.mu.Unlock()
	if before != nil {
		if err := before(changed); err != nil {
			return err
		}
	}
	err := w.SubResourceWriter.Patch(ctx, changed, patch, opts...)
	if err == nil && after != nil {
		err = after(changed)
	}
	return err
}

type statusWriter struct {
	client.SubResourceWriter
	in *instance
}

func (w statusWriter) Patch(ctx context.Context, changed client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	err := w.SubResourceWriter.Patch(ctx, changed, patch, opts...)
	if apierrors.IsConflict(err) {
		w.in.conflicted(changed.GetName())
	}
	return err
}

func (c scheduleClient) Delete(ctx context.Context, doomed client.Object, opts ...client.DeleteOption) error {
	c.o.mu.Lock()
	before, refuse := c.o.beforeDelete, c.o.refuseDelete
	c.o.mu.Unlock()
	if before != nil {
		before(doomed)
	}
	if refuse != nil {
		if err := refuse(doomed); err != nil {
			return err
		}
	}
	return c.Client.Delete(ctx, doomed, opts...)
}

func (c scheduleClient) Create(ctx context.Context, wanted client.Object, opts ...client.CreateOption) error {
	c.o.mu.Lock()
	refuse := c.o.refuseRun
	c.o.mu.Unlock()
	if refuse != nil {
		return refuse
	}
	return c.Client.Create(ctx, wanted, opts...)
}

// runClient is what the run controller works with.
type runClient struct {
	client.Client
	o *operator
}

func (c runClient) Create(ctx context.Context, wanted client.Object, opts ...client.CreateOption) error {
	s, ok := wanted.(*snapshotv1.VolumeSnapshot)
	if !ok {
		return c.Client.Create(ctx, wanted, opts...)
	}
	c.o.mu.Lock()
	refuse, lose := c.o.refuse, c.o.loseAnswer
	c.o.mu.Unlock()
	if refuse != nil {
		if err := refuse(s); err != nil {
			return err
		}
	}
	err := c.Client.Create(ctx, wanted, opts...)
	if err == nil && lose != nil {
		err = lose(s)
	}
	return err
}

func (c runClient) Status() client.SubResourceWriter { return faultyWriter{c.Client.Status(), c.o} }

// hookExec stands for the kubelets.
type hookExec struct{ o *operator }

func (e hookExec) Exec(ctx context.Context, call hooks.Call) hooks.Result {
	e.o.mu.Lock()
	hook, outcome, output := e.o.hook, e.o.outcome, e.o.output
	if e.o.accounts == nil {
		e.o.accounts = map[hooks.Account]bool{}
	}
	e.o.accounts[call.Account] = true
	e.o.mu.Unlock()
	if hook != nil {
		hook(ctx)
	}
	_, _ = io.WriteString(call.Stdout, output)
	if ctx.Err() != nil {
		return hooks.Result{Reason: hooks.Interrupted}
	}
	if outcome != nil {
		return outcome(call)
	}
	return hooks.Result{Reason: hooks.Completed, ExitCode: ptr.To(int32(0))}
}
