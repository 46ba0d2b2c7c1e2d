#!/bin/bash
# release.sh VERSION: everything that a release is made of, in dist/release: the kubectl plugin for six platforms, the operator for two, one file
# to install it, the chart, what all of it is built from (SBOM), and checksums.
set -eu
version=$1
out=dist/release
rm -rf "$out"
mkdir -p "$out"
tool() { local name=$1; shift; go tool -modfile="hack/tools/$name/go.mod" "$name" "$@"; }

for platform in linux/amd64 linux/arm64 darwin/amd64 darwin/arm64 windows/amd64 windows/arm64; do
  os=${platform%/*} arch=${platform#*/} suffix=''
  [ "$os" = windows ] && suffix=.exe
  echo "building kubectl-stillpoint for $platform"
  GOOS=$os GOARCH=$arch hack/build.sh "$version" "$out/kubectl-stillpoint_${os}_$arch$suffix" ./cmd/kubectl-stillpoint
  if [ "$os" = linux ]; then
    echo "building stillpoint for $platform"
    GOOS=$os GOARCH=$arch hack/build.sh "$version" "$out/stillpoint_${os}_$arch" .
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
