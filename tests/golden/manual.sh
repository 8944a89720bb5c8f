# The manual pages: every command and every setting of the service stands in them, and groff finds nothing wrong.
. "$(dirname "$0")/../lib.sh"
plain() { sed 's/\\f.//g; s/\\-/-/g; s/\\ / /g' "$ROOT/docs/${1:-nnpipe.1}" | tr -d '"'; }
# all of them, those of a group too: "data pack"
listed() { "$NNPIPE" help ${1:-} | sed -n "s/^  \([a-z][a-z]*\) .*/${1:+${1:-} }\1/p"; }
all_commands() { listed && listed data && listed bench; }
commands() {
    all_commands >"$TMP/commands"
    [ "$(wc -l <"$TMP/commands")" -gt 30 ] || return 1
    while read -r command; do
        plain | grep -qE "^\.(B|BR|BI) $command([^a-z]|$)" || { echo "no $command"; return 1; }
    done <"$TMP/commands"
}
# The flags that a command takes, as it says itself when it is given another one; not the service's own.
takes() {
    "$NNPIPE" $1 --no-flag-of-any 2>&1 | sed -n 's/.*; it takes \(.*\): `.*/\1/p' | tr ',' '\n' |
        sed 's/^ *//; s/ .*//' |
        grep -E '^-' | { [ "$1" = check ] && grep -vE '^--(whole|as|json|device|processes)$' || cat; }
}
flags_in_help() {
    all_commands | grep -vxE 'data|bench' >"$TMP/commands"
    while read -r command; do
        takes "$command" >"$TMP/flags"
        [ -s "$TMP/flags" ] || { echo "$command does not say what it takes"; return 1; }
        "$NNPIPE" help $command | grep '^  -' >"$TMP/help"
        while read -r flag; do
            grep -qE "^  (-[a-z], )?$flag([ ,]|$)" "$TMP/help" || {
                echo "$command: no $flag"
                return 1
            }
        done <"$TMP/flags"
        sed 's/^  \(-[-a-z]*\).*/\1/' "$TMP/help" | while read -r flag; do
            grep -qxe "$flag" "$TMP/flags" || {
                echo "$command takes no $flag"
                return 1
            }
        done || return 1
    done <"$TMP/commands"
}
# The part of the page from the command's line to the next command's; a flag of all commands is under COMMON FLAGS.
flags_in_manual() {
    while read -r command; do
        "$NNPIPE" help $command | sed -n 's/^  \(-[a-z], \)\{0,1\}\(-[-a-z]*\).*/\2/p' >"$TMP/flags"
        if [ "$command" = daemon ]; then plain nnpipe-daemon.8 >"$TMP/part"; else plain | awk -v command="$command" '
            /^\.SH/ { on = /COMMON FLAGS/ }
            /^\.SS The service/ { on = 1 }
            /^\.RS/ { inside = 1 } /^\.RE/ { inside = 0 }
            /^\.TP/ && !inside { on = 0; head = 1; next }
            head { head = 0; on = on || ($0 ~ "^\\.(B|BR|BI) " command "([^a-z]|$)") }
            on { print }
            /^\.SH COMMON FLAGS/ { common = 1 } common { print }' >"$TMP/part"; fi
        while read -r flag; do
            grep -qE -e "(^|[^a-z-])$flag([^a-z-]|$)" "$TMP/part" || {
                echo "$command: no $flag"
                return 1
            }
        done <"$TMP/flags"
    done <"$TMP/commands"
}
settings() {
    "$NNPIPE" help service-reference | sed -n 's/^| `\([a-z_]*\)`.*/\1/p' >"$TMP/keys"
    [ "$(wc -l <"$TMP/keys")" -gt 10 ] || return 1
    while read -r key; do
        grep -qw "$key" "$ROOT/docs/nnpipe-daemon.8" || {
            echo "no $key"
            return 1
        }
    done <"$TMP/keys"
}
t "nnpipe(1) has every command" commands
t "the help of a command has its flags, and no others" flags_in_help
t "nnpipe(1) has every flag of every command" flags_in_manual
t "nnpipe-daemon(8) has every setting of service.yaml" settings
for page in nnpipe.1 nnpipe-daemon.8; do
    if command -v groff >/dev/null && groff -man -Tutf8 /dev/null >/dev/null 2>&1; then
        groff_silent() (
            [ -z "$(groff -ww -man -Tutf8 "$1" 2>&1 > /dev/null)" ]
        )
        t "groff has no complaint about $page" groff_silent "$ROOT/docs/$page"
    else
        skip "groff has no complaint about $page" "no groff here"
    fi
done
[ "$failed" -eq 0 ]
