// SPDX-License-Identifier: Apache-2.0

// Package integration holds tests against a real API server: etcd and kube-apiserver with the CRDs of config/crd,
// and nothing else. There is no kubelet, no scheduler, no garbage collector and no namespace controller: what these
// would do, a test does itself.
//
//	go test ./test/integration/          # about 75 seconds; the programs are built the first time
//
// One control plane serves all tests. A test gets a namespace of its own from Namespace and a connection from Env;
// a controller under test should watch that namespace only.
//
//	rules_test.go       every rule of the CRDs: what it accepts, what it refuses, and in which words
//	run_test.go         what cannot be changed about a SnapshotRun
//	proposal_test.go    the first proposal's YAML, word for word
//	upgrade_test.go     objects of snapscheduler stay readable and editable
//	columns_test.go     what kubectl get shows
//	schema_test.go      every field exists, is described and says how its lists merge
//
// The others run both controllers on a fake clock, with the test in the place of the storage (controllers_*_test.go):
//
//	calendar_test.go, runs_test.go, instances_test.go    slots, runs, two operators
//	names_test.go, claims_test.go, invalid_test.go       names, claims and classes, what cannot work
//	retention*_test.go, status_test.go                   what is deleted, what is said
//	metrics_*_test.go, events_test.go                    what is counted, what is told
//	predecessor_test.go                                  the faults that snapscheduler's users reported
//
// plugin_*_test.go drive the commands of the kubectl plugin against the same API server.
package integration
