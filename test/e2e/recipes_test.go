// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package e2e

import (
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/test/cluster"
)

// ran are the recipes that tests of this package run.
var ran = []string{
	"fsfreeze in a sidecar", "fsfreeze, held", "fsfreeze with a dead-man's switch", "PostgreSQL: checkpoint", "PostgreSQL: backup mode, held",
	"PostgreSQL: dump to disk", "MariaDB: lock, held", "Redis: save",
}

func TestEveryRecipeIsAcceptedByTheAPIServerAndMarkedAsTestedOrNot(t *testing.T) {
	w := settle(t)
	var tested []string
	for _, s := range cookbook(w) {
		if s.title == "Held commands" {
			continue
		}
		w.Expect(s.marked).To(BeTrue(), "%s is marked as tested or untested", s.title)
		if s.tested {
			tested = append(tested, s.title)
		}
		for _, block := range s.blocks {
			o := w.schedule("recipe", hooksOf(specOf(w, block)))
			w.remove(o)
		}
	}
	w.Expect(tested).To(ConsistOf(ran))
	files, err := filepath.Glob("../../config/samples/schedule-*.yaml")
	w.Expect(err).NotTo(HaveOccurred())
	w.Expect(files).NotTo(BeEmpty())
	for _, file := range files {
		o := &v1.SnapshotSchedule{Spec: sample(w, filepath.Base(file))}
		o.Namespace, o.Name = w.ns, strings.TrimSuffix(filepath.Base(file), ".yaml")
		w.Expect(api.Create(t.Context(), o, client.DryRunAll)).To(Succeed(), file)
	}
}

func TestRecipeOfFsfreezeInASidecar(t *testing.T) {
	w := begin(t)
	files := w.app("files", func(p *corev1.Pod) {
		sidecar := *p.Spec.Containers[0].DeepCopy()
		sidecar.Name = "fsfreeze"
		p.Spec.Containers[0].Command[2] = writing
		p.Spec.Containers = append(p.Spec.Containers, sidecar)
	})
	s := w.schedule("frozen", taking(files), hooksOf(sample(w, "schedule-fsfreeze.yaml")))

	o := w.ends(w.start(s), v1.ResultSucceeded)

	w.expectLabels(o, map[string]string{"files": application})
	w.Expect(target(hookOf(o, "freeze")).Container).To(Equal("fsfreeze"))
	files.diary().awaitWriting(patience)
	w.ends(w.start(s, v1.RunRelease), v1.ResultSucceeded) // the post hook may run twice
}

func TestRecipeOfRedis(t *testing.T) {
	if err := cluster.InstallPackages(t.Context(), t.Output(), "redis-server"); err != nil {
		t.Fatal(err)
	}
	w := begin(t)
	server := func(p *corev1.Pod) {
		c := &p.Spec.Containers[0]
		c.Name, c.Image, c.Command = "redis", cluster.HostRootImage, []string{"redis-server", "--dir", "/data", "--save", ""}
		c.Env = []corev1.EnvVar{{Name: "PATH", Value: "/usr/bin:/bin"}}
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "usr", MountPath: "/usr", ReadOnly: true})
		c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{"redis-cli", "PING"}}}, PeriodSeconds: 1}
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "usr", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/usr"}}})
	}
	db := w.app("redis", server)
	db.sh("redis-cli SET order 1001")
	s := w.schedule("hourly", taking(db), hooksOf(recipe(w, "Redis: save")))

	o := w.ends(w.start(s), v1.ResultSucceeded)

	w.expectLabels(o, map[string]string{"redis": application})
	db.sh("redis-cli SET order 1002")
	w.claim("back", &corev1.TypedLocalObjectReference{APIGroup: ptr.To("snapshot.storage.k8s.io"), Kind: "VolumeSnapshot", Name: o.Status.Snapshots[0].Name})
	w.create(w.pod("back", "back", "", server))
	back := appNamed(w, "back")
	back.ready()
	w.Expect(back.sh("redis-cli GET order")).To(Equal("1001"))
}
