// SPDX-License-Identifier: Apache-2.0

package v1

// Labels, annotations and finalizers. The first two labels are snapscheduler's; tools parse them.
const (
	// LabelSchedule on a VolumeSnapshot or SnapshotRun: the name of its schedule (hashed where it is no label value).
	LabelSchedule = "snapscheduler.backube/schedule"
	// LabelWhen on a VolumeSnapshot: the scheduled minute in UTC as YYYYMMDDHHMM.
	LabelWhen = "snapscheduler.backube/when"
	// LabelConsistency on a VolumeSnapshot of a run with hooks: ConsistencyCrash or ConsistencyApplication.
	LabelConsistency = "snapscheduler.backube/consistency"
	// LabelRetention on a VolumeSnapshot: the value RetentionKeep protects it from retention.
	LabelRetention = "snapscheduler.backube/retention"
	// LabelVeleroExclude keeps SnapshotRuns out of Velero's backups: a restored run must not start anything.
	LabelVeleroExclude = "velero.io/exclude-from-backup"

	// AnnotationRun on a VolumeSnapshot: the name of the SnapshotRun that made it.
	AnnotationRun = "snapscheduler.backube/run"
	// AnnotationRunUID on a VolumeSnapshot: the UID of that run; only with it does a name belong to the run.
	AnnotationRunUID = "snapscheduler.backube/run-uid"
	// AnnotationClaimUID on a VolumeSnapshot: the UID of the claim it was taken from.
	AnnotationClaimUID = "snapscheduler.backube/claim-uid"
	// AnnotationExclude on a PersistentVolumeClaim: "true" keeps it out of every schedule.
	AnnotationExclude = "snapscheduler.backube/exclude"
	// AnnotationSnapshotClass on a PersistentVolumeClaim: its VolumeSnapshotClass, before the schedule's.
	AnnotationSnapshotClass = "snapscheduler.backube/snapshot-class"
	// AnnotationRelease on an active SnapshotRun sends it to its release with the schedule's current post hooks.
	// Every new value is acted on once.
	AnnotationRelease = "snapscheduler.backube/release"

	// AnnotationRestoring on a VolumeSnapshot: the claims that are being made from it, by name, with commas between. While it is there, the value
	// RetentionKeep of LabelRetention is the restore's own and goes with it; without it, a person set the label.
	AnnotationRestoring = "snapscheduler.backube/restoring"
	// AnnotationRestoredFrom on a PersistentVolumeClaim: the VolumeSnapshot that it was made from.
	AnnotationRestoredFrom = "snapscheduler.backube/restored-from"

	// AnnotationRetry on a SnapshotRun: how often its slot was tried before (runRetryLimit). It is for people; the run's name is what counts.
	AnnotationRetry = "snapscheduler.backube/retry"

	// FinalizerRelease on a SnapshotRun: the run's release is not yet done or given up on record.
	FinalizerRelease = "snapscheduler.backube/release"

	ConsistencyCrash       = "crash"
	ConsistencyApplication = "application"
	RetentionKeep          = "keep"
)

// Condition types of a SnapshotSchedule.
const (
	// ConditionReconciled is snapscheduler's: True/ReconcileComplete or False/ReconcileError.
	ConditionReconciled = "Reconciled"
	// ConditionReady follows kstatus: the schedule is valid and scheduled (or disabled).
	ConditionReady = "Ready"
	// ConditionStalled follows kstatus too: it is there, and True, while Ready is False because of a mistake that waiting does not mend.
	ConditionStalled = "Stalled"
	// ConditionLastRunSucceeded tells how the newest completed run ended; its reason is the run's result.
	ConditionLastRunSucceeded = "LastRunSucceeded"
	// ConditionMayBeQuiesced (schedule and run) is True from the first pre hook until the release is known to have
	// worked. If the release was given up it stays True until a later run of the post hooks succeeds.
	ConditionMayBeQuiesced = "MayBeQuiesced"
)

// Condition types of a SnapshotRun, besides ConditionMayBeQuiesced.
const (
	ConditionPreHooksSucceeded  = "PreHooksSucceeded"
	ConditionSnapshotsCut       = "SnapshotsCut"
	ConditionPostHooksSucceeded = "PostHooksSucceeded"
	ConditionSnapshotsReady     = "SnapshotsReady"
	ConditionComplete           = "Complete"
)

// ConditionSucceeded is the one condition type of a hook; its reasons are the Reason* constants below.
const ConditionSucceeded = "Succeeded"

// Reasons of ConditionReconciled and ConditionReady.
const (
	ReasonReconcileComplete = "ReconcileComplete"
	ReasonReconcileError    = "ReconcileError"
	ReasonScheduled         = "Scheduled"
	ReasonDisabled          = "Disabled"
	ReasonInvalidSchedule   = "InvalidSchedule"
	ReasonInvalidTimeZone   = "InvalidTimeZone"
	ReasonNeverFires        = "NeverFires"
	ReasonInvalidRetention  = "InvalidRetention"
	ReasonInvalidSelector   = "InvalidSelector"
	ReasonInvalidHooks      = "InvalidHooks"
	// ReasonHooksDisabled: the schedule has hooks, and this operator was told to run none. Its runs fail without a snapshot.
	ReasonHooksDisabled = "HooksDisabled"
	// ReasonInvalidGroup: groupSnapshotClassName cannot be combined with something else in the schedule, or with claims that exist. Also of a run's
	// PreHooksSucceeded.
	ReasonInvalidGroup = "InvalidGroupSnapshot"
	// ReasonGroupsUnavailable: the cluster does not serve group snapshots, or the class does not exist. Also of a run's PreHooksSucceeded.
	ReasonGroupsUnavailable = "GroupSnapshotsUnavailable"
)

// Reasons of a run's conditions.
const (
	ReasonSucceeded         = "Succeeded"
	ReasonPartiallyFailed   = "PartiallyFailed"
	ReasonFailed            = "Failed"
	ReasonRunSkipped        = "Skipped"
	ReasonInProgress        = "InProgress"
	ReasonWaiting           = "Waiting"
	ReasonNoHooks           = "NoHooks"
	ReasonHooksSucceeded    = "HooksSucceeded"
	ReasonHookFailed        = "HookFailed"
	ReasonHooksContinued    = "FailedButContinued"
	ReasonPreflightFailed   = "PreflightFailed"
	ReasonInvalidPlan       = "InvalidPlan"
	ReasonCancelled         = "Cancelled"
	ReasonReleaseRequested  = "ReleaseRequested"
	ReasonMaxQuiesceReached = "MaxQuiesceReached"
	ReasonUnknownJournal    = "UnknownJournal"
	ReasonNotTaken          = "NotTaken"
	ReasonAllCut            = "AllCut"
	ReasonNotAllCut         = "NotAllCut"
	ReasonAllReady          = "AllReady"
	ReasonNotAllReady       = "NotAllReady"
	ReasonQuiescing         = "Quiescing"
	ReasonReleasing         = "Releasing"
	ReasonReleased          = "Released"
	ReasonNothingQuiesced   = "NothingQuiesced"
)

// Reasons of a hook's ConditionSucceeded and of its targets. The exec engine's reasons carry the same names.
const (
	// ReasonHookCompleted: the command exited 0 and said what was expected.
	ReasonHookCompleted = "Completed"
	// ReasonNonZeroExit: the command exited with another code; see exitCode.
	ReasonNonZeroExit = "NonZeroExit"
	// ReasonTimeout: no end within timeoutSeconds. The command may still be running.
	ReasonTimeout = "Timeout"
	// ReasonOutputMissing: the command exited 0 without the text of expectOutput.
	ReasonOutputMissing = "OutputMissing"
	// ReasonConnectionLost: the stream ended without a status. The command may still be running.
	ReasonConnectionLost = "ConnectionLost"
	// ReasonUnreachable: the command was surely never started (API server or kubelet not reached).
	ReasonUnreachable = "Unreachable"
	// ReasonPodNotFound: no running pod matches, or the pod is gone.
	ReasonPodNotFound = "PodNotFound"
	// ReasonContainerNotFound: the pod has no such container.
	ReasonContainerNotFound = "ContainerNotFound"
	// ReasonContainerNotRunning: the container exists but does not run.
	ReasonContainerNotRunning = "ContainerNotRunning"
	// ReasonPodGone: the pod or container ended while the command ran.
	ReasonPodGone = "PodGone"
	// ReasonForbidden: the account may not exec there.
	ReasonForbidden = "Forbidden"
	// ReasonCommandNotFound: the container has no such program.
	ReasonCommandNotFound = "CommandNotFound"
	// ReasonInterrupted: the operator or the run ended the wait; the command may still be running.
	ReasonInterrupted = "Interrupted"
	// ReasonHoldLost: a held command ended before it was released.
	ReasonHoldLost = "HoldLost"
	// ReasonHoldNotSupported: a held command needs WebSocket; it was not started.
	ReasonHoldNotSupported = "HoldNotSupported"
	// ReasonHeld: a held command is ready and keeps running.
	ReasonHeld = "Held"
	// ReasonHookSkipped: skipIfNoSelectorFound, the executionPolicy or an earlier failure left the hook out.
	ReasonHookSkipped = "Skipped"
	// ReasonGivenUp: a post hook did not succeed until the release deadline.
	ReasonGivenUp = "GivenUp"
)

// Reasons of events on a SnapshotSchedule; the related object is the run or the snapshot. docs/events.md says when each is sent.
const (
	// EventRunStarted: a run has begun.
	EventRunStarted = "RunStarted"
	// EventRunSucceeded and the following: a run has completed with this result.
	EventRunSucceeded       = "RunSucceeded"
	EventRunPartiallyFailed = "RunPartiallyFailed"
	EventRunFailed          = "RunFailed"
	EventRunSkipped         = "RunSkipped"
	// EventHookFailed: a hook of a run has failed, after its retries.
	EventHookFailed = "HookFailed"
	// EventReleaseGivenUp: post hooks did not succeed and are not tried any more; the application may still be quiesced. Also on the run.
	EventReleaseGivenUp = "ReleaseGivenUp"
	// EventSlotMissed: slots were not run.
	EventSlotMissed = "SlotMissed"
	// EventClaimSkipped: claims match and cannot be taken.
	EventClaimSkipped = "ClaimSkipped"
	// EventSnapshotExpired: retention deleted snapshots.
	EventSnapshotExpired = "SnapshotExpired"
	// EventRetentionPaused: retention deletes nothing because clocks differ.
	EventRetentionPaused = "RetentionPaused"
)

// Reasons of events on a SnapshotRun, besides EventReleaseGivenUp.
const (
	// EventStarted: the run was planned.
	EventStarted = "Started"
	// EventWaiting: the run waits for another one that holds a pod or claim of it.
	EventWaiting = "Waiting"
	// EventPreHookFailed and EventPostHookFailed: a hook has failed, after its retries.
	EventPreHookFailed  = "PreHookFailed"
	EventPostHookFailed = "PostHookFailed"
	// EventSnapshotNotCreated: creating a VolumeSnapshot failed.
	EventSnapshotNotCreated = "SnapshotNotCreated"
	// EventGroupSnapshotNotCreated: creating a VolumeGroupSnapshot failed.
	EventGroupSnapshotNotCreated = "GroupSnapshotNotCreated"
	// EventGroupSnapshotDeleted: the run deleted its VolumeGroupSnapshot, since nothing of it can be restored.
	EventGroupSnapshotDeleted = "GroupSnapshotDeleted"
	// EventUncutSnapshotDeleted: a VolumeSnapshot that an earlier run left without a cut was deleted.
	EventUncutSnapshotDeleted = "UncutSnapshotDeleted"
	// EventSucceeded and the following: the run has completed with this result.
	EventSucceeded       = "Succeeded"
	EventPartiallyFailed = "PartiallyFailed"
	EventFailed          = "Failed"
	EventSkipped         = "Skipped"
)
