// SPDX-License-Identifier: Apache-2.0

// Command bench measures the operator: how soon, how much memory, how many requests. Each scenario has a baseline, a bare client program that does
// the least possible work for the same result, and runs three times, interleaved with it, so that both meet the same machine at the same time.
//
//	make bench                     # every scenario
//	make bench BENCH=midnight      # one
//	go run ./test/bench -h         # the flags
//
// The control plane is a real kube-apiserver with a real etcd. Around them the harness plays what a measurement of the operator does not need:
//
//   - the snapshot controller and the CSI driver: a VolumeSnapshot is cut and ready as soon as the harness has seen it. What a storage would take is
//     not in the numbers, the writes to the API server are.
//   - the kubelet: pods exist as objects only; an exec goes through the API server to the harness, which answers at once.
//
// The operator is its own process with the flags it ships with. Any program that serves the same CRD can take its place: --operator-command.
package main
