// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
)

// DefaultContainerAnnotation names the container of a pod that commands address when they name none.
const DefaultContainerAnnotation = "kubectl.kubernetes.io/default-container"

// Policy says how many of the matching pods are targets.
type Policy string

const (
	// PolicyAll takes every pod that matches. The empty policy means the same.
	PolicyAll Policy = "All"
	// PolicyOne takes one pod that matches.
	PolicyOne Policy = "One"
)

// Selection says which containers a hook runs in.
type Selection struct {
	// Namespace of the pods; never empty.
	Namespace string
	// Selector of the pods. nil is an error, an empty one matches every pod of the namespace.
	Selector *metav1.LabelSelector
	// Container by name; empty: the one that the default-container annotation names, else the first regular container.
	Container string
	// Policy All or One.
	Policy Policy
	// Prefer is the pod that One takes if it still matches, whatever its readiness.
	Prefer types.UID
}

// Target is one container of one pod. A target with the same UID and ContainerID is the same process tree; a higher RestartCount or
// another ContainerID means that what was quiesced in its memory is gone.
type Target struct {
	Namespace    string
	Pod          string
	UID          types.UID
	Container    string
	ContainerID  string
	RestartCount int32
	// Terminating: the pod is being deleted. Such a pod is no target of a command that quiesces; one that releases wants it.
	Terminating bool
}

// ID names the target in a Key: namespace/pod/container/uid.
func (t Target) ID() string {
	return strings.Join([]string{t.Namespace, t.Pod, t.Container, string(t.UID)}, "/")
}

// Problem is a pod that matches a selection but cannot be a target.
type Problem struct {
	Pod string
	UID types.UID
	// Reason is ContainerNotFound or ContainerNotRunning.
	Reason Reason
	// Message is one line for an operator.
	Message string
}

// Resolution is what one selection resolved to, both lists ordered by pod name.
type Resolution struct {
	Targets  []Target
	Problems []Problem
}

// Resolver finds the targets of selections with live lists, never from a cache: a stale answer would quiesce the wrong pod.
type Resolver struct {
	pods corev1client.PodsGetter
}

// NewResolver returns a Resolver that lists through pods, for instance a clientset's CoreV1().
func NewResolver(pods corev1client.PodsGetter) *Resolver {
	return &Resolver{pods: pods}
}

// Resolve finds the targets of one selection; see ResolveAll.
func (r *Resolver) Resolve(ctx context.Context, sel Selection) ([]Target, []Problem, error) {
	all, err := r.ResolveAll(ctx, []Selection{sel})
	if err != nil {
		return nil, nil, err
	}
	return all[0].Targets, all[0].Problems, nil
}

// ResolveAll finds the targets of many selections, in their order, with one list per distinct namespace and selector, so that
// selections that share one see the same pods.
//
// A pod matches when the addressed container is running, ready or not: an application that is quiesced may well fail its readiness
// probe. Pods that have completed never match. Terminating pods are reported as such and the caller chooses; they cause no problems.
//
// An error is either an invalid selection or a failed list; nothing is resolved then.
func (r *Resolver) ResolveAll(ctx context.Context, selections []Selection) ([]Resolution, error) {
	type query struct{ namespace, selector string }
	lists := map[query][]corev1.Pod{}
	out := make([]Resolution, 0, len(selections))
	for _, sel := range selections {
		if sel.Namespace == "" {
			return nil, errors.New("resolving targets: the selection names no namespace")
		}
		if sel.Selector == nil {
			return nil, errors.New("resolving targets: the selection has no pod selector")
		}
		selector, err := metav1.LabelSelectorAsSelector(sel.Selector)
		if err != nil {
			return nil, fmt.Errorf("resolving targets: parsing the pod selector: %w", err)
		}
		q := query{sel.Namespace, selector.String()}
		pods, listed := lists[q]
		if !listed {
			// Without a resource version the API server answers from the latest state, not from its cache of some past one.
			list, err := r.pods.Pods(sel.Namespace).List(ctx, metav1.ListOptions{LabelSelector: q.selector})
			if err != nil {
				return nil, fmt.Errorf("listing pods in namespace %s: %w", sel.Namespace, err)
			}
			pods = list.Items
			slices.SortFunc(pods, func(a, b corev1.Pod) int { return cmp.Compare(a.Name, b.Name) })
			lists[q] = pods
		}
		out = append(out, resolve(pods, sel))
	}
	return out, nil
}

// resolve applies the rules to pods that match the selector and are ordered by name.
func resolve(pods []corev1.Pod, sel Selection) Resolution {
	var res Resolution
	var matching []*corev1.Pod
	for i := range pods {
		pod := &pods[i]
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		target, problem := targetIn(pod, sel.Container)
		switch {
		case problem == nil:
			matching = append(matching, pod)
			res.Targets = append(res.Targets, target)
		case pod.DeletionTimestamp == nil:
			// A terminating pod whose container has gone is on its way out, not misconfigured.
			res.Problems = append(res.Problems, *problem)
		}
	}
	if sel.Policy == PolicyOne && len(matching) > 0 {
		res.Targets = []Target{res.Targets[preferred(matching, sel.Prefer)]}
		// One pod was asked for and one was found: what ails the others is not this hook's business.
		res.Problems = nil
	}
	return res
}

// targetIn returns the addressed container of a pod as a target, or why it is none.
func targetIn(pod *corev1.Pod, container string) (Target, *Problem) {
	name := container
	if name == "" {
		name = pod.Annotations[DefaultContainerAnnotation]
		if !addressable(pod, name) && len(pod.Spec.Containers) > 0 {
			name = pod.Spec.Containers[0].Name
		}
	}
	if !addressable(pod, name) {
		return Target{}, &Problem{
			Pod: pod.Name, UID: pod.UID, Reason: ContainerNotFound,
			Message: fmt.Sprintf("pod %s has no container %q that a command can run in", pod.Name, name),
		}
	}
	for _, statuses := range [][]corev1.ContainerStatus{
		pod.Status.ContainerStatuses, pod.Status.InitContainerStatuses, pod.Status.EphemeralContainerStatuses,
	} {
		for i := range statuses {
			if status := &statuses[i]; status.Name == name && status.State.Running != nil {
				return Target{
					Namespace:    pod.Namespace,
					Pod:          pod.Name,
					UID:          pod.UID,
					Container:    name,
					ContainerID:  status.ContainerID,
					RestartCount: status.RestartCount,
					Terminating:  pod.DeletionTimestamp != nil,
				}, nil
			}
		}
	}
	return Target{}, &Problem{
		Pod: pod.Name, UID: pod.UID, Reason: ContainerNotRunning,
		Message: fmt.Sprintf("container %s of pod %s is not running", name, pod.Name),
	}
}

// addressable: a regular container, a native sidecar or an ephemeral container has this name. Ordinary init containers end by
// themselves; what they would quiesce is not the application.
func addressable(pod *corev1.Pod, name string) bool {
	if name == "" {
		return false
	}
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == name {
			return true
		}
	}
	for i := range pod.Spec.InitContainers {
		c := &pod.Spec.InitContainers[i]
		if c.Name == name && c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			return true
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == name {
			return true
		}
	}
	return false
}

// preferred returns the index of the pod that One takes: the one asked for, else one that stays, else a ready one, else the oldest,
// else the first by name.
func preferred(pods []*corev1.Pod, prefer types.UID) int {
	rank := func(no bool) int {
		if no {
			return 1
		}
		return 0
	}
	best := 0
	for i, pod := range pods {
		b := pods[best]
		if cmp.Or(
			rank(prefer == "" || pod.UID != prefer)-rank(prefer == "" || b.UID != prefer),
			rank(pod.DeletionTimestamp != nil)-rank(b.DeletionTimestamp != nil),
			rank(!ready(pod))-rank(!ready(b)),
			pod.CreationTimestamp.Compare(b.CreationTimestamp.Time),
			cmp.Compare(pod.Name, b.Name),
		) < 0 {
			best = i
		}
	}
	return best
}

func ready(pod *corev1.Pod) bool {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}
