#!/bin/sh
# Optimizers, schedules with a state, and averages of the weights: a run killed and resumed ends with the same
# weights; the average is what is evaluated and saved; wrong keys are refused.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1
"$NNPIPE" data synth --out "$TMP/data" --samples 96 --test 32 --size 8 >/dev/null || exit 1

cat >"$TMP/net.yaml" <<Y
name: net
device: cpu
precision: f32
data:
  train: {source: tar, path: "$TMP/data/train-*.tar*"}
  test: {source: tar, path: "$TMP/data/test-*.tar*"}
loader: {batch: 8, readers: 1, augment: [flip]}
model: [{conv: {out: 4, kernel: 3}}, batchnorm, relu, global_avgpool, {linear: {out: classes}}]
train: {epochs: 2, threads: 1, eval_every: 4 steps}
checkpoint: {every: 4 steps, keep: 100}
Y

# resumes CHANGE...: whole, and killed behind the checkpoint of step 12
resumes() {
    rm -rf "$TMP/runs"
    "$NNPIPE" train "$TMP/net.yaml" -o "runs=$TMP/runs" "$@" --json >"$TMP/whole.json" || return 1
    run=$(ls -d "$TMP/runs"/*)
    rm -r "$run/result.json" "$run/checkpoints/step-16" "$run/checkpoints/step-2"*
    "$NNPIPE" train --resume "$run" --json >"$TMP/again.json" || return 1
    [ -n "$(field weights_sha256 "$TMP/whole.json")" ] &&
        [ "$(field weights_sha256 "$TMP/whole.json")" = "$(field weights_sha256 "$TMP/again.json")" ]
}
while read -r change; do
    t "resumed, the same weights: $change" resumes -o "$change"
done <<LIST
optimizer=adam
optimizer={nadam: {weight_decay: 0.1}}
optimizer={rmsprop: {momentum: 0.9}}
optimizer={lion: {lr: 1e-3}}
optimizer={lamb: {lr: 0.01}}
optimizer={muon: {lr: 0.01}}
schedule={one_cycle: {momentum_high: 0.95, momentum_low: 0.8}}
train.ema={decay: 0.9, warmup: true}
train.ema={decay: 0.5, every: 5, lookahead: true}
train.sam={rho: 1, adaptive: true}
LIST
t "resumed, the same weights: sam with bf16, dropout, mixup, clipping and an average" resumes -o train.sam={} \
    -o precision=bf16 -o train.mixup=0.4 -o train.clip_norm=0.5 -o train.ema={} \
    -o 'model=[{conv: {out: 4, kernel: 3}}, batchnorm, relu, {dropout: {rate: 0.2}}, flatten, {linear: {out: classes}}]'
t "resumed, the same weights: an average of accumulated updates" resumes -o train.ema={} -o train.accumulate=4

rates() { grep '"event": "step"' "$1" | sed 's/.*"lr": \([^,]*\),.*/\1/' | uniq | tr '\n' ' '; }
plateau() {
    resumes -o 'optimizer={sgd: {lr: 1e-9}}' -o 'schedule={plateau: {patience: 1, gamma: 0.5}}' || return 1
    # evaluations 3 and 5 are the second in a row without an improvement, before and after the kill
    [ "$(rates "$TMP/whole.json")" = "1e-09 5e-10 2.5e-10 " ] && [ "$(rates "$TMP/again.json")" = "5e-10 2.5e-10 " ]
}
t "plateau lowers the rate, also across a kill" plateau
kept() {
    rm "$run/result.json"
    "$NNPIPE" train --resume "$run" -o "train.eval_every=8 steps" 2>"$TMP/err.txt"
    [ $? -eq 2 ] && grep -q 'train.eval_every was 4 steps and is 8 steps' "$TMP/err.txt"
}
t "and is resumed with its own evaluations only" kept

averaged() {
    rm -rf "$TMP/runs"
    "$NNPIPE" train "$TMP/net.yaml" -o "runs=$TMP/runs" -o 'train.ema={decay: 0.8}' --json >"$TMP/average.json" &&
        "$NNPIPE" eval --weights "$TMP/runs"/* --json >"$TMP/eval.json" || return 1
    [ "$(field test_loss "$TMP/average.json")" = "$(field loss "$TMP/eval.json")" ] &&
        [ "$(field weights_sha256 "$TMP/average.json")" != "$(field weights_sha256 "$TMP/plain.json")" ]
}
"$NNPIPE" train "$TMP/net.yaml" -o "runs=$TMP/plain" --json >"$TMP/plain.json" 2>/dev/null || exit 1
t "eval of a run with an average evaluates the average" averaged
raw() {
    grep -c 'raw\.' "$TMP/runs"/*/checkpoints/step-24/optimizer.safetensors &&
        ! grep -q 'raw\.' "$TMP/plain"/*/checkpoints/step-24/optimizer.safetensors
}
t "and the checkpoint has the weights that it is made of" raw

# refused TEXT CHANGE...
refused() {
    text=$1
    shift
    "$NNPIPE" check "$TMP/net.yaml" "$@" >"$TMP/err.txt" 2>&1
    [ $? -eq 2 ] && grep -q -- "$text" "$TMP/err.txt"
}
t "plateau without evaluations is refused" refused 'needs evaluations' -o schedule=plateau -o train.eval_every=never
t "two warm-ups are refused" refused 'give one of' -o 'schedule={cosine: {warmup: 5%, warmup_steps: 3}}'
t "sam over accumulated batches is refused, with its line" refused 'train.sam computes each batch twice' \
    -o train.sam={} -o train.accumulate=2
t "a misspelt key of sam is refused" refused "did you mean 'rho'" -o 'train.sam={roh: 0.1}'
t "sam with a rho of 0 is refused" refused 'rho' -o 'train.sam={rho: 0}'
t "a misspelt key of ema is refused" refused "did you mean 'decay'" -o 'train.ema={decoy: 0.9}'
# The GPU's kernels on the emulated runtime, in the same runs.
if [ -e "$EMU/libnnpipe-cuda.so" ]; then
    export NNPIPE_CUDA_LIBS="$EMU" NNPIPE_CUDA_LIBS_ONLY=1
    as_cpu() {
        NNPIPE=$ROOT/nnpipe resumes "$@" && cp "$TMP/whole.json" "$TMP/cpu.json" &&
            NNPIPE=$EMU/nnpipe resumes "$@" -o device=cuda:0 || return 1
        awk -v a="$(field test_loss "$TMP/cpu.json")" -v b="$(field test_loss "$TMP/whole.json")" \
            'BEGIN { d = a - b; exit !(a > 0 && d < 1e-4 && d > -1e-4) }'
    }
    while read -r change; do
        t "on a GPU as on the CPU, and resumed: $change" as_cpu -o train.ema={} -o "$change"
    done <<LIST
optimizer={lamb: {lr: 0.01}}
optimizer={rmsprop: {lr: 1e-3, momentum: 0.9}}
optimizer={muon: {lr: 0.01}}
train.sam={rho: 0.1}
train.sam={rho: 1, adaptive: true}
LIST
    f16() { NNPIPE=$EMU/nnpipe resumes -o device=cuda:0 -o precision=f16 -o 'train.sam={rho: 0.1}'; }
    t "resumed on a GPU in f16: sam" f16
    # Wide, tall and square matrices, of which some thaw, some stay frozen and some have rates of their own; the
    # gradients are sums of two batches.
    muon() {
        as_cpu -o 'optimizer={muon: {lr: 0.02, momentum: 0.8, iterations: 4}}' -o train.accumulate=2 \
            -o 'train.ema={decay: 0.5}' \
            -o 'model=[{conv: {name: a, out: 4, kernel: 3}}, relu, {conv: {name: b, out: 40, kernel: 1}}, relu,
                       {conv: {name: c, out: 8, kernel: 3}}, batchnorm, relu, {conv: {out: 8, kernel: 1}}, relu,
                       global_avgpool, {linear: {name: d, out: 8}}, relu, {linear: {out: classes}}]' \
            -o 'freeze={names: [a], until: {epoch: 2}}' -o 'params=[{names: ["c.*"], lr: 0.5, decay: 0}]'
    }
    t "on a GPU as on the CPU, and resumed: muon with frozen parameters and accumulated gradients" muon
    # Pixels so large that gradients overflow: updates are skipped until the loss's scale has fallen.
    muon_f16() {
        NNPIPE=$EMU/nnpipe resumes -o device=cuda:0 -o precision=f16 -o 'optimizer={muon: {lr: 0.01}}' -o train.ema={} \
            -o 'model=[{conv: {out: 12, kernel: 3}}, global_avgpool, {linear: {out: classes}}]' \
            -o 'loader.normalize={mean: [0.5, 0.5, 0.5], std: [0.0005, 0.0005, 0.0005]}' &&
            grep -rhoa 'scaler [0-9]* ' "$run/checkpoints" | awk '$2 < 65536 { fell = 1 } END { exit !fell }'
    }
    t "resumed on a GPU in f16, where updates are skipped: muon" muon_f16
    captured() { # steps are captured as a graph, and that changes no bit
        NNPIPE=$EMU/nnpipe resumes -o device=cuda:0 -o precision=bf16 -o 'optimizer={muon: {lr: 0.01}}' \
            2>"$TMP/notes.txt" && ! grep 'CUDA graph' "$TMP/notes.txt" && cp "$TMP/whole.json" "$TMP/graph.json" &&
            NNPIPE=$EMU/nnpipe NNPIPE_CUDA_GRAPH=0 resumes -o device=cuda:0 -o precision=bf16 \
                -o 'optimizer={muon: {lr: 0.01}}' &&
            [ "$(field weights_sha256 "$TMP/graph.json")" = "$(field weights_sha256 "$TMP/whole.json")" ]
    }
    t "in bf16 as a captured graph and call by call: muon" captured
    narrow() { # its memory is counted before the batch's
        NNPIPE_EMU_MEMORY=$1 exits 1 "$EMU/nnpipe" train "$TMP/net.yaml" -o "runs=$TMP/narrow" -o device=cuda:0 \
            -o optimizer=muon >"$TMP/err.txt" 2>&1 && grep -q -- "$2" "$TMP/err.txt"
    }
    t "too little memory for muon's matrices is said" narrow 30000000 "muon's largest matrix takes 0.034 GB"
    t "and too little beside them" narrow 60000000 'of workspace, and 0.026 of its 0.060 GB are free'
else
    skip "optimizers on the emulated GPU" "this build has no headers of CUDA and cuDNN"
fi
[ "$failed" -eq 0 ]
