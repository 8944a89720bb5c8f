#!/bin/sh
# Drawn runs on emulated GPUs: 2, 3 or 4 processes, orders of the streams, precisions, sums, sizes of buckets, and what
# goes wrong: ranks that die in the middle of a sum or at any time, NCCL errors, calls that fail in one process, stops,
# steps that cannot be captured. None may hang; all end with the weights of one process, perhaps after a resume with
# another number of them. About 20 minutes.
#   RUNS (1000), SEED (1), STATE: a folder that keeps what is done, for a campaign that goes on later
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/lib_gpus.sh"
four_gpus "drawn runs on several GPUs" || exit 0
runs=${RUNS:-1000} seed=${SEED:-1} state=${STATE:-$TMP/state}
mkdir -p "$state" && export XDG_CACHE_HOME="$state/cache" || exit 1
echo "# SEED=$seed"

RUN_LIMIT="-s KILL 60"
cat >>"$TMP/net.yaml" <<Y
train: {epochs: 1, threads: 1, lanes: 4, clip_norm: 1, eval_every: never}
checkpoint: {every: 2 steps}
Y
hash_of() { field weights_sha256 "$TMP/$1.json"; }
# lanes_of NUMBER: flags for so many processes; two lanes on each of three
lanes_of() { [ "$1" != 3 ] || echo "$six"; }
for precision in f32 bf16; do
    for number in 2 3; do
        of=$state/$precision-$number
        # shellcheck disable=SC2046 # words
        rm -rf "$TMP/one" && run one --processes 1 -o precision=$precision $(lanes_of $number) &&
            hash_of one >"$of.hash" && field test_loss "$TMP/one.json" >"$of.loss" ||
            { not_ok "a run in one process, $precision" "$(tail -n 1 "$TMP/one.err")"; exit 1; }
    done
    cp "$state/$precision-2.hash" "$state/$precision-4.hash" && cp "$state/$precision-2.loss" "$state/$precision-4.loss"
done

# crossed "NUMBER ..." FLAG...: so many processes
crossed() {
    numbers=$1
    shift
    for number in $numbers; do
        rm -rf "$TMP/crossed"
        run crossed --processes "$number" -o train.epochs=2 -o 'train.eval_every=1 epoch' "$@" ||
            { tail -n 1 "$TMP/crossed.err"; return 1; }
        [ "$number" = 1 ] && want=$(hash_of crossed)
        [ -n "$want" ] && [ "$(hash_of crossed)" = "$want" ] ||
            { echo "$number processes have other weights"; return 1; }
    done
}
while IFS='|' read -r with flags; do
    eval "set -- $flags"
    t "$with: the same weights in 1, 2 and 4 processes" crossed "1 2 4" "$@"
    # shellcheck disable=SC2046
    t "$with: the same weights in 1 and 3" crossed "1 3" $(lanes_of 3) "$@"
done <<'T'
muon|-o 'optimizer={muon: {lr: 0.02}}'
lamb, bf16|-o 'optimizer={lamb: {lr: 0.01}}' -o precision=bf16
mixup and an average|-o train.mixup=0.2 -o 'train.ema={decay: 0.9}'
weights frozen for a while|-o 'freeze=[{names: ["0.*", "1.*"], until: {step: 7}}]'
frozen weights, bf16|-o 'freeze=[{names: ["0.*"]}]' -o precision=bf16
test-time augmentation, recompute|-o train.tta=flip -o train.recompute=true
rows grow|-o 'loader.augment=[{random_resized_crop: {size: 8}}]' -o 'loader.grow={from: 4, since: 0, until: 1, step: 2}'
pictures on the device|-o loader.cache=device -o train.clip_norm=0
accumulated batches, with the losses of all samples|-o train.accumulate=3 -o train.sample_losses=true
SAM, bf16|-o 'train.sam={rho: 0.1}' -o precision=bf16
adaptive SAM, f16|-o 'train.sam={adaptive: true}' -o precision=f16
accumulated batches, f16|-o train.accumulate=2 -o precision=f16
the best by F1|-o train.best=f1 -o data.split=25%
a split, and an early end|-o data.split=25% -o 'train.stop={patience: 1}'
T

# as_one PRECISION-NUMBER SUM TOLERANCE: the run ended with the weights of one process, or near them
as_one() {
    if [ "$2" = exact ]; then
        [ "$(hash_of drawn)" = "$(cat "$state/$1.hash")" ] || { echo "other weights"; return 1; }
    else
        awk -v a="$(field test_loss "$TMP/drawn.json")" -v b="$(cat "$state/$1.loss")" -v t="$3" \
            'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a > 0 && d <= t * b) }' ||
            { echo "test loss $(field test_loss "$TMP/drawn.json")"; return 1; }
    fi
}
# ends CODE: not by the timeout, nor by a check of the emulation
ends() {
    if [ "$1" -eq 137 ] && [ "$(($(date +%s) - began))" -ge 55 ]; then echo "hangs"; return 1; fi
    ! grep -q "^cudart: .*: .*" <(grep -v "NNPIPE_EMU_FAIL says" "$TMP/drawn.err") ||
        { grep -m 1 "^cudart" "$TMP/drawn.err"; return 1; }
    case $1 in 0 | 1 | 2 | 74 | 75 | 137 | 143) return 0 ;; esac # 143: before the first step
    echo "ended with $1"
    return 1
}
# one NUMBER: a drawn run
one() {
    RANDOM=$((seed * 7919 + $1)) bits=1
    set -- $((RANDOM % 3 + 2)) $((RANDOM % 4 ? 0 : 1)) $((RANDOM % 2)) $((RANDOM % 10))
    number=$1 fault=$4
    precision=$([ "$3" = 0 ] && echo f32 || echo bf16) sum=$([ "$2" = 0 ] && echo exact || echo fast)
    tolerance=$([ $precision = f32 ] && echo 0.0001 || echo 0.01)
    unset NNPIPE_EMU_NCCL_KILL NNPIPE_EMU_NCCL_ERROR NNPIPE_EMU_FAIL NNPIPE_EMU_FAIL_RANK NNPIPE_EMU_NO_CAPTURE
    export NNPIPE_EMU_SEED=$((RANDOM + 1)) NNPIPE_CUDA_BUCKET=$((RANDOM % 2 ? 1024 : 1048576))
    rank=$((RANDOM % number)) n=$((RANDOM % 120 + 1)) moment=0.$((RANDOM % 10))$((RANDOM % 10)) signal=
    case $fault in
    4) export NNPIPE_EMU_NCCL_KILL=$rank:$n ;;
    5) export NNPIPE_EMU_NCCL_ERROR=$rank:$n ;;
    6) # a call that fails may change the choice of an engine: not for the runs that follow
        export NNPIPE_EMU_FAIL=$((RANDOM % 1500 + 1)) NNPIPE_EMU_FAIL_RANK=$rank
        export XDG_CACHE_HOME="$TMP/own-cache" && bits=0 ;;
    7) signal=TERM ;;
    8) signal=KILL ;;
    9) export NNPIPE_EMU_NO_CAPTURE="4 4=1" ;;
    esac
    what="$number processes, $precision, $sum, fault $fault at rank $rank, $n, $moment"
    echo "$what"
    rm -rf "$TMP/drawn"
    began=$(date +%s)
    # shellcheck disable=SC2046
    run drawn --processes "$number" -o "precision=$precision" -o "train.sum=$sum" $(lanes_of "$number") &
    job=$!
    if [ -n "$signal" ]; then
        sleep "$moment"
        for pid in $(pgrep -f "runs=$TMP/drawn "); do
            tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx "NNPIPE_RANK=$rank" && kill "-$signal" "$pid"
        done
    fi
    code=0
    wait "$job" || code=$?
    ends "$code" || return 1
    [ "$code" -eq 0 ] && { [ $bits = 0 ] || as_one "$precision-$number" "$sum" "$tolerance"; return; }
    if ls "$TMP"/drawn/*/result.json >/dev/null 2>&1; then # killed after the end
        [ $bits = 0 ] || as_one "$precision-$number" "$sum" "$tolerance"
        return
    fi
    unset NNPIPE_EMU_NCCL_KILL NNPIPE_EMU_NCCL_ERROR NNPIPE_EMU_FAIL NNPIPE_EMU_FAIL_RANK NNPIPE_EMU_NO_CAPTURE
    again=$([ "$number" = 3 ] && echo $((1 + RANDOM % 2 * 2)) || echo $((1 << RANDOM % 3))) resume=
    ls "$TMP"/drawn/*/checkpoints/step-*/manifest.json >/dev/null 2>&1 && resume=--resume || rm -rf "$TMP/drawn"
    echo "again with $again${resume:+, resumed}"
    began=$(date +%s) code=0
    # shellcheck disable=SC2046
    run drawn --processes "$again" -o "precision=$precision" -o "train.sum=$sum" $(lanes_of "$number") $resume ||
        code=$?
    ends "$code" && [ "$code" -eq 0 ] || { echo "the second run ended with $code"; return 1; }
    [ $bits = 0 ] || as_one "$precision-$number" "$sum" "$tolerance"
}
touch "$state/done" "$state/failed"
for i in $(seq "$runs"); do
    grep -qx "$i" "$state/done" && continue
    if why=$(one "$i" 2>&1); then
        echo "$i" >>"$state/done"
    else
        echo "run $i: $(echo "$why" | tr '\n' ' '): $(tail -n 1 "$TMP/drawn.err")" | tee -a "$state/failed"
        cp "$TMP/drawn.err" "$state/failed-$i.err"
        echo "$i" >>"$state/done"
    fi
done
everything() {
    [ "$(wc -l <"$state/done")" -ge "$runs" ] && [ ! -s "$state/failed" ] || { cat "$state/failed"; return 1; }
}
t "$runs drawn runs on several GPUs: none hangs, and all end with the weights of one process" everything
[ "$failed" -eq 0 ]
