# The words that bash completes: every flag that a command's help names.
. "$(dirname "$0")/../lib.sh"
bash=$(command -v bash || true)
if [ -z "$bash" ]; then
    skip "every flag of a command's help is completed" "no bash here"
    exit
fi
cat >"$TMP/complete.bash" <<'B' # WORDS...: what the last one may become
. "$0"
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
_nnpipe
printf '%s\n' "${COMPREPLY[@]}"
B
complete() { "$bash" -c ". '$TMP/complete.bash'" "$ROOT/scripts/nnpipe.bash-completion" "$NNPIPE" "$@" >"$TMP/words"; }
completes() { # COMMAND: all flags that its help names
    "$NNPIPE" help "$@" | sed -nE 's/^  (-[a-z], )?(--*[a-z-]*)( .*|$)/\2/p' >"$TMP/flags"
    complete "$@" -
    grep -qx -- --help "$TMP/words" || { echo "no --help"; return 1; }
    while read -r flag; do grep -qxe "$flag" "$TMP/words" || { echo "no $flag"; return 1; }; done <"$TMP/flags"
}
listed() { "$NNPIPE" help "$@" | sed -nE 's/^  ([a-z]+) .*/\1/p'; }
all_flags() {
    listed >"$TMP/all" && [ "$(wc -l <"$TMP/all")" -gt 20 ] || return 1
    while read -r command; do
        case $command in
        data | bench) listed $command | while read -r second; do completes $command $second ||
            { echo "$command $second"; return 1; }; done || return 1 ;;
        *) completes $command || { echo "$command"; return 1; } ;;
        esac
    done <"$TMP/all"
}
t "every flag of every command's help is completed, and --help" all_flags
becomes() { # becomes "WORDS" COMMAND LINE...: it completes to these, whatever their order
    want=$1
    shift
    complete "$@"
    got=$(sort "$TMP/words" | tr '\n' ' ')
    [ "$got" = "$want " ] || { echo "'$got', not '$want'"; return 1; }
}
t "a command that is begun is ended" becomes "selftest" sel
t "so is one of a group" becomes "stats" data st
t "and one behind help" becomes "loader" help bench lo
t "-o completes keys, up to the '='" becomes "train.tf32= train.threads= train.tta=" train x.yaml -o train.t
t "a key is completed with dots, not with folders" becomes "optimizer.adamw.beta1= optimizer.adamw.beta2=" train \
    x.yaml -o optimizer.adamw.b
t "a key's values are completed behind the '='" becomes "decoded device" train x.yaml -o loader.cache = de
t "or right behind it" becomes "false true" train x.yaml -o train.deterministic =
t "a flag's value that has words" becomes "test train" eval x.yaml --set t
mkdir "$TMP/files" "$TMP/files/data" && touch "$TMP/files/a.yaml" "$TMP/files/b.yml" "$TMP/files/Makefile"
t "CONFIG is a YAML file or a folder" becomes "$TMP/files/a.yaml $TMP/files/b.yml $TMP/files/data" train "$TMP/files/"
t "PATH may be anything" becomes "$TMP/files/Makefile $TMP/files/a.yaml $TMP/files/b.yml $TMP/files/data" data ls \
    "$TMP/files/"
t "DIR is a folder" becomes "$TMP/files/data" data cache "$TMP/files/"
t "a flag that takes a folder gets folders" becomes "$TMP/files/data" data pack x --out "$TMP/files/"
# Runs' numbers, by the commands that apply to them, from a made-up list of the service.
cat >"$TMP/nnpipe" <<'N'
#!/bin/sh
[ "$*" = "ls --all --json" ] || exit 1
for run in 1done 2running 3paused 12queued 4failed; do
    printf '{"event": "run", "id": %s, "name": "n", "state": "%s", "config": "/x"}\n' "${run%%[a-z]*}" "${run##*[0-9]}"
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
t "hold completes queued runs" offers hold "" "12"
t "wait completes unfinished runs" offers wait "" "2 3 12"
t "rm completes finished runs" offers rm "" "1 4"
[ "$failed" -eq 0 ]
