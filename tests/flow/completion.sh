# The words that bash completes: every flag that a command's help names.
. "$(dirname "$0")/../lib.sh"
bash=$(command -v bash || true)
if [ -z "$bash" ]; then
    skip "every flag of a command's help is completed" "no bash here"
    exit
fi
cat >"$TMP/complete.bash" <<'B' # COMMAND: what a dash behind it may become
. "$0"
COMP_WORDS=(nnpipe "$1" -)
COMP_CWORD=2
_nnpipe
printf '%s\n' "${COMPREPLY[@]}"
B
completes() {
    "$NNPIPE" "$1" --help | sed -n 's/^  \(--*[a-z-]*\) .*/\1/p' >"$TMP/flags"
    [ -s "$TMP/flags" ] || { echo "its help names no flag"; return 1; }
    "$bash" -c ". '$TMP/complete.bash'" "$ROOT/scripts/nnpipe.bash-completion" "$1" >"$TMP/words"
    while read -r flag; do grep -qxe "$flag" "$TMP/words" || { echo "no $flag"; return 1; }; done <"$TMP/flags"
}
for command in train eval predict check show profile top selftest devices doctor; do
    t "every flag of $command's help is completed" completes $command
done
[ "$failed" -eq 0 ]
