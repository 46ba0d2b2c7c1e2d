#!/bin/bash
# image.sh IMAGE VERSION PLATFORMS: build the image with whatever builder is there. PLATFORMS are separated by commas; for more than one the
# builder makes a list of images. The programs are built here, outside of the builder, so that it needs neither a base image nor an emulator.
set -eu
image=$1 version=$2 platforms=$3
for platform in ${platforms//,/ }; do
  echo "building stillpoint for $platform"
  GOOS=${platform%/*} GOARCH=${platform#*/} hack/build.sh "$version" "dist/image/${platform//\//_}/stillpoint" .
done
for tool in ${BUILDER:-docker podman buildah}; do
  command -v $tool >/dev/null || continue
  echo "building $image with $tool"
  case $tool,$platforms in
    docker,*,*) exec docker buildx build --platform "$platforms" -t "$image" . ;;
    docker,*) exec docker build --platform "$platforms" -t "$image" . ;;
    *) exec $tool build --isolation chroot --platform "$platforms" --manifest "$image" . ;;
  esac
done
echo "error: building an image needs docker, podman or buildah; none is here (Debian: apt-get install buildah)" >&2
exit 1
