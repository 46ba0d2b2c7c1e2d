#!/bin/bash
# Everything that can be checked without running the code. All checks run; each failure says how to mend it.
set -u
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
failed=0
fail() { echo "FAILED: $*"; failed=1; }

echo "generated files"
if hack/generate.sh "$tmp"; then
  (cd "$tmp" && find . -type f) | while read -r f; do
    diff -u --label "$f (committed)" --label "$f (generated)" "$f" "$tmp/$f" || echo >> "$tmp.differs"
  done
  # What is no longer generated must go too.
  for d in config/crd config/default/crd helm/stillpoint/templates/crds; do
    for f in "$d"/snapscheduler.backube_*.yaml; do
      [ -e "$tmp/$f" ] || { echo "$f is generated no more"; echo >> "$tmp.differs"; }
    done
  done
  if [ -e "$tmp.differs" ]; then
    rm -f "$tmp.differs"
    fail "generated files differ: run make generate"
  fi
else
  fail "hack/generate.sh did not work"
fi

echo "go.mod and go.sum"
go mod tidy -diff || fail "go.mod or go.sum is not tidy: run make tidy"
go -C hack/tools/dashboards mod tidy -diff || fail "hack/tools/dashboards: go.mod or go.sum is not tidy: run go mod tidy there"

echo "formatting"
unformatted=$(find . -name '*.go' -not -path './.git/*' -not -path './bin/*' -exec gofmt -s -l {} +)
[ -z "$unformatted" ] || { echo "$unformatted"; fail "not formatted: run gofmt -s -w on these files"; }

echo "chart"
helm() { go tool -modfile=hack/tools/helm/go.mod helm "$@"; }
helm lint --quiet --strict helm/stillpoint || fail "helm lint"
helm template stillpoint helm/stillpoint --no-hooks --namespace stillpoint-system > "$tmp/chart.yaml" || fail "helm template"
helm template stillpoint helm/stillpoint --namespace stillpoint-system -f hack/testdata/values-every.yaml > "$tmp/chart-all.yaml" || fail "helm template with every value set"

echo "kustomizations"
kustomize() { go tool -modfile=hack/tools/kustomize/go.mod kustomize "$@"; }
for d in config/default config/samples config/prometheus; do
  kustomize build "$d" > "$tmp/$(basename "$d").yaml" || fail "kustomize build $d"
done

echo "chart and config/ say the same"
# The names of the objects, without what only one of the two has.
objects() { awk '/^kind:/ {k = $2} /^metadata:/ {m = 1; next} m && /^  name:/ {print k, $2; m = 0} /^---/ {m = 0}' "$1" | sort -u; }
diff <(objects "$tmp/default.yaml" | grep -v '^Namespace ') <(objects "$tmp/chart.yaml") || fail "the chart with its default values makes other objects than config/default"
helm template stillpoint helm/stillpoint --namespace stillpoint-system --set serviceMonitor.enabled=true,prometheusRule.enabled=true,dashboard.enabled=true \
  -s templates/servicemonitor.yaml -s templates/prometheusrule.yaml -s templates/dashboards.yaml > "$tmp/chart-monitoring.yaml" || fail "helm template with monitoring"
diff <(objects "$tmp/prometheus.yaml") <(objects "$tmp/chart-monitoring.yaml") || fail "the chart makes other objects for monitoring than config/prometheus"

[ $failed = 0 ] && echo "all as it should be"
exit $failed
