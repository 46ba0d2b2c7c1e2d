// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// Every operator of this package runs as the user that config/rbac binds its role to, so that a missing right breaks the tests that
// need it; and what the operators asked of the API server is noted, so that a right that none of them needs is found too.

// operatorUser is the ServiceAccount of config/rbac/role_binding.yaml.
const operatorUser = "system:serviceaccount:stillpoint-system:stillpoint"

// elsewhere are rights that this package cannot show the need for, and the test that does.
var elsewhere = map[string]string{
	"authorization.k8s.io/subjectaccessreviews create": "test/e2e: metrics are served to whoever may read them",
	"authentication.k8s.io/tokenreviews create":        "test/e2e: metrics are served to whoever may read them",
	"/pods/exec get":    "test/e2e: TestEveryRightToExecIsNeeded",
	"/pods/exec create": "test/e2e: TestEveryRightToExecIsNeeded",
	"authentication.k8s.io/serviceaccounts impersonate:serviceaccount": "test/e2e: TestEveryRightToExecIsNeeded",
	"/pods/exec impersonate-on:serviceaccount:get":                     "test/e2e: TestEveryRightToExecIsNeeded",
	"/pods/exec impersonate-on:serviceaccount:create":                  "test/e2e: TestEveryRightToExecIsNeeded",
	"snapscheduler.backube/snapshotschedules/finalizers update":        "admission: OwnerReferencesPermissionEnforcement, which asks and is not asked",
}

var operatorConfig *rest.Config

// used rights, as "group/resource[/subresource] verb".
var used = struct {
	sync.Mutex
	rights sets.Set[string]
}{rights: sets.New[string]()}

// asOperator is a connection with the operator's rights.
func asOperator() *rest.Config { return rest.CopyConfig(operatorConfig) }

// grantOperator binds the role of config/rbac, as it ships, to a user.
func grantOperator(ctx context.Context) error {
	user, err := env.AddUser(envtest.User{Name: operatorUser, Groups: []string{"system:serviceaccounts", "system:serviceaccounts:stillpoint-system"}}, nil)
	if err != nil {
		return err
	}
	operatorConfig = user.Config()
	operatorConfig.Wrap(func(next http.RoundTripper) http.RoundTripper { return noting{next} })
	role, err := shippedRole()
	if err != nil {
		return err
	}
	return errors.Join(api.Create(ctx, role), api.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "stillpoint"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: operatorUser}},
	}))
}

func shippedRole() (*rbacv1.ClusterRole, error) {
	text, err := os.ReadFile(filepath.Join("..", "..", "config", "rbac", "role.yaml"))
	if err != nil {
		return nil, err
	}
	role := &rbacv1.ClusterRole{}
	return role, yaml.UnmarshalStrict(text, role)
}

// noting notes which right each request needs.
type noting struct{ next http.RoundTripper }

var requests = apirequest.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}

func (n noting) RoundTrip(r *http.Request) (*http.Response, error) {
	if info, err := requests.NewRequestInfo(r); err == nil && info.IsResourceRequest {
		resource := info.Resource
		if info.Subresource != "" {
			resource += "/" + info.Subresource
		}
		used.Lock()
		used.rights.Insert(info.APIGroup + "/" + resource + " " + info.Verb)
		used.Unlock()
	}
	return n.next.RoundTrip(r)
}

// notStreaming is the way to an API server that does not know streamed lists: clients list, and then watch.
type notStreaming struct{ next http.RoundTripper }

func (n notStreaming) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Query().Has("sendInitialEvents") {
		status, err := json.Marshal(apierrors.NewInvalid(schema.GroupKind{Group: "meta.k8s.io", Kind: "ListOptions"}, "",
			field.ErrorList{field.Forbidden(field.NewPath("sendInitialEvents"), "unknown here")}).Status())
		return &http.Response{Status: "422 Unprocessable Entity", StatusCode: http.StatusUnprocessableEntity, Header: http.Header{"Content-Type": {"application/json"}},
			Body: io.NopCloser(bytes.NewReader(status)), Request: r, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1}, err
	}
	return n.next.RoundTrip(r)
}

func TestAnAPIServerThatDoesNotStreamListsIsEnough(t *testing.T) {
	t.Parallel()
	o := prepare(t)
	o.listing = true
	o.start()
	o.claim("data")
	o.schedule("hourly", hourlyOfAll)
	o.tick(o.hour(0))
	o.Expect(o.runs("hourly")[0].Status.Result).To(Equal(v1.ResultSucceeded))
}

// A volume that was bound by hand and is gone since: what is left is the claim's StorageClass.
func TestTheStorageClassTellsTheDriverOfAClaimWithoutAVolume(t *testing.T) {
	t.Parallel()
	o := operate(t)
	class := &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: o.namespace}, Provisioner: o.driver}
	o.Expect(api.Create(t.Context(), class)).To(Succeed())
	t.Cleanup(func() { _ = api.Delete(context.Background(), class) })
	o.claim("data", func(c *corev1.PersistentVolumeClaim) {
		c.Annotations, c.Spec.StorageClassName = nil, ptr.To(class.Name)
	})
	o.schedule("hourly", hourlyOfAll)
	o.tick(o.hour(0))
	o.Expect(o.runs("hourly")[0].Status.Result).To(Equal(v1.ResultSucceeded), o.runs("hourly")[0].Status.Message)
}

// unusedRights of the shipped role, after all tests of the package.
func unusedRights() ([]string, error) {
	if f := flag.Lookup("test.run"); f != nil && f.Value.String() != "" {
		return nil, nil
	}
	role, err := shippedRole()
	if err != nil {
		return nil, err
	}
	used.Lock()
	defer used.Unlock()
	granted := sets.New[string]()
	for _, rule := range role.Rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					granted.Insert(fmt.Sprintf("%s/%s %s", group, resource, verb))
				}
			}
		}
	}
	var wrong []string
	for right := range granted {
		if strings.Contains(right, "*") {
			wrong = append(wrong, right+" is a wildcard")
		}
		if !used.rights.Has(right) && elsewhere[right] == "" {
			wrong = append(wrong, right+" is granted and no operator of these tests needed it")
		}
	}
	for right := range elsewhere {
		if !granted.Has(right) {
			wrong = append(wrong, right+" is on the list of rights that other tests show, and is not granted")
		}
	}
	slices.Sort(wrong)
	return wrong, nil
}
