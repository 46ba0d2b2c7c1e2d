#!/bin/bash
# The race detector needs a C compiler. It is installed where that can be done.
set -eu
if command -v gcc >/dev/null || command -v clang >/dev/null || [ -n "${CC:-}" ]; then
  exit 0
fi
if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
  echo "the race detector needs a C compiler, which is missing: installing gcc"
  exec go run ./test/cluster/cmd/localcluster packages gcc libc6-dev
fi
echo "error: the race detector needs a C compiler. Install gcc and the C library's headers (Debian: apt-get install gcc libc6-dev), or run make as root" >&2
exit 1
