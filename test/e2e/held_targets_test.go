// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/hooks"
	"github.com/stillpoint-operator/stillpoint/test/cluster"
)

// light is a pod without a claim.
func (w *world) light(name, app string, shape ...func(*corev1.Pod)) *app {
	w.Helper()
	p := w.pod(name, "", idle, shape...)
	p.Labels["app"] = app
	p.Spec.Volumes = p.Spec.Volumes[1:]
	for _, containers := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range containers {
			containers[i].VolumeMounts = []corev1.VolumeMount{{Name: "state", MountPath: "/state"}}
		}
	}
	w.create(p)
	return appNamed(w, name)
}

func appNamed(w *world, name string) *app { return &app{world: w, name: name} }

// one is a hook of an app's pods with targetPolicy One.
func one(label, name, script string) v1.Hook {
	return v1.Hook{Name: name, PodSelector: ptr.To(labelled(label)), TargetPolicy: v1.TargetOne, Command: []string{"sh", "-c", script}}
}

func TestHeldHookOfOnePodPrefersAReadyOneThenTheOldestAndIsFollowedThere(t *testing.T) {
	w := begin(t)
	db := w.app("db")
	probed := func(p *corev1.Pod) {
		p.Spec.Containers[0].ReadinessProbe = &corev1.Probe{
			ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"test", "-e", "/state/ready"}}},
			PeriodSeconds: 1, FailureThreshold: 1,
		}
	}
	running := func(a *app) {
		await(w, a.object(), "running", func(p *corev1.Pod) bool { return p.Status.Phase == corev1.PodRunning })
	}
	unready := w.light("m-oldest", "web", probed)
	running(unready)
	w.nextSecond() // pods know their age in whole seconds
	older := w.light("z-older", "web", probed)
	w.nextSecond()
	younger := w.light("a-younger", "web", probed)
	for _, a := range []*app{older, younger} {
		running(a)
		a.sh("touch /state/ready")
		a.ready()
	}
	hold := holding(db, doNothing)
	s := w.schedule("one", hold, func(s *v1.SnapshotScheduleSpec) {
		s.PreHooks[0].Hook = one("web", "hold", s.PreHooks[0].Command[2])
		s.PreHooks[0].ExpectOutput = "READY"
	}, after(one("web", "post", "hostname")))

	w.knobs(cluster.Knobs{CutDelay: 4 * time.Second})
	o := w.reaches(w.start(s), v1.PhaseSnapshotting)
	w.Expect(hookOf(o, "hold").Targets).To(ConsistOf(HaveField("Pod", "z-older")))
	t.Log("a quiesced application may fail its probe: the post hook goes to its pod all the same")
	older.sh("rm /state/ready")
	await(w, older.object(), "not ready", func(p *corev1.Pod) bool { return !podReady(p) })
	o = w.ends(o, v1.ResultSucceeded)
	w.Expect(o.Status.ReleaseTime).NotTo(BeNil())
	w.Expect(hookOf(o, "post").Targets).To(ConsistOf(And(HaveField("Pod", "z-older"), HaveField("Output", ContainSubstring("z-older")))))
	w.expectLabels(o, map[string]string{"db": application})

	w.knobs(cluster.Knobs{})
	o = w.ends(w.start(s), v1.ResultSucceeded)
	w.Expect(hookOf(o, "hold").Targets).To(ConsistOf(HaveField("Pod", "a-younger")), "the only ready one")
}

func TestHeldHookFindsTheContainerThatIsMeant(t *testing.T) {
	w := begin(t)
	db := w.app("db")
	web := w.light("web", "web", func(p *corev1.Pod) {
		p.Annotations = map[string]string{hooks.DefaultContainerAnnotation: "second"}
		second, sidecar := *p.Spec.Containers[0].DeepCopy(), *p.Spec.Containers[0].DeepCopy()
		second.Name, sidecar.Name = "second", "sidecar"
		p.Spec.Containers[0].Env, second.Env, sidecar.Env = iAm(container), iAm("second"), iAm("sidecar")
		sidecar.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
		p.Spec.Containers, p.Spec.InitContainers = append(p.Spec.Containers, second), []corev1.Container{sidecar}
	})
	pod := web.ready()
	pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{
		Name: "debug", Image: cluster.ToolsImage, ImagePullPolicy: corev1.PullNever, Command: []string{"sh", "-c", idle}, Env: iAm("debug"),
	}}}
	_, err := pods.CoreV1().Pods(w.ns).UpdateEphemeralContainers(t.Context(), pod.Name, pod, metav1.UpdateOptions{})
	w.Expect(err).NotTo(HaveOccurred())
	await(w, pod, "debugged", func(p *corev1.Pod) bool {
		s := p.Status.EphemeralContainerStatuses
		return len(s) == 1 && s[0].State.Running != nil
	})
	want := map[string]string{"default": "second", "first": container, "native": "sidecar", "ephemeral": "debug"}
	s := w.schedule("containers", holding(db, doNothing), func(s *v1.SnapshotScheduleSpec) {
		held := s.PreHooks[0]
		s.PreHooks = nil
		for name, c := range want {
			held.Name, held.PodSelector, held.Container = name, ptr.To(labelled("web")), c
			held.Command = []string{"sh", "-c", "echo $ME; " + doNothing}
			if name == "default" {
				held.Container = ""
			}
			s.PreHooks = append(s.PreHooks, held)
		}
	})

	o := w.ends(w.start(s), v1.ResultSucceeded)

	w.expectLabels(o, map[string]string{"db": application})
	for name, c := range want {
		w.Expect(hookOf(o, name).Targets).To(ConsistOf(And(HaveField("Pod", "web"), HaveField("Container", c), HaveField("Output", HavePrefix(c+"\n")))))
	}
}

func TestHeldPodThatLosesItsLabelIsReleasedAndItsSnapshotClaimsNothing(t *testing.T) {
	w := begin(t)
	db := w.app("db")
	s := w.schedule("held", holding(db, doNothing), after(hook(db, "post", "echo x >>/state/post")))
	w.knobs(cluster.Knobs{CutDelay: 2 * time.Second})

	o := w.reaches(w.start(s), v1.PhaseSnapshotting)
	change(w, db.object(), func(p *corev1.Pod) { p.Labels["app"] = "another" })
	o = w.ends(o, v1.ResultPartiallyFailed)

	w.expectReason(o, "hold", v1.ReasonHookCompleted)
	w.expectReason(o, "post", v1.ReasonHookCompleted)
	w.Expect(db.noted("post")).To(Equal(1))
	w.Expect(o.Status.Message).To(And(ContainSubstring("crash consistent"), ContainSubstring("db")))
	w.expectLabels(o, map[string]string{"db": crash})
}

// iAm tells a container its name.
func iAm(container string) []corev1.EnvVar { return []corev1.EnvVar{{Name: "ME", Value: container}} }
