#!/bin/sh
# Runs every fuzzer of the module, one after the other, each for the time given (such as 10m).
set -eu
time=${1:?usage: fuzz.sh TIME}

grep -rlE --include='*_test.go' '^func Fuzz' . | sort | while read -r file; do
	sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/p' "$file" | while read -r fuzzer; do
		go test -run '^$' -fuzz "^$fuzzer\$" -fuzztime "$time" "$(dirname "$file")" </dev/null
	done
done
