// SPDX-License-Identifier: Apache-2.0

package restore

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// User is a workload that mounts an original claim.
type User struct {
	Kind, Name string // Deployment, StatefulSet, ... or Pod
	Volume     string // in its pod template
	Claim      string
	Replicas   int32 // that it has now
	// ByName: it takes its claims by their names, as StatefulSets do.
	ByName bool
}

// Step is something to do next: a sentence, and commands to copy.
type Step struct {
	Text     string
	Commands []string
}

// Job is one restore as it was carried out.
type Job struct {
	Namespace string
	Schedule  string
	Naming    Naming
	Choice    *Choice
	Items     []Item
	Users     []User
	// Kept are snapshots that stay protected until somebody says otherwise.
	Kept []string
}

// Next says how to bring the new claims into use.
func (j *Job) Next() []Step {
	steps := []Step{{Text: fmt.Sprintf("Look at the data before you trust it: mount %s in a pod. The original claims are as they were.", strings.Join(j.newNames(), ", "))}}
	sets := map[string]bool{}
	for _, u := range j.Users {
		switch {
		case u.ByName && sets[u.Name]:
		case u.ByName:
			sets[u.Name] = true
			steps = append(steps, j.statefulSet(u))
		case u.Kind == "Pod":
			steps = append(steps, Step{Text: fmt.Sprintf("Pod %s uses %s: delete it, and create it again with claimName: %s.", u.Name, u.Claim, j.newName(u.Claim))})
		default:
			steps = append(steps, j.workload(u))
		}
	}
	if len(j.Users) == 0 {
		if j.Naming.StatefulSet != "" {
			steps = append(steps, j.statefulSet(User{Kind: "StatefulSet", Name: j.Naming.StatefulSet, ByName: true}))
		} else {
			steps = append(steps, Step{Text: "No pod uses the original claims now: have your workload use the new ones (claimName in its pod's volumes)."})
		}
	}
	if len(j.Kept) > 0 {
		steps = append(steps, Step{Text: "The snapshots stay protected from retention. When the new claims are bound and you are content:",
			Commands: []string{fmt.Sprintf("kubectl stillpoint -n %s unkeep %s", j.Namespace, strings.Join(j.Kept, " "))}})
	}
	return append(steps, Step{Text: "To throw the new claims away:", Commands: []string{fmt.Sprintf("kubectl -n %s delete pvc %s", j.Namespace, strings.Join(j.newNames(), " "))}})
}

func (j *Job) newNames() []string {
	var out []string
	for _, i := range j.Items {
		out = append(out, i.New.Name)
	}
	return out
}

func (j *Job) newName(claim string) string {
	i := slices.IndexFunc(j.Items, func(i Item) bool { return i.Claim == claim })
	if i < 0 {
		return ""
	}
	return j.Items[i].New.Name
}

// workload names its claims in its pod template.
func (j *Job) workload(u User) Step {
	object := strings.ToLower(u.Kind) + "/" + u.Name
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{"volumes": []any{
		map[string]any{"name": u.Volume, "persistentVolumeClaim": map[string]any{"claimName": j.newName(u.Claim)}}}}}}})
	if err != nil {
		return Step{Text: fmt.Sprintf("%s uses %s: have its volume %s use %s.", object, u.Claim, u.Volume, j.newName(u.Claim))}
	}
	return Step{
		Text: fmt.Sprintf("%s uses %s. To have it use %s:", object, u.Claim, j.newName(u.Claim)),
		Commands: []string{
			fmt.Sprintf("kubectl -n %s scale %s --replicas=0", j.Namespace, object),
			fmt.Sprintf("kubectl -n %s patch %s -p '%s'", j.Namespace, object, patch),
			fmt.Sprintf("kubectl -n %s scale %s --replicas=%d", j.Namespace, object, u.Replicas),
		},
	}
}

// statefulSet takes claims by their names: a new one beside it, or the same names again.
func (j *Job) statefulSet(u User) Step {
	var old []string
	for _, i := range j.Items {
		if i.New.Name == i.Claim {
			return Step{Text: fmt.Sprintf("StatefulSet %s finds the claims under their names.", u.Name),
				Commands: []string{fmt.Sprintf("kubectl -n %s scale statefulset/%s --replicas=%d", j.Namespace, u.Name, max(1, u.Replicas))}}
		}
		old = append(old, i.Claim)
	}
	if j.Naming.StatefulSet != "" {
		return Step{
			Text: fmt.Sprintf("StatefulSet %s with the volumeClaimTemplates of %s takes the new claims by their names. Copy %s, change its name, serviceName, selector and pod labels to %s, and start it beside the old one:",
				j.Naming.As, u.Name, u.Name, j.Naming.As),
			Commands: []string{
				fmt.Sprintf("kubectl -n %s get statefulset/%s -o yaml > %s.yaml", j.Namespace, u.Name, j.Naming.As),
				fmt.Sprintf("kubectl -n %s create -f %s.yaml", j.Namespace, j.Naming.As),
			},
		}
	}
	first := j.Items[0].New.Spec
	again := fmt.Sprintf("kubectl stillpoint -n %s restore %s --at %s --claims %s --to-suffix '' --storage-class %s --access-modes %s",
		j.Namespace, j.Schedule, j.Choice.Point.handle(), strings.Join(old, ","), className(first), modes(first))
	return Step{
		Text: fmt.Sprintf("StatefulSet %s takes its claims by their names. To put the restored data under these names the old claims must go, and the old data with them; or restore beside it with --statefulset %s=NEW:", u.Name, u.Name),
		Commands: []string{
			fmt.Sprintf("kubectl stillpoint -n %s keep %s", j.Namespace, strings.Join(j.snapshots(), " ")),
			fmt.Sprintf("kubectl -n %s scale statefulset/%s --replicas=0", j.Namespace, u.Name),
			fmt.Sprintf("kubectl -n %s delete pvc %s", j.Namespace, strings.Join(old, " ")),
			again,
			fmt.Sprintf("kubectl -n %s scale statefulset/%s --replicas=%d", j.Namespace, u.Name, u.Replicas),
		},
	}
}

func (j *Job) snapshots() []string {
	var out []string
	for _, i := range j.Items {
		out = append(out, i.Snapshot.Name)
	}
	return out
}

func className(spec corev1.PersistentVolumeClaimSpec) string {
	if spec.StorageClassName == nil {
		return ""
	}
	return *spec.StorageClassName
}

func modes(spec corev1.PersistentVolumeClaimSpec) string {
	var out []string
	for _, m := range spec.AccessModes {
		out = append(out, string(m))
	}
	return strings.Join(out, ",")
}

// Users of claims among pods: what controls them, or themselves. A pod of a Deployment is controlled by a ReplicaSet, named for both.
func Users(pods []corev1.Pod, claims []string) []User {
	var out []User
	for i := range pods {
		p := &pods[i]
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		for _, v := range p.Spec.Volumes {
			if v.PersistentVolumeClaim == nil || !slices.Contains(claims, v.PersistentVolumeClaim.ClaimName) {
				continue
			}
			u := User{Kind: "Pod", Name: p.Name, Volume: v.Name, Claim: v.PersistentVolumeClaim.ClaimName}
			for _, o := range p.OwnerReferences {
				if o.Controller == nil || !*o.Controller {
					continue
				}
				u.Kind, u.Name = o.Kind, o.Name
				if name, ok := strings.CutSuffix(o.Name, "-"+p.Labels["pod-template-hash"]); ok && o.Kind == "ReplicaSet" {
					u.Kind, u.Name = "Deployment", name
				}
				u.ByName = o.Kind == "StatefulSet" && ordinal(o.Name).MatchString(u.Claim)
			}
			if !slices.Contains(out, u) {
				out = append(out, u)
			}
		}
	}
	return out
}

// Summary of a choice for people, in sentences.
func (c *Choice) Summary() []string {
	p := c.Point
	out := []string{fmt.Sprintf("from %s, named for %s, cut at %s", p.Name(), stamp(p.When), stamp(p.Cut))}
	kinds := map[string]int{}
	for _, m := range c.Members {
		kinds[m.Consistency]++
	}
	switch {
	case kinds[v1.ConsistencyApplication] == len(c.Members):
		out = append(out, "application-consistent: it was cut while the application was quiesced")
	case kinds[v1.ConsistencyCrash] > 0:
		why := ""
		if p.Record != nil && p.Record.Status.Consistency != nil && p.Record.Status.Consistency.Reason != "" {
			why = ": " + p.Record.Status.Consistency.Reason
		}
		out = append(out, "only crash-consistent, although the schedule has hooks"+why)
	}
	if p.Record == nil {
		out = append(out, "the run's record is no longer kept: that these are all of its claims is judged by the runs before and after")
	}
	for _, s := range p.Stray {
		out = append(out, fmt.Sprintf("snapshot %s carries this run's mark and is not in its record: it is left alone", s))
	}
	return out
}
