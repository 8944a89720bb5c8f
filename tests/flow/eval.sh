#!/bin/sh
# eval and predict: the run's own evaluation settings win over the config; the choice of the set, and of
# the checkpoint.
. "$(dirname "$0")/../lib.sh"
build=${NNPIPE_BUILD:-$ROOT/build}
san=$(basename "$build" | sed -n 's/^build-//p' | tr - ,)
cd "$ROOT" || exit 1
t "the tool that takes keys out of a manifest builds" ${CC:-gcc} -std=c11 -D_GNU_SOURCE ${san:+-fsanitize=$san} -I. -o \
    "$TMP/older" tests/flow/older_manifest.c "$build/libnnpipe.a" -ljansson -lxxhash
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

go() { out=$1; shift; "$NNPIPE" "$@" --json >"$out" 2>"$out.err"; }
go "$TMP/run.json" train "$TMP/net.yaml" -o "runs=$TMP/runs" || { cat "$TMP/run.json.err"; exit 1; }
run=$(field run_dir "$TMP/run.json")
# as_run FILE: the loss of this evaluation is the run's, to the last digit
as_run() {
    [ -n "$(field loss "$1")" ] && [ "$(field loss "$1")" = "$(field test_loss "$TMP/run.json")" ] || {
        cat "$1" "$1.err"
        return 1
    }
}

# --- the network's input
t "eval with the run's config gives the run's loss" sh -c '"$0" eval "$1" --weights "$2" --json >"$3" 2>"$3.err"' \
    "$NNPIPE" "$TMP/net.yaml" "$run" "$TMP/e.json"
quiet() { as_run "$TMP/e.json" && ! grep -q "not the config" "$TMP/e.json.err"; }
t "and reports no difference" quiet
normalize() {
    go "$TMP/n.json" eval "$TMP/plain.yaml" --weights "$run" && as_run "$TMP/n.json" &&
        grep -q "loader.normalize of the run is used, not the config's" "$TMP/n.json.err"
}
t "eval takes the run's normalize and prints it" normalize
chain() {
    go "$TMP/c.json" eval "$TMP/chain.yaml" --weights "$run" && as_run "$TMP/c.json" &&
        grep -q "loader.test_augment of the run is used, not the config's" "$TMP/c.json.err"
}
t "eval takes the run's test chain and prints it" chain
checkpoint() { go "$TMP/k.json" eval "$TMP/plain.yaml" --weights "$run/checkpoints/step-36" && as_run "$TMP/k.json"; }
t "also with a checkpoint's folder" checkpoint
bare() {
    go "$TMP/b.json" eval "$TMP/plain.yaml" --weights "$run/checkpoints/step-36/weights.safetensors" &&
        ! as_run "$TMP/b.json" >/dev/null
}
t "bare weights are evaluated with the config's" bare
mkdir "$TMP/pictures" && for f in "$TMP"/data/test-*.tar.zst; do tar -xf "$f" -C "$TMP/pictures"; done
pictures=$(find "$TMP/pictures" -type f \( -name '*.jpg' -o -name '*.png' \) | sort | head -n 6)
predicts() {
    for config in net plain chain; do
        go "$TMP/p-$config.json" predict "$TMP/$config.yaml" --weights "$run" $pictures || {
            cat "$TMP/p-$config.json.err"
            return 1
        }
        cmp "$TMP/p-net.json" "$TMP/p-$config.json" || return 1
    done
    grep -q "loader.normalize of the run" "$TMP/p-plain.json.err" &&
        grep -q "loader.test_augment of the run" "$TMP/p-chain.json.err"
}
t "predict does the same" predicts
agree() { # -ln of the likeliest class's probability, of one picture, as eval's loss of a set of that picture
    picture=$(echo "$pictures" | head -n 1)
    go "$TMP/p1.json" predict "$TMP/plain.yaml" --weights "$run" "$picture" || return 1
    class=$(sed 's/.*"label": [0-9]*, "class": "\([^"]*\)".*/\1/' "$TMP/p1.json")
    mkdir -p "$TMP/one/$class" && cp "$picture" "$TMP/one/$class" &&
        go "$TMP/one.json" eval "$TMP/chain.yaml" --weights "$run" -o "data.test={source: folder, path: $TMP/one}" || {
            cat "$TMP/one.json.err"
            return 1
        }
    p=$(sed 's/.*"class": "'"$class"'", "probability": \([0-9.e-]*\), "top".*/\1/' "$TMP/p1.json")
    awk -v p="$p" -v loss="$(field loss "$TMP/one.json")" \
        'BEGIN { d = -log(p) - loss; exit !(p > 0 && d < 1e-4 && d > -1e-4) }' || {
            echo "p $p, loss $(field loss "$TMP/one.json")"
            return 1
        }
}
t "eval and predict agree on a picture" agree

# --- without a config: the run's own
own_config() {
    for weights in "$run" "$run:last" "$run/checkpoints/best" "$run/checkpoints/best/weights.safetensors"; do
        go "$TMP/o.json" eval --weights "$weights" && grep -q '"set": "test", "images": 40' "$TMP/o.json" || {
            cat "$TMP/o.json.err"
            return 1
        }
    done
    go "$TMP/o.json" eval --weights "$run" && as_run "$TMP/o.json" &&
        cp "$run/checkpoints/best/weights.safetensors" "$TMP/bare.safetensors" &&
        exits 2 go "$TMP/o.json" eval --weights "$TMP/bare.safetensors" && grep -q "expected CONFIG" "$TMP/o.json.err"
}
t "eval takes the config of the weights' run" own_config
go "$TMP/o.json" eval --weights "$run"
mkdir -p "$TMP/album/b/deep" "$TMP/album/a" && i=0
for picture in $pictures; do
    i=$((i + 1))
    case $i in
        1)
            cp "$picture" "$TMP/album/z.jpg"
        ;;
        2)
            cp "$picture" "$TMP/album/b/deep/1.jpg"
        ;;
        3)
            cp "$picture" "$TMP/album/a/2.jpg"
        ;;
    esac
done
echo text >"$TMP/album/notes.txt" && ln -s .. "$TMP/album/a/up"
album() {
    "$NNPIPE" predict --weights "$run" "$TMP/album" --json --top 2 >"$TMP/album.json" 2>"$TMP/album.err" || {
        cat "$TMP/album.err"
        return 1
    }
    [ "$(sed 's/.*"path": "\([^"]*\)".*/\1/' "$TMP/album.json" | tr '\n' ' ')" = \
        "$TMP/album/a/2.jpg $TMP/album/b/deep/1.jpg $TMP/album/z.jpg " ] || {
            cat "$TMP/album.json"
            return 1
        }
    [ "$(grep -o '"class"' "$TMP/album.json" | wc -l)" -eq 9 ] &&
        "$NNPIPE" predict --weights "$run" "$TMP/album/z.jpg" --top 100 2>/dev/null |
        grep -q "^$TMP/album/z.jpg: .*, .*, .*, .*, .*, .*, "
}
t "predict takes a folder, in order, without a config; --top says how many classes" album
no_images() {
    mkdir -p "$TMP/bare" && says "there is no image in this folder" exits 1 \
        "$NNPIPE" predict --weights "$run" "$TMP/bare" && exits 2 "$NNPIPE" predict --weights "$run" &&
        exits 2 "$NNPIPE" predict --weights "$run" --top 0 "$TMP/album"
}
t "predict without an image is a mistake" no_images
how() {
    says "evaluating in f32 on cpu, as the run computed" "$NNPIPE" eval --weights "$run" &&
        says "evaluating in bf16 on cpu, as the config says" "$NNPIPE" eval --weights "$run" -o precision=bf16 &&
        says "predicting in f32 on cpu" "$NNPIPE" predict --weights "$run" "$TMP/album" &&
        grep -q '"precision": "f32", "device": "cpu"' "$TMP/o.json"
}
t "both print the precision and the device" how

# --- the choice of the set
grep -v '  test:' "$TMP/net.yaml" >"$TMP/notest.yaml"
in_test() { grep -q '"event": "done", "set": "test", "images": 40' "$TMP/e.json"; }
t "the test set without --set" in_test
in_train() {
    go "$TMP/s1.json" eval "$TMP/notest.yaml" --weights "$run" --set train &&
        grep -q '"set": "train", "images": 96' "$TMP/s1.json" || {
            cat "$TMP/s1.json.err"
            return 1
        }
}
t "--set train goes through the test chain" in_train
in_val() { # a val set with the test set's files
    go "$TMP/s2.json" eval "$TMP/notest.yaml" --weights "$run" -o \
        "data.val={source: tar, path: '$TMP/data/test-*.tar*'}" && as_run "$TMP/s2.json" &&
        grep -q '"set": "val", "images": 40' "$TMP/s2.json"
}
t "val if there is no test" in_val
go "$TMP/split.json" train "$TMP/notest.yaml" -o "runs=$TMP/runs-split" -o data.split=25% -o data.split_seed=7 ||
    cat "$TMP/split.json.err"
split_run=$(field run_dir "$TMP/split.json")
in_split() { # the samples that the run set apart, with any share and seed in the config
    go "$TMP/s3.json" eval "$TMP/net.yaml" --weights "$split_run" --set val -o data.split=25% -o data.split_seed=7 &&
        grep -q '"set": "val", "images": 24' "$TMP/s3.json" &&
        [ "$(field loss "$TMP/s3.json")" = "$(field val_loss "$split_run/result.json")" ] || {
            cat "$TMP/s3.json" "$TMP/s3.json.err"
            return 1
        }
    go "$TMP/s4.json" eval "$TMP/notest.yaml" --weights "$split_run" -o data.split=50% &&
        [ "$(field loss "$TMP/s3.json")" = "$(field loss "$TMP/s4.json")" ] &&
        grep -q "data.split and split_seed of the run are used" "$TMP/s4.json.err"
}
t "--set val evaluates the samples that the run set apart" in_split
older_split() { # a run from before split_seed, whose checkpoints do not have the split: it was split by its seed
    go "$TMP/b.json" train "$TMP/notest.yaml" -o "runs=$TMP/runs-before" -o seed=5 -o data.split=25% -o \
        data.split_seed=5 -o data.split_by=random && before=$(field run_dir "$TMP/b.json") || {
            cat "$TMP/b.json.err"
            return 1
        }
    sed -i '/^ *split_\(seed\|by\):/d; s/, split_seed: 5//; s/, split_by: random//' "$before/config.yaml" &&
        "$TMP/older" "$before/checkpoints/step-27/manifest.json" split split_seed split_by || return 1
    go "$TMP/b1.json" eval "$TMP/notest.yaml" --weights "$before" --set val -o seed=5 -o data.split=25% &&
        [ "$(field loss "$TMP/b1.json")" = "$(field val_loss "$before/result.json")" ] || {
            cat "$TMP/b1.json" "$TMP/b1.json.err"
            return 1
        }
    cp -r "$before/checkpoints/step-27" "$TMP/alone" && go "$TMP/b2.json" eval "$TMP/notest.yaml" --weights \
        "$TMP/alone" --set val -o data.split=25% && grep -q "does not say which samples its run set aside" \
        "$TMP/b2.json.err"
}
t "also for a run from before the facts, by its own config" older_split
kept_none() {
    go "$TMP/n1.json" eval "$TMP/notest.yaml" --weights "$run" --set val -o data.split=25% &&
        grep -q "the run set no samples aside: it trained on those of data.split" "$TMP/n1.json.err"
}
t "a run without an evaluation set is reported" kept_none
bare_val() {
    go "$TMP/s5.json" eval "$TMP/notest.yaml" --weights "$split_run/checkpoints/best/weights.safetensors" --set val -o \
        data.split=25% -o data.split_seed=7 && grep -q '"set": "val", "images": 24' "$TMP/s5.json"
}
t "also with bare weights, by the config" bare_val
no_set() {
    exits 2 go "$TMP/s6.json" eval "$TMP/notest.yaml" --weights "$run" &&
        grep -q "there is no 'test' set" "$TMP/s6.json.err" &&
        exits 2 go "$TMP/s6.json" eval "$TMP/net.yaml" --weights "$run" --set val &&
        grep -q "there is no 'val' set to evaluate on; there is 'test'" "$TMP/s6.json.err" &&
            exits 2 go "$TMP/s6.json" eval "$TMP/net.yaml" --weights "$run" --set best &&
            grep -q "takes test, val or train, not best" "$TMP/s6.json.err"
}
t "a missing set is a mistake of the command line" no_set

# --- the choice of the checkpoint
best=$(field best_step "$run/result.json")
named() {
    [ -n "$best" ] && [ "$(readlink "$run/checkpoints/best")" = "step-$best" ] &&
        grep -q "\"event\": \"eval\", \"step\": $best, .*\"test_accuracy\": $(field best_accuracy "$run/result.json")" \
        "$run/metrics.jsonl"
}
t "checkpoints/best and result.json name the best one" named
# by NAME FOLDER: RUN:NAME is that folder's weights
by() {
    go "$TMP/1.json" eval "$TMP/net.yaml" --weights "$run:$1" &&
        go "$TMP/2.json" eval "$TMP/net.yaml" --weights "$run/checkpoints/$2" &&
        [ "$(field loss "$TMP/1.json")" = "$(field loss "$TMP/2.json")" ] || {
            cat "$TMP"/[12].json.err
            return 1
        }
}
t "RUN:best" by best "step-$best"
t "RUN/checkpoints/best" by best best
t "RUN:last" by last step-36
t "RUN:step-18" by step-18 step-18
other_best() { # the first evaluation was the best: the link and :best follow the newest manifest
    go "$TMP/o.json" train "$TMP/net.yaml" -o "runs=$TMP/runs-o" -o optimizer.sgd.lr=1e-9 -o checkpoint.keep=2 &&
        other=$(field run_dir "$TMP/o.json") || return 1
    [ "$(field best_step "$other/result.json")" -eq 12 ] && [ "$(readlink "$other/checkpoints/best")" = step-12 ] &&
        [ -e "$other/checkpoints/best/weights.safetensors" ] && [ ! -e "$other/checkpoints/step-18" ] || return 1
    rm "$other/result.json" "$other/checkpoints/best" && go "$TMP/o.json" train --resume "$other" &&
        [ "$(readlink "$other/checkpoints/best")" = step-12 ]
}
t "the best one is kept and named although newer ones replace others, also after a kill" other_best
t "predict takes RUN:best" sh -c '"$0" predict "$1" --weights "$2:best" "$3" >/dev/null' \
    "$NNPIPE" "$TMP/net.yaml" "$run" "$(echo "$pictures" | head -n 1)"
t "train --weights takes RUN:best" says "weights from $run/checkpoints/step-$best/weights" \
    "$NNPIPE" train "$TMP/net.yaml" -o "runs=$TMP/runs-w" -o train.epochs=1 --weights "$run:best"
missing() {
    exits 1 go "$TMP/m.json" eval "$TMP/net.yaml" --weights "$run:step-7" &&
        grep -q "step-7: cannot be opened: No such file" "$TMP/m.json.err"
}
t "a missing step is named" missing
never() {
    go "$TMP/v.json" train "$TMP/net.yaml" -o "runs=$TMP/runs-v" -o 'data={train: {source: synth, samples: 16}}' -o \
        train.epochs=1 && exits 1 go "$TMP/v2.json" eval "$TMP/net.yaml" --weights \
        "$(field run_dir "$TMP/v.json"):best" && grep -q "never evaluated" "$TMP/v2.json.err"
}
t "a run without an evaluation has no best one" never

# --- checkpoints that prune leaves
harm() { printf x | dd of="$1" bs=1 seek="$2" conv=notrunc 2>/dev/null; }
at() { for c in "$1"/checkpoints/step-*; do printf '%s ' "${c##*/step-}"; done; }
damaged_newest() { # its manifest in one run, its weights in another: the newest whole one stays, and the best
    for file in manifest.json weights.safetensors; do
        rm -rf "$TMP/pruned" && cp -r "$other" "$TMP/pruned" &&
            cp -r "$run"/checkpoints/step-18 "$TMP/pruned/checkpoints" &&
            harm "$TMP/pruned/checkpoints/step-36/$file" 20 || return 1
        "$NNPIPE" prune "$TMP/pruned" --dry-run --json | grep -q '"freed_bytes": *[1-9]' &&
            "$NNPIPE" prune "$TMP/pruned" && [ "$(at "$TMP/pruned")" = "12 30 " ] || {
                at "$TMP/pruned"
                return 1
            }
        go "$TMP/d.json" eval "$TMP/net.yaml" --weights "$TMP/pruned:best" &&
            go "$TMP/d.json" eval "$TMP/net.yaml" --weights "$TMP/pruned:last" || {
                cat "$TMP/d.json.err"
                return 1
            }
    done
}
t "prune counts no damaged checkpoint, and finds the best one without it" damaged_newest
damaged_best() {
    rm -rf "$TMP/pruned" && cp -r "$other" "$TMP/pruned" &&
        harm "$TMP/pruned/checkpoints/step-12/weights.safetensors" 20 && "$NNPIPE" prune "$TMP/pruned" --keep 0 &&
        [ "$(at "$TMP/pruned")" = "36 " ]
}
t "if the best one is damaged the newest stays" damaged_best
all_damaged() {
    for c in "$TMP"/pruned/checkpoints/step-*; do harm "$c/manifest.json" 20; done
    exits 1 "$NNPIPE" prune "$TMP/pruned" && [ "$(at "$TMP/pruned")" = "36 " ]
}
t "if all are damaged prune removes none" all_damaged
[ "$failed" -eq 0 ]
