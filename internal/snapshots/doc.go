// SPDX-License-Identifier: Apache-2.0

// Package snapshots says what a VolumeSnapshot means: to the run that made it, and to retention. The operator and the kubectl plugin judge
// by the same words. It is pure.
package snapshots
