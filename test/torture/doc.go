// SPDX-License-Identifier: Apache-2.0

// Package torture judges what is left of applications, runs and snapshots after the processes that worked on them were killed again and
// again. It is pure: test/e2e collects the evidence on the whole cluster, with a real operator, and what it believes is not the operator's
// record but what the containers, the writers and the storage wrote down.
//
//	evidence.go    what was seen
//	judge.go       the faults in it
//	bound.go       how long a writer may have been blocked
//	table.go       the report
package torture
