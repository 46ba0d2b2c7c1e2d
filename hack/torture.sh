#!/bin/bash
# The leader is killed 200 times, and other parts now and then, under load on the whole local cluster. The report and the evidence stay in bin/torture.
set -eu
mkdir -p bin/torture
exec hack/e2e.sh -run '^TestWhateverIsKilledNothingStaysFrozenAndNoSnapshotLies$' -artifacts -outputdir="$PWD/bin/torture" \
  -torture.kills=200 -torture.limit=30m "$@"
