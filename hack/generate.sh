#!/bin/bash
# generate.sh DIR: write all generated files below DIR, "." for the project itself. make verify writes them elsewhere and compares.
set -eu
out=$1
mkdir -p "$out"/{docs,api/v1,config/crd,config/default/crd,config/prometheus/dashboards,helm/stillpoint/templates/crds,helm/stillpoint/files/dashboards,hack/testdata/golden}

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

# The chart's roles are the rules of config/rbac, by section.
for section in snapshots hooks cluster; do
  awk -v s="$section" '/^# ---- / {on = ($3 == s ":"); next} on {print}' config/rbac/role.yaml > "$out/helm/stillpoint/files/rules-$section.yaml"
done

# The chart's admission policy is the one of config/admission.
awk 'spec {print} /^spec:$/ {spec = 1}' config/admission/policy.yaml > "$out/helm/stillpoint/files/admission.yaml"

# The dashboards are written by a program; the alerts are one file for the chart, for config/ and for any other Prometheus.
go -C hack/tools/dashboards run . "$(realpath "$out")/helm/stillpoint/files/dashboards"
cp "$out"/helm/stillpoint/files/dashboards/*.json "$out/config/prometheus/dashboards/"
{
  printf '# Written by make generate from helm/stillpoint/files/alerts.yaml.\napiVersion: monitoring.coreos.com/v1\nkind: PrometheusRule\n'
  printf 'metadata:\n  name: stillpoint\n  namespace: stillpoint-system\nspec:\n'
  sed -E '/^ *#/d; /^$/d; s/^/  /' helm/stillpoint/files/alerts.yaml
} > "$out/config/prometheus/prometheusrule.yaml"

# The API reference is the comments of the types.
go tool -modfile=hack/tools/crd-ref-docs/go.mod crd-ref-docs --source-path=api --config=hack/api-reference/config.yaml --renderer=markdown \
  --templates-dir=hack/api-reference --output-path="$out/docs/api.md" --log-level=ERROR

# The chart's README, and what the chart makes of several sets of values, so that a change of it can be read.
go tool -modfile=hack/tools/helm-docs/go.mod helm-docs --dry-run --log-level warning --chart-search-root helm > "$out/helm/stillpoint/README.md"
for values in hack/testdata/values-*.yaml; do
  name=$(basename "$values" .yaml)
  go tool -modfile=hack/tools/helm/go.mod helm template stillpoint helm/stillpoint --namespace stillpoint-system --kube-version 1.36.0 \
    --values "$values" --set manageCRDs=false > "$out/hack/testdata/golden/${name#values-}.yaml"
done

# What the plugin's commands say of themselves ends its document.
mkdir -p "$out/docs"
reference=$(mktemp)
go run ./hack/reference docs/kubectl.md > "$reference"
mv "$reference" "$out/docs/kubectl.md"
chmod 644 "$out/docs/kubectl.md"
