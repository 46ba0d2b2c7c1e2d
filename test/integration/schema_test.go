// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// What the two kinds have. Descriptions are documentation: kubectl explain shows them.
var fields = map[string]string{
	"snapshotschedules.snapscheduler.backube": `
		spec.schedule spec.timeZone spec.startingDeadlineSeconds spec.spreadSeconds spec.runOnCreate spec.runRetryLimit spec.disabled
		spec.claimSelector.matchLabels spec.claimSelector.matchExpressions spec.storageClassNames
		spec.snapshotTemplate.snapshotClassName spec.snapshotTemplate.labels spec.snapshotTemplate.annotations
		spec.snapshotTemplate.ownerReferencePolicy spec.snapshotTemplate.groupSnapshotClassName
		spec.retention.expires spec.retention.maxCount spec.retention.keepLast spec.retention.keepHourly spec.retention.keepDaily
		spec.retention.keepWeekly spec.retention.keepMonthly spec.retention.keepYearly spec.retention.expireLast
		spec.serviceAccountName spec.snapshotTimeoutSeconds spec.maxQuiesceSeconds
		spec.successfulRunsHistoryLimit spec.failedRunsHistoryLimit
		spec.preHooks[].name spec.preHooks[].podSelector.matchLabels spec.preHooks[].podSelector.matchExpressions
		spec.preHooks[].namespace spec.preHooks[].targetPolicy spec.preHooks[].container spec.preHooks[].command
		spec.preHooks[].timeoutSeconds spec.preHooks[].backoffLimit spec.preHooks[].skipIfNoSelectorFound spec.preHooks[].onError
		spec.preHooks[].expectOutput spec.preHooks[].mode spec.preHooks[].expectReleaseOutput spec.preHooks[].releaseTimeoutSeconds
		spec.postHooks[].name spec.postHooks[].podSelector.matchLabels spec.postHooks[].podSelector.matchExpressions
		spec.postHooks[].namespace spec.postHooks[].targetPolicy spec.postHooks[].container spec.postHooks[].command
		spec.postHooks[].timeoutSeconds spec.postHooks[].backoffLimit spec.postHooks[].skipIfNoSelectorFound
		spec.postHooks[].expectOutput spec.postHooks[].executionPolicy
		status.lastSnapshotTime status.nextSnapshotTime status.lastSuccessTime
		status.lastMissed.slot status.lastMissed.reason status.lastMissed.count status.lastMissed.noticedTime status.scheduledSince status.activeRun status.observedGeneration
		status.hooks[].stage status.hooks[].name status.hooks[].conditions[].type status.hooks[].conditions[].reason
		status.conditions[].type status.conditions[].status status.conditions[].reason status.conditions[].message
		status.conditions[].lastTransitionTime status.conditions[].observedGeneration`,
	"snapshotruns.snapscheduler.backube": `
		spec.scheduleName spec.slot spec.mode
		status.phase status.result status.message status.plan.preHooks[].command status.plan.postHooks[].command
		status.startTime status.quiescedTime status.cutTime status.releasedTime status.completionTime
		status.hooks[].stage status.hooks[].name status.hooks[].conditions[].type
		status.hooks[].targets[].pod status.hooks[].targets[].container status.hooks[].targets[].attempts
		status.hooks[].targets[].exitCode status.hooks[].targets[].startTime status.hooks[].targets[].endTime status.hooks[].targets[].output
		status.snapshots[].claim status.snapshots[].name status.snapshots[].state status.snapshots[].cutSeenTime
		status.snapshots[].creationTime status.snapshots[].readySeenTime
		status.conditions[].type status.conditions[].status status.conditions[].reason status.conditions[].message`,
}

func TestSchemas(t *testing.T) {
	for name, list := range fields {
		t.Run(name, func(t *testing.T) {
			schema := schemaOf(t, name)
			t.Run("every field is there", func(t *testing.T) {
				there := paths(schema)
				for _, field := range strings.Fields(list) {
					if !slices.Contains(there, field) {
						t.Errorf("there is no %s", field)
					}
				}
			})
			t.Run("every field is described", func(t *testing.T) {
				walk(schema, "", func(path string, s apiextensionsv1.JSONSchemaProps) {
					inside := strings.HasSuffix(path, "[]") || strings.HasSuffix(path, "{}")
					if strings.TrimSpace(s.Description) == "" && !inside && path != "metadata" {
						t.Errorf("%s has no description", path)
					}
					if strings.Contains(s.Description, "TODO") || strings.Contains(s.Description, "+kubebuilder") || strings.Contains(s.Description, "+optional") {
						t.Errorf("%s is described with what is for the generator: %q", path, s.Description)
					}
				})
			})
			t.Run("every list says how it merges", func(t *testing.T) {
				walk(schema, "", func(path string, s apiextensionsv1.JSONSchemaProps) {
					if s.Type != "array" {
						return
					}
					if s.XListType == nil {
						t.Errorf("%s has no list type", path)
					} else if *s.XListType == "map" && len(s.XListMapKeys) == 0 {
						t.Errorf("%s has no key", path)
					}
				})
			})
			t.Run("a list that the server walks through with a rule has a limit", func(t *testing.T) {
				walk(schema, "", func(path string, s apiextensionsv1.JSONSchemaProps) {
					if s.Type == "array" && len(s.XValidations) > 0 && s.MaxItems == nil {
						t.Errorf("%s has rules and no limit", path)
					}
				})
			})
			t.Run("no default is written and nothing unknown is kept", func(t *testing.T) {
				walk(schema, "", func(path string, s apiextensionsv1.JSONSchemaProps) {
					if s.Default != nil {
						t.Errorf("%s has the default %s", path, s.Default.Raw)
					}
					if s.XPreserveUnknownFields != nil {
						t.Errorf("%s keeps unknown fields", path)
					}
				})
			})
		})
	}
}

func TestDefinitions(t *testing.T) {
	for name, want := range map[string]apiextensionsv1.CustomResourceDefinitionNames{
		"snapshotschedules.snapscheduler.backube": {Kind: scheduleKind, ListKind: "SnapshotScheduleList", Plural: "snapshotschedules", Singular: "snapshotschedule"},
		"snapshotruns.snapscheduler.backube":      {Kind: runKind, ListKind: "SnapshotRunList", Plural: "snapshotruns", Singular: "snapshotrun"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			crd := &apiextensionsv1.CustomResourceDefinition{}
			g.Expect(api.Get(t.Context(), client.ObjectKey{Name: name}, crd)).To(Succeed())
			g.Expect(crd.Spec.Group).To(Equal("snapscheduler.backube"))
			g.Expect(crd.Spec.Names).To(Equal(want))
			g.Expect(crd.Spec.Scope).To(Equal(apiextensionsv1.NamespaceScoped))
			g.Expect(crd.Spec.Versions).To(HaveLen(1))
			version := crd.Spec.Versions[0]
			g.Expect(version.Name).To(Equal("v1"))
			g.Expect(version.Served && version.Storage).To(BeTrue())
			g.Expect(version.Subresources.Status).NotTo(BeNil())

			// kubectl apply keeps a copy of the whole definition in an annotation.
			text, err := json.Marshal(crd.Spec)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(len(text)).To(BeNumerically("<", 200<<10))
		})
	}
}

// paths lists every field of a schema.
func paths(schema apiextensionsv1.JSONSchemaProps) []string {
	var all []string
	walk(schema, "", func(path string, _ apiextensionsv1.JSONSchemaProps) {
		if path != "" && !strings.HasSuffix(path, "[]") && !strings.HasSuffix(path, "{}") {
			all = append(all, path)
		}
	})
	slices.Sort(all)
	return all
}
