// SPDX-License-Identifier: Apache-2.0

package hooks

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// testPod is a running, ready pod of app=db with one running container; changes are applied in order.
func testPod(name string, changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name, UID: types.UID("uid-" + name), Labels: map[string]string{"app": "db"},
			CreationTimestamp: metav1.NewTime(epoch),
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "main"}}},
		Status: corev1.PodStatus{
			Phase:      corev1.PodRunning,
			Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{
				{Name: "main", ContainerID: "containerd://main", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}},
			},
		},
	}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func running(name string) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: name, State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}
}

func phase(p corev1.PodPhase) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Status.Phase = p }
}

func notReady(pod *corev1.Pod) { pod.Status.Conditions[0].Status = corev1.ConditionFalse }

func terminating(pod *corev1.Pod) { pod.DeletionTimestamp = ptr.To(metav1.NewTime(epoch)) }

func stopped(pod *corev1.Pod) {
	pod.Status.ContainerStatuses[0].State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}}
}

func created(minutes int) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.CreationTimestamp = metav1.NewTime(epoch.Add(time.Duration(minutes) * time.Minute))
	}
}

func annotated(container string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Annotations = map[string]string{DefaultContainerAnnotation: container} }
}

func withAgent(pod *corev1.Pod) {
	pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: "agent"})
	pod.Status.ContainerStatuses = append(pod.Status.ContainerStatuses, running("agent"))
}

func withInit(name string, policy *corev1.ContainerRestartPolicy) func(*corev1.Pod) {
	return func(pod *corev1.Pod) {
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, corev1.Container{Name: name, RestartPolicy: policy})
		pod.Status.InitContainerStatuses = append(pod.Status.InitContainerStatuses, running(name))
	}
}

func withDebugger(pod *corev1.Pod) {
	pod.Spec.EphemeralContainers = append(pod.Spec.EphemeralContainers,
		corev1.EphemeralContainer{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger"}})
	pod.Status.EphemeralContainerStatuses = append(pod.Status.EphemeralContainerStatuses, running("debugger"))
}

func TestWhichPodsAndContainersAreTargets(t *testing.T) {
	for name, tc := range map[string]struct {
		pods      []*corev1.Pod
		container string
		policy    Policy
		prefer    types.UID
		// want and problems in a short form: pod/container, pod/reason.
		want, problems []string
	}{
		"all pods that match, by name": {
			pods: []*corev1.Pod{testPod("b"), testPod("a"), testPod("other", func(p *corev1.Pod) { p.Labels = nil })},
			want: []string{"a/main", "b/main"},
		},
		"a pod that is not ready matches": {pods: []*corev1.Pod{testPod("a", notReady)}, want: []string{"a/main"}},
		"completed pods never match, whatever their containers say": {
			pods: []*corev1.Pod{testPod("a", phase(corev1.PodSucceeded)), testPod("b", phase(corev1.PodFailed))},
		},
		"terminating pods are told apart": {
			pods: []*corev1.Pod{testPod("a", terminating), testPod("b")}, want: []string{"a/main terminating", "b/main"},
		},
		"a terminating pod whose container has gone is no problem": {pods: []*corev1.Pod{testPod("a", terminating, stopped)}},
		"a container that is not running is a problem": {
			pods: []*corev1.Pod{testPod("a", stopped), testPod("b")}, want: []string{"b/main"}, problems: []string{"a/ContainerNotRunning"},
		},
		"so is one without a status yet": {
			pods:     []*corev1.Pod{testPod("a", phase(corev1.PodPending), func(p *corev1.Pod) { p.Status.ContainerStatuses = nil })},
			problems: []string{"a/ContainerNotRunning"},
		},
		"a container that is missing is a problem": {
			pods: []*corev1.Pod{testPod("a"), testPod("b", withAgent)}, container: "agent",
			want: []string{"b/agent"}, problems: []string{"a/ContainerNotFound"},
		},
		"the annotation names the container": {pods: []*corev1.Pod{testPod("a", withAgent, annotated("agent"))}, want: []string{"a/agent"}},
		"an annotation that names none is ignored": {
			pods: []*corev1.Pod{testPod("a", withAgent, annotated("nobody"))}, want: []string{"a/main"},
		},
		"the hook's word goes before the annotation": {
			pods: []*corev1.Pod{testPod("a", withAgent, annotated("agent"))}, container: "main", want: []string{"a/main"},
		},
		"native sidecars can be addressed": {
			pods:      []*corev1.Pod{testPod("a", withInit("sidecar", ptr.To(corev1.ContainerRestartPolicyAlways)))},
			container: "sidecar", want: []string{"a/sidecar"},
		},
		"init containers cannot": {
			pods: []*corev1.Pod{testPod("a", withInit("setup", nil))}, container: "setup", problems: []string{"a/ContainerNotFound"},
		},
		"ephemeral containers can be addressed": {
			pods: []*corev1.Pod{testPod("a", withDebugger)}, container: "debugger", want: []string{"a/debugger"},
		},
		"one: the preferred pod, ready or not": {
			pods: []*corev1.Pod{testPod("a"), testPod("b", notReady, created(9))}, policy: PolicyOne, prefer: "uid-b", want: []string{"b/main"},
		},
		"one: the preferred pod, even while it terminates": {
			pods: []*corev1.Pod{testPod("a"), testPod("b", terminating)}, policy: PolicyOne, prefer: "uid-b", want: []string{"b/main terminating"},
		},
		"one: a preferred pod that no longer matches counts for nothing": {
			pods: []*corev1.Pod{testPod("a"), testPod("b", stopped)}, policy: PolicyOne, prefer: "uid-b", want: []string{"a/main"},
		},
		"one: rather a pod that stays": {
			pods: []*corev1.Pod{testPod("a", terminating), testPod("b", notReady)}, policy: PolicyOne, want: []string{"b/main"},
		},
		"one: rather a ready pod": {
			pods: []*corev1.Pod{testPod("a", notReady), testPod("b", created(1))}, policy: PolicyOne, want: []string{"b/main"},
		},
		"one: rather the oldest": {
			pods: []*corev1.Pod{testPod("a", created(1)), testPod("b")}, policy: PolicyOne, want: []string{"b/main"},
		},
		"one: else the first by name": {pods: []*corev1.Pod{testPod("b"), testPod("a")}, policy: PolicyOne, want: []string{"a/main"}},
		"one: problems of others do not matter": {
			pods: []*corev1.Pod{testPod("a", stopped), testPod("b")}, policy: PolicyOne, want: []string{"b/main"},
		},
		"one: without any, the problems tell why": {
			pods: []*corev1.Pod{testPod("a", stopped)}, policy: PolicyOne, problems: []string{"a/ContainerNotRunning"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var objects []runtime.Object
			for _, pod := range tc.pods {
				objects = append(objects, pod)
			}
			resolver := NewResolver(fake.NewClientset(objects...).CoreV1())
			targets, problems, err := resolver.Resolve(t.Context(), Selection{
				Namespace: "shop", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}},
				Container: tc.container, Policy: tc.policy, Prefer: tc.prefer,
			})
			if err != nil {
				t.Fatal(err)
			}
			var got, gotProblems []string
			for _, target := range targets {
				short := target.Pod + "/" + target.Container
				if target.Terminating {
					short += " terminating"
				}
				got = append(got, short)
			}
			for _, p := range problems {
				gotProblems = append(gotProblems, fmt.Sprintf("%s/%s", p.Pod, p.Reason))
			}
			if !reflect.DeepEqual(got, tc.want) || !reflect.DeepEqual(gotProblems, tc.problems) {
				t.Fatalf("got %v and problems %v, want %v and %v", got, gotProblems, tc.want, tc.problems)
			}
		})
	}
}

func TestATargetTellsAContainerFromItsSuccessor(t *testing.T) {
	pod := testPod("db-0", func(p *corev1.Pod) { p.Status.ContainerStatuses[0].RestartCount = 3 })
	targets, _, err := NewResolver(fake.NewClientset(pod).CoreV1()).Resolve(t.Context(),
		Selection{Namespace: "shop", Selector: &metav1.LabelSelector{}})
	if err != nil {
		t.Fatal(err)
	}
	want := Target{Namespace: "shop", Pod: "db-0", UID: "uid-db-0", Container: "main", ContainerID: "containerd://main", RestartCount: 3}
	if len(targets) != 1 || targets[0] != want {
		t.Fatalf("got %+v", targets)
	}
	if id := targets[0].ID(); id != "shop/db-0/main/uid-db-0" {
		t.Errorf("got ID %s", id)
	}
}

func TestOneListPerNamespaceAndSelector(t *testing.T) {
	client := fake.NewClientset(testPod("a"))
	var lists []string
	client.PrependReactor("list", "pods", func(action k8stesting.Action) (bool, runtime.Object, error) {
		list := action.(k8stesting.ListActionImpl)
		if v := list.ListOptions.ResourceVersion; v != "" {
			t.Errorf("listed at resource version %q", v)
		}
		lists = append(lists, list.Namespace+" "+list.ListRestrictions.Labels.String())
		return false, nil, nil
	})
	db := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}
	got, err := NewResolver(client.CoreV1()).ResolveAll(t.Context(), []Selection{
		{Namespace: "shop", Selector: db},
		{Namespace: "shop", Selector: &metav1.LabelSelector{}},
		{Namespace: "shop", Selector: db, Container: "nobody"},
		{Namespace: "other", Selector: db},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 4 || len(got[0].Targets) != 1 || len(got[1].Targets) != 1 || len(got[2].Problems) != 1 || len(got[3].Targets) != 0 {
		t.Errorf("got %+v", got)
	}
	if want := []string{"shop app=db", "shop ", "other app=db"}; !reflect.DeepEqual(lists, want) {
		t.Errorf("got lists %q", lists)
	}
}

func TestInvalidSelectionsResolveNothing(t *testing.T) {
	for name, sel := range map[string]Selection{
		"no selector":    {Namespace: "shop"},
		"no namespace":   {Selector: &metav1.LabelSelector{}},
		"not a selector": {Namespace: "shop", Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"a b": "c"}}},
	} {
		if _, _, err := NewResolver(fake.NewClientset().CoreV1()).Resolve(t.Context(), sel); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	client := fake.NewClientset()
	client.PrependReactor("list", "pods", func(k8stesting.Action) (bool, runtime.Object, error) {
		return true, nil, fmt.Errorf("out of order")
	})
	_, _, err := NewResolver(client.CoreV1()).Resolve(t.Context(), Selection{Namespace: "shop", Selector: &metav1.LabelSelector{}})
	if err == nil || !strings.Contains(err.Error(), "listing pods in namespace shop: out of order") {
		t.Errorf("got %v", err)
	}
}
