#!/bin/sh
# Checks what README.md and docs/ say of the code: each file that they name is there, each np_ function is defined,
# and where a table's row or a pair of brackets names a function and a file, in that file. File names are unique, so
# one may stand without its folder; it may be a pattern. Prints each fault; exit 1 if there is one.
cd "$(dirname "$0")/.." || exit 1
sources=$(find loader trainer daemon tests \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' \))
# the files that a name of the docs stands for
meant() {
    pattern=$(echo "$1" | sed 's/\./\\./g; s/\*/[a-z0-9_]*/g')
    echo "$sources" | grep -E "(^|/)$pattern\$"
}
faults=$(grep -nE '`np_[a-z0-9_]+\(\)`|`[a-z_/0-9*]+\.(c|h|cu)`' README.md docs/*.md | while IFS=: read -r doc line text; do
    files=
    for name in $(echo "$text" | grep -oE '`[a-z_/0-9*]+\.(c|h|cu)`' | tr -d '`'); do
        found=$(meant "$name")
        [ -n "$found" ] || echo "$doc:$line: there is no $name"
        files="$files $found"
    done
    case $text in
    '| '*) ;; # a row: every function is in one of its files
    *) files= ;;
    esac
    for name in $(echo "$text" | grep -oE '`np_[a-z0-9_]+\(\)`' | tr -d '`()'); do
        own=$(echo "$text" | grep -oE "\`$name\(\)\` in \`[a-z_/0-9*]+\.c\`" | sed 's/.* in //' | tr -d '`' | head -n 1)
        in=$files
        [ -z "$own" ] || in=$(meant "$own")
        # shellcheck disable=SC2086 # words are files
        grep -qE "^[a-z].*[ *]$name\(" ${in:-$sources} /dev/null || echo "$doc:$line: $name() is not in ${in:-any file}"
    done
done)
[ -z "$faults" ] || { echo "$faults" && exit 1; }
