// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	v1 "github.com/stillpoint-operator/stillpoint/api/v1"
)

// proposal is the YAML with which hooks were proposed.
const proposal = `apiVersion: snapscheduler.backube/v1
kind: SnapshotSchedule
metadata:
  name: hourly
  namespace: my-ns
spec:
  schedule: "@hourly"
  preHooks:
    - podSelector:
        matchLabels:
          app: my-database
      command:
        - /bin/bash
        - -c
        - "pg_dump $DATABASE | gzip > /mnt/data-disk/dump.sql.gz"
      container: postgres            # optional, the first container otherwise
      namespace: my-ns               # optional, the schedule's otherwise
      timeoutSeconds: 60             # optional, 300 otherwise
      backoffLimit: 2                # optional, 0 otherwise: a non-zero exit fails the snapshot at once
      skipIfNoSelectorFound: true    # optional, false otherwise: no snapshot is created if no pod matches
    - podSelector:
        matchLabels:
          app: nginx
      command: ["/sbin/fsfreeze", "--freeze", "/var/log/nginx"]
      container: fsfreeze
  postHooks:
    - podSelector:
        matchLabels:
          app: nginx
      command: ["/sbin/fsfreeze", "--unfreeze", "/var/log/nginx"]
      container: fsfreeze
      namespace: my-ns
`

// everything uses each field of a schedule, most of them with their default.
const everything = `apiVersion: snapscheduler.backube/v1
kind: SnapshotSchedule
metadata: {name: everything, namespace: my-ns}
spec:
  schedule: "0 * * * *"
  timeZone: Europe/Vienna
  startingDeadlineSeconds: 3600
  spreadSeconds: 0
  runOnCreate: false
  runRetryLimit: 0
  disabled: false
  claimSelector: {matchLabels: {app: db}, matchExpressions: [{key: tier, operator: NotIn, values: [cache]}]}
  storageClassNames: [fast]
  snapshotTemplate:
    snapshotClassName: fast
    labels: {team: shop}
    annotations: {contact: somebody}
    ownerReferencePolicy: None
    groupSnapshotClassName: ""
  retention:
    expires: 168h
    maxCount: 24
    keepLast: 4
    keepHourly: 24
    keepDaily: 7
    keepWeekly: 5
    keepMonthly: 12
    keepYearly: 3
    expireLast: false
  serviceAccountName: snapshots
  snapshotTimeoutSeconds: 300
  maxQuiesceSeconds: 900
  successfulRunsHistoryLimit: 3
  failedRunsHistoryLimit: 3
  preHooks:
    - name: flush
      podSelector: {matchLabels: {app: db}}
      namespace: shop
      targetPolicy: All
      container: postgres
      command: ["psql", "-c", "CHECKPOINT"]
      timeoutSeconds: 300
      backoffLimit: 0
      skipIfNoSelectorFound: false
      onError: Fail
      expectOutput: ""
      mode: Run
      expectReleaseOutput: ""
    - name: hold
      podSelector: {}
      command: ["quiesce"]
      expectOutput: quiesced
      mode: Hold
      expectReleaseOutput: released
      releaseTimeoutSeconds: 60
  postHooks:
    - name: flush
      podSelector: {matchLabels: {app: db}}
      namespace: shop
      targetPolicy: One
      container: postgres
      command: ["true"]
      timeoutSeconds: 300
      backoffLimit: 5
      skipIfNoSelectorFound: true
      expectOutput: ok
      executionPolicy: Always
`

func TestNothingIsAddedToASchedule(t *testing.T) {
	g := NewWithT(t)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "my-ns"}}
	g.Expect(client.IgnoreAlreadyExists(api.Create(t.Context(), ns))).To(Succeed())

	for name, text := range map[string]string{
		"the proposal, word for word": proposal,
		"every field":                 everything,
		"the least that is possible":  `{apiVersion: snapscheduler.backube/v1, kind: SnapshotSchedule, metadata: {name: least, namespace: my-ns}, spec: {schedule: "@daily"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			written := &unstructured.Unstructured{}
			g.Expect(yaml.UnmarshalStrict([]byte(text), &written.Object)).To(Succeed())
			g.Expect(api.Create(t.Context(), written.DeepCopy())).To(Succeed())
			t.Cleanup(func() { g.Expect(api.Delete(context.Background(), written)).To(Succeed()) })

			found := fetch(t, written)
			g.Expect(found.Object["spec"]).To(Equal(numbersAsRead(t, written.Object["spec"])))
			g.Expect(found.Object).NotTo(HaveKey("status"))

			// The Go types lose nothing either, but empty values that mean the default.
			typed := &v1.SnapshotSchedule{}
			g.Expect(yaml.UnmarshalStrict([]byte(text), typed)).To(Succeed())
			reread := &v1.SnapshotSchedule{}
			g.Expect(api.Get(t.Context(), client.ObjectKeyFromObject(written), reread)).To(Succeed())
			g.Expect(reread.Spec).To(Equal(typed.Spec))
			g.Expect(api.Update(t.Context(), reread)).To(Succeed(), "written back by a Go program")
			g.Expect(reread.Spec).To(Equal(typed.Spec))
		})
	}
}

// numbersAsRead makes the numbers of YAML what the client makes of JSON.
func numbersAsRead(t *testing.T, value any) any {
	t.Helper()
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Any", "value": value}}
	text, err := o.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	again := &unstructured.Unstructured{}
	if err := again.UnmarshalJSON(text); err != nil {
		t.Fatal(err)
	}
	return again.Object["value"]
}

// "everything" is used as the list of what there is, so it must be complete.
func TestEveryFieldOfTheSpecIsInTheExample(t *testing.T) {
	o := map[string]any{}
	NewWithT(t).Expect(yaml.UnmarshalStrict([]byte(everything), &o)).To(Succeed())
	var used []string
	collect(o["spec"], "spec", &used)
	for _, path := range paths(schemaOf(t, "snapshotschedules.snapscheduler.backube")) {
		if strings.HasPrefix(path, "spec.") && !strings.Contains(path, "odSelector.match") {
			NewWithT(t).Expect(used).To(ContainElement(path))
		}
	}
}

// collect lists the fields of a value, in the words of walk.
func collect(value any, path string, into *[]string) {
	switch value := value.(type) {
	case map[string]any:
		*into = append(*into, path)
		for name, field := range value {
			collect(field, path+"."+name, into)
		}
	case []any:
		*into = append(*into, path)
		for _, item := range value {
			collect(item, path+"[]", into)
		}
	default:
		*into = append(*into, path)
	}
}
