# The manual pages: every command and every setting of the service stands in them, and groff finds nothing wrong.
. "$(dirname "$0")/../lib.sh"
commands() {
    "$NNPIPE" help | sed -n 's/^  \([a-z]*\) .*/\1/p' >"$TMP/commands"
    [ "$(wc -l <"$TMP/commands")" -gt 20 ] || return 1
    while read -r command; do
        case $command in worker | ended) continue ;; esac # the service's own
        sed 's/\\f.//g; s/\\-/-/g' "$ROOT/docs/nnpipe.1" | grep -qE "^\.(B|BR|BI) \"?$command([^a-z]|$)" || { echo "no $command"; return 1; }
    done <"$TMP/commands"
}
settings() {
    "$NNPIPE" help service-reference | sed -n 's/^| `\([a-z_]*\)`.*/\1/p' >"$TMP/keys"
    [ "$(wc -l <"$TMP/keys")" -gt 10 ] || return 1
    while read -r key; do grep -qw "$key" "$ROOT/docs/nnpipe-daemon.8" || { echo "no $key"; return 1; }; done <"$TMP/keys"
}
t "nnpipe(1) has every command" commands
t "nnpipe-daemon(8) has every setting of service.yaml" settings
for page in nnpipe.1 nnpipe-daemon.8; do
    if command -v groff >/dev/null && groff -man -Tutf8 /dev/null >/dev/null 2>&1; then
        t "groff has nothing to say about $page" sh -c '[ -z "$(groff -ww -man -Tutf8 "$1" 2>&1 >/dev/null)" ]' - "$ROOT/docs/$page"
    else
        skip "groff has nothing to say about $page" "no groff here"
    fi
done
[ "$failed" -eq 0 ]
