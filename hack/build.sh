#!/bin/bash
# build.sh VERSION OUT PACKAGE: one static program, for the platform of GOOS and GOARCH. The same commit makes the same bytes.
set -eu
build=github.com/stillpoint-operator/stillpoint/internal/build
commit='' date=''
if git rev-parse --git-dir >/dev/null 2>&1; then
  commit=$(git rev-parse --short=12 HEAD)
  date=$(TZ=UTC0 git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ)
fi
CGO_ENABLED=0 exec go build -trimpath -buildvcs=false \
  -ldflags "-s -w -X $build.Version=$1 -X $build.Commit=$commit -X $build.Date=$date" -o "$2" "$3"
