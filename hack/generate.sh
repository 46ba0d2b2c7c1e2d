#!/bin/bash
# generate.sh DIR: write all generated files below DIR, "." for the project itself. make verify writes them elsewhere and compares.
set -eu
out=$1
mkdir -p "$out"/{api/v1,config/crd,config/default/crd,helm/stillpoint/templates/crds,helm/stillpoint/files}

gen() { go tool -modfile=hack/tools/controller-gen/go.mod controller-gen "$@"; }
gen object paths=./api/... output:object:dir="$out/api/v1"
gen crd paths=./api/... output:crd:dir="$out/config/crd"

for crd in "$out"/config/crd/snapscheduler.backube_*.yaml; do
  name=$(basename "$crd")
  # A kustomization sees files below its own directory only.
  cp "$crd" "$out/config/default/crd/$name"
  if grep -q '{{' "$crd"; then
    echo "error: $crd contains {{, which the chart would take for a template" >&2
    exit 1
  fi
  # In the chart the CRDs are templates, so that helm upgrade upgrades them, and are kept when the chart is uninstalled:
  # deleting a CRD deletes every object of its kind.
  awk 'BEGIN {print "{{- if .Values.manageCRDs }}"}
       /^---$/ {next}
       {print}
       /^  annotations:$/ && !done {print "    helm.sh/resource-policy: keep"; done = 1}
       END {print "{{- end }}"}' "$crd" > "$out/helm/stillpoint/templates/crds/$name"
  grep -q 'helm.sh/resource-policy: keep' "$out/helm/stillpoint/templates/crds/$name"
done

# The chart's roles are the rules of config/rbac.
awk 'rules {print} /^rules:$/ {rules = 1}' config/rbac/role.yaml > "$out/helm/stillpoint/files/rules.yaml"

# What the plugin's commands say of themselves ends its document.
mkdir -p "$out/docs"
reference=$(mktemp)
go run ./hack/reference docs/kubectl.md > "$reference"
mv "$reference" "$out/docs/kubectl.md"
chmod 644 "$out/docs/kubectl.md"
