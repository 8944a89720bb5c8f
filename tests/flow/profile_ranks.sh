#!/bin/sh
# `nnpipe profile` of a run of four processes: a rank with a slow disk, one that computes slowly, and one that saves are
# named with the reason; where none is slower, none is.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1
cc -shared -fPIC -D_GNU_SOURCE -o "$TMP/slow.so" "$ROOT/tests/flow/slow_calls.c" -ldl || exit 1
"$NNPIPE" data synth --out "$TMP/data" --samples 200 --test 40 --size 12 >/dev/null || exit 1
cat >"$TMP/net.yaml" <<Y
name: net
device: cpu
precision: f32
runs: "$TMP/runs"
data: {train: {source: tar, path: "$TMP/data/train-*.tar*"}}
loader: {batch: 32, readers: 1, cache: none, io: pread, share: off}
model:
  - {conv: {out: 8, kernel: 3}}
  - batchnorm
  - relu
  - global_avgpool
  - {linear: {out: classes}}
train: {epochs: 4000, threads: 1, lanes: 8, eval_every: never}
checkpoint: {every: never}
Y
# profile RANK VARIABLE FLAG...: four ranks, one of them with the variable and slow calls
profile() {
    slow=$1 with=$2 pids='' code=0
    shift 2
    rm -rf "$TMP/out"
    for rank in 0 1 2 3; do
        preload=
        [ "$rank" != "$slow" ] || preload="LD_PRELOAD=$TMP/slow.so $with"
        # shellcheck disable=SC2086 # two variables
        env $preload NNPIPE_RANK=$rank NNPIPE_WORLD=4 NNPIPE_COMM="unix:nnpipe-test-$$" \
            timeout 300 "$NNPIPE" profile "$TMP/net.yaml" --seconds 1 --json "$@" >"$TMP/rank$rank.txt" &
        pids="$pids $!"
    done
    for pid in $pids; do wait "$pid" || code=$?; done
    [ "$code" -eq 0 ] && cat "$TMP/rank1.txt" "$TMP/rank2.txt" "$TMP/rank3.txt" >"$TMP/others.txt" &&
        [ ! -s "$TMP/others.txt" ] || { echo "exit $code"; head -n 3 "$TMP/others.txt"; return 1; }
}
# names RANK STAGE
names() {
    [ "$(field verdict "$TMP/rank0.txt") $(field slowest_rank "$TMP/rank0.txt") $(field limiter "$TMP/rank0.txt")" = \
        "rank $1 $2" ] || { cat "$TMP/rank0.txt"; return 1; }
}
# On a busy machine another rank may be the slowest for a second: best of five tries.
named() {
    for _ in 1 2 3 4 5; do
        profile "$1" "$3" --out "$TMP/out" || return 1
        names "$1" "$2" >"$TMP/other" && { cmp "$TMP/rank0.txt" "$TMP/out/profile.json"; return; }
    done
    cat "$TMP/other"
    return 1
}
t "a rank whose disk is slow is named, and reading" named 2 read SLOW_READ_US=4000
t "a rank that computes slowly is named, and its step" named 1 step SLOW_STEP_US=1000
saves() {
    for _ in 1 2 3 4 5; do
        profile none none --out "$TMP/out" -o 'checkpoint.every=4 steps' || return 1
        names 0 checkpoint >"$TMP/other" && return
    done
    cat "$TMP/other"
    return 1
}
t "rank 0 is named where the others wait for its checkpoints" saves
# Another program on this machine may slow one of them for all of the time: asked again, it is another one or none.
even() {
    for _ in 1 2 3 4 5; do
        profile none none --out "$TMP/out" || return 1
        [ "$(field verdict "$TMP/rank0.txt")" != even ] || return 0
        echo "# accused: $(field slowest_rank "$TMP/rank0.txt") $(field limiter "$TMP/rank0.txt")"
    done
    return 1
}
t "where no rank is slower, none is accused" even
started() {
    "$NNPIPE" profile "$TMP/net.yaml" --processes 2 --seconds 1 >"$TMP/two.txt" &&
        grep -q "^ 2 processes: .* img/s, a step takes" "$TMP/two.txt" &&
        [ -e "$TMP"/runs/profile-net-*/profile.json ] && [ -z "$(ls -A "$TMP/runs" | grep '^\.profile')" ]
}
t "--processes starts them, and leaves only its report" started
refused() { says "several processes are compared" exits 2 "$NNPIPE" profile "$TMP/net.yaml" --processes 2 --deep; }
t "--deep and others are refused with several processes" refused
lanes() {
    says "train.lanes: 1 cannot be divided among 2 processes" exits 2 "$NNPIPE" profile "$TMP/net.yaml" \
        --processes 2 -o train.lanes=1
}
t "a config without lanes is refused" lanes
