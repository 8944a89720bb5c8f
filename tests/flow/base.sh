#!/bin/sh
# `base: FILE` from the command line: shown, trained, resumed without its base, changed by -o, submitted.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1
mkdir -p nets mine
"$NNPIPE" data synth --out nets/shapes --samples 64 --test 32 --size 8 >/dev/null || exit 1
cat >nets/net.yaml <<Y
name: net
device: cpu
precision: f32
data:
  train: {source: tar, path: shapes/train-*.tar*}
  test: {source: tar, path: shapes/test-*.tar*}
loader: {batch: 8, readers: 1}
model: [{conv: {out: 4, kernel: 3}}, relu, global_avgpool, {linear: {out: classes}}]
optimizer: {sgd: {lr: 0.05, momentum: 0.9}}
train: {epochs: 2, threads: 1}
checkpoint: {every: 4 steps}
runs: $TMP/runs
Y
cat >mine/net.yaml <<Y
base: ../nets/net.yaml
optimizer: {sgd: {lr: 0.01}}
train: {steps: 12}
Y
export NNPIPE_SOCKET="$TMP/socket" XDG_STATE_HOME="$TMP/state" XDG_CONFIG_HOME="$TMP/config"

# shows WORDS CONFIG ARGS...: the normal form has a line with the words
shows() {
    words=$1
    shift
    "$NNPIPE" show "$@" >shown.txt && grep -qF -- "$words" shown.txt || { cat shown.txt; return 1; }
}
t "check takes it" "$NNPIPE" check mine/net.yaml
t "a choice is replaced whole" shows "momentum: 0" mine/net.yaml
t "mappings are merged" shows "batch: 8" mine/net.yaml
t "steps take the place of epochs" sh -c 'grep -q "steps: 12" shown.txt && ! grep -q "epochs: 2" shown.txt'
t "paths are those of the base" shows "$(realpath nets)/shapes/train-*.tar*" mine/net.yaml
t "-o comes last" shows "batch: 4" mine/net.yaml -o loader.batch=4
t "standard input starts at the working directory" shows "seed: 5" - <<Y
base: mine/net.yaml
seed: 5
Y
cp shown.txt whole.yaml
t "what is shown is a config again" shows "steps: 12" whole.yaml
t "a mistake names the file that it is in" says "mine/../nets/net.yaml:7:17: batch: expected" \
    exits 2 sh -c 'sed "s/batch: 8/batch: x/" nets/net.yaml >bad && mv nets/net.yaml good && mv bad nets/net.yaml
        "$0" check mine/net.yaml; code=$?; mv good nets/net.yaml; exit $code' "$NNPIPE"

t "it is trained" "$NNPIPE" train mine/net.yaml
run=$(ls -d runs/*)
rm -rf "$run/result.json" "$run"/checkpoints/step-*8 "$run"/checkpoints/step-*12 # as a kill leaves it
mv nets/net.yaml nets/gone.yaml
t "the run is resumed where its base is gone" says '"step": 4' "$NNPIPE" train --resume "$run" --json
t "its network is evaluated" "$NNPIPE" eval --weights "$run"
t "without the base there is no other run" says "mine/net.yaml:1:7: base: ../nets/net.yaml: No such file" \
    exits 2 "$NNPIPE" train mine/net.yaml
mv nets/gone.yaml nets/net.yaml

"$NNPIPE" daemon >daemon.txt 2>&1 &
daemon=$!
for _ in $(tries 100); do "$NNPIPE" status >/dev/null 2>&1 && break; sleep 0.1; done
t "it is submitted whole" "$NNPIPE" submit mine/net.yaml --wait -o seed=9
whole_config() { grep -q "steps: 12" runs/net-1/config.yaml && grep -q "seed: 9" runs/net-1/config.yaml; }
t "and the run has it whole" whole_config
bad_data() { sed 's|shapes/train|no/where|' nets/net.yaml >nets/lost.yaml; echo 'base: nets/lost.yaml' >lost.yaml; }
bad_data
t "a mistake that the service finds is reported with its place in the files" says "nets/lost.yaml:5:" exits 2 \
    "$NNPIPE" submit lost.yaml
t "and so is what cannot be merged" says "two.yaml:1:7: base: two.yaml: it builds on this file itself" \
    exits 2 sh -c 'echo "base: two.yaml" >two.yaml; exec "$0" submit two.yaml' "$NNPIPE"
kill "$daemon" && wait "$daemon"
[ "$failed" -eq 0 ]
