# Functions of all shell tests. A test file sources this, then calls `t` for each test:
#   t "a sentence" command [args]     passes when the command succeeds
# $NNPIPE is the program, $TMP a fresh folder removed at the end, $OUT holds what the last
# command printed (stdout and stderr). `skip "sentence" "why"` prints that a test was skipped.
# Bash runs the scripts, because it can trace which step of a test failed.
[ -n "${BASH_VERSION:-}" ] || exec bash "$0" "$@"
set -u
shopt -s xpg_echo
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
NNPIPE=${NNPIPE:-$ROOT/nnpipe}
TMP=$(mktemp -d "${TMPDIR:-/tmp}/nnpipe-test.XXXXXX")
trap 'unmount_faulty; rm -rf "$TMP"' EXIT
# No test writes into the folders of the user who runs it, or meets the user's own runs there.
export XDG_CACHE_HOME="$TMP/cache" XDG_RUNTIME_DIR="$TMP/user"
mkdir -m 700 "$XDG_RUNTIME_DIR"
export NNPIPE_PROFILE_STRICT=1 # a profile whose figures contradict each other ends the program
OUT=$TMP/out.txt
T_STEPS=$TMP/steps.txt
exec {BASH_XTRACEFD}>>"$T_STEPS"
failed=0

ok()     { echo "ok - $1"; }
skip()   { echo "skip - $1: $2"; }
# not_ok SENTENCE WHY [STEPS]: prints a failure; WHY: one line; STEPS: the last commands that bash traced
not_ok() {
    echo "not ok - $1: ${2:-}"
    [ -z "${3:-}" ] || echo "$3" | sed 's/^+* */#   step: /' | cut -c 1-300
    failed=$((failed + 1))
}
t() {
    what=$1
    shift
    : >"$T_STEPS"
    set -x
    "$@" >"$OUT" 2>&1
    t_code=$?
    set +x
    if [ "$t_code" -eq 0 ]; then
        ok "$what"
    else
        not_ok "$what" "$* ended with $t_code: $(tail -n 3 "$OUT" | tr '\n' ' ')" \
            "$(grep -vE '^\++ (sleep|set \+x|t_code=|seq|break|return)' "$T_STEPS" | tail -n 3)"
    fi
}
# tries N: words for a loop that waits; N are enough on a quiet machine, six times as many are given
tries() { seq $(($1 * 6)); }
# exits CODE command...: the command ends with exactly that exit code
exits() {
    want=$1
    shift
    "$@"
    got=$?
    [ "$got" -eq "$want" ] || { echo "exit $got, not $want: $*"; return 1; }
}
# says TEXT command...: succeeds if the output (both streams) holds the text and no `exits` in the command fails
says() {
    text=$1
    shift
    "$@" >"$TMP/says.txt" 2>&1
    if grep -qF -- "$text" "$TMP/says.txt" && ! grep -q '^exit [0-9]*, not [0-9]*: ' "$TMP/says.txt"; then return 0; fi
    echo "expected '$text' from $*, which printed:"
    tail -n 5 "$TMP/says.txt"
    return 1
}
# mount_faulty FOLDER MOUNT: mounts FOLDER at MOUNT with tests/fault/faulty_fs.c, which lists the commands for
# MOUNT/.control; fails without FUSE (then `skip`). All are unmounted at the end.
mount_faulty() {
    [ -x "$TMP/faulty_fs" ] || cc -O2 -o "$TMP/faulty_fs" "$ROOT/tests/fault/faulty_fs.c" \
        $(pkg-config --cflags --libs fuse3 2>/dev/null) >"$TMP/faulty_fs.log" 2>&1 || return 1
    mkdir -p "$2" && "$TMP/faulty_fs" "$1" "$2" -o allow_other,default_permissions >>"$TMP/faulty_fs.log" 2>&1 &&
        echo "$2" >>"$TMP/faulty_mounts"
}
unmount_faulty() {
    [ -e "$TMP/faulty_mounts" ] || return 0
    while read -r mount; do
        timeout -s KILL 10 sh -c 'echo clear >"$0/.control"' "$mount"
        umount -l "$mount"
    done <"$TMP/faulty_mounts"
}
# field NAME FILE: the last value of this name in FILE, the JSON that a program printed
field() { sed -n "s/.*\"$1\": *\"\{0,1\}\([^\",}]*\).*/\1/p" "$2" | tail -n 1; }
# train_to NAME ARGUMENTS...: nnpipe train, its JSON in NAME.json, its messages in NAME.err
train_to() {
    train_name=$1
    shift
    "$NNPIPE" train "$@" --json >"$train_name.json" 2>"$train_name.err" || { tail -n 5 "$train_name.err"; return 1; }
}
# same_weights A B: the runs of A.json and B.json ended with the same weights
same_weights() {
    weights=$(field weights_sha256 "$1.json")
    [ -n "$weights" ] && [ "$weights" = "$(field weights_sha256 "$2.json")" ]
}
# close_to NAME A B SHARE: the values of this name differ by less than SHARE of the first, which is above 0
close_to() {
    awk -v a="$(field "$1" "$2")" -v b="$(field "$1" "$3")" -v share="$4" \
        'BEGIN { d = a < b ? b - a : a - b; if (a > 0 && d < share * a) exit; print a " and " b; exit 1 }'
}
# cut_behind STEP RUNS COPY: a copy of the folder RUNS as a kill behind the checkpoint of STEP leaves it
cut_behind() {
    rm -rf "$3" && cp -r "$2" "$3" && rm -f "$3"/*/result.json || return 1
    for c in "$3"/*/checkpoints/step-*; do [ "${c##*-}" -le "$1" ] || rm -r "$c"; done
}
# serve [ARGS...]: tests/flow/range_server.py with the folder `served`, at the same port each time; its requests are in
# `log`, and what it does wrong is read from `faults`. It is in $server, and ended by `unserve`.
serve() {
    rm -f port
    python3 "$ROOT/tests/flow/range_server.py" served port --log log --faults faults --strip /bucket ${PORT:+--port \
        "$PORT"} \
        "$@" >server.log 2>&1 &
    server=$!
    for _ in $(tries 100); do [ -s port ] && break; sleep 0.05; done
    PORT=$(cat port)
}
unserve() { kill "$server" && wait "$server" 2>/dev/null; :; }
EMU=${NNPIPE_BUILD:-$ROOT/build}/tests/emu
# use_emulated_gpu SENTENCE: from now on $NNPIPE has an emulated GPU, cuda:0. Fails, and skips SENTENCE, if it is not
# built
use_emulated_gpu() {
    [ -e "$EMU/libnnpipe-cuda.so" ] || { skip "$1" "this build has no headers of CUDA and cuDNN"; return 1; }
    NNPIPE=$EMU/nnpipe # the plugin is beside it
    export NNPIPE_CUDA_LIBS="$EMU" NNPIPE_CUDA_LIBS_ONLY=1
}
