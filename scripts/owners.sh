#!/bin/sh
# owners.sh: for each path on stdin a line `REAL-PATH PACKAGE`, the Debian package that has it; `-` if none has. One
# dpkg for all: each reads the lists of all packages.
set -eu
files=$(mktemp) owners=$(mktemp)
trap 'rm -f "$files" "$owners"' EXIT
xargs -r readlink -f >"$files"
sed 's|.*/|*/|' "$files" | xargs -r dpkg -S >"$owners" 2>/dev/null || true
awk '{ name = $NF; sub(/.*\//, "", name) }
    FILENAME == ARGV[1] { if (!(name in owner)) { split($1, package, ":"); owner[name] = package[1] } next }
    { print $0, name in owner ? owner[name] : "-" }' "$owners" "$files"
