#!/bin/sh
# loader.balance and loader.repeat: which samples a run gets, step by step, and that nothing else decides them: not the
# readers, the cache, other jobs or a kill; changed keys and orders that cannot be are refused.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1
python3 - <<'P' || exit 1 # classes of 2, 9 and 37 pictures
import os
import random
random.seed(1)
for c, n in enumerate([2, 9, 37]):
    os.makedirs("set/%d" % c)
    for i in range(n):
        with open("set/%d/%02d.ppm" % (c, i), "wb") as f:
            f.write(b"P6 8 8 255\n" + bytes(random.randrange(256) for _ in range(8 * 8 * 3)))
P
# config NAME KEYS [DATA]: of the loader, and of data
config() {
    cat >"$1.yaml" <<Y
name: $1
device: cpu
precision: f32
data: {train: {source: folder, path: set}${3:+, $3}}
loader: {batch: 12, augment: [{random_crop: {size: 8, pad: 2}}, flip], $2}
model: [{conv: {out: 4, kernel: 3}}, relu, global_avgpool, {linear: {out: classes}}]
train: {epochs: 5, threads: 3}
checkpoint: {every: 2 steps, keep: 100}
Y
}
# rows NAME STEP...: the paths and geometries of their rows
rows() {
    name=$1
    shift
    for step; do
        "$NNPIPE" data view "$name.yaml" --step "$step" --json | sed -n 's/.*"path": "\([^"]*\)".*/\1/p' || return 1
    done
}
train() { # NAME RUNS [ARGS]
    name=$1
    runs=$2
    shift 2
    "$NNPIPE" train "$name.yaml" --json -o runs="$TMP/$runs" "$@" >"$runs.json" 2>"$runs.err" || {
        tail -n 2 "$runs.err"
        return 1
    }
}

config even "balance: classes"
equal() { # an epoch of 48 rows: 16 of each class; of the class of 2 pictures each 8 times, of the 37 none twice
    rows even "$@" >epoch || return 1
    cut -d/ -f1 epoch | sort | uniq -c | awk '$1 != 16 { bad = 1 } END { exit bad || NR != 3 }' &&
        grep '^0/' epoch | sort | uniq -c | awk '$1 != 8 { bad = 1 } END { exit bad || NR != 2 }' &&
        [ -z "$(grep '^2/' epoch | sort | uniq -d)" ]
}
t "an epoch has each class equally often" equal 0 1 2 3
t "the next one, too" eval 'mv epoch first && equal 4 5 6 7 && ! cmp -s epoch first'
t "and has the pictures of the large class that the first one lacks" eval \
    'cat first epoch | grep "^2/" | sort | uniq -c | awk "{ n += \$1 == 1 } END { exit NR < 32 }"'
few() { # 37 pictures in 16 + 16 + 16 rows: each once, then 11 of them again
    rows even 0 1 2 3 4 5 6 7 8 9 10 11 | grep '^2/' | sort | uniq -c |
        awk '{ n[$1]++ } END { exit n[1] != 26 || n[2] != 11 }'
}
t "in three epochs all of them before one comes again" few

t "a balanced run trains" train even whole
t "not as one without" eval 'train even plain -o loader.balance=none && ! same_weights whole plain'
t "readers and cache change nothing" eval \
    'train even other -o loader.readers=5 -o loader.cache=decoded -o loader.share=off && same_weights whole other'
cut_off() { # RUNS: as if it was killed behind step 6
    rm -rf "$1"/*/result.json "$1"/*/checkpoints/step-[89] "$1"/*/checkpoints/step-[12][0-9]
}
resumed() { # NAME RUNS [ARGS]: resumes and compares with the whole run
    name=$1
    runs=$2
    shift 2
    cp "$runs.json" "$runs-whole.json" && cut_off "$runs" && train "$name" "$runs" --resume "$runs"/* "$@" &&
        same_weights "$runs" "$runs-whole" && grep -q '"step": 7,' "$runs.json" &&
        ! grep -q '"step": 6,.*"loss"' "$runs.json"
}
t "it resumes bit for bit" resumed even whole
cut_off whole
for change in loader.balance=none loader.repeat=2; do
    t "$change is another run" says "${change%=*}" exits 2 \
        "$NNPIPE" train even.yaml --resume whole/* -o "$change" -o runs="$TMP/whole"
done
for data in "split: 25%" "fold: 2/3"; do
    config part "balance: classes, repeat: 2" "$data"
    t "${data%%:*}: a balanced run trains" train part "part-${data%%:*}"
    kept() { ! rows part 0 1 2 3 4 5 | grep -qxFf "part-${data%%:*}"/*/val.txt; }
    t "${data%%:*}: on none of the pictures that validate" kept
    t "${data%%:*}: it resumes bit for bit" resumed part "part-${data%%:*}"
done

config three "repeat: 3"
in_a_row() { # 16 pictures, each three times
    rows three 0 1 2 3 >epoch && [ "$(uniq -c <epoch | awk '$1 == 3' | wc -l)" -eq 16 ] &&
        [ "$(sort -u epoch | wc -l)" -eq 16 ]
}
t "a repeated picture comes in a row" in_a_row
t "and an epoch has a third of the pictures" eval 'mv epoch first && rows three 4 5 6 7 >epoch && ! cmp -s epoch first'
drawn() { # of 16 pictures most have three different crops
    for step in 0 1 2 3; do
        "$NNPIPE" data view three.yaml --step $step || return 1
    done >out 2>&1
    sed -n 's/^row [0-9]*: //p' out | sort -u | wc -l >views && [ "$(cat views)" -ge 40 ] || { cat views; return 1; }
}
t "each time augmented differently" drawn
t "it trains" train three repeated
t "with a cache the same" eval \
    'train three cached -o loader.cache=decoded -o loader.readers=4 && same_weights repeated cached'
t "and resumes bit for bit" resumed three repeated
together() { # two jobs at once make each batch once, or each on its own: the weights are the same
    train three left -o loader.share=pair &
    train three right -o loader.share=pair && wait $! && same_weights left right && same_weights left cached
}
t "jobs that share batches have the same weights" together

config window "balance: classes, shuffle: {window: 10}"
t "a window is no order of balanced classes" says "window.yaml:5:81: balance: the classes come in random order" \
    exits 2 "$NNPIPE" check window.yaml
config none "repeat: 3, shuffle: none"
t "without an order nothing is repeated" says "repeat: with \`shuffle: none\` every epoch would have the same first" \
    exits 2 "$NNPIPE" check none.yaml
config wrong "balance: class"
t "another balance is refused" says "wrong.yaml:5:81: balance: expected one of none, classes" \
    "$NNPIPE" check wrong.yaml
t "no repeat, too" says "repeat: 0 is" "$NNPIPE" check three.yaml -o loader.repeat=0
defaults() { "$NNPIPE" show even.yaml -o loader.balance=none >shown && ! grep -E 'balance|repeat' shown; }
t "defaults are not in the resolved form, so that configs of older runs stay equal" defaults
# in_memory NAME: with the pictures in the memory of the emulated GPU, which crops them there, and without
in_memory() {
    train "$1" "$1-gpu" -o device=cuda:0 && train "$1" "$1-memory" -o device=cuda:0 -o loader.cache=device &&
        same_weights "$1-gpu" "$1-memory" && resumed "$1" "$1-memory" -o device=cuda:0 -o loader.cache=device
}
if use_emulated_gpu "balanced classes in the memory of the emulated GPU"; then
    t "balanced classes in the memory of the emulated GPU: the same weights, also resumed" in_memory even
    t "repeated pictures, too" in_memory three
fi
[ "$failed" -eq 0 ]
