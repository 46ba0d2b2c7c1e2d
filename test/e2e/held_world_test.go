// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// section of the cookbook in docs/hooks.md.
type section struct {
	title  string
	tested bool
	marked bool
	blocks []string // of YAML, parts of a schedule's spec
}

func cookbook(w *world) []section {
	w.Helper()
	text, err := os.ReadFile("../../docs/hooks.md")
	w.Expect(err).NotTo(HaveOccurred())
	_, book, found := strings.Cut(string(text), "\n## Cookbook\n")
	w.Expect(found).To(BeTrue(), "docs/hooks.md has a cookbook")
	book, _, _ = strings.Cut(book, "\n## ")
	var out []section
	for _, part := range strings.Split(book, "\n### ")[1:] {
		heading, body, _ := strings.Cut(part, "\n")
		s := section{tested: strings.HasSuffix(heading, " (tested)"), marked: strings.HasSuffix(heading, "tested)")}
		s.title, _, _ = strings.Cut(heading, " (")
		for _, block := range strings.Split(body, "```yaml\n")[1:] {
			block, _, _ = strings.Cut(block, "```")
			s.blocks = append(s.blocks, block)
		}
		out = append(out, s)
	}
	return out
}

// recipe of the cookbook, by its title.
func recipe(w *world, title string) v1.SnapshotScheduleSpec {
	w.Helper()
	for _, s := range cookbook(w) {
		if s.title == title {
			w.Expect(s.tested).To(BeTrue(), "%s is run here, so it is marked as tested", title)
			w.Expect(s.blocks).To(HaveLen(1), title)
			return specOf(w, s.blocks[0])
		}
	}
	w.Fatalf("the cookbook has no recipe %q", title)
	return v1.SnapshotScheduleSpec{}
}

func specOf(w *world, block string) v1.SnapshotScheduleSpec {
	w.Helper()
	var spec v1.SnapshotScheduleSpec
	w.Expect(yaml.UnmarshalStrict([]byte(block), &spec)).To(Succeed(), block)
	return spec
}

// sample is a schedule of config/samples.
func sample(w *world, file string) v1.SnapshotScheduleSpec {
	w.Helper()
	text, err := os.ReadFile("../../config/samples/" + file)
	w.Expect(err).NotTo(HaveOccurred())
	var s v1.SnapshotSchedule
	w.Expect(yaml.UnmarshalStrict(text, &s)).To(Succeed())
	return s.Spec
}

// hooksOf a recipe, as they are.
func hooksOf(r v1.SnapshotScheduleSpec) shape {
	return func(s *v1.SnapshotScheduleSpec) {
		s.PreHooks, s.PostHooks = append(s.PreHooks, r.PreHooks...), append(s.PostHooks, r.PostHooks...)
		s.SnapshotTimeoutSeconds, s.MaxQuiesceSeconds = r.SnapshotTimeoutSeconds, r.MaxQuiesceSeconds
	}
}

// cooked takes an app's claim with the hooks of a recipe in its first container.
func cooked(a *app, r v1.SnapshotScheduleSpec) shape {
	return all(taking(a), hooksOf(r), func(s *v1.SnapshotScheduleSpec) {
		for h := range eachHook(s) {
			h.PodSelector, h.Container = ptr.To(labelled(a.name)), ""
		}
	})
}

// changed replaces text in the commands of all hooks so far.
func changed(old, text string) shape {
	return func(s *v1.SnapshotScheduleSpec) {
		for h := range eachHook(s) {
			for i := range h.Command {
				h.Command[i] = strings.ReplaceAll(h.Command[i], old, text)
			}
		}
	}
}

// switchAfter makes the dead-man's switch of a recipe faster.
func switchAfter(seconds int) shape { return changed("sleep 60", fmt.Sprintf("sleep %d", seconds)) }

func eachHook(s *v1.SnapshotScheduleSpec) func(func(*v1.Hook) bool) {
	return func(yield func(*v1.Hook) bool) {
		for i := range s.PreHooks {
			if !yield(&s.PreHooks[i].Hook) {
				return
			}
		}
		for i := range s.PostHooks {
			if !yield(&s.PostHooks[i].Hook) {
				return
			}
		}
	}
}

// doNothing is a held command that keeps its word and quiesces nothing.
const doNothing = "echo READY; cat >/dev/null; echo RELEASED"

// holding runs a script as a held command of the app.
func holding(a *app, script string) shape {
	h := v1.PreHook{Hook: hook(a, "hold", script), Mode: v1.ModeHold, ExpectReleaseOutput: "RELEASED"}
	h.ExpectOutput, h.TimeoutSeconds, h.ReleaseTimeoutSeconds = "READY", ptr.To[int32](2), ptr.To[int32](2)
	return all(taking(a), func(s *v1.SnapshotScheduleSpec) { s.PreHooks = append(s.PreHooks, h) })
}

// shortly bounds the held commands so far, so that the second pass of a release comes soon.
func shortly(seconds int32) shape {
	return func(s *v1.SnapshotScheduleSpec) {
		for i := range s.PreHooks {
			s.PreHooks[i].TimeoutSeconds, s.PreHooks[i].ReleaseTimeoutSeconds = ptr.To(seconds), ptr.To(seconds)
		}
	}
}

// onNode is where the node has mounted the volume of a pod: it can be looked into when nothing of the cluster answers.
func (w *world) onNode(pod, claim string) string {
	w.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: pod}}
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: claim}}
	w.Expect(api.Get(w.Context(), keyOf(p), p)).To(Succeed())
	w.Expect(api.Get(w.Context(), keyOf(c), c)).To(Succeed())
	dir := filepath.Join(local.StateDir(), "kubelet/pods", string(p.UID), "volumes/kubernetes.io~csi", c.Spec.VolumeName, "mount")
	w.Expect(dir).To(BeADirectory())
	return dir
}

// diary of a writer, read on the node. A frozen file system can be read.
type diary struct {
	*world
	file string
}

func (a *app) diary() diary {
	a.Helper()
	return diary{world: a.world, file: filepath.Join(a.onNode(a.name, a.name), "log")}
}

func (l diary) lines() []line {
	l.Helper()
	text, err := os.ReadFile(l.file)
	l.Expect(err).NotTo(HaveOccurred())
	boot := bootTime(l.world)
	var out []line
	for text := range strings.Lines(string(text)) {
		var n int
		var up float64
		if _, err := fmt.Sscanf(text, "%d %g", &n, &up); err == nil {
			out = append(out, line{number: n, begun: boot.Add(time.Duration(up * float64(time.Second)))})
		}
	}
	return out
}

// wait is one that a writer had to make.
type wait struct {
	lines    int // that were written before it
	from, to time.Time
}

func (s wait) String() string { return s.to.Sub(s.from).Round(time.Millisecond).String() }

// longest wait of the writer. Between two lines it sleeps 50 ms anyway.
func (l diary) longest() wait {
	l.Helper()
	lines := l.lines()
	var out wait
	for i := range len(lines) - 1 {
		if from, to := lines[i].begun, lines[i+1].begun; to.Sub(from) > out.to.Sub(out.from) {
			out = wait{lines: i, from: from, to: to}
		}
	}
	return out
}

// awaitWriting waits until the writer, which waits, writes again. Nothing of the cluster is asked.
func (l diary) awaitWriting(limit time.Duration) {
	l.Helper()
	before := len(l.lines())
	l.Eventually(func() int { return len(l.lines()) }, limit, "20ms").Should(BeNumerically(">", before+3), "lines of the writer")
}

// expectWaiting: the writer waits.
func (l diary) expectWaiting() {
	l.Helper()
	lines := l.lines()
	l.Expect(time.Since(lines[len(lines)-1].begun)).To(BeNumerically("<", time.Minute))
	l.Consistently(func() int { return len(l.lines()) }, "250ms", "50ms").Should(Equal(len(lines)), "lines of the writer")
}

// expectLost: the hold was lost, the run says so, and its snapshot claims nothing.
func (w *world) expectLost(o *v1.SnapshotRun, hook, claim string, words ...string) {
	w.Helper()
	w.Expect(o.Status.Result).To(Equal(v1.ResultPartiallyFailed), describe(o))
	w.expectReason(o, hook, v1.ReasonHoldLost, words...)
	w.Expect(o.Status.Message).To(And(ContainSubstring(hook), ContainSubstring(v1.ReasonHoldLost)))
	w.Expect(o.Status.Consistency.Verdict).To(Equal(crash))
	w.expectSnapshotsAsRecorded(o)
	w.expectLabels(o, map[string]string{claim: crash})
}
