#!/bin/sh
# One run in 1, 2 and 4 processes, whole, killed and stopped: ResNet-20 with batchnorm over all rows and over groups
# of 32, and a network without batchnorm; a small one with batchnorm in 1, 3 and 6 processes; f32 and bf16; 10,000
# drawn pictures, three epochs, a checkpoint every 50 steps. Random ranks are killed with SIGKILL, and a script begins
# the run again; a run that ends before it was killed KILLS times is begun anew. One hash of the weights for all. About
# an hour on two cores.
#   KILLS (20), PRECISIONS ("f32 bf16"), NETS ("all over32 plain trio"), SEED
#   STATE: a folder in which it keeps what has passed
. "$(dirname "$0")/../lib.sh"
kills=${KILLS:-20} seed=${SEED:-$$} state=${STATE:-$TMP/state}/processes
RANDOM=$seed
mkdir -p "$state"
echo "# SEED=$seed"
"$NNPIPE" data synth --out "$TMP/data" --samples 10000 --test 1000 >/dev/null || exit 1
for over in all 32; do
    name=$([ "$over" = all ] && echo all || echo over32)
    cat >"$TMP/$name.yaml" <<Y
base: $ROOT/configs/resnet20.yaml
train: {batchnorm_over: $over}
Y
done
cat >"$TMP/plain.yaml" <<Y
name: plain
model:
  - {conv: {out: 16, kernel: 3, pad: 1}}
  - relu
  - {conv: {out: 32, kernel: 3, stride: 2, pad: 1}}
  - relu
  - {conv: {out: 64, kernel: 3, stride: 2, pad: 1}}
  - relu
  - global_avgpool
  - {dropout: {rate: 0.1}}
  - {linear: {out: classes}}
optimizer: {adamw: {lr: 0.002}}
Y
sed 's/name: plain/name: trio/; s/^  - relu/  - batchnorm\n  - relu/' "$TMP/plain.yaml" >"$TMP/trio.yaml"
# sizes NET: its batch and lanes; numbers NET: of processes
sizes() {
    [ "$1" = trio ] && echo "-o loader.batch=132 -o train.lanes=12" || echo "-o loader.batch=128 -o train.lanes=8"
}
numbers() { [ "$1" = trio ] && echo "1 3 6" || echo "1 2 4"; }
launcher() {
    if [ "$1" -gt 1 ] && [ "$2" = mpirun ] && command -v mpirun >/dev/null 2>&1; then
        echo "mpirun --allow-run-as-root --oversubscribe --bind-to none" \
            "--mca btl_vader_single_copy_mechanism none -np $1"
    fi
}
# start NET PRECISION NAME PROCESSES FLAG...: in $TMP/NAME; $by: mpirun, or nothing
by=
start() {
    net=$1 precision=$2 name=$3 processes=$4
    shift 4
    mpi=$(launcher "$processes" "$by")
    [ -n "$mpi" ] || set -- --processes "$processes" "$@"
    # shellcheck disable=SC2046 # words
    $mpi "$NNPIPE" train "$TMP/$net.yaml" -o "runs=$TMP/$name" --json \
        -o "data={train: {source: tar, path: $TMP/data/train-*.tar*}}" -o "data.test=$test" -o loader.readers=1 \
        -o device=cpu -o "precision=$precision" $(sizes "$net") -o train.epochs=3 \
        -o train.threads=2 -o "checkpoint.every=50 steps" "$@" >"$TMP/$name.json" 2>"$TMP/$name.err"
}
test="{source: tar, path: $TMP/data/test-*.tar*}"
hash_of() { field weights_sha256 "$TMP/$1.json"; }
equal() { # NET PRECISION NAME
    [ -n "$(hash_of "$3")" ] && [ "$(hash_of "$3")" = "$(cat "$state/$1-$2.hash")" ] ||
        { tail -n 2 "$TMP/$3.err"; return 1; }
}
whole() {
    rm -rf "$TMP/whole"
    by=mpirun
    start "$1" "$2" whole "$3" || { tail -n 2 "$TMP/whole.err"; return 1; }
    by=
    [ "$3" -gt 1 ] || hash_of whole >"$state/$1-$2.hash"
    equal "$1" "$2" whole
}
# go NET PRECISION NAME PROCESSES: begins the run, or goes on with it
go() {
    if ls "$TMP/$3"/*/checkpoints/step-*/manifest.json >/dev/null 2>&1; then
        start "$@" --resume
    else
        rm -rf "${TMP:?}/$3"
        start "$@"
    fi
}
is_rank() { tr "\\0" "\\n" <"/proc/$2/environ" 2>/dev/null | grep -qx "NNPIPE_RANK=$1"; }
# killed NET PRECISION PROCESSES NEXT: $killed counts the kills, $lives the runs that came to their end
killed() {
    killed=0 lives=0
    rm -rf "$TMP/killed"
    until [ "$killed" -ge "$kills" ]; do
        go "$1" "$2" killed "$3" &
        job=$!
        sleep "$((1 + RANDOM % 9)).$((RANDOM % 10))"
        rank=$((RANDOM % $3))
        for pid in $(pgrep -f "runs=$TMP/killed "); do
            is_rank "$rank" "$pid" && kill -9 "$pid" && killed=$((killed + 1))
        done
        wait "$job"
        if [ "$(field event "$TMP/killed.json")" = done ]; then
            equal "$1" "$2" killed || return 1
            lives=$((lives + 1))
            rm -rf "$TMP/killed"
        fi
    done
    go "$1" "$2" killed "$4" && equal "$1" "$2" killed && echo "# $1 $2: $killed ranks killed, $((lives + 1)) runs" >&3
}
# stopped NET PRECISION PROCESSES COUNT: stopped after the first checkpoint, then COUNT
stopped() {
    rm -rf "$TMP/stopped"
    start "$1" "$2" stopped "$3" &
    job=$!
    for _ in $(tries 600); do ls "$TMP"/stopped/*/checkpoints/step-50 >/dev/null 2>&1 && break; sleep 0.1; done
    kill -TERM "$(pgrep -f "runs=$TMP/stopped " | tail -n 1)"
    exits 75 wait "$job" && go "$1" "$2" stopped "$4" && equal "$1" "$2" stopped
}
# once KEY SENTENCE COMMAND...: not again if it has passed
once() {
    mark=$state/$1 sentence=$2
    shift 2
    if [ -e "$mark" ]; then
        ok "$sentence"
        return
    fi
    before=$failed
    t "$sentence" "$@"
    [ "$failed" -gt "$before" ] || : >"$mark"
}
exec 3>&1
for net in ${NETS:-all over32 plain trio}; do
    case $net in
    all) says_net="ResNet-20 over all rows" ;;
    over32) says_net="ResNet-20 over groups of 32" ;;
    trio) says_net="a small network, three" ;;
    *) says_net="no batchnorm" ;;
    esac
    for precision in ${PRECISIONS:-f32 bf16}; do
        key=$net-$precision of="$says_net, $precision"
        # shellcheck disable=SC2046
        set -- $(numbers "$net")
        for n in "$@"; do
            once "$key-whole$n" "$of: $n processes, the same weights" whole "$net" "$precision" "$n"
        done
        [ "$net" = trio ] && most=$2 next=$3 || most=$3 next=$2
        once "$key-killed$kills" "$of: $kills kills of random ranks of $most, the same weights" \
            killed "$net" "$precision" "$most" "$next"
        for n in "$3" 1; do
            once "$key-stopped$n" "$of: stopped with $2 processes, resumed with $n" \
                stopped "$net" "$precision" "$2" "$n"
        done
    done
done
[ "$failed" -eq 0 ]
