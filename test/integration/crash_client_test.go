// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"sync"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	authorizationv1client "k8s.io/client-go/kubernetes/typed/authorization/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
	"github.com/stillpoint-operator/stillpoint/controllers"
)

var (
	cacheOptions = sync.OnceValue(func() cache.Options { return controllers.CacheOptions() })
	clientset    = sync.OnceValue(func() kubernetes.Interface { return kubernetes.NewForConfigOrDie(Env()) })
)

// visible is an object as the operator's cache holds it; nil: it does not.
func visible(o client.Object) client.Object {
	for kind, opts := range cacheOptions().ByObject {
		if fmt.Sprintf("%T", kind) != fmt.Sprintf("%T", o) {
			continue
		}
		if opts.Label != nil && !opts.Label.Matches(labels.Set(o.GetLabels())) {
			return nil
		}
		if opts.Transform != nil {
			return transformed(opts.Transform, o)
		}
	}
	return transformed(cacheOptions().DefaultTransform, o)
}

func transformed(f func(any) (any, error), o client.Object) client.Object {
	out, err := f(o.DeepCopyObject())
	if err != nil {
		panic(err)
	}
	seen, ok := out.(client.Object)
	if !ok {
		panic("the cache holds objects")
	}
	return seen
}

// operatorClient is what the controllers of one process work with: it reads from the cache and writes to the server. What it does not know,
// panics.
type operatorClient struct {
	client.Client
	p *process
}

func (c operatorClient) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	return c.p.read("cached get", into, key.Name, func() error { return c.p.view.get(key, into) })
}

func (c operatorClient) List(_ context.Context, into client.ObjectList, opts ...client.ListOption) error {
	o := client.ListOptions{}
	o.ApplyOptions(opts)
	matches := func(string) bool { return true }
	if o.FieldSelector != nil { // both kinds have one index
		want := o.FieldSelector.Requirements()[0].Value
		matches = func(indexed string) bool { return indexed == want }
	}
	return c.p.read("cached list", into, "", func() error { return c.p.view.list(into, matches) })
}

// list the objects whose value in the index matches.
func (v *view) list(into client.ObjectList, matches func(indexed string) bool) error {
	switch list := into.(type) {
	case *v1.SnapshotRunList:
		for _, name := range v.names(kindRun) {
			if o, ok := v.shown[objectKey{kindRun, name}].(*v1.SnapshotRun); ok && matches(o.Spec.ScheduleName) {
				list.Items = append(list.Items, *o.DeepCopy())
			}
		}
	case *snapshotv1.VolumeSnapshotList:
		for _, name := range v.names(kindSnapshot) {
			if o, ok := v.shown[objectKey{kindSnapshot, name}].(*snapshotv1.VolumeSnapshot); ok && matches(o.Labels[v1.LabelSchedule]) {
				list.Items = append(list.Items, *o.DeepCopy())
			}
		}
	case *snapshotv1.VolumeSnapshotClassList:
		list.Items = append(list.Items, *storyClass())
	default:
		return fmt.Errorf("the cache holds no %T", into)
	}
	return nil
}

func (c operatorClient) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	return c.p.write("create", o, func() error { return c.p.server.Create(ctx, o, opts...) })
}

func (c operatorClient) Patch(ctx context.Context, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
	return c.p.write("patch", o, func() error { return c.p.server.Patch(ctx, o, patch, opts...) })
}

func (c operatorClient) Delete(ctx context.Context, o client.Object, opts ...client.DeleteOption) error {
	return c.p.write("delete", o, func() error { return c.p.server.Delete(ctx, o, opts...) })
}

func (c operatorClient) Status() client.SubResourceWriter { return operatorStatus{p: c.p} }

type operatorStatus struct {
	client.SubResourceWriter
	p *process
}

func (w operatorStatus) Patch(ctx context.Context, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	return w.p.write("patch status of", o, func() error { return w.p.server.patchStatus(ctx, o, patch, opts...) })
}

// liveReader asks the server itself.
type liveReader struct{ p *process }

func (r liveReader) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	return r.p.read("live get", into, key.Name, func() error { return r.p.server.Get(ctx, key, into, opts...) })
}

func (r liveReader) List(ctx context.Context, into client.ObjectList, opts ...client.ListOption) error {
	// As DefaultNamespaces do for the cache: a story is alone in the world.
	opts = append(opts, client.InNamespace(r.p.namespace))
	return r.p.read("live list", into, "", func() error { return r.p.server.List(ctx, into, opts...) })
}

// podsGetter and the following are what package hooks asks for.
type podsGetter struct{ p *process }

func (g podsGetter) Pods(namespace string) corev1client.PodInterface {
	return podLister{clientset().CoreV1().Pods(namespace), g.p}
}

type podLister struct {
	corev1client.PodInterface
	p *process
}

func (l podLister) List(ctx context.Context, opts metav1.ListOptions) (list *corev1.PodList, err error) {
	err = l.p.call("live list pods", func() error {
		list, err = l.PodInterface.List(ctx, opts)
		return err
	})
	return list, err
}

type rightsClient struct {
	authorizationv1client.AuthorizationV1Interface
	p *process
}

func (c rightsClient) SelfSubjectAccessReviews() authorizationv1client.SelfSubjectAccessReviewInterface {
	return reviews{clientset().AuthorizationV1().SelfSubjectAccessReviews(), c.p}
}

type reviews struct {
	authorizationv1client.SelfSubjectAccessReviewInterface
	p *process
}

func (r reviews) Create(ctx context.Context, review *authorizationv1.SelfSubjectAccessReview, opts metav1.CreateOptions) (out *authorizationv1.SelfSubjectAccessReview, err error) {
	err = r.p.call("ask for the right to exec", func() error {
		out, err = r.SelfSubjectAccessReviewInterface.Create(ctx, review, opts)
		return err
	})
	return out, err
}
