// SPDX-License-Identifier: Apache-2.0

package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// TargetPolicy says in how many of the matching pods a hook runs.
// +kubebuilder:validation:Enum=All;One
type TargetPolicy string

// OnErrorPolicy says what a failed pre hook means for its run.
// +kubebuilder:validation:Enum=Fail;Continue
type OnErrorPolicy string

// HookMode says whether a pre hook's command is run to its end or held.
// +kubebuilder:validation:Enum=Run;Hold
type HookMode string

// ExecutionPolicy says after which outcomes a post hook runs.
// +kubebuilder:validation:Enum=Always;OnSuccess;OnFailure
type ExecutionPolicy string

// Values of the policies; the first of each group is the default.
const (
	TargetAll TargetPolicy = "All"
	TargetOne TargetPolicy = "One"

	OnErrorFail     OnErrorPolicy = "Fail"
	OnErrorContinue OnErrorPolicy = "Continue"

	ModeRun  HookMode = "Run"
	ModeHold HookMode = "Hold"

	ExecuteAlways    ExecutionPolicy = "Always"
	ExecuteOnSuccess ExecutionPolicy = "OnSuccess"
	ExecuteOnFailure ExecutionPolicy = "OnFailure"
)

// Hook is what pre hooks and post hooks have in common: a command and the containers in which it runs.
type Hook struct {
	// name identifies the hook in status, events and metrics. Default: pre-0, pre-1, ... or post-0, post-1, ... by its place in the list.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="name must be lower-case letters, digits and '-', beginning and ending with a letter or digit"
	// +kubebuilder:validation:XValidation:rule="!self.matches('^(pre|post)-[0-9]+$')",message="names like pre-0 and post-0 are the defaults of unnamed hooks; choose another name"
	Name string `json:"name,omitempty"`

	// podSelector selects the pods by their labels; {} selects every pod of the namespace. Only pods whose container is running count.
	// +optional
	PodSelector *metav1.LabelSelector `json:"podSelector,omitempty"`

	// namespace of the pods. Default: the schedule's. Another one needs serviceAccountName, whose rights then decide.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$')",message="namespace must be lower-case letters, digits and '-', beginning and ending with a letter or digit"
	Namespace string `json:"namespace,omitempty"`

	// targetPolicy All (default) runs the command in every matching pod, One in one of them.
	// +optional
	TargetPolicy TargetPolicy `json:"targetPolicy,omitempty"`

	// container in which the command runs. Default: the one that the pod's annotation kubectl.kubernetes.io/default-container
	// names, else the pod's first container. Sidecars and ephemeral containers can be named.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^([a-z0-9]([-a-z0-9]*[a-z0-9])?)?$')",message="container must be lower-case letters, digits and '-', beginning and ending with a letter or digit"
	Container string `json:"container,omitempty"`

	// command is the program and its arguments. It is not run in a shell: use ["sh", "-c", "..."] for one. 1 to 64 items of up to 4096 characters.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=4096
	Command []string `json:"command,omitempty"`

	// timeoutSeconds bounds one attempt of the command, 1 to 14400 seconds. Default: 300.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=14400
	TimeoutSeconds *int32 `json:"timeoutSeconds,omitempty"`

	// backoffLimit is how often a failed command is repeated, 0 to 100. Default: pre hooks 0, post hooks until the release deadline.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	BackoffLimit *int32 `json:"backoffLimit,omitempty"`

	// skipIfNoSelectorFound true: the hook is skipped when no running pod matches. Default false: the run fails.
	// +optional
	SkipIfNoSelectorFound bool `json:"skipIfNoSelectorFound,omitempty"`

	// expectOutput is a text that must appear on the command's standard output; without it the command has not succeeded, whatever its exit code.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	ExpectOutput string `json:"expectOutput,omitempty"`
}

// PreHook runs before the snapshots are created; it quiesces an application.
// +kubebuilder:validation:XValidation:rule="has(self.podSelector)",message="podSelector is missing: name the pods' labels, or write {} for every pod of the namespace",fieldPath=".podSelector",reason=FieldValueRequired
// +kubebuilder:validation:XValidation:rule="has(self.command) && size(self.command) > 0 && size(self.command[0]) > 0",message="command is missing or empty: name the program to run, for example [\"fsfreeze\", \"--freeze\", \"/data\"]",fieldPath=".command",reason=FieldValueRequired
// +kubebuilder:validation:XValidation:rule="!has(self.mode) || self.mode != 'Hold' || (has(self.expectOutput) && size(self.expectOutput) > 0)",message="mode Hold needs expectOutput: the text by which the command says that the application is quiesced",fieldPath=".expectOutput",reason=FieldValueRequired
// +kubebuilder:validation:XValidation:rule="!has(self.mode) || self.mode != 'Hold' || (has(self.expectReleaseOutput) && size(self.expectReleaseOutput) > 0)",message="mode Hold needs expectReleaseOutput: the text by which the command says that the application is released",fieldPath=".expectReleaseOutput",reason=FieldValueRequired
// +kubebuilder:validation:XValidation:rule="(has(self.mode) && self.mode == 'Hold') || !has(self.expectReleaseOutput) || size(self.expectReleaseOutput) == 0",message="expectReleaseOutput is only for mode Hold: set mode: Hold or remove it",fieldPath=".expectReleaseOutput",reason=FieldValueForbidden
// +kubebuilder:validation:XValidation:rule="(has(self.mode) && self.mode == 'Hold') || !has(self.releaseTimeoutSeconds)",message="releaseTimeoutSeconds is only for mode Hold: set mode: Hold or remove it",fieldPath=".releaseTimeoutSeconds",reason=FieldValueForbidden
type PreHook struct {
	Hook `json:",inline"`

	// onError Fail (default): no snapshot is created when the hook fails. Continue: snapshots are created all the same and labelled crash.
	// +optional
	OnError OnErrorPolicy `json:"onError,omitempty"`

	// mode Run (default) waits for the command's end before snapshots are created. Hold keeps it running while they are cut and then
	// closes its standard input, upon which it must release the application and exit.
	// +optional
	Mode HookMode `json:"mode,omitempty"`

	// expectReleaseOutput (Hold) is the text by which the command says that it has released the application. The release went well
	// only if the text appeared and the command exited with 0.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	ExpectReleaseOutput string `json:"expectReleaseOutput,omitempty"`

	// releaseTimeoutSeconds (Hold) bounds the time between closing standard input and the end of the command, 1 to 14400 seconds. Default: 60.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=14400
	ReleaseTimeoutSeconds *int32 `json:"releaseTimeoutSeconds,omitempty"`
}

// PostHook runs after the snapshots are cut, whatever happened before; it releases an application. It must be idempotent.
// +kubebuilder:validation:XValidation:rule="has(self.podSelector)",message="podSelector is missing: name the pods' labels, or write {} for every pod of the namespace",fieldPath=".podSelector",reason=FieldValueRequired
// +kubebuilder:validation:XValidation:rule="has(self.command) && size(self.command) > 0 && size(self.command[0]) > 0",message="command is missing or empty: name the program to run, for example [\"fsfreeze\", \"--unfreeze\", \"/data\"]",fieldPath=".command",reason=FieldValueRequired
type PostHook struct {
	Hook `json:",inline"`

	// executionPolicy Always (default); OnSuccess: only if every pre hook succeeded and every snapshot was cut; OnFailure: only otherwise.
	// A hook that releases an application must be Always.
	// +optional
	ExecutionPolicy ExecutionPolicy `json:"executionPolicy,omitempty"`
}
