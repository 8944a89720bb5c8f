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
for command in train eval predict check show profile top daemon submit ls status logs stop pause resume retry priority wait hold release drain undrain token rm prune selftest devices doctor; do
    t "every flag of $command's help is completed" completes $command
done
# Runs' numbers, by what may be done with them: as a service with these would tell.
cat >"$TMP/nnpipe" <<'N'
#!/bin/sh
[ "$*" = "ls --all --json" ] || exit 1
for run in 1done 2running 3paused 12queued 4failed; do
    echo "{\"event\": \"run\", \"id\": ${run%%[a-z]*}, \"name\": \"n\", \"state\": \"${run##*[0-9]}\", \"config\": \"/x\"}"
done
N
chmod +x "$TMP/nnpipe"
cat >"$TMP/runs.bash" <<'B' # COMMAND BEGINNING
. "$0"
COMP_WORDS=(nnpipe "$1" "$2")
COMP_CWORD=2
_nnpipe
echo "${COMPREPLY[@]}"
B
offers() { # offers COMMAND BEGINNING "NUMBERS"
    got=$(PATH="$TMP:$PATH" "$bash" -c ". '$TMP/runs.bash'" "$ROOT/scripts/nnpipe.bash-completion" "$1" "$2")
    [ "$got" = "$3" ] || { echo "$1 $2: '$got', not '$3'"; return 1; }
}
t "logs may be any run's" offers logs "" "1 2 3 12 4"
t "a number that is begun is ended" offers status 1 "1 12"
t "what may be stopped is offered to stop" offers stop "" "2 3 12"
t "to pause" offers pause "" "2 12"
t "to resume" offers resume "" "3"
t "what may be tried again is offered to retry" offers retry "" "4"
t "what is queued is offered to hold" offers hold "" "12"
t "what is not over is offered to wait" offers wait "" "2 3 12"
t "what is over is offered to rm" offers rm "" "1 4"
[ "$failed" -eq 0 ]
