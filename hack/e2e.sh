#!/bin/bash
# Tests on the whole local cluster. One that runs already is used and left running; one that was started here is stopped here.
set -eu
if [ "$(uname -s)" != Linux ] || [ "$(id -u)" != 0 ]; then
  echo "error: the local cluster runs real kubelets and mounts: it needs Linux and root" >&2
  exit 1
fi
if ! compgen -G 'test/e2e/*_test.go' >/dev/null; then
  echo "error: test/e2e holds no tests" >&2
  exit 1
fi
cluster() { go run ./test/cluster/cmd/localcluster "$@"; }
if cluster env >/dev/null 2>&1; then
  echo "using the cluster that is here"
else
  echo "starting the local cluster (the first time it is built: about 15 minutes)"
  trap 'echo "stopping the local cluster"; cluster down' EXIT
  trap 'exit 130' INT TERM
fi
cluster up
go test -v -tags e2e -count 1 -timeout 60m ./test/e2e/... "$@" # the package first: behind a flag of the tests themselves it would be taken for an argument
