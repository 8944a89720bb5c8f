#!/bin/sh
# Checks the names in README.md and docs/: each named file exists, each np_ function is defined, and a function that
# stands with a file, in a table's row or as `function()` in `file.c`, is defined in that file. File names are unique,
# so the folder may be left out; a name may be a pattern. Prints each fault; exit 1 if there is one.
cd "$(dirname "$0")/.." || exit 1
sources=$(find loader trainer daemon tests \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \))
# matching NAME: the files of that name or pattern
matching() {
    pattern=$(echo "$1" | sed 's/\./\\./g; s/\*/[a-z0-9_]*/g')
    echo "$sources" | grep -E "(^|/)$pattern\$"
}
named='`np_[a-z0-9_]+\(\)`|`[a-z_/0-9*]+\.(c|h|cu)`'
faults=$(grep -nE "$named" README.md docs/*.md | while IFS=: read -r doc line text; do
    files=
    for name in $(echo "$text" | grep -oE '`[a-z_/0-9*]+\.(c|h|cu)`' | tr -d '`'); do
        found=$(matching "$name")
        [ -n "$found" ] || echo "$doc:$line: no such file: $name"
        files="$files $found"
    done
    case $text in
    '| '*) ;; # a row: every function is in one of its files
    *) files= ;;
    esac
    for name in $(echo "$text" | grep -oE '`np_[a-z0-9_]+\(\)`' | tr -d '`()'); do
        own=$(echo "$text" | grep -oE "\`$name\(\)\` in \`[a-z_/0-9*]+\.c\`" | sed 's/.* in //' | tr -d '`' |
            head -n 1)
        in=$files
        [ -z "$own" ] || in=$(matching "$own")
        # shellcheck disable=SC2086 # words are files
        grep -qE "^[A-Za-z].*[ *]$name\(" ${in:-$sources} /dev/null ||
            echo "$doc:$line: $name() is not in ${in:-any file}"
    done
done)
[ -z "$faults" ] || { echo "$faults" && exit 1; }
