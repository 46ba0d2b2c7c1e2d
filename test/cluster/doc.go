// SPDX-License-Identifier: Apache-2.0

// Package cluster runs a whole Kubernetes on one Linux machine, built from source and without any image registry:
// etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet, kube-proxy, containerd with runc, a CNI
// bridge, the CSI snapshot controller and sidecars, and a CSI driver that takes real snapshots of blocks.
//
//	go run ./test/cluster/cmd/localcluster up       # the first time about 15 minutes on two cores, then 12 seconds
//	eval "$(go run ./test/cluster/cmd/localcluster env)"
//	kubectl apply -f test/cluster/examples/postgresql.yaml
//	go run ./test/cluster/cmd/localcluster down
//
// It exists because the promises of this project are about what happens when real parts die at a bad moment. No
// fake kubelet shows what a held command does when containerd is killed.
//
//	build.go, unit.go    binaries, built once per machine from the modules under build/, cached outside the tree
//	packages.go          Debian packages that are needed
//	machine.go           what the machine was like before
//	pki.go               certificates and kubeconfigs
//	image.go, images.go  container images, made of files of this machine
//	network.go           a network namespace, and a cable from it to the machine
//	node.go              configuration of containerd, CNI, kubelet, kube-proxy; control groups; sysctls
//	component.go         the command line of each process
//	process.go           starting, stopping, killing and freezing them; package process knows them
//	api.go               the few questions that waiting needs to ask the API server
//	up.go, down.go       the order of things
//	leftovers.go         what must be gone after down
//
// # Layout
//
// Everything runs in the network namespace "stillpoint". The machine reaches it over a pair of virtual cards:
//
//	machine 198.18.0.2 (stillpoint0) ── (eth0) 198.18.0.1 namespace "stillpoint"
//	                                            ├─ API server https://198.18.0.1:6443, node "node-1"
//	                                            ├─ services 198.18.1.0/24
//	                                            └─ bridge to the pods, 198.19.0.0/24
//
// The addresses are from 198.18.0.0/15, which is set aside for tests of networks. Pods and services can be reached
// from the machine, and the machine (198.18.0.2) from pods. Nothing is reached beyond that, there is no DNS, and
// nothing listens on the machine's loopback.
//
// The state is under one directory (Options.StateDir), a few words that must survive a lost state directory are in
// /run/stillpoint-cluster. There is at most one cluster on a machine, guarded by a lock.
//
// # States
//
//	nothing ──Up──▶ running ──Down──▶ nothing
//	   ▲              │  ▲
//	   │   crash, kill, reboot, interrupted Up
//	   │              ▼  │
//	   └──Down──── partly there ──Up──▶ running
//
// Up takes any of them to running: it leaves alone what runs as it should, starts what is missing and restarts what
// runs with another command line. Down takes any of them to nothing.
package cluster
