// SPDX-License-Identifier: Apache-2.0

package integration

const specCannotChange = "spec of a SnapshotRun cannot be changed: create a new SnapshotRun"
