#!/bin/bash
# krew.sh VERSION LDFLAGS: archives of the kubectl plugin for all platforms in dist/, and dist/stillpoint.yaml, krew's manifest of them as they will be
# found beside the release VERSION.
set -eu
version=$1 ldflags=$2
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-.*)?$ ]] || { echo "error: krew needs a version such as v1.2.3, and this is $version: make krew VERSION=v1.2.3" >&2; exit 1; }
base=https://github.com/stillpoint-operator/stillpoint/releases/download/$version
rm -rf dist && mkdir dist
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

sed "s/VERSION/$version/" hack/krew.yaml > dist/stillpoint.yaml
for platform in linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64; do
  os=${platform%/*} arch=${platform#*/} bin=kubectl-stillpoint
  [ "$os" != windows ] || bin=kubectl-stillpoint.exe
  echo "building $platform"
  CGO_ENABLED=0 GOOS=$os GOARCH=$arch go build -trimpath -buildvcs=false -ldflags "$ldflags" -o "$work/$bin" ./cmd/kubectl-stillpoint
  cp LICENSE "$work"
  archive=kubectl-stillpoint_${version}_${os}_${arch}.tar.gz
  # The same commit makes the same archive.
  tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -cf - LICENSE "$bin" | gzip -n > "dist/$archive"
  rm "$work/$bin"
  cat >> dist/stillpoint.yaml <<YAML
  - selector:
      matchLabels: {os: $os, arch: $arch}
    uri: $base/$archive
    sha256: $(sha256sum "dist/$archive" | cut -d' ' -f1)
    bin: $bin
YAML
done
echo "dist/stillpoint.yaml: to try it, kubectl krew install --manifest=dist/stillpoint.yaml --archive=dist/ARCHIVE"
