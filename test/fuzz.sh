#!/usr/bin/env bash
# Runs each fuzz target of the module in the working directory, one after the other.
# The argument is a number of inputs for each target ("2000x") or a time ("1m"). A failing
# input is left in the package's testdata/fuzz.
set -euo pipefail
time=$1
project=github.com/dra-driver-cpumem/...

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cache=$(go env GOCACHE)/fuzz
found= failed=
packages=$(go list -f '{{.ImportPath}} {{.Dir}}' ./...)
while read -r package dir; do
  grep -qs '^func Fuzz' "$dir"/*_test.go || continue
  # One program for all targets of the package. Only the code of this project guides the
  # search: with -fuzz, Go would compile all libraries once more.
  go test -c -gcflags "$project=-d=libfuzzer" -o "$work/fuzz.test" "$package"
  targets=$(cd "$dir" && "$work/fuzz.test" -test.list '^Fuzz' | grep '^Fuzz')
  for target in $targets; do
    found=1
    begin=$SECONDS
    # A new input is not made shorter for long: only a failing one is read by people.
    (cd "$dir" && "$work/fuzz.test" -test.run '^$' -test.fuzz "^$target\$" -test.fuzztime "$time" \
      -test.fuzzminimizetime 100x -test.fuzzcachedir "$cache/$package") >"$work/log" 2>&1 ||
      { cat "$work/log"; failed="$failed $package.$target"; }
    echo "$package.$target: $((SECONDS - begin)) s"
  done
done <<<"$packages"
[ -n "$found" ] || { echo "no fuzz target in $PWD" >&2; exit 1; }
[ -z "$failed" ] || { echo "failed:$failed" >&2; exit 1; }
