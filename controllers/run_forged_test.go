// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"
	kubetesting "k8s.io/client-go/testing"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/hooks"
)

// waiting is an executor whose commands end when the pool ends them.
type waiting struct{ began, ended chan string }

func (w waiting) Exec(ctx context.Context, call hooks.Call) hooks.Result {
	w.began <- call.Target.Pod
	<-ctx.Done()
	w.ended <- call.Target.Pod
	return hooks.Result{Reason: hooks.Interrupted}
}

// Somebody has written that a run is completed whose application is quiesced. The look that finds that out begins the release, and still has the
// forged record in its hands when it is over: what it has begun goes on.
func TestAReleaseGoesOnThoughTheRunWasSaidToBeCompleted(t *testing.T) {
	g := NewWithT(t)
	now := clocktesting.NewFakeClock(noon)
	o := &v1.SnapshotRun{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "run", UID: "r", Finalizers: []string{v1.FinalizerRelease}}, Spec: v1.SnapshotRunSpec{ScheduleName: "minutely"}}
	o.Status = v1.SnapshotRunStatus{Phase: v1.PhaseCompleted, Result: v1.ResultSucceeded, QuiescedTime: ptr.To(metav1.NewMicroTime(noon))}
	s := minutely(noon.Add(time.Minute))
	pods := metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}
	s.Spec.PostHooks = []v1.PostHook{{Hook: v1.Hook{Name: "thaw", PodSelector: &pods, Command: []string{"thaw"}}}}
	forged := o.DeepCopy()
	c := schedules(t).WithObjects(o, s).
		WithInterceptorFuncs(interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			if r, ok := o.(*v1.SnapshotRun); ok && forged.ResourceVersion != "" {
				forged.DeepCopyInto(r)
				return nil
			}
			return c.Get(ctx, key, o, opts...)
		}}).Build()
	g.Expect(c.Get(t.Context(), client.ObjectKeyFromObject(o), forged)).To(Succeed())
	commands := waiting{make(chan string, 1), make(chan string, 1)}
	pool := hooks.NewPool(commands, clocktesting.NewFakeClock(noon), hooks.Limits{})
	ctx, stop := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- pool.Run(ctx) }()
	defer func() { stop(); g.Expect(<-stopped).NotTo(HaveOccurred()) }()
	kube := kubefake.NewClientset(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db", UID: "p", Labels: pods.MatchLabels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "db"}}},
		Status: corev1.PodStatus{Phase: corev1.PodRunning, ContainerStatuses: []corev1.ContainerStatus{{Name: "db", ContainerID: "c", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}}},
	})
	kube.PrependReactor("create", "selfsubjectaccessreviews", func(kubetesting.Action) (bool, runtime.Object, error) {
		return true, &authorizationv1.SelfSubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true}}, nil
	})
	r := &RunReconciler{Client: c, Live: c, Clock: now, Recorder: &told{}, Options: RunOptions{Process: "p", ReleaseDeadline: time.Minute, ReadyTimeout: time.Hour},
		Hooks: HookEngine{Pool: pool, Resolver: hooks.NewResolver(kube.CoreV1()), Rights: hooks.NewRights(kube.AuthorizationV1())}}

	g.Eventually(func(g Gomega) { // the pool gives out its slots in the background
		_, err := r.Reconcile(ctx, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)})
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(commands.began).To(Receive(Equal("db")))
	}).Should(Succeed())
	g.Consistently(commands.ended, 200*time.Millisecond).ShouldNot(Receive())
}
