#!/bin/bash
# image.sh IMAGE VERSION: build the image with whatever builder is there.
set -eu
for tool in docker podman buildah; do
  command -v $tool >/dev/null || continue
  echo "building $1 with $tool"
  exec $tool build --build-arg VERSION="$2" -t "$1" .
done
echo "error: building an image needs docker, podman or buildah; none is here" >&2
exit 1
