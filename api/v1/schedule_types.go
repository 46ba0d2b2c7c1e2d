// SPDX-License-Identifier: Apache-2.0

package v1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// OwnerReferencePolicy says whether a schedule's VolumeSnapshots are owned by it.
// +kubebuilder:validation:Enum=None;Schedule
type OwnerReferencePolicy string

// Values of OwnerReferencePolicy; the default is what the operator's --enable-owner-references says.
const (
	OwnerNone     OwnerReferencePolicy = "None"
	OwnerSchedule OwnerReferencePolicy = "Schedule"
)

// SnapshotSchedule takes snapshots of the PersistentVolumeClaims of its namespace on a schedule.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=snapshotschedules,singular=snapshotschedule,scope=Namespaced
// +kubebuilder:printcolumn:name="Schedule",type=string,JSONPath=`.spec.schedule`
// +kubebuilder:printcolumn:name="Max age",type=string,JSONPath=`.spec.retention.expires`
// +kubebuilder:printcolumn:name="Max num",type=integer,JSONPath=`.spec.retention.maxCount`
// +kubebuilder:printcolumn:name="Disabled",type=boolean,JSONPath=`.spec.disabled`
// +kubebuilder:printcolumn:name="Next snapshot",type=string,JSONPath=`.status.nextSnapshotTime`
// +kubebuilder:printcolumn:name="Last snapshot",type=string,JSONPath=`.status.lastSnapshotTime`
// +kubebuilder:printcolumn:name="Last result",type=string,JSONPath=`.status.conditions[?(@.type=="LastRunSucceeded")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule=`(has(self.spec) && has(self.spec.schedule)) || (oldSelf.hasValue() && !(has(oldSelf.value().spec) && has(oldSelf.value().spec.schedule) && size(oldSelf.value().spec.schedule) > 0))`,message=`schedule is missing: give a cron expression such as "0 * * * *" or a macro such as @daily`,optionalOldSelf=true,fieldPath=`.spec.schedule`,reason=FieldValueRequired
type SnapshotSchedule struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is what the user asks for; the operator never writes it.
	// +optional
	Spec SnapshotScheduleSpec `json:"spec,omitempty"`
	// status is what the operator observed; nobody else should write it.
	// +optional
	Status SnapshotScheduleStatus `json:"status,omitempty"`
}

// SnapshotScheduleList is a list of SnapshotSchedules.
// +kubebuilder:object:root=true
type SnapshotScheduleList struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []SnapshotSchedule `json:"items"`
}

// SnapshotScheduleSpec says which claims, when, with which hooks, and how long snapshots are kept.
// +kubebuilder:validation:XValidation:rule=`!(has(self.timeZone) && has(self.schedule) && self.schedule.matches(r'^\s*(?:CRON_)?TZ='))`,message=`timeZone and a CRON_TZ= or TZ= prefix in schedule exclude each other: remove one of them`,fieldPath=`.timeZone`
type SnapshotScheduleSpec struct {
	// schedule is a cron expression of five fields (minute, hour, day of month, month, day of week) or a macro: @hourly, @daily, @midnight,
	// @weekly, @monthly, @yearly, @annually, "@every 6h". A prefix CRON_TZ=Europe/Vienna or TZ=... names the time zone, as timeZone does.
	// +optional
	// +kubebuilder:validation:MaxLength=512
	// +kubebuilder:validation:XValidation:rule=`self.matches(r'^\s*(?:(?:CRON_)?TZ=\S*\s+)?(?:@(?:hourly|daily|midnight|weekly|monthly|yearly|annually)|@every(?:\s.*)?|[^\s@=]+(?:\s+[^\s@=]+){4})\s*$')`,message=`schedule must be five cron fields ("0 3 * * *"), or @hourly, @daily, @midnight, @weekly, @monthly, @yearly, @annually, or @every with a duration ("@every 6h")`
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'^\s*(?:(?:CRON_)?TZ=\S*\s+)?[^\s@=]+(?:\s+[^\s@=]+){4}\s*$') || self.matches(r'^\s*(?:(?:CRON_)?TZ=\S*\s+)?(?:[*?]|(?:[0-5]?[0-9])(?:-(?:[0-5]?[0-9]))?)(?:/0*[1-9][0-9]{0,3})?(?:,(?:[*?]|(?:[0-5]?[0-9])(?:-(?:[0-5]?[0-9]))?)(?:/0*[1-9][0-9]{0,3})?)*(?:\s|$)')`,message=`minute, the first field of schedule, must be 0-59, or *, with lists (0,30), ranges (0-10) and steps (*/15)`
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'^\s*(?:(?:CRON_)?TZ=\S*\s+)?[^\s@=]+(?:\s+[^\s@=]+){4}\s*$') || self.matches(r'^\s*(?:(?:CRON_)?TZ=\S*\s+)?[^\s=]+\s+(?:[*?]|(?:[01]?[0-9]|2[0-3])(?:-(?:[01]?[0-9]|2[0-3]))?)(?:/0*[1-9][0-9]{0,3})?(?:,(?:[*?]|(?:[01]?[0-9]|2[0-3])(?:-(?:[01]?[0-9]|2[0-3]))?)(?:/0*[1-9][0-9]{0,3})?)*(?:\s|$)')`,message=`hour, the second field of schedule, must be 0-23, or *, with lists (1,13), ranges (1-5) and steps (*/6)`
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'^\s*(?:(?:CRON_)?TZ=\S*\s+)?[^\s@=]+(?:\s+[^\s@=]+){4}\s*$') || self.matches(r'^\s*(?:(?:CRON_)?TZ=\S*\s+)?(?:[^\s=]+\s+){2}(?:[*?]|(?:0?[1-9]|[12][0-9]|3[01])(?:-(?:0?[1-9]|[12][0-9]|3[01]))?)(?:/0*[1-9][0-9]{0,3})?(?:,(?:[*?]|(?:0?[1-9]|[12][0-9]|3[01])(?:-(?:0?[1-9]|[12][0-9]|3[01]))?)(?:/0*[1-9][0-9]{0,3})?)*(?:\s|$)')`,message=`day of month, the third field of schedule, must be 1-31, or * or ?, with lists (1,15), ranges (1-7) and steps (*/2)`
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'^\s*(?:(?:CRON_)?TZ=\S*\s+)?[^\s@=]+(?:\s+[^\s@=]+){4}\s*$') || self.matches(r'^\s*(?:(?:CRON_)?TZ=\S*\s+)?(?:[^\s=]+\s+){3}(?:[*?]|(?:0?[1-9]|1[0-2]|(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec))(?:-(?:0?[1-9]|1[0-2]|(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)))?)(?:/0*[1-9][0-9]{0,3})?(?:,(?:[*?]|(?:0?[1-9]|1[0-2]|(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec))(?:-(?:0?[1-9]|1[0-2]|(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)))?)(?:/0*[1-9][0-9]{0,3})?)*(?:\s|$)')`,message=`month, the fourth field of schedule, must be 1-12 or JAN-DEC, or *, with lists (1,7), ranges (3-5) and steps (*/3)`
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'^\s*(?:(?:CRON_)?TZ=\S*\s+)?[^\s@=]+(?:\s+[^\s@=]+){4}\s*$') || self.matches(r'^\s*(?:(?:CRON_)?TZ=\S*\s+)?(?:[^\s=]+\s+){4}(?:[*?]|(?:0?[0-7]|(?i:sun|mon|tue|wed|thu|fri|sat))(?:-(?:0?[0-7]|(?i:sun|mon|tue|wed|thu|fri|sat)))?)(?:/0*[1-9][0-9]{0,3})?(?:,(?:[*?]|(?:0?[0-7]|(?i:sun|mon|tue|wed|thu|fri|sat))(?:-(?:0?[0-7]|(?i:sun|mon|tue|wed|thu|fri|sat)))?)(?:/0*[1-9][0-9]{0,3})?)*(?:\s|$)')`,message=`day of week, the fifth field of schedule, must be 0-7 or SUN-SAT, or * or ?, with lists (1,3), ranges (MON-FRI) and steps (*/2)`
	// +kubebuilder:validation:XValidation:rule=`self.findAll(r'[0-9]{1,2}-[0-9]{1,2}').all(r, int(r.split('-')[0]) <= int(r.split('-')[1]))`,message=`a range of schedule runs backwards: write the smaller number first, for example 3-5`
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'^\s*(?:(?:CRON_)?TZ=\S*\s+)?(?:[^\s=]+\s+){2}(?:3[01](?:[-,]3[01])*\s+(?:0?2|(?i:feb))|31(?:,31)*\s+(?:0?[2469]|11|(?i:feb|apr|jun|sep|nov))(?:,(?:0?[2469]|11|(?i:feb|apr|jun|sep|nov)))*)\s+[*?]\s*$')`,message=`schedule never fires: no such month has that day; choose an earlier day of month or another month`
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'^\s*(?:(?:CRON_)?TZ=\S*\s+)?@every(?:\s|$)') || (self.matches(r'@every\s+(?:[0-9]{1,6}(?:\.[0-9]{1,6})?h)?(?:[0-9]{1,6}(?:\.[0-9]{1,6})?m)?(?:[0-9]{1,6}(?:\.[0-9]{1,6})?s)?\s*$') && self.matches(r'[hms]\s*$') && duration(self.trim().find('[0-9][0-9.hms]*$')) >= duration('1m'))`,message=`@every in schedule needs a duration of one minute or more, in h, m and s, for example "@every 6h" or "@every 1h30m"`
	// +kubebuilder:validation:XValidation:rule=`!self.matches(r'^\s*(?:CRON_)?TZ=(?i:local)\s')`,message=`the time zone in schedule must be an IANA name such as Europe/Vienna: the zone of the operator itself (Local) is not known to you`
	Schedule string `json:"schedule,omitempty"`

	// timeZone in which schedule is read, an IANA name such as Europe/Vienna. Default: UTC.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[A-Za-z0-9_+-]+(/[A-Za-z0-9_+-]+)*$') && self.lowerAscii() != 'local'`,message=`timeZone must be an IANA name such as Europe/Vienna or UTC; remove the field for UTC`
	TimeZone string `json:"timeZone,omitempty"`

	// startingDeadlineSeconds: a slot that could not start within this many seconds is skipped. Default: none, a missed slot is caught up
	// however late (once, the newest).
	// +optional
	// +kubebuilder:validation:Minimum=1
	StartingDeadlineSeconds *int64 `json:"startingDeadlineSeconds,omitempty"`

	// spreadSeconds starts the schedule's runs up to this much later, always by the same amount; slots and names do not change. 0 to 86400. Default: 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=86400
	SpreadSeconds *int32 `json:"spreadSeconds,omitempty"`

	// runOnCreate true starts one run at once when the schedule is created.
	// +optional
	RunOnCreate bool `json:"runOnCreate,omitempty"`

	// runRetryLimit is how often a failed run is repeated, with backoff, before the next slot. 0 to 20. Default: 0.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=20
	RunRetryLimit *int32 `json:"runRetryLimit,omitempty"`

	// disabled true starts no runs; retention goes on.
	// +optional
	Disabled bool `json:"disabled,omitempty"`

	// claimSelector selects the PersistentVolumeClaims of the schedule's namespace by their labels; empty selects all. A claim annotated
	// snapscheduler.backube/exclude: "true" is never taken.
	// +optional
	ClaimSelector metav1.LabelSelector `json:"claimSelector,omitempty"`

	// storageClassNames leaves only claims of these StorageClasses; empty: of all.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	StorageClassNames []string `json:"storageClassNames,omitempty"`

	// snapshotTemplate shapes the VolumeSnapshots.
	// +optional
	SnapshotTemplate *SnapshotTemplateSpec `json:"snapshotTemplate,omitempty"`

	// retention says which snapshots are deleted; without it none is.
	// +optional
	Retention SnapshotRetentionSpec `json:"retention,omitempty"`

	// serviceAccountName is the ServiceAccount of the schedule's namespace as which hooks run; ordinary RBAC decides what it may do. It needs
	// get and create on pods/exec. Default: the operator's own account.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	ServiceAccountName string `json:"serviceAccountName,omitempty"`

	// snapshotTimeoutSeconds is the longest wait for the cut while the application is quiesced, 1 to 14400 seconds. Default: 300.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=14400
	SnapshotTimeoutSeconds *int32 `json:"snapshotTimeoutSeconds,omitempty"`

	// maxQuiesceSeconds bounds the time from the first pre hook to the release, over everything else, 1 to 86400 seconds. Default: none.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=86400
	MaxQuiesceSeconds *int32 `json:"maxQuiesceSeconds,omitempty"`

	// successfulRunsHistoryLimit is how many succeeded SnapshotRuns are kept, 0 to 100. Default: 3.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	SuccessfulRunsHistoryLimit *int32 `json:"successfulRunsHistoryLimit,omitempty"`

	// failedRunsHistoryLimit is how many SnapshotRuns that did not succeed are kept, 0 to 100. Default: 3.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	FailedRunsHistoryLimit *int32 `json:"failedRunsHistoryLimit,omitempty"`

	// preHooks run one after another before the first snapshot is created; each runs in all its targets at once. If one fails, no snapshot is created.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(h, !has(h.name) || self.exists_one(o, has(o.name) && o.name == h.name))",message="two hooks of preHooks have the same name: give each a name of its own"
	PreHooks []PreHook `json:"preHooks,omitempty"`

	// postHooks run one after another once the snapshots are cut, and always: after a failure, a deletion or a restart of the operator too.
	// One that fails does not stop the next and does not undo the snapshots.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:XValidation:rule="self.all(h, !has(h.name) || self.exists_one(o, has(o.name) && o.name == h.name))",message="two hooks of postHooks have the same name: give each a name of its own"
	PostHooks []PostHook `json:"postHooks,omitempty"`
}

// SnapshotTemplateSpec shapes the VolumeSnapshots of a schedule.
type SnapshotTemplateSpec struct {
	// labels are put on every VolumeSnapshot; the operator's own labels go before them.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// annotations are put on every VolumeSnapshot; the operator's own annotations go before them.
	// +optional
	Annotations map[string]string `json:"annotations,omitempty"`
	// snapshotClassName is the VolumeSnapshotClass. A claim's annotation snapscheduler.backube/snapshot-class goes before it. Default: the cluster's
	// default class for the claim's driver.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	SnapshotClassName *string `json:"snapshotClassName,omitempty"`
	// ownerReferencePolicy Schedule: deleting the schedule deletes its snapshots. None: they stay. Default: what the operator's
	// --enable-owner-references says.
	// +optional
	OwnerReferencePolicy OwnerReferencePolicy `json:"ownerReferencePolicy,omitempty"`
	// groupSnapshotClassName takes one VolumeGroupSnapshot of this class for all claims of a run instead of one snapshot each: one cut for all.
	// Claims are then selected by claimSelector.matchLabels alone, and every claim that matches is taken or none.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	GroupSnapshotClassName string `json:"groupSnapshotClassName,omitempty"`
}

// SnapshotRetentionSpec says which snapshots of a schedule are deleted. A snapshot goes when it is older than expires or beyond maxCount, and
// none of the keep rules selects it; with keep rules and neither expires nor maxCount, every snapshot goes that none selects. Rules
// apply to each claim on its own and count ready snapshots only.
type SnapshotRetentionSpec struct {
	// expires is the age from which a snapshot goes: a whole number followed by h, m or s.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]+(h|m|s)$')",message="expires must be a whole number followed by h, m or s, for example 168h"
	// +kubebuilder:validation:MaxLength=16
	Expires string `json:"expires,omitempty"`
	// maxCount is how many ready snapshots of each claim are kept, at least 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxCount *int32 `json:"maxCount,omitempty"`
	// keepLast keeps the newest n snapshots of each claim.
	// +optional
	// +kubebuilder:validation:Minimum=0
	KeepLast *int32 `json:"keepLast,omitempty"`
	// keepHourly keeps the newest snapshot of each of the last n hours that have one.
	// +optional
	// +kubebuilder:validation:Minimum=0
	KeepHourly *int32 `json:"keepHourly,omitempty"`
	// keepDaily keeps the newest snapshot of each of the last n days that have one, in the schedule's time zone.
	// +optional
	// +kubebuilder:validation:Minimum=0
	KeepDaily *int32 `json:"keepDaily,omitempty"`
	// keepWeekly keeps the newest snapshot of each of the last n ISO weeks that have one.
	// +optional
	// +kubebuilder:validation:Minimum=0
	KeepWeekly *int32 `json:"keepWeekly,omitempty"`
	// keepMonthly keeps the newest snapshot of each of the last n months that have one.
	// +optional
	// +kubebuilder:validation:Minimum=0
	KeepMonthly *int32 `json:"keepMonthly,omitempty"`
	// keepYearly keeps the newest snapshot of each of the last n years that have one.
	// +optional
	// +kubebuilder:validation:Minimum=0
	KeepYearly *int32 `json:"keepYearly,omitempty"`
	// expireLast true: expires may also delete the newest ready snapshot of a claim that exists. Default: false.
	// +optional
	ExpireLast bool `json:"expireLast,omitempty"`
}

// SnapshotScheduleStatus is what the operator observed.
type SnapshotScheduleStatus struct {
	// observedGeneration is the generation of the spec that this status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// lastSnapshotTime is when the newest run began to create snapshots.
	// +optional
	LastSnapshotTime *metav1.Time `json:"lastSnapshotTime,omitempty"`
	// nextSnapshotTime is the next slot.
	// +optional
	NextSnapshotTime *metav1.Time `json:"nextSnapshotTime,omitempty"`
	// scheduledSince is since when a run should have succeeded: the schedule's creation, the end of its being disabled or not valid, an edit
	// that moved its next slot, or a run that found nothing to take. A schedule that does not run has none.
	// +optional
	ScheduledSince *metav1.Time `json:"scheduledSince,omitempty"`
	// lastSuccessTime is when the newest succeeded run completed.
	// +optional
	LastSuccessTime *metav1.Time `json:"lastSuccessTime,omitempty"`
	// lastCompletionTime is when the newest completed run completed, however it ended.
	// +optional
	LastCompletionTime *metav1.Time `json:"lastCompletionTime,omitempty"`
	// claimsLeftOut matched in the newest run and could not be taken, in words.
	// +optional
	// +listType=atomic
	ClaimsLeftOut []string `json:"claimsLeftOut,omitempty"`
	// lastMissed is the newest slot that was not run, and why.
	// +optional
	LastMissed *MissedSlot `json:"lastMissed,omitempty"`
	// activeRun is the SnapshotRun of the newest slot while it is not completed.
	// +optional
	ActiveRun string `json:"activeRun,omitempty"`
	// hooks tells how each hook of the newest run ended.
	// +optional
	// +listType=atomic
	Hooks []ScheduleHookStatus `json:"hooks,omitempty"`
	// conditions: Reconciled, Ready, LastRunSucceeded, MayBeQuiesced.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// MissedSlot is a slot without a run.
type MissedSlot struct {
	// slot is the newest one that was missed.
	Slot metav1.Time `json:"slot"`
	// reason: TooLate (startingDeadlineSeconds), Overlap (the run before was not yet released), Downtime (an older slot than the one caught up).
	Reason string `json:"reason"`
	// count of missed slots since the schedule was created.
	Count int64 `json:"count"`
	// noticedTime is when it was found to be missed.
	// +optional
	NoticedTime *metav1.Time `json:"noticedTime,omitempty"`
}

// Reasons of a MissedSlot.
const (
	MissedTooLate  = "TooLate"
	MissedOverlap  = "Overlap"
	MissedDowntime = "Downtime"
)

// ScheduleHookStatus tells how one hook of the newest run ended.
type ScheduleHookStatus struct {
	// stage is Pre or Post.
	Stage HookStage `json:"stage"`
	// name of the hook.
	Name string `json:"name"`
	// conditions holds the type Succeeded.
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
