// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// What a refusal says.
const (
	needsExec    = "needs the right to create pods/exec in namespace tenants"
	needsAccount = "with serviceAccountName the hooks act as ServiceAccount hooks, and so must you be able to"
	needsAll     = "a hook names another namespace than tenants: set serviceAccountName"
	statusIsOurs = "is written by the operator alone"
)

// Users of the tests. All of them may do everything to schedules and runs in namespace tenants, as far as RBAC is asked.
const (
	writer       = "writer"       // and may exec in namespace others only
	execer       = "execer"       // and may exec
	podder       = "podder"       // and may exec and create pods
	tokener      = "tokener"      // and may exec and ask for tokens of the account hooks
	impersonator = "impersonator" // and may exec and impersonate the account hooks
	everywhere   = "everywhere"   // and may exec in all namespaces
	editor       = "editor"       // holds the cluster's role edit, and nothing else
	gitops       = "system:serviceaccount:flux-system:applier"
	theOperator  = "system:serviceaccount:" + operatorNamespace + ":" + operatorAccount
)

func TestAdmission(t *testing.T) {
	g := guard(t)
	fromConfig, fromChart := kustomized(t), charted(t)
	g.install(ofKind(fromConfig, "ServiceAccount", "ClusterRole", "ClusterRoleBinding"))

	all := right(v1.GroupVersion.Group, "*", []string{"*"})
	execs := right("", "pods/exec", []string{"create", "get"})
	for _, name := range []string{writer, execer, podder, tokener, impersonator, everywhere, editor} {
		g.user(name)
	}
	g.account("flux-system", "applier")
	g.account(operatorNamespace, operatorAccount)
	for _, name := range []string{writer, execer, podder, tokener, impersonator, everywhere, gitops} {
		g.may(name, tenants, all)
	}
	for _, name := range []string{execer, podder, tokener, impersonator} {
		g.may(name, tenants, execs)
	}
	g.may(writer, others, all, execs)
	g.may(everywhere, "", execs)
	g.may(podder, tenants, right("", "pods", []string{"create"}))
	g.may(tokener, tenants, right("", "serviceaccounts/token", []string{"create"}, "hooks"))
	g.may(impersonator, tenants, right("", "serviceaccounts", []string{"impersonate"}, "hooks"))
	g.bindAggregated(editor, tenants, "edit")
	g.holds(editor, tenants, execs)
	g.holds(editor, tenants, right(v1.GroupVersion.Group, "snapshotschedules", []string{"create", "update", "patch"}))
	g.holds(theOperator, tenants, right(v1.GroupVersion.Group, "snapshotruns/status", []string{"patch"}))

	for _, rendering := range []struct {
		name    string
		objects []*unstructured.Unstructured
	}{{"config", fromConfig}, {"chart", fromChart}} {
		t.Run(rendering.name, func(t *testing.T) {
			g.enforce(t, rendering.objects)
			for name, test := range map[string]func(*guarded, *testing.T){
				"creating schedules": creatingSchedules,
				"changing schedules": changingSchedules,
				"as GitOps does":     applyingSchedules,
				"runs":               creatingAndChangingRuns,
				"status":             writingStatus,
				"the operator":       theOperatorWorks,
				"many hooks":         schedulesOfAnySize,
				"an emergency":       actingAsTheOperator,
			} {
				t.Run(name, func(t *testing.T) { test(g, t) })
			}
		})
	}
}

// way is one of the ways to write an object.
type way struct {
	name  string
	write func(context.Context, client.Client) error
}

// creations are the ways to create an object.
func creations(o client.Object) []way {
	return []way{
		{"create", func(ctx context.Context, c client.Client) error {
			return c.Create(ctx, o.DeepCopyObject().(client.Object), client.DryRunAll)
		}},
		{"create by name", func(ctx context.Context, c client.Client) error {
			named := o.DeepCopyObject().(client.Object)
			named.SetGenerateName("")
			named.SetName("by-name")
			return c.Create(ctx, named, client.DryRunAll)
		}},
		{"apply", func(ctx context.Context, c client.Client) error {
			return apply(ctx, c, o, "by-name", "somebody", client.DryRunAll)
		}},
	}
}

// apply an object on the server's side, without what the server fills in.
func apply(ctx context.Context, c client.Client, o client.Object, name, manager string, opts ...client.ApplyOption) error {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
	if err != nil {
		return err
	}
	u := &unstructured.Unstructured{Object: fields}
	metadata := map[string]any{"name": name, "namespace": o.GetNamespace()}
	for _, key := range []string{"labels", "annotations", "finalizers", "ownerReferences"} {
		if v, found, _ := unstructured.NestedFieldNoCopy(fields, "metadata", key); found {
			metadata[key] = v
		}
	}
	u.Object["metadata"] = metadata
	delete(u.Object, "status")
	return c.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), append(opts, client.FieldOwner(manager), client.ForceOwnership)...)
}

// changes are the ways to turn an object that exists into another one.
func changes(before, after client.Object) []way {
	return []way{
		{"update", func(ctx context.Context, c client.Client) error {
			return c.Update(ctx, after.DeepCopyObject().(client.Object), client.DryRunAll)
		}},
		{"merge patch", func(ctx context.Context, c client.Client) error {
			return c.Patch(ctx, after.DeepCopyObject().(client.Object), client.MergeFrom(before), client.DryRunAll)
		}},
		{"JSON patch", func(ctx context.Context, c client.Client) error {
			patch, err := jsonPatch(before, after)
			if err != nil {
				return err
			}
			return c.Patch(ctx, after.DeepCopyObject().(client.Object), client.RawPatch(types.JSONPatchType, patch), client.DryRunAll)
		}},
	}
}

// jsonPatch replaces what differs as a whole: the spec, and the parts of the metadata.
func jsonPatch(before, after client.Object) ([]byte, error) {
	from, err := runtime.DefaultUnstructuredConverter.ToUnstructured(before)
	if err != nil {
		return nil, err
	}
	to, err := runtime.DefaultUnstructuredConverter.ToUnstructured(after)
	if err != nil {
		return nil, err
	}
	operations := []map[string]any{}
	for _, path := range [][]string{{"spec"}, {"metadata", "annotations"}, {"metadata", "labels"}, {"metadata", "finalizers"}, {"metadata", "ownerReferences"}} {
		was, existed, _ := unstructured.NestedFieldNoCopy(from, path...)
		is, exists, _ := unstructured.NestedFieldNoCopy(to, path...)
		pointer := "/" + strings.Join(path, "/")
		switch {
		case exists && !reflect.DeepEqual(was, is):
			operations = append(operations, map[string]any{"op": "add", "path": pointer, "value": is})
		case existed && !exists:
			operations = append(operations, map[string]any{"op": "remove", "path": pointer})
		}
	}
	return json.Marshal(operations)
}

// attempt lets users write in all of these ways. because is what each refusal says; empty: all of it is accepted.
func (g *guarded) attempt(t *testing.T, ways []way, because string, users ...string) {
	t.Helper()
	for _, user := range users {
		for _, w := range ways {
			err := w.write(t.Context(), g.as[user])
			switch {
			case because == "" && err != nil:
				t.Errorf("%s by %s: %v", w.name, user, err)
			case because != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), because) || !strings.Contains(err.Error(), policyKind)):
				t.Errorf("%s by %s is not refused because it %s: %v", w.name, user, because, err)
			}
		}
	}
}
