#!/bin/sh
# eval and predict: what a run was evaluated with is used again, whatever the config says; which set, and
# which of the run's checkpoints.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1
"$NNPIPE" data synth --out "$TMP/data" --samples 96 --test 40 --size 16 >/dev/null || exit 1

cat >"$TMP/net.yaml" <<Y
name: net
device: cpu
precision: f32
data:
  train: {source: tar, path: "$TMP/data/train-*.tar*"}
  test: {source: tar, path: "$TMP/data/test-*.tar*"}
loader:
  batch: 8
  augment: [{random_crop: {size: 12}}]
  test_augment: [{center_crop: {size: 12}}]
  normalize: {mean: [0.3, 0.4, 0.5], std: [0.1, 0.2, 0.3]}
model: [{conv: {out: 8, kernel: 3}}, relu, global_avgpool, {linear: {out: classes}}]
optimizer: {sgd: {lr: 0.05, momentum: 0.9}}
train: {epochs: 3, threads: 1}
checkpoint: {every: 6 steps, keep: 100}
Y
grep -v normalize: "$TMP/net.yaml" >"$TMP/plain.yaml"
sed 's/center_crop: {size: 12}/resize: 12}, {center_crop: {size: 12}/' "$TMP/net.yaml" >"$TMP/chain.yaml"

field() { sed -n "s/.*\"$1\": *\"\{0,1\}\([^\",}]*\).*/\1/p" "$2" | tail -n 1; }
go() { out=$1; shift; "$NNPIPE" "$@" --json >"$out" 2>"$out.err"; }
go "$TMP/run.json" train "$TMP/net.yaml" -o "runs=$TMP/runs" || { cat "$TMP/run.json.err"; exit 1; }
run=$(field run_dir "$TMP/run.json")
# as_run FILE: the loss of this evaluation is the run's, to the last digit
as_run() { [ -n "$(field loss "$1")" ] && [ "$(field loss "$1")" = "$(field test_loss "$TMP/run.json")" ] || { cat "$1" "$1.err"; return 1; }; }

# --- what the network's input is
t "eval with the run's config gives the run's loss" sh -c '"$0" eval "$1" --weights "$2" --json >"$3" 2>"$3.err"' "$NNPIPE" "$TMP/net.yaml" "$run" "$TMP/e.json"
quiet() { as_run "$TMP/e.json" && ! grep -q "not the config" "$TMP/e.json.err"; }
t "and says of no difference" quiet
normalize() { go "$TMP/n.json" eval "$TMP/plain.yaml" --weights "$run" && as_run "$TMP/n.json" && grep -q "loader.normalize of the run is used, not the config's" "$TMP/n.json.err"; }
t "eval takes the run's normalize and says so" normalize
chain() { go "$TMP/c.json" eval "$TMP/chain.yaml" --weights "$run" && as_run "$TMP/c.json" && grep -q "loader.test_augment of the run is used, not the config's" "$TMP/c.json.err"; }
t "eval takes the run's test chain and says so" chain
checkpoint() { go "$TMP/k.json" eval "$TMP/plain.yaml" --weights "$run/checkpoints/step-36" && as_run "$TMP/k.json"; }
t "so with a checkpoint's folder" checkpoint
bare() { go "$TMP/b.json" eval "$TMP/plain.yaml" --weights "$run/checkpoints/step-36/weights.safetensors" && ! as_run "$TMP/b.json" >/dev/null; }
t "bare weights are evaluated with the config's" bare
mkdir "$TMP/pictures" && for f in "$TMP"/data/test-*.tar*; do tar -xf "$f" -C "$TMP/pictures"; done
pictures=$(find "$TMP/pictures" -type f \( -name '*.jpg' -o -name '*.png' \) | sort | head -n 6)
predicts() {
    for config in net plain chain; do
        go "$TMP/p-$config.json" predict "$TMP/$config.yaml" --weights "$run" $pictures || { cat "$TMP/p-$config.json.err"; return 1; }
        cmp "$TMP/p-net.json" "$TMP/p-$config.json" || return 1
    done
    grep -q "loader.normalize of the run" "$TMP/p-plain.json.err" && grep -q "loader.test_augment of the run" "$TMP/p-chain.json.err"
}
t "predict does the same" predicts
agree() { # -ln of the likeliest class's probability, of one picture, as eval's loss of a set of that picture
    picture=$(echo "$pictures" | head -n 1)
    go "$TMP/p1.json" predict "$TMP/plain.yaml" --weights "$run" "$picture" || return 1
    class=$(sed 's/.*"label": [0-9]*, "class": "\([^"]*\)".*/\1/' "$TMP/p1.json")
    mkdir -p "$TMP/one/$class" && cp "$picture" "$TMP/one/$class" && go "$TMP/one.json" eval "$TMP/chain.yaml" --weights "$run" -o "data.test={source: folder, path: $TMP/one}" || { cat "$TMP/one.json.err"; return 1; }
    p=$(sed 's/.*"class": "'"$class"'", "probability": \([0-9.e-]*\), "top".*/\1/' "$TMP/p1.json")
    awk -v p="$p" -v loss="$(field loss "$TMP/one.json")" 'BEGIN { d = -log(p) - loss; exit !(p > 0 && d < 1e-4 && d > -1e-4) }' || { echo "p $p, loss $(field loss "$TMP/one.json")"; return 1; }
}
t "eval and predict agree on a picture" agree
[ "$failed" -eq 0 ]
