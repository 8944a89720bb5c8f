#!/bin/sh
# The resizing rule of a run (loader.pixels): stored with it, used when a command resumes it, evaluates it or
# predicts with it, and Pillow 12's where a run is older than the key. The pictures are tall, so that
# the two rules give other bytes.
. "$(dirname "$0")/../lib.sh"
build=${NNPIPE_BUILD:-$ROOT/build}
san=$(basename "$build" | sed -n 's/^build-//p' | tr - ,)
cd "$ROOT" || exit 1
t "the tool that takes keys out of a manifest builds" ${CC:-gcc} -std=c11 -D_GNU_SOURCE ${san:+-fsanitize=$san} -I. -o \
    "$TMP/older" tests/flow/older_manifest.c "$build/libnnpipe.a" -ljansson -lxxhash
cd "$TMP" || exit 1

for set in train test; do
    for class in a b; do
        mkdir -p "data/$set/$class"
        for i in 1 2 3 4 5 6 7 8; do
            {
                printf 'P6 16 48 255\n'
                seq "$i${#set}" 3 90000 | sed "s/$/$class/" | gzip -nc | tail -c +100 | head -c 2304
            } >"data/$set/$class/$i.ppm"
        done
    done
done
cat >tall.yaml <<Y
name: tall
device: cpu
precision: f32
data: {train: {source: folder, path: data/train}, test: {source: folder, path: data/test}}
loader: {batch: 4, augment: [{resize: {size: [8, 8]}}, flip], test_augment: [{resize: {size: [8, 8]}}]}
model: [flatten, {linear: {out: classes}}]
optimizer: {sgd: {lr: 0.05}}
train: {epochs: 2, threads: 1}
Y

# field NAME FILE: a field of the last line that has it
# train NAME ARGS...: its JSON lines in NAME.json
train() {
    name=$1
    shift
    "$NNPIPE" train tall.yaml --json "$@" >"$name.json" 2>"$name.err" || { cat "$name.err"; return 1; }
}
same() {
    [ -n "$(field "$1" "$2.json")" ] && [ "$(field "$1" "$2.json")" = "$(field "$1" "$3.json")" ] || {
        echo "$2: $(field "$1" "$2.json"), $3: $(field "$1" "$3.json")"
        return 1
    }
}
other() {
    [ -n "$(field "$1" "$2.json")" ] && [ "$(field "$1" "$2.json")" != "$(field "$1" "$3.json")" ] || {
        echo "both $(field "$1" "$2.json")"
        return 1
    }
}
# half NAME ARGS...: a run of one epoch of two, in runs-NAME
half() {
    name=$1
    shift
    train "$name" -o "runs=runs-$name" -o train.epochs=1 "$@" && dir=$(field run_dir "$name.json")
}
# older DIR: the run as a program without the key, and without max_pixels, leaves it
older() {
    sed -i "/^ *\(max_\)\{0,1\}pixels: /d" "$1/config.yaml" || return 1
    for manifest in "$1"/checkpoints/step-*/manifest.json; do
        "$TMP/older" "$manifest" pixels overrides || return 1
    done
    ! grep -q pixels "$1/config.yaml" "$1"/checkpoints/step-*/manifest.json
}

t "a run without the key" train whole13
t "a run with Pillow 12's pixels" train whole12 -o loader.pixels=pillow-12
t "their weights differ" other weights_sha256 whole13 whole12
t "the run's config says pillow-13" grep -q '^  pixels: pillow-13$' "$(field run_dir whole13.json)/config.yaml"
t "the run's config says pillow-12" grep -q '^  pixels: pillow-12$' "$(field run_dir whole12.json)/config.yaml"

# --- resume
resumed() { # resumed HALF WHOLE ARGS...: HALF resumes and ends with WHOLE's weights
    from=$1 whole=$2
    shift 2
    train "$from-on" --resume "$dir" "$@" && same weights_sha256 "$from-on" "$whole"
}
t "half a run with Pillow 12's pixels" half half12 -o loader.pixels=pillow-12
t "is resumed with a config without the key, to the same weights" resumed half12 whole12
t "half a run from before the key" half old12 -o loader.pixels=pillow-12
t "has lost it" older "$dir"
t "is resumed to Pillow 12's weights" resumed old12 whole12
t "half of one more such run" half again12 -o loader.pixels=pillow-12
t "has lost it, too" older "$dir"
newest() {
    train newest12 -o runs=runs-again12 --resume && [ "$(field run_dir newest12.json)" = "$dir" ] &&
        same weights_sha256 newest12 whole12
}
t "is found as the newest that fits, and resumed to Pillow 12's weights" newest
t "half a run by its own config" half own12 -o loader.pixels=pillow-12
t "which has lost the key" older "$dir"
own() {
    "$NNPIPE" train --resume "$dir" -o train.epochs=2 --json >own12-on.json 2>"$OUT" &&
        same weights_sha256 own12-on whole12
}
t "resumes and ends with Pillow 12's weights" own
t "half a run of today" half half13
t "is resumed to Pillow 13's weights" resumed half13 whole13
refused() { # refused DIR ASKED WAS
    exits 2 "$NNPIPE" train tall.yaml --resume "$1" -o train.epochs=3 -o "loader.pixels=$2" >"$OUT" 2>&1 &&
        grep -q "would not give the same weights: loader.pixels was $3 and is $2" "$OUT"
}
t "a changed key is refused by name" refused "$(field run_dir half13.json)" pillow-12 pillow-13
t "an old run refuses Pillow 13's pixels by name" refused "$(field run_dir old12.json)" pillow-13 pillow-12

# --- eval and predict
evaluated() { # evaluated RUN ARGS...: as it was tested at its end
    run=$1
    shift
    "$NNPIPE" eval tall.yaml --weights "$(field run_dir "$run.json")" --json "$@" >eval.json &&
        [ "$(field loss eval.json)" = "$(field test_loss "$run.json")" ] ||
        { cat eval.json; field test_loss "$run.json"; return 1; }
}
t "eval takes the pixels of a run" evaluated whole12
t "eval takes the pixels of a run before those of the config" evaluated whole13 -o loader.pixels=pillow-12
t "a run without the key in its checkpoints" older "$(field run_dir whole12.json)"
t "is evaluated with Pillow 12's pixels" evaluated whole12
predicted() { # predicted WEIGHTS FILE ARGS...
    weights=$1 file=$2
    shift 2
    "$NNPIPE" predict tall.yaml --weights "$weights" data/test/a/*.ppm --json "$@" >"$file" 2>"$OUT"
}
predicts() {
    run=$(field run_dir whole12.json) bare=bare.safetensors
    cp "$run/checkpoints/step-8/weights.safetensors" $bare
    predicted "$run" run.txt && predicted "$bare" 12.txt -o loader.pixels=pillow-12 &&
        predicted "$bare" 13.txt && cmp run.txt 12.txt && ! cmp -s run.txt 13.txt
}
t "predict takes the pixels of a run, and those of the config for bare weights" predicts

# --- the same bytes wherever a picture lies
for cache in none encoded decoded; do
    cached() { train "$cache" -o loader.cache=$cache && same weights_sha256 "$cache" whole13; }
    t "cache: $cache gives the same weights" cached
done
viewed() {
    for rule in 12 13; do
        "$NNPIPE" data view tall.yaml --out "view-$rule" -o loader.pixels=pillow-$rule || return 1
    done
    "$NNPIPE" data view tall.yaml --out view && cmp view/step000000-row0000.png view-13/step000000-row0000.png &&
        ! cmp -s view-12/step000000-row0000.png view-13/step000000-row0000.png
}
t "data view uses the rule that the config names" viewed
packed() { "$NNPIPE" data pack tall.yaml --out "pack-$1" --resize 8 --raw -o loader.pixels="$1" >"$OUT" 2>&1; }
t "pack resizes as Pillow 12 does" packed pillow-12
t "pack resizes as Pillow 13 does" packed pillow-13
differ() {
    tar -xf pack-pillow-12/train-00000.tar -C pack-pillow-12 &&
        tar -xf pack-pillow-13/train-00000.tar -C pack-pillow-13 && [ -e pack-pillow-13/a/1.ppm ] &&
        ! cmp -s pack-pillow-12/a/1.ppm pack-pillow-13/a/1.ppm
}
t "and gives other bytes" differ
[ $failed -eq 0 ]
