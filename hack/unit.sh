#!/bin/bash
# Unit tests: every package but those that need an API server or a cluster.
set -eu
hack/compiler.sh
if ! command -v promtool >/dev/null; then
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    echo "the tests of the alerts need promtool, which is missing: installing prometheus"
    go run ./test/cluster/cmd/localcluster packages prometheus
  else
    echo "error: the tests of the alerts need promtool. Install prometheus (Debian: apt-get install prometheus), or run make as root" >&2
    exit 1
  fi
fi
# A list that fails must end this here: go test without packages would test the directory alone.
packages=$(go list ./...)
packages=$(grep -Ev '/test/(integration|e2e|bench)(/|$)' <<<"$packages")
# shellcheck disable=SC2086
CGO_ENABLED=1 go test -race -short "$@" $packages
# The exploration of the state machine is one goroutine over a hundred thousand states: it runs without the race detector.
exec go test "$@" -run Explore ./internal/run/
