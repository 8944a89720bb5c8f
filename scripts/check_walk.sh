#!/bin/sh
# Checks the walks of docs/ARCHITECTURE.md: each np_ function that a numbered row names is defined in a file that
# the row names. Prints each one that is not; exit 1 if there is one.
cd "$(dirname "$0")/.." || exit 1
lost=$(grep -E '^\| *[0-9]+ \|' docs/ARCHITECTURE.md | while read -r row; do
    # A file without a folder is the service's; a name may be a pattern.
    files=$(echo "$row" | grep -oE '`[a-z_/0-9*]+\.c`' | tr -d '`' | sed 's|^[^/]*$|daemon/service/&|')
    echo "$row" | grep -oE '`np_[a-z0-9_]+\(\)`' | tr -d '`()' | while read -r name; do
        # shellcheck disable=SC2086 # words are files
        cat $files | grep -qE "^[a-z].*[ *]$name\(" || echo "docs/ARCHITECTURE.md: $name() is not in" $files
    done
done)
[ -z "$lost" ] || { echo "$lost" && exit 1; }
