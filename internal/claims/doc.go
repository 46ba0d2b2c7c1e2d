// SPDX-License-Identifier: Apache-2.0

// Package claims chooses what a run of a schedule takes: which PersistentVolumeClaims of its namespace, each with which
// VolumeSnapshotClass. The operator asks when a run begins, the kubectl plugin when somebody wants to know before.
//
// A claim is wanted if the schedule's selector and its StorageClasses match and no annotation excludes it. One that is wanted and
// cannot be taken (not bound, being deleted, no class for its driver) is left out, and the answer says why.
//
// Choose is pure but for the driver of a claim, which its caller looks up; Driver is that look-up.
package claims
