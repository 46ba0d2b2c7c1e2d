#!/bin/bash
# fuzz.sh [TIME]: run every fuzz target of the project, one after another, each for TIME (default: FUZZTIME, else 1m). A total such as
# "total:60s" is shared among them. The targets are found, not listed. What a target finds is written below its testdata/fuzz: commit it
# with the fix, and every later test run tries it again.
set -eu
time=${1:-${FUZZTIME:-1m}}

# Packages with a fuzz target in their tests; go test -list says which targets they have.
targets=()
while read -r dir; do
  while read -r name; do
    targets+=("$dir $name")
  done < <(go test -list '^Fuzz' "$dir" | grep '^Fuzz')
done < <(grep -rlE '^func Fuzz[A-Za-z0-9_]*\(' --include='*_test.go' . | xargs -r -n1 dirname | sort -u)
if [ ${#targets[@]} = 0 ]; then
  echo "error: no fuzz target was found" >&2
  exit 1
fi

case $time in
  total:*s)
    total=${time#total:}
    each=$((${total%s} * 1000 / ${#targets[@]}))ms
    ;;
  *) each=$time ;;
esac

echo "${#targets[@]} targets, $each each"
failed=()
for target in "${targets[@]}"; do
  read -r dir name <<<"$target"
  echo "--> $name ($dir)"
  # Inputs that are new and no failure are made smaller too, for a minute each unless told otherwise: time in which nothing is tried.
  if ! go test -run '^$' -fuzz "^$name\$" -fuzzminimizetime 1s -fuzztime "$each" "$dir"; then
    failed+=("$target")
  fi
done
if [ ${#failed[@]} != 0 ]; then
  printf 'error: %s found something; the input is below %s/testdata/fuzz\n' $(for f in "${failed[@]}"; do read -r d n <<<"$f"; echo "$n" "$d"; done) >&2
  exit 1
fi
