#!/bin/sh
# Published recipes as configs, recipes/*.yaml: `check` finds nothing wrong with any of them, docs/RECIPES.md is what
# their comments say, and they train: two steps on small pictures, with their own network, augmentation, loss and
# optimizer. Here the small networks; with NNPIPE_RECIPES=all (recipes_campaign.sh) all of them.
#   NNPIPE_RECIPES_DEVICE  where they train (default cpu)
. "$(dirname "$0")/../lib.sh"
recipes=$ROOT/tests/golden/recipes
device=${NNPIPE_RECIPES_DEVICE:-cpu}
small="caffe_cifar10_quick caffe_lenet he2015_resnet20 keras_cifar10_cnn keras_mnist_convnet torchvision_mobilenet_v2"

# sound FILE: check accepts it, and its comment has what the page needs
sound() {
    "$NNPIPE" check --no-data "$1" || return 1
    for key in Recipe Source "Not said"; do
        [ "$(grep -c "^# $key: ." "$1")" -eq 1 ] || { echo "no line '# $key:'"; return 1; }
    done
    "$NNPIPE" show "$1" | grep -qx "name: $(basename "$1" .yaml)" || { echo "its name is not the file's"; return 1; }
}
for file in "$recipes"/*.yaml; do
    t "$(basename "$file") is checked and found right" sound "$file"
done
enough() { [ "$(ls "$recipes"/*.yaml | wc -l)" -ge 25 ]; }
t "there are at least 25 recipes" enough

page() { LC_ALL=C awk -f "$ROOT/tests/golden/recipes_table.awk" "$recipes"/*.yaml | diff "$ROOT/docs/RECIPES.md" -; }
t "docs/RECIPES.md is what recipes_table.awk makes of the recipes" page

# tiny NAME: the recipe with drawn pictures, batches of four, two steps; photographs become 72 or 80 pixels large
tiny() {
    case $1 in *mnist* | *lenet*) size=28 ;; *) size=32 ;; esac
    grep -qE 'size: \[?(1[4-9]|2[0-9])[0-9]' "$TMP/whole.yaml" && size=96
    "$NNPIPE" show "$recipes/$1.yaml" -o "data.train={source: synth, samples: 8, size: $size}" \
        -o "data.test={source: synth, samples: 8, size: $size, seed: 2}" -o data.split=0 -o loader.batch=4 \
        -o train.steps=2 -o train.accumulate=1 -o train.eval_every=never -o checkpoint.every=never |
        sed -E '/size: /{s/\b2[3-9][0-9]\b/80/g;s/\b(1[4-9][0-9]|2[0-2][0-9])\b/72/g}'
}
trains() {
    mkdir -p "$TMP/run" && cd "$TMP/run" && "$NNPIPE" show "$recipes/$1.yaml" >"$TMP/whole.yaml" || return 1
    tiny "$1" >"$1.yaml" || return 1
    "$NNPIPE" train "$1.yaml" --device "$device" --json >"$TMP/events" || { cat "$TMP/events"; return 1; }
    rm -rf runs
    grep -q '"event": "done".*"test_loss": [0-9]' "$TMP/events" || { tail -n 1 "$TMP/events"; return 1; }
}
for file in "$recipes"/*.yaml; do
    name=$(basename "$file" .yaml)
    [ "${NNPIPE_RECIPES:-some}" = some ] && case " $small " in *" $name "*) ;; *) continue ;; esac
    t "$name trains two steps" trains "$name"
done
[ "$failed" -eq 0 ]
