#!/bin/bash
# Tests against a real API server, with the race detector: etcd and kube-apiserver, built once per machine.
set -eu
if ! compgen -G 'test/integration/*_test.go' >/dev/null; then
  echo "error: test/integration holds no tests" >&2
  exit 1
fi
hack/compiler.sh
KUBEBUILDER_ASSETS=$(go run ./test/cluster/cmd/localcluster assets)
export KUBEBUILDER_ASSETS
CGO_ENABLED=1 exec go test -race -count 1 -timeout 30m ./test/integration/... "$@"
