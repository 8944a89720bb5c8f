# Convolutions that sum their channels for the batchnorm behind them (deterministic: false), over the
# emulated runtime, whose cuDNN adds such sums to memory in another order each time: they train as the
# two kernels apart do, the choice is a checkpoint's, and a deterministic run never takes them.
. "$(dirname "$0")/../lib.sh"
use_emulated_gpu "convolutions that sum their channels" || exit 0
CACHE=$XDG_CACHE_HOME/nnpipe/engines-Emulated_H200-91900.txt
cat >"$TMP/net.yaml" <<Y
name: sums
seed: 3
device: cuda:0
runs: $TMP/runs
data: {train: {source: synth, size: 16, samples: 128}}
loader: {batch: 16}
model:
  - conv: {out: 9, kernel: 3, pad: 1, bias: false}
  - batchnorm
  - relu
  - conv: {out: 16, kernel: 3, pad: 1, stride: 2, bias: false}
  - batchnorm
  - relu
  - conv: {out: 16, kernel: 3, pad: 1}
  - batchnorm
  - global_avgpool
  - flatten
  - linear: {out: classes}
optimizer: {sgd: {lr: 0.05, momentum: 0.9}}
train: {epochs: 2, deterministic: false}
checkpoint: {every: 8 steps, keep: 9}
Y
# trained NAME ARGS...: a run in runs/NAME, what it printed in NAME.txt
trained() {
    name=$1
    shift
    "$NNPIPE" train "$TMP/net.yaml" -o runs="$TMP/runs/$name" "$@" >"$TMP/$name.txt" 2>&1 || {
        tail -n 3 "$TMP/$name.txt"
        return 1
    }
}
loss() { sed -n 's/^epoch 2: train loss \([0-9.]*\).*/\1/p' "$TMP/$1.txt"; }
close() {
    awk -v a="$(loss "$1")" -v b="$(loss "$2")" -v most="$3" \
        'BEGIN { d = a - b; d = d < 0 ? -d : d; if (!(a > 0 && b > 0 && d <= most)) { print a " and " b; exit 1 } }'
}
# choose ID: of all that a run timed, the sums' choice becomes this plan, or "apart"
choose() { sed -i "/_+_stats_/s/ [^ ]* \([^ ]*\)\$/ $1 \1/" "$CACHE"; }
choices() {
    cat "$TMP/runs/$1"/*/checkpoints/step-"$2"/manifest.json | tr '\\' '\n' |
        sed -n 's/.*_+_stats_[^ ]* \([^ ]*\) .*/\1/p' | sort -u | tr '\n' ' '
}
as_one=40:2=1 # one that is offered

both_ways() {
    trained timed -o precision="$1" || return 1
    [ "$(grep -c '_+_stats_' "$CACHE")" -eq "$2" ] || { cat "$CACHE"; return 1; }
    choose apart && trained "apart-$1" -o precision="$1" && choose $as_one && trained "as-one-$1" -o precision="$1" ||
        return 1
    [ "$(choices "apart-$1" 16)" = "apart " ] && [ "$(choices "as-one-$1" 16)" = "$as_one " ] || {
        echo "chosen: $(choices "apart-$1" 16), $(choices "as-one-$1" 16)"
        return 1
    }
    close "apart-$1" "as-one-$1" 0.015
    status=$?
    rm -f "$CACHE"
    return $status
}
# The convolution with a bias sums nothing: two are left.
t "summed by the convolution or apart, bf16 trains alike" both_ways bf16 2
t "summed by the convolution or apart, f16 trains alike" both_ways f16 2

resumed() {
    trained timed -o precision=bf16 && choose $as_one && trained once -o precision=bf16 && choose apart || return 1
    run=$(echo "$TMP"/runs/once/*)
    rm -rf "$run/checkpoints/step-16" "$run/result.json"
    "$NNPIPE" train --resume "$run" >"$TMP/resumed.txt" 2>&1 || { tail -n 3 "$TMP/resumed.txt"; return 1; }
    [ "$(choices once 16)" = "$as_one " ] || { echo "chosen: $(choices once 16)"; return 1; }
}
t "a resumed run sums as its checkpoint did, with any content of the cache" resumed

weights() { sed -n 's/.*weights \([0-9a-f]*\),.*/\1/p' "$TMP/$1.txt"; }
fixed_order() {
    rm -f "$CACHE"
    trained one -o precision=bf16 -o train.deterministic=true &&
        trained two -o precision=bf16 -o train.deterministic=true || return 1
    ! grep -q '_+_stats_' "$CACHE" || { echo "sums were timed"; return 1; }
    [ -n "$(weights one)" ] && [ "$(weights one)" = "$(weights two)" ] || {
        echo "'$(weights one)' and '$(weights two)'"
        return 1
    }
}
t "a deterministic run does not use such sums, and is repeatable" fixed_order

unfused() {
    rm -f "$CACHE"
    NNPIPE_EMU_FUSE=0 trained none -o precision=bf16 && ! grep -q '_+_stats_' "$CACHE"
}
t "if cuDNN has no such plan, the two run apart" unfused
f32_apart() {
    rm -f "$CACHE"
    trained f32 -o precision=f32 && ! grep -q '_+_stats_' "$CACHE"
}
t "f32 keeps its own statistics" f32_apart
[ "$failed" -eq 0 ]
