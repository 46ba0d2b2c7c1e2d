// SPDX-License-Identifier: Apache-2.0

package command

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/cmd/kubectl-stillpoint/words"
)

const (
	// lineEvery is how often the progress line is written anew: on a terminal in place, elsewhere as a line of its own.
	lineEveryTerminal = 200 * time.Millisecond
	lineEveryElse     = 10 * time.Second
	// unseenAfter a run was created, an operator should have looked at it.
	unseenAfter = 10 * time.Second
	// watchPause before a watch that ended is begun again.
	watchPause = time.Second
)

// errGone: the run was deleted.
var errGone = errors.New("gone")

// follow a run until done says so, and tell out what it does. It returns the run as it was last seen. An error is errGone, the context's, or the
// API's.
func (p *program) follow(ctx context.Context, k *kube, name string, out io.Writer, done func(*v1.SnapshotRun) bool) (*v1.SnapshotRun, error) {
	t := p.newTeller(out)
	defer t.clear()
	updates := make(chan update)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go watchRun(ctx, k, name, p, updates)
	begun := p.Clock.Now()
	warned := false
	for {
		select {
		case <-ctx.Done():
			return t.run, ctx.Err()
		case u := <-updates:
			if u.err != nil {
				return t.run, u.err
			}
			t.tell(u.run)
			if done(u.run) {
				return u.run, nil
			}
			if u.gone {
				return u.run, errGone
			}
		case <-t.ticker.C():
			if t.run != nil && t.run.Status.Phase == "" && !warned && p.Clock.Since(begun) > unseenAfter && !recordedLate(t.run) {
				warned = true
				t.say(paint(out, yellow, "no operator has looked at the run yet: is Stillpoint running? kubectl get pods -A -l app.kubernetes.io/name=stillpoint"))
			}
			t.progress()
		}
	}
}

// recordedLate: a run without hooks writes its first word when its snapshots are ready, or after some seconds.
func recordedLate(r *v1.SnapshotRun) bool { return r.Status.StartTime != nil }

// update is a new state of a run, or why there will be none.
type update struct {
	run  *v1.SnapshotRun
	gone bool
	err  error
}

// watchRun sends every state of a run that is seen until ctx ends. A watch that ends is begun again.
func watchRun(ctx context.Context, k *kube, name string, p *program, updates chan<- update) {
	send := func(u update) bool {
		select {
		case updates <- u:
			return u.err == nil && !u.gone
		case <-ctx.Done():
			return false
		}
	}
	var last *v1.SnapshotRun
	for ctx.Err() == nil {
		var r v1.SnapshotRun
		err := k.Get(ctx, k.key(name), &r)
		switch {
		case isMissing(err):
			if last == nil {
				send(update{err: notFound("SnapshotRun", name, k.namespace, nil)})
			} else {
				send(update{run: last, gone: true})
			}
			return
		case err != nil && last == nil:
			send(update{err: fmt.Errorf("reading SnapshotRun %s/%s: %w", k.namespace, name, err)})
			return
		case err == nil:
			last = &r
			if !send(update{run: &r}) {
				return
			}
			if !watchFrom(ctx, k, &r, &last, send) {
				return
			}
		}
		select {
		case <-p.Clock.After(watchPause):
		case <-ctx.Done():
		}
	}
}

// watchFrom a state on; false: nothing more is to come.
func watchFrom(ctx context.Context, k *kube, r *v1.SnapshotRun, last **v1.SnapshotRun, send func(update) bool) bool {
	options := &client.ListOptions{Namespace: k.namespace, FieldSelector: fields.OneTermEqualSelector("metadata.name", r.Name)}
	options.Raw = options.AsListOptions()
	options.Raw.ResourceVersion = r.ResourceVersion
	w, err := k.Watch(ctx, &v1.SnapshotRunList{}, options)
	if err != nil {
		return true // the next look tells why, or that it has passed
	}
	defer w.Stop()
	for e := range w.ResultChan() {
		o, ok := e.Object.(*v1.SnapshotRun)
		if !ok || e.Type == watch.Error {
			return true
		}
		*last = o
		if !send(update{run: o, gone: e.Type == watch.Deleted}) {
			return false
		}
	}
	return true
}

// teller writes a story as it goes on, with a line below it that says what is waited for.
type teller struct {
	p        *program
	out      io.Writer
	terminal bool
	ticker   interface {
		C() <-chan time.Time
		Stop()
	}
	story words.Story
	run   *v1.SnapshotRun
	shown string
}

func (p *program) newTeller(out io.Writer) *teller {
	t := &teller{p: p, out: out, terminal: printers.IsTerminal(out)}
	every := lineEveryElse
	if t.terminal {
		every = lineEveryTerminal
	}
	t.ticker = p.Clock.NewTicker(every)
	return t
}

func (t *teller) tell(r *v1.SnapshotRun) {
	t.run = r
	for _, l := range t.story.Next(r) {
		text := l.Text
		if l.Bad {
			text = paint(t.out, red, text)
		}
		t.say(text)
	}
	if t.terminal {
		t.progress()
	}
}

// say a line that stays.
func (t *teller) say(text string) {
	t.erase()
	fmt.Fprintf(t.out, "%s  %s\n", t.p.Clock.Now().In(t.p.Zone).Format("15:04:05"), text)
}

// progress writes what is waited for, if that is news.
func (t *teller) progress() {
	if t.run == nil || t.run.Status.Phase == v1.PhaseCompleted {
		return
	}
	text := words.Progress(t.run, t.p.Clock.Now())
	if !t.terminal {
		t.say(text)
		return
	}
	text = words.Short(text, 78)
	if text != t.shown {
		fmt.Fprintf(t.out, "\r\x1b[K%s", text)
		t.shown = text
	}
}

func (t *teller) erase() {
	if t.shown != "" {
		fmt.Fprint(t.out, "\r\x1b[K")
		t.shown = ""
	}
}

func (t *teller) clear() {
	t.erase()
	t.ticker.Stop()
}
