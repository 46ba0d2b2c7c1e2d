// SPDX-License-Identifier: Apache-2.0

// Package e2e tests the operator as a process of its own against a whole cluster: real kubelet, containerd, CSI driver, ext4,
// PostgreSQL and MariaDB.
//
//	go test -tags e2e -count 1 -timeout 30m ./test/e2e/...
//
// It needs Linux and root. A local cluster that runs is used and left running; without one, it is started and stopped. Only one operator
// works on a cluster at a time, so nothing else should run one meanwhile.
//
//	main_test.go        the cluster, the operator's binary, the CRDs
//	operator_test.go    operators as processes: started, killed, started again
//	world_test.go       what one test owns: its namespace and its objects
//	await_test.go       waiting by watching
//	app_test.go         pods with a volume: written to, frozen, thawed, looked into
//	objects_test.go     schedules, hooks and runs
//	expect_test.go      what is expected of every run, however it ends
//
// The tests, by what happens:
//
//	freeze_test.go      the main job, and storage that is late
//	death_test.go       the operator is killed, stopped, replaced
//	leaders_test.go     what a former leader may still do to the runs of the next one
//	torture_*_test.go   operators and other parts are killed again and again under load; package torture judges what is left
//	outage_test.go      the API server or the kubelet is away
//	refused_test.go     hooks that fail, time out or have no target; a driver that fails
//	targets_test.go     several pods; a bound on everything
//	meanwhile_test.go   containers, pods, schedules and runs change while an application is quiesced
//	release_test.go     releases that fail; schedules that wait for each other; TestHooks and Release runs
//	rights_test.go      accounts, both exec protocols, admission
//	selection_test.go   claims, retention
//	databases_test.go   PostgreSQL at a real slot, MariaDB
//	held_*_test.go      hooks of mode Hold, and what becomes of them when something between them and the operator dies
//	many_test.go        many pods, many hooks, long hooks, slow sidecars
//	prometheus_test.go  a Prometheus that scrapes the operator: alerts, dashboards
//	recipes_test.go     the cookbook of docs/hooks.md
//	plugin_test.go      the kubectl plugin, through the real kubectl and a real terminal
//
// They run one after another: they turn the driver's knobs and kill parts of the cluster. All together take about 17 minutes.
package e2e
