#!/bin/sh
# Bad samples that end a run: it ends at the step that needs them, what is trained is saved, the list
# names them, and gone on with under another policy it comes to the undisturbed run's weights and list.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1

for i in $(seq 10 49); do
    mkdir -p "pictures/$((i % 2))"
    { printf 'P6 8 8 255\n'; seq $((i * i)) $((i * i + 99)) | head -c 192; } >"pictures/$((i % 2))/$i.ppm"
done
for i in 21 23; do # samples 25 and 26 of 40: rows 1 and 2 of batch 6
    printf 'GIF89a, not a picture' >"pictures/1/$i.ppm"
done
cat >net.yaml <<Y
name: net
device: cpu
precision: f32
data: {train: {source: folder, path: "$TMP/pictures"}}
loader: {batch: 4, readers: 3, prefetch: 8, shuffle: none, augment: [flip]}
model: [{conv: {out: 4, kernel: 3}}, batchnorm, relu, global_avgpool, {linear: {out: classes}}]
optimizer: {sgd: {lr: 0.05, momentum: 0.9}}
train: {epochs: 2, threads: 1}
checkpoint: {every: never}
Y

train() { out=$1; shift; "$NNPIPE" train net.yaml --json "$@" >"$out" 2>"$out.err"; }
lines() { [ "$(wc -l <"$1")" -eq "$2" ] || { echo "$(wc -l <"$1") lines, not $2"; cat "$1"; return 1; }; }

# ends_and_resumes ACCUMULATE SAVED ARGS...: ends by ARGS' policy with SAVED steps saved; then as `whole`
ends_and_resumes() {
    acc=$1 saved=$2
    shift 2
    rm -rf runs whole-runs
    train whole -o runs=whole-runs -o "train.accumulate=$acc" -o 'loader.bad_samples={budget: 5%}' || {
        cat whole.err
        return 1
    }
    train cut -o runs=runs -o "train.accumulate=$acc" "$@"
    [ $? -eq 1 ] && [ "$(ls runs/*/checkpoints)" = "step-$saved" ] || { cat cut.err; ls runs/*/checkpoints; return 1; }
    lines "$(echo runs/*/bad_samples.jsonl)" 2 && grep -q 'pictures/1/21.ppm' runs/*/bad_samples.jsonl &&
        grep -q 'pictures/1/23.ppm' runs/*/bad_samples.jsonl || return 1
    train end -o runs=runs -o "train.accumulate=$acc" --resume -o 'loader.bad_samples={budget: 5%}' || {
        cat end.err
        return 1
    }
    cmp whole-runs/*/bad_samples.jsonl runs/*/bad_samples.jsonl && lines "$(echo runs/*/bad_samples.jsonl)" 4 &&
        [ -n "$(field weights_sha256 whole)" ] && [ "$(field weights_sha256 whole)" = "$(field weights_sha256 end)" ]
}
t "policy: fail ends at the step of the bad sample, saved and listed" ends_and_resumes 1 6 -o \
    'loader.bad_samples={policy: fail}'
named() {
    grep -q "bad sample: .*pictures/1/21.ppm: " cut.err && ! grep -q "replaced" cut.err || {
        cat cut.err
        return 1
    }
}
t "no message calls a sample replaced" named
t "so does a spent budget" ends_and_resumes 1 6 -o 'loader.bad_samples={budget: 0%}'
t "within an accumulation the last update is saved" ends_and_resumes 4 4 -o 'loader.bad_samples={policy: fail}'
again() {
    rm -rf runs && train cut -o runs=runs -o 'loader.bad_samples={policy: fail}'
    train cut -o runs=runs --resume -o 'loader.bad_samples={policy: fail}'
    [ $? -eq 1 ] && lines "$(echo runs/*/bad_samples.jsonl)" 2
}
t "resumed under the same policy it ends there again, and lists nothing twice" again
