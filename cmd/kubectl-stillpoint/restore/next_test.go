// SPDX-License-Identifier: Apache-2.0

package restore

import (
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

func pod(name, claim, kind, owner string) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "data",
		VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}}}
	if kind != "" {
		p.OwnerReferences = []metav1.OwnerReference{{Kind: kind, Name: owner, Controller: ptr.To(true)}}
	}
	if kind == "ReplicaSet" {
		p.Labels = map[string]string{"pod-template-hash": "5f7"}
	}
	return p
}

func TestUsers(t *testing.T) {
	done := pod("d", "a", "", "")
	done.Status.Phase = corev1.PodSucceeded
	pods := []corev1.Pod{pod("a", "a", "", ""), pod("b1", "b", "ReplicaSet", "web-5f7"), pod("b2", "b", "ReplicaSet", "web-5f7"),
		pod("db-0", "data-db-0", "StatefulSet", "db"), pod("x-0", "b", "StatefulSet", "x"), pod("c", "other", "", ""), done}
	NewWithT(t).Expect(Users(pods, []string{"a", "b", "data-db-0"})).To(Equal([]User{
		{Kind: "Pod", Name: "a", Volume: "data", Claim: "a"},
		{Kind: "Deployment", Name: "web", Volume: "data", Claim: "b"},
		{Kind: "StatefulSet", Name: "db", Volume: "data", Claim: "data-db-0", ByName: true},
		{Kind: "StatefulSet", Name: "x", Volume: "data", Claim: "b"},
	}))
}

func TestNext(t *testing.T) {
	job := func(naming Naming, names map[string]string, users ...User) string {
		j := &Job{Namespace: "shop", Schedule: "s", Naming: naming, Users: users, Choice: &Choice{Point: &Point{Run: "r3"}}}
		for _, c := range sortedNames(names) {
			n := claim(names[c], 0)
			s := snap(c, 3, "r3")
			j.Items = append(j.Items, Item{Member: Member{Claim: c, Snapshot: &s}, New: &n})
			j.Kept = append(j.Kept, s.Name)
		}
		var b strings.Builder
		for _, s := range j.Next() {
			b.WriteString(s.Text + "\n")
			for _, c := range s.Commands {
				b.WriteString("  " + c + "\n")
			}
		}
		return b.String()
	}
	g := NewWithT(t)
	g.Expect(job(Naming{Suffix: "-x"}, map[string]string{"b": "b-x"}, User{Kind: "Deployment", Name: "web", Volume: "data", Claim: "b", Replicas: 2})).To(Equal(
		`Look at the data before you trust it: mount b-x in a pod. The original claims are as they were.
deployment/web uses b. To have it use b-x:
  kubectl -n shop scale deployment/web --replicas=0
  kubectl -n shop patch deployment/web -p '{"spec":{"template":{"spec":{"volumes":[{"name":"data","persistentVolumeClaim":{"claimName":"b-x"}}]}}}}'
  kubectl -n shop scale deployment/web --replicas=2
The snapshots stay protected from retention. When the new claims are bound and you are content:
  kubectl stillpoint -n shop unkeep b-s-202603010300
To throw the new claims away:
  kubectl -n shop delete pvc b-x
`))
	both := map[string]string{"data-db-0": "data-db-0-x", "data-db-1": "data-db-1-x"}
	users := []User{{Kind: "StatefulSet", Name: "db", Volume: "data", Claim: "data-db-0", ByName: true, Replicas: 2}, {Kind: "StatefulSet", Name: "db", Volume: "data", Claim: "data-db-1", ByName: true, Replicas: 2}}
	said := job(Naming{Suffix: "-x"}, both, users...)
	g.Expect(said).To(ContainSubstring(`
  kubectl stillpoint -n shop keep data-db-0-s-202603010300 data-db-1-s-202603010300
  kubectl -n shop scale statefulset/db --replicas=0
  kubectl -n shop delete pvc data-db-0 data-db-1
  kubectl stillpoint -n shop restore s --at r3 --claims data-db-0,data-db-1 --to-suffix '' --storage-class fast --access-modes ReadWriteOnce
  kubectl -n shop scale statefulset/db --replicas=2
`))
	g.Expect(strings.Count(said, "statefulset/db --replicas=0")).To(Equal(1), "once for the set")
	g.Expect(job(Naming{StatefulSet: "db", As: "db2"}, map[string]string{"data-db-0": "data-db2-0"}, users[:1]...)).To(ContainSubstring("StatefulSet db2 with the volumeClaimTemplates of db takes the new claims by their names"))
	g.Expect(job(Naming{}, map[string]string{"data-db-0": "data-db-0"}, users[:1]...)).To(ContainSubstring("StatefulSet db finds the claims under their names."))
	g.Expect(job(Naming{Suffix: "-x"}, map[string]string{"a": "a-x"})).To(ContainSubstring("No pod uses the original claims now"))
}

func sortedNames(m map[string]string) []string {
	var out []string
	for _, k := range []string{"a", "b", "data-db-0", "data-db-1"} {
		if _, ok := m[k]; ok {
			out = append(out, k)
		}
	}
	return out
}
