#!/bin/sh
# train.stop: a run ends when its evaluations no longer improve, at the same step after a kill; it is done, and what
# lists it says why; the keys on which the end depends cannot change.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1
cat >net.yaml <<Y
name: net
device: cpu
precision: f32
data: {train: {source: synth, samples: 64, size: 8}, test: {source: synth, samples: 32, size: 8, seed: 3}}
loader: {batch: 8, readers: 1, share: off}
model: [{conv: {out: 4, kernel: 3}}, batchnorm, relu, global_avgpool, {linear: {out: classes}}]
optimizer: {sgd: {lr: 1e-9}}
train: {epochs: 10, threads: 1, eval_every: 4 steps, stop: {patience: 2, threshold: 0.001}}
checkpoint: {every: 4 steps, keep: 100}
Y
# whole CHANGE...; then killed CHANGE...: resumed from the checkpoints up to step 8, or to the last one
whole() {
    rm -rf runs && "$NNPIPE" train net.yaml -o runs=runs "$@" --json >whole.json && run=$(ls -d runs/net-*)
}
again() { # again STEP...: without the checkpoints behind the last STEP
    rm -f "$run/result.json"
    for dir in "$run"/checkpoints/step-*; do
        [ "${dir##*-}" -le "$1" ] || rm -r "$dir"
    done
    "$NNPIPE" train --resume "$run" --json >again.json &&
        [ "$(field weights_sha256 whole.json)" = "$(field weights_sha256 again.json)" ] &&
        [ "$(field steps whole.json)" = "$(field steps again.json)" ] && [ -n "$(field reason again.json)" ] &&
        [ "$(grep -c '"early_stop"' "$run/metrics.jsonl")" -eq 1 ]
}
ends() { # the first evaluation is the best one, the third after it is one too many
    whole && [ "$(field steps whole.json)" = 16 ] &&
        [ "$(field epochs whole.json)" = 2 ] &&
        [ -e "$run/checkpoints/step-16" ] &&
        grep -q '"event": "early_stop", "step": 16,.*"metric": "loss"' whole.json &&
        grep -q 'ended early at step 16 of 80: the loss of test has not improved in 3 evaluations (the best was' \
            "$run/log"
}
t "a run that does not improve ends, with exit code 0 and the reason" ends
t "killed before, it ends at the same step" again 8
t "killed behind its last checkpoint, before its end, too" again 16
listed() {
    "$NNPIPE" runs runs | grep -q ' done early  *16/16 ' &&
        "$NNPIPE" runs runs --json | grep -q '"state": "done".*"reason": "ended early at step 16 of 80' &&
        "$NNPIPE" train --resume "$run" >err.txt 2>&1 && grep -q 'is finished: ended early at step 16' err.txt &&
        ! "$NNPIPE" train net.yaml -o runs=runs --resume >err.txt 2>&1 && grep -q ': finished' err.txt
}
t "runs and --resume say so" listed
kept() { # kept TEXT CHANGE
    rm -f "$run/result.json" && ! "$NNPIPE" train --resume "$run" -o "$2" 2>err.txt && grep -q "$1" err.txt
}
t "patience cannot change at a resume" kept 'train.stop.patience was 2 and is 3' train.stop.patience=3
t "nor can the evaluations" kept 'train.eval_every was 4 steps and is 8 steps' 'train.eval_every=8 steps'
later() {
    whole -o train.stop.min_epochs=3 && [ "$(field steps whole.json)" = 24 ] && again 12
}
t "min_epochs" later
crossed() { # the averages are evaluated, the schedule has a state, updates end between evaluations
    whole -o 'train.ema={decay: 0.9}' -o 'schedule={plateau: {patience: 1, gamma: 0.5}}' -o train.accumulate=2 \
        -o 'train.eval_every=3 steps' -o 'data={split: 25%, train: {source: synth, samples: 96, size: 8},
            test: {source: synth, samples: 32, size: 8}}' -o train.stop.metric=accuracy || return 1
    steps=$(field steps whole.json)
    [ $((steps % 2)) -eq 0 ] && [ "$steps" -lt 80 ] && grep -q 'the accuracy of val' "$run/log" &&
        [ -n "$(field test_loss whole.json)" ] && again 6 && again "$steps"
}
t "with ema, plateau, accumulation and a val set, also after kills" crossed
improves() {
    whole -o 'optimizer={sgd: {lr: 0.05, momentum: 0.9}}' -o train.stop.threshold=0 -o train.stop.patience=50 &&
        [ "$(field steps whole.json)" = 80 ] && [ -z "$(field reason whole.json)" ] &&
        "$NNPIPE" runs runs --json | grep -q '"reason": null'
}
t "a run whose patience lasts ends at its end" improves
refused() {
    text=$1
    shift
    "$NNPIPE" check net.yaml "$@" >err.txt 2>&1
    [ $? -eq 2 ] && grep -q -- "$text" err.txt
}
t "without evaluations it is refused" refused "train.stop: it needs evaluations" -o train.eval_every=never
t "a misspelt key is refused" refused "did you mean 'patience'" -o 'train.stop={patients: 3}'
if use_emulated_gpu "a run on the emulated GPU that does not improve ends, too"; then
    on_gpu() { whole -o device=cuda:0 && [ "$(field steps whole.json)" = 16 ] && again 8; }
    t "a run on the emulated GPU that does not improve ends, too, also after a kill" on_gpu
fi
[ "$failed" -eq 0 ]
