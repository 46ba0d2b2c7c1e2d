#!/bin/bash
# release.sh VERSION: everything that a release is made of, in dist/release: the kubectl plugin for six platforms with a manifest for krew, the
# operator for two, one file to install it, the chart, what all of it is built from (SBOM), and checksums.
set -eu
version=$1
out=dist/release
base=https://github.com/stillpoint-operator/stillpoint/releases/download/$version
rm -rf "$out"
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tool() { local name=$1; shift; go tool -modfile="hack/tools/$name/go.mod" "$name" "$@"; }

sed "s/VERSION/$version/" hack/krew.yaml > "$out/stillpoint.yaml"
cp LICENSE "$work"
for platform in linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64; do
  os=${platform%/*} arch=${platform#*/} bin=kubectl-stillpoint
  [ "$os" != windows ] || bin=kubectl-stillpoint.exe
  echo "building kubectl-stillpoint for $platform"
  GOOS=$os GOARCH=$arch hack/build.sh "$version" "$work/$bin" ./cmd/kubectl-stillpoint
  archive=kubectl-stillpoint_${version}_${os}_${arch}.tar.gz
  # The same commit makes the same archive.
  tar -C "$work" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -cf - LICENSE "$bin" | gzip -n > "$out/$archive"
  rm "$work/$bin"
  cat >> "$out/stillpoint.yaml" <<YAML
  - selector:
      matchLabels: {os: $os, arch: $arch}
    uri: $base/$archive
    sha256: $(sha256sum "$out/$archive" | cut -d' ' -f1)
    bin: $bin
YAML
  if [ "$os" = linux ]; then
    echo "building stillpoint for $platform"
    GOOS=$os GOARCH=$arch hack/build.sh "$version" "$out/stillpoint_${version}_${os}_$arch" .
  fi
done

echo "packaging the chart"
tool helm package helm/stillpoint --app-version "$version" --destination "$out"

echo "writing install.yaml"
tool kustomize build config/default | sed "s#\(image: ghcr.io/stillpoint-operator/stillpoint\):latest#\1:$version#" > "$out/install.yaml"
grep -q "image: ghcr.io/stillpoint-operator/stillpoint:$version\$" "$out/install.yaml"

echo "listing what the programs are built from"
tool cyclonedx-gomod app -json -licenses -main . -output "$out/stillpoint.sbom.json"
tool cyclonedx-gomod app -json -licenses -main cmd/kubectl-stillpoint -output "$out/kubectl-stillpoint.sbom.json"

(cd "$out" && sha256sum -- * > checksums.txt)
ls -l "$out"
[[ $version =~ ^v[0-9]+\.[0-9]+\.[0-9]+(-.*)?$ ]] || echo "note: krew needs a version such as v1.2.3, and this is $version (make release VERSION=v1.2.3)"
