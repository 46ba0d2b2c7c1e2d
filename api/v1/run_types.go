// SPDX-License-Identifier: Apache-2.0

package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// RunMode says what a run does.
// +kubebuilder:validation:Enum=Snapshot;TestHooks;Release
type RunMode string

// RunPhase is how far a run has come. Phases only move forward.
// +kubebuilder:validation:Enum=Pending;Planned;PreHooks;Snapshotting;PostHooks;AwaitingReady;Completed
type RunPhase string

// RunResult is how a completed run ended.
// +kubebuilder:validation:Enum=Succeeded;PartiallyFailed;Failed;Skipped
type RunResult string

// HookStage is Pre or Post.
// +kubebuilder:validation:Enum=Pre;Post
type HookStage string

// SnapshotState is the state of one snapshot of a run.
// +kubebuilder:validation:Enum=Pending;Cut;Ready;Failed
type SnapshotState string

// Values of the enumerations above.
const (
	// RunSnapshot (default) takes snapshots with the schedule's hooks.
	RunSnapshot RunMode = "Snapshot"
	// RunTestHooks runs pre and post hooks and takes no snapshot.
	RunTestHooks RunMode = "TestHooks"
	// RunRelease runs the schedule's post hooks, now: the emergency exit.
	RunRelease RunMode = "Release"

	PhasePending       RunPhase = "Pending"
	PhasePlanned       RunPhase = "Planned"
	PhasePreHooks      RunPhase = "PreHooks"
	PhaseSnapshotting  RunPhase = "Snapshotting"
	PhasePostHooks     RunPhase = "PostHooks"
	PhaseAwaitingReady RunPhase = "AwaitingReady"
	PhaseCompleted     RunPhase = "Completed"

	ResultSucceeded       RunResult = "Succeeded"
	ResultPartiallyFailed RunResult = "PartiallyFailed"
	ResultFailed          RunResult = "Failed"
	ResultSkipped         RunResult = "Skipped"

	StagePre  HookStage = "Pre"
	StagePost HookStage = "Post"

	SnapshotPending SnapshotState = "Pending"
	SnapshotCut     SnapshotState = "Cut"
	SnapshotReady   SnapshotState = "Ready"
	SnapshotFailed  SnapshotState = "Failed"
)

// SnapshotRun is one run of a SnapshotSchedule: a slot of its calendar, or one that a person created by hand.
// Deleting it cancels it: it goes straight to its release.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=snapshotruns,singular=snapshotrun,scope=Namespaced
// +kubebuilder:printcolumn:name="Schedule",type=string,JSONPath=`.spec.scheduleName`
// +kubebuilder:printcolumn:name="Mode",type=string,priority=1,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Result",type=string,JSONPath=`.status.result`
// +kubebuilder:printcolumn:name="Quiesced",type=string,JSONPath=`.status.quiescedFor`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.message`
type SnapshotRun struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says which schedule is run, and how; it cannot be changed.
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec of a SnapshotRun cannot be changed: create a new SnapshotRun"
	Spec SnapshotRunSpec `json:"spec"`
	// status is the run's journal: what was planned, done and seen. Nobody but the operator should write it.
	// +optional
	Status SnapshotRunStatus `json:"status,omitempty"`
}

// SnapshotRunList is a list of SnapshotRuns.
// +kubebuilder:object:root=true
type SnapshotRunList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SnapshotRun `json:"items"`
}

// SnapshotRunSpec says which schedule is run, and how.
type SnapshotRunSpec struct {
	// scheduleName is the SnapshotSchedule of the same namespace.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	ScheduleName string `json:"scheduleName"`
	// slot is the time of the schedule that this run is for. The operator sets it; leave it out when you create a run by hand.
	// +optional
	Slot *metav1.Time `json:"slot,omitempty"`
	// mode Snapshot (default) takes snapshots with the schedule's hooks; TestHooks runs the hooks and takes no snapshot; Release runs
	// the schedule's post hooks now.
	// +optional
	Mode RunMode `json:"mode,omitempty"`
}

// SnapshotRunStatus is the journal of a run.
type SnapshotRunStatus struct {
	// phase: Pending, Planned, PreHooks, Snapshotting, PostHooks, AwaitingReady, Completed. It only moves forward.
	// +optional
	Phase RunPhase `json:"phase,omitempty"`
	// result of a completed run: Succeeded (all as asked), PartiallyFailed, Failed (no snapshot, or a pre hook failed), Skipped (nothing to do).
	// +optional
	Result RunResult `json:"result,omitempty"`
	// message says in one sentence what the run waits for or how it ended.
	// +optional
	Message string `json:"message,omitempty"`
	// plan is what the run decided to do before it quiesced anything.
	// +optional
	Plan *RunPlan `json:"plan,omitempty"`

	// startTime is when the run was planned.
	// +optional
	StartTime *metav1.MicroTime `json:"startTime,omitempty"`
	// quiescedTime is when the first pre hook was about to start: the application may be quiesced from here.
	// +optional
	QuiescedTime *metav1.MicroTime `json:"quiescedTime,omitempty"`
	// snapshottingTime is when every pre hook had ended and the first snapshot was about to be created.
	// +optional
	SnapshottingTime *metav1.MicroTime `json:"snapshottingTime,omitempty"`
	// cutTime is when every snapshot was seen to be cut.
	// +optional
	CutTime *metav1.MicroTime `json:"cutTime,omitempty"`
	// releaseTime is when the release began.
	// +optional
	ReleaseTime *metav1.MicroTime `json:"releaseTime,omitempty"`
	// releasedTime is when every post hook had ended.
	// +optional
	ReleasedTime *metav1.MicroTime `json:"releasedTime,omitempty"`
	// completionTime is when the run completed.
	// +optional
	CompletionTime *metav1.MicroTime `json:"completionTime,omitempty"`
	// quiescedFor is the time from quiescedTime to releasedTime, as a Go duration.
	// +optional
	QuiescedFor string `json:"quiescedFor,omitempty"`

	// release tells how the release goes.
	// +optional
	Release *ReleaseStatus `json:"release,omitempty"`
	// consistency is what the snapshots of a run with hooks may claim: crash or application.
	// +optional
	Consistency *ConsistencyStatus `json:"consistency,omitempty"`

	// hooks tells what became of each hook, in the order in which they run; a repeated release adds entries with a higher pass.
	// +optional
	// +listType=atomic
	Hooks []HookStatus `json:"hooks,omitempty"`
	// snapshots of the run, one per planned claim.
	// +optional
	// +listType=atomic
	Snapshots []SnapshotStatus `json:"snapshots,omitempty"`
	// groupSnapshot that holds all of them, where the schedule has groupSnapshotClassName.
	// +optional
	GroupSnapshot *GroupSnapshotStatus `json:"groupSnapshot,omitempty"`
	// claimsLeftOut match and could not be taken, in words.
	// +optional
	// +listType=atomic
	ClaimsLeftOut []string `json:"claimsLeftOut,omitempty"`
	// conditions: PreHooksSucceeded, SnapshotsCut, PostHooksSucceeded, SnapshotsReady, MayBeQuiesced, Complete.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// RunPlan is what a run decided to do before it quiesced anything. The schedule may be edited or deleted afterwards: the plan stands.
type RunPlan struct {
	// version of the journal's format.
	Version int32 `json:"version"`
	// scheduleUID is the schedule that was planned.
	// +optional
	ScheduleUID types.UID `json:"scheduleUID,omitempty"`
	// scheduleGeneration is its generation at that time.
	// +optional
	ScheduleGeneration int64 `json:"scheduleGeneration,omitempty"`
	// at is the minute for which snapshots are named: the slot, or the creation of a run without one.
	At metav1.Time `json:"at"`
	// snapshotTemplate is the schedule's, with ownerReferencePolicy decided.
	// +optional
	SnapshotTemplate SnapshotTemplateSpec `json:"snapshotTemplate,omitempty"`
	// serviceAccountName as which hooks run.
	// +optional
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
	// snapshotTimeoutSeconds, in seconds.
	// +optional
	SnapshotTimeoutSeconds int32 `json:"snapshotTimeoutSeconds,omitempty"`
	// maxQuiesceSeconds, in seconds; 0: none.
	// +optional
	MaxQuiesceSeconds int32 `json:"maxQuiesceSeconds,omitempty"`
	// releaseDeadlineSeconds from releaseTime until post hooks are given up, in seconds.
	// +optional
	ReleaseDeadlineSeconds int32 `json:"releaseDeadlineSeconds,omitempty"`
	// preHooks as planned, defaults filled in.
	// +optional
	// +listType=atomic
	PreHooks []PlannedHook `json:"preHooks,omitempty"`
	// postHooks as planned, defaults filled in.
	// +optional
	// +listType=atomic
	PostHooks []PlannedHook `json:"postHooks,omitempty"`
}

// PlannedHook is a pre or post hook of the schedule with its defaults filled in.
type PlannedHook struct {
	// name of the hook.
	Name string `json:"name"`
	// podSelector of its pods.
	PodSelector metav1.LabelSelector `json:"podSelector"`
	// namespace of its pods.
	Namespace string `json:"namespace"`
	// targetPolicy: All or One.
	TargetPolicy TargetPolicy `json:"targetPolicy"`
	// container, where the hook names one.
	// +optional
	Container string `json:"container,omitempty"`
	// command and its arguments.
	// +listType=atomic
	Command []string `json:"command"`
	// timeoutSeconds of one attempt, in seconds.
	TimeoutSeconds int32 `json:"timeoutSeconds"`
	// backoffLimit is how often a failed attempt is repeated; absent: until the release deadline.
	// +optional
	BackoffLimit *int32 `json:"backoffLimit,omitempty"`
	// skipIfNoSelectorFound as in the schedule.
	// +optional
	SkipIfNoSelectorFound bool `json:"skipIfNoSelectorFound,omitempty"`
	// expectOutput as in the schedule.
	// +optional
	ExpectOutput string `json:"expectOutput,omitempty"`
	// onError of a pre hook: Fail or Continue.
	// +optional
	OnError OnErrorPolicy `json:"onError,omitempty"`
	// mode of a pre hook: Run or Hold.
	// +optional
	Mode HookMode `json:"mode,omitempty"`
	// expectReleaseOutput of a held pre hook.
	// +optional
	ExpectReleaseOutput string `json:"expectReleaseOutput,omitempty"`
	// releaseTimeoutSeconds of a held pre hook, in seconds.
	// +optional
	ReleaseTimeoutSeconds int32 `json:"releaseTimeoutSeconds,omitempty"`
	// executionPolicy of a post hook: Always, OnSuccess or OnFailure.
	// +optional
	ExecutionPolicy ExecutionPolicy `json:"executionPolicy,omitempty"`
}

// ReleaseStatus tells how the release goes.
type ReleaseStatus struct {
	// pass counts how often the post hooks were begun. A second pass follows when the end of a pre hook is unknown.
	Pass int32 `json:"pass"`
	// passTime is when this pass began; the release deadline counts from here.
	PassTime metav1.MicroTime `json:"passTime"`
	// looked is true once pods that match now were added to the planned targets of this pass.
	// +optional
	Looked bool `json:"looked,omitempty"`
	// nextPassTime is when the next pass begins: when every pre hook whose end is unknown has run out of its own time, and 30 s.
	// +optional
	NextPassTime *metav1.MicroTime `json:"nextPassTime,omitempty"`
	// unknownUntil is how long a command of an earlier pass, of which hooks tells nothing any more, may still be running.
	// +optional
	UnknownUntil *metav1.MicroTime `json:"unknownUntil,omitempty"`
	// requested is the value of the annotation snapscheduler.backube/release that was acted on.
	// +optional
	Requested string `json:"requested,omitempty"`
	// reason why the run went to its release, when it was not that its snapshots were cut.
	// +optional
	Reason string `json:"reason,omitempty"`
	// bestEffort: nothing was quiesced; each post hook gets one attempt and a failure raises no alarm.
	// +optional
	BestEffort bool `json:"bestEffort,omitempty"`
}

// ConsistencyStatus is what the snapshots of a run with hooks may claim.
type ConsistencyStatus struct {
	// verdict is crash or application.
	Verdict string `json:"verdict"`
	// reason why it is crash.
	// +optional
	Reason string `json:"reason,omitempty"`
	// allowed: the schedule itself allows it: it has no pre hooks, or one was skipped that may be (skipIfNoSelectorFound).
	// +optional
	Allowed bool `json:"allowed,omitempty"`
}

// HookStatus tells what became of one hook.
type HookStatus struct {
	// stage is Pre or Post.
	Stage HookStage `json:"stage"`
	// name of the hook.
	Name string `json:"name"`
	// pass of the release, from 1 (post hooks).
	// +optional
	Pass int32 `json:"pass,omitempty"`
	// conditions holds the type Succeeded once the hook has ended.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// targets of the hook, failures first once it has ended.
	// +optional
	// +listType=atomic
	Targets []TargetStatus `json:"targets,omitempty"`
}

// TargetStatus tells what became of a hook in one container of one pod.
type TargetStatus struct {
	// namespace of the pod.
	Namespace string `json:"namespace"`
	// pod is its name.
	Pod string `json:"pod"`
	// podUID is its UID.
	// +optional
	PodUID types.UID `json:"podUID,omitempty"`
	// container is its name.
	Container string `json:"container"`
	// containerID as the kubelet reports it.
	// +optional
	ContainerID string `json:"containerID,omitempty"`
	// restartCount of the container.
	// +optional
	RestartCount int32 `json:"restartCount,omitempty"`

	// attempts that were begun.
	// +optional
	Attempts int32 `json:"attempts,omitempty"`
	// notStarted is how many of the attempts surely started no command: refused, not reached, or no such program.
	// +optional
	NotStarted int32 `json:"notStarted,omitempty"`
	// claim is the right to start the newest attempt; present until its outcome is recorded.
	// +optional
	Claim *AttemptClaim `json:"claim,omitempty"`
	// heldTime is when a held command said that it is ready.
	// +optional
	HeldTime *metav1.MicroTime `json:"heldTime,omitempty"`
	// reason of the newest attempt's outcome.
	// +optional
	Reason string `json:"reason,omitempty"`
	// message in words.
	// +optional
	Message string `json:"message,omitempty"`
	// exitCode of the newest attempt, where it is known.
	// +optional
	ExitCode *int32 `json:"exitCode,omitempty"`
	// startTime of the newest attempt.
	// +optional
	StartTime *metav1.MicroTime `json:"startTime,omitempty"`
	// endTime of the newest attempt.
	// +optional
	EndTime *metav1.MicroTime `json:"endTime,omitempty"`
	// output is the end of what the newest attempt wrote.
	// +optional
	Output string `json:"output,omitempty"`
	// nextAttemptTime is when a failed attempt is repeated.
	// +optional
	NextAttemptTime *metav1.MicroTime `json:"nextAttemptTime,omitempty"`
	// gone: the pod no longer exists; the hook is not owed to it.
	// +optional
	Gone bool `json:"gone,omitempty"`
	// joined: the pod was not planned; it matched when the release looked.
	// +optional
	Joined bool `json:"joined,omitempty"`
	// unknownUntil: an attempt's end is unknown; its command may run until then.
	// +optional
	UnknownUntil *metav1.MicroTime `json:"unknownUntil,omitempty"`
}

// AttemptClaim is the right of one process to start one attempt, once and soon. It is written before the start; who finds the claim of
// another process records the attempt's end as unknown.
type AttemptClaim struct {
	// process that may start the attempt.
	Process string `json:"process"`
	// time of the claim; the attempt is started within 10 s or never.
	Time metav1.MicroTime `json:"time"`
}

// GroupSnapshotStatus is the VolumeGroupSnapshot of a run: one cut for all its claims. Its members are the run's snapshots.
type GroupSnapshotStatus struct {
	// name of the VolumeGroupSnapshot.
	Name string `json:"name"`
	// uid of the VolumeGroupSnapshot whose cut was seen. Another one under its name is not this one.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// className is its VolumeGroupSnapshotClass.
	ClassName string `json:"className"`
	// claimLabels select its claims; none: every claim of the namespace.
	// +optional
	ClaimLabels map[string]string `json:"claimLabels,omitempty"`
}

// SnapshotStatus is the state of one snapshot of a run.
type SnapshotStatus struct {
	// claim is the PersistentVolumeClaim.
	Claim string `json:"claim"`
	// claimUID is its UID.
	ClaimUID types.UID `json:"claimUID"`
	// name of the VolumeSnapshot; empty while a member of a group snapshot is not found yet.
	Name string `json:"name"`
	// uid of the VolumeSnapshot whose cut was seen. Another one under its name is not this one.
	// +optional
	UID types.UID `json:"uid,omitempty"`
	// className is its VolumeSnapshotClass.
	// +optional
	ClassName string `json:"className,omitempty"`
	// state: Pending, Cut, Ready, Failed.
	State SnapshotState `json:"state"`
	// message says what is wrong.
	// +optional
	Message string `json:"message,omitempty"`
	// cutSeenTime is when the operator saw that it was cut.
	// +optional
	CutSeenTime *metav1.MicroTime `json:"cutSeenTime,omitempty"`
	// cutBeforeRelease: the cut was seen before the release began, and within maxQuiesceSeconds.
	// +optional
	CutBeforeRelease bool `json:"cutBeforeRelease,omitempty"`
	// creationTime is the storage's time of the cut.
	// +optional
	CreationTime *metav1.Time `json:"creationTime,omitempty"`
	// readySeenTime is when the operator saw that it was ready to restore from.
	// +optional
	ReadySeenTime *metav1.MicroTime `json:"readySeenTime,omitempty"`
	// consistency label that was seen on it.
	// +optional
	Consistency string `json:"consistency,omitempty"`
}
