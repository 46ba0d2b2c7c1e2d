// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// kubectlPlugin is the real kubectl, which finds the real plugin in PATH.
type kubectlPlugin struct {
	*world
	path string
}

// pluginDirectory holds the binary once it is built.
var pluginDirectory string

func (w *world) plugin() *kubectlPlugin {
	w.Helper()
	if pluginDirectory == "" {
		dir := filepath.Dir(binary)
		w.Expect(command(w.Context(), "go", "build", "-o", filepath.Join(dir, "kubectl-stillpoint"), "../../cmd/kubectl-stillpoint")).To(Succeed())
		pluginDirectory = dir
	}
	return &kubectlPlugin{world: w, path: pluginDirectory + ":" + filepath.Dir(local.Bin("kubectl")) + ":" + os.Getenv("PATH")}
}

func (p *kubectlPlugin) command(ctx context.Context, script string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "sh", "-ec", script)
	cmd.Env = append(os.Environ(), "PATH="+p.path, "KUBECONFIG="+local.Kubeconfig(), "TERM=xterm")
	return cmd
}

// do a command line without a terminal; it must end well.
func (p *kubectlPlugin) do(script string) (out, errOut string) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), 2*time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := p.command(ctx, script)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		p.Fatalf("%s: %v\n%s\n%s", script, err, &stdout, &stderr)
	}
	return stdout.String(), stderr.String()
}

// onTerminal does a command line in a terminal of its own, and returns all that was written to it and the exit code.
func (p *kubectlPlugin) onTerminal(script string) (string, int) {
	p.Helper()
	ctx, cancel := context.WithTimeout(p.Context(), 2*time.Minute)
	defer cancel()
	cmd := p.command(ctx, script)
	tty, err := pty.Start(cmd)
	p.Expect(err).NotTo(HaveOccurred())
	defer tty.Close()
	var shown bytes.Buffer
	_, _ = io.Copy(&shown, tty) // ends with an error when the program does
	err = cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.Fatalf("%s: %v", script, err)
	}
	return shown.String(), cmd.ProcessState.ExitCode()
}

func TestPluginRunsAndRestores(t *testing.T) {
	w := begin(t)
	p := w.plugin()
	a := w.writer("app")
	w.schedule("s", freezing(a))

	plan, _ := p.do("kubectl stillpoint -n " + w.ns + " plan s")
	w.Expect(plan).To(ContainSubstring("A run would take 1 snapshot with 2 hooks."))
	w.Expect(plan).To(ContainSubstring("in " + w.ns + "/app/" + container))

	shown, code := p.onTerminal("kubectl stillpoint -n " + w.ns + " run s --wait")
	w.Expect(code).To(Equal(0), shown)
	for _, text := range []string{"PreHooks", "  pre  freeze  app/main  Completed", "Snapshotting", "snapshot app-s-", "  post thaw  app/main  Completed", "Completed     Succeeded", "\x1b[K"} {
		w.Expect(shown).To(ContainSubstring(text))
	}
	a.expectFree()
	list, _ := p.onTerminal("kubectl stillpoint -n " + w.ns + " list")
	w.Expect(list).To(ContainSubstring("\x1b[32mOK\x1b[0m"))

	// What is restored is what was there while the application was frozen, as the hook counted it.
	var runs v1.SnapshotRunList
	w.Expect(api.List(w.Context(), &runs)).To(Succeed())
	frozen := ""
	for i := range runs.Items {
		if r := &runs.Items[i]; r.Namespace == w.ns {
			frozen = strings.TrimSpace(r.Status.Hooks[0].Targets[0].Output)
		}
	}
	out, said := p.do("kubectl stillpoint -n " + w.ns + " restore s --consistency application --wait --timeout 1m")
	w.Expect(out).To(Equal("persistentvolumeclaim/app-restored created\n"))
	w.Expect(said).To(ContainSubstring("application-consistent: it was cut while the application was quiesced"))
	w.Expect(said).To(ContainSubstring("Pod app uses app: delete it, and create it again with claimName: app-restored."))
	w.create(w.pod("restored", "app-restored", idle))
	restored := &app{world: w, name: "restored"}
	restored.ready()
	w.Expect(restored.sh("wc -l </data/log")).To(Equal(frozen))
	kept, _ := p.do("kubectl -n " + w.ns + " get volumesnapshots -l snapscheduler.backube/retention=keep -o name")
	w.Expect(kept).To(BeEmpty())
}

// The steps that restore prints are typed as they stand, and bring the restored data into use.
func TestPluginsNextStepsWork(t *testing.T) {
	w := begin(t)
	p := w.plugin()
	w.claim("data", nil)
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{Replicas: ptr.To(int32(1)), Selector: ptr.To(labelled("web")),
		Strategy: appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}}, Spec: podSpec("data", idle)}}}
	w.create(d)
	p.do("kubectl -n " + w.ns + " rollout status deployment/web --timeout 60s && kubectl -n " + w.ns + " exec deployment/web -- sh -c 'echo old >/data/word; sync'")
	w.schedule("s", func(s *v1.SnapshotScheduleSpec) { s.ClaimSelector = labelled("data") })
	p.do("kubectl stillpoint -n " + w.ns + " run s --wait")
	p.do("kubectl -n " + w.ns + " exec deployment/web -- sh -c 'echo new >/data/word; sync'")

	_, said := p.do("kubectl stillpoint -n " + w.ns + " restore s --wait --timeout 1m")
	_, steps, found := strings.Cut(said, "deployment/web uses data. To have it use data-restored:\n")
	w.Expect(found).To(BeTrue(), said)
	var commands []string
	for _, line := range strings.Split(steps, "\n") {
		if !strings.HasPrefix(line, "     ") {
			break
		}
		commands = append(commands, strings.TrimSpace(line))
	}
	w.Expect(commands).To(HaveLen(3), said)
	p.do(strings.Join(commands, "\n"))
	out, _ := p.do("kubectl -n " + w.ns + " rollout status deployment/web --timeout 60s >/dev/null && kubectl -n " + w.ns + " exec deployment/web -- cat /data/word")
	w.Expect(out).To(Equal("old\n"))
}

func TestPluginRestoresAStatefulSetUnderANewName(t *testing.T) {
	w := begin(t)
	p := w.plugin()
	set := func(name string) *appsv1.StatefulSet {
		s := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: appsv1.StatefulSetSpec{Replicas: ptr.To(int32(2)), ServiceName: name, Selector: ptr.To(labelled(name)),
			PodManagementPolicy:  appsv1.ParallelPodManagement,
			Template:             corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}}, Spec: podSpec("", idle)},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: w.claimSpec()}}}}
		s.Spec.Template.Spec.Volumes = s.Spec.Template.Spec.Volumes[1:] // data comes from the template
		w.create(s)
		p.do("kubectl -n " + w.ns + " rollout status statefulset/" + name + " --timeout 90s")
		return s
	}
	old := set("web")
	for _, pod := range []string{"web-0", "web-1"} {
		p.do("kubectl -n " + w.ns + " exec " + pod + " -- sh -c 'echo " + pod + " >/data/word; sync'")
	}
	w.schedule("s")
	p.do("kubectl stillpoint -n " + w.ns + " run s --wait")
	out, _ := p.do("kubectl stillpoint -n " + w.ns + " restore s --statefulset web=copy --wait --timeout 1m")
	w.Expect(out).To(Equal("persistentvolumeclaim/data-copy-0 created\npersistentvolumeclaim/data-copy-1 created\n"))
	copied := set("copy")
	for _, n := range []string{"0", "1"} {
		word, _ := p.do("kubectl -n " + w.ns + " exec copy-" + n + " -- cat /data/word")
		w.Expect(word).To(Equal("web-" + n + "\n"))
	}
	w.remove(copied)
	w.remove(old)
}

// A frozen application whose post hook is wrong: the hook is corrected, and the emergency exit used.
func TestPluginReleasesAFrozenApplication(t *testing.T) {
	w := begin(t)
	p := w.plugin()
	a := w.writer("app")
	s := w.schedule("s", hooked(a, freeze, "exit 7"))
	w.start(s)
	a.awaitNote("pre", 1)
	w.Eventually(func() string { out, _ := p.do("kubectl stillpoint -n " + w.ns + " describe s"); return out }, patience, "500ms").Should(ContainSubstring("NonZeroExit, exit code 7"))
	w.Expect(a.frozen()).To(BeTrue())
	change(w, s, func(s *v1.SnapshotSchedule) { s.Spec.PostHooks[0].Command[2] = thaw })
	shown, code := p.onTerminal("kubectl stillpoint -n " + w.ns + " release s --wait --timeout 1m")
	w.Expect(code).To(Equal(0), shown)
	w.Expect(shown).To(ContainSubstring("the application is released"))
	a.expectFree()
}
