// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/utils/ptr"

	"github.com/stillpoint-operator/stillpoint/test/cluster"
)

const (
	container = "main"

	// idle waits; TERM ends it.
	idle = `trap 'exit 1' TERM; sleep 100000 & wait`
	// writing appends lines of a number and the machine's uptime in seconds.
	writing = `i=0; while :; do i=$((i+1)); read up rest </proc/uptime; echo "$i $up" >>/data/log; sleep 0.05; done`
)

// app is a pod with a volume at /data, and at /state a directory that is never frozen, for what hooks note.
type app struct {
	*world
	name string // of pod, claim and label app
}

// app makes an idle one and waits until it is ready.
func (w *world) app(name string, shape ...func(*corev1.Pod)) *app {
	w.Helper()
	w.claim(name, nil)
	pod := w.pod(name, name, idle, shape...)
	w.create(pod)
	a := &app{world: w, name: name}
	a.ready()
	return a
}

// writer makes one that writes all the time.
func (w *world) writer(name string) *app {
	w.Helper()
	a := w.app(name, func(p *corev1.Pod) { p.Spec.Containers[0].Command[2] = writing })
	w.Eventually(func() int { return len(a.lines()) }, patience, "100ms").Should(BeNumerically(">", 5))
	return a
}

// restore a snapshot into an idle app.
func (w *world) restore(snapshot, name string) *app {
	w.Helper()
	w.claim(name, &corev1.TypedLocalObjectReference{APIGroup: ptr.To("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: snapshot})
	w.create(w.pod(name, name, idle))
	a := &app{world: w, name: name}
	a.ready()
	return a
}

func (w *world) claim(name string, source *corev1.TypedLocalObjectReference) *corev1.PersistentVolumeClaim {
	w.Helper()
	c := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}}, Spec: w.claimSpec()}
	c.Spec.DataSource = source
	w.create(c)
	return c
}

func (w *world) claimSpec() corev1.PersistentVolumeClaimSpec {
	return corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("64Mi")}},
	}
}

func (w *world) pod(name, claim, script string, shape ...func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name, Labels: map[string]string{"app": name}}, Spec: podSpec(claim, script)}
	for _, s := range shape {
		s(p)
	}
	return p
}

func podSpec(claim, script string) corev1.PodSpec {
	return corev1.PodSpec{
		TerminationGracePeriodSeconds: ptr.To[int64](0),
		Containers: []corev1.Container{{
			Name: container, Image: cluster.ToolsImage, ImagePullPolicy: corev1.PullNever, Command: []string{"sh", "-c", script},
			SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true)},
			VolumeMounts:    []corev1.VolumeMount{{Name: "data", MountPath: "/data"}, {Name: "state", MountPath: "/state"}},
		}},
		Volumes: []corev1.Volume{
			{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}},
			{Name: "state", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
		},
	}
}

// in is the same app as seen by a subtest.
func (a *app) in(w *world) *app { return &app{world: w, name: a.name} }

// slowToLeave lets a pod that is deleted run on for ten minutes.
func slowToLeave(p *corev1.Pod) {
	p.Spec.TerminationGracePeriodSeconds = ptr.To[int64](600)
	p.Spec.Containers[0].Command[2] = "trap '' TERM; sleep 100000 & wait"
}

func (a *app) object() *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: a.ns, Name: a.name}}
}

func (a *app) ready() *corev1.Pod {
	a.Helper()
	return awaitFor(a.world, 2*patience, a.object(), "ready", podReady)
}

func podReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
			return p.DeletionTimestamp == nil
		}
	}
	return false
}

// sh runs a script in the app and returns what it writes; the test fails if the script does.
func (a *app) sh(script string) string {
	a.Helper()
	out, err := a.exec(a.name, "sh", "-c", script)
	if err != nil {
		a.Fatalf("%s in pod %s: %v", script, a.name, err)
	}
	return out
}

// exec runs a command in the first container of a pod. It gives up after 20 s: a command may wait on a frozen file system.
func (w *world) exec(pod string, argv ...string) (string, error) {
	ctx, cancel := context.WithTimeout(w.Context(), 20*time.Second)
	defer cancel()
	req := pods.CoreV1().RESTClient().Get().Resource("pods").Namespace(w.ns).Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Command: argv, Stdout: true, Stderr: true}, clientgoscheme.ParameterCodec)
	executor, err := remotecommand.NewWebSocketExecutor(config, "GET", req.URL().String())
	if err != nil {
		return "", err
	}
	var stdout, stderr bytes.Buffer
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &stdout, Stderr: &stderr})
	if err != nil {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(stdout.String()), err
}

// frozen tries to freeze the volume, which a frozen one refuses.
func (a *app) frozen() bool {
	a.Helper()
	out := a.sh(`fsfreeze --freeze /data 2>&1 || { echo refused; exit 0; }; fsfreeze --unfreeze /data`)
	switch {
	case out == "":
		return false
	case strings.Contains(out, "busy"):
		return true
	}
	a.Fatalf("whether %s is frozen cannot be told: %s", a.name, out)
	return false
}

// expectFree: the application is released.
func (a *app) expectFree() {
	a.Helper()
	a.Expect(a.frozen()).To(BeFalse(), "the file system of %s is frozen", a.name)
	a.sh("echo free >/data/free")
}

// noted counts the lines that hooks appended to a file in /state.
func (a *app) noted(file string) int {
	a.Helper()
	return a.number(fmt.Sprintf("cat /state/%s 2>/dev/null | wc -l", file))
}

func (a *app) number(script string) int {
	a.Helper()
	n, err := strconv.Atoi(a.sh(script))
	a.Expect(err).NotTo(HaveOccurred())
	return n
}

// awaitNote waits until hooks have noted a number of lines.
func (a *app) awaitNote(file string, lines int) {
	a.Helper()
	a.Eventually(func() int { return a.noted(file) }, patience, "50ms").Should(Equal(lines), "lines of /state/%s", file)
}

// line is one that writing wrote.
type line struct {
	number int
	begun  time.Time // just before it was written, to 10 ms
}

func (a *app) lines() []line {
	a.Helper()
	boot := bootTime(a.world)
	var out []line
	for text := range strings.Lines(a.sh("cat /data/log 2>/dev/null || true")) {
		var n int
		var up float64
		if _, err := fmt.Sscanf(text, "%d %g", &n, &up); err != nil {
			continue // it is being written
		}
		out = append(out, line{number: n, begun: boot.Add(time.Duration(up * float64(time.Second)))})
	}
	return out
}

// bootTime is when the uptime of this machine, which its pods see too, was zero.
func bootTime(w *world) time.Time {
	w.Helper()
	text, err := os.ReadFile("/proc/uptime")
	w.Expect(err).NotTo(HaveOccurred())
	var up float64
	_, err = fmt.Sscanf(string(text), "%g", &up)
	w.Expect(err).NotTo(HaveOccurred())
	return time.Now().Add(-time.Duration(up * float64(time.Second)))
}
