#!/bin/sh
# Which label an image gets: the same from a folder and from archives of it, in torchvision's order or a
# file's; images in no class are refused, or left out on request; a run resumes with the
# order it began with.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1
"$NNPIPE" data synth --out s --samples 96 --test 8 >/dev/null || exit 1
mkdir flat && tar --zstd -C flat -xf s/train-00000.tar.zst || exit 1
n=0 # classes 1 to 12, so that text and value give two orders; the images one folder deeper
for f in flat/*/*.jpg; do
    n=$((n + 1))
    mkdir -p "set/$((n % 12 + 1))/batch$((n % 2))"
    cp "$f" "set/$((n % 12 + 1))/batch$((n % 2))/$n.jpg"
done
tar --sort=name -C set -cf dot.tar .
tar --sort=name -cf top.tar set

# config NAME SET: a config with its training set, of 12 steps
config() {
    cat >"$1.yaml" <<Y
name: $1
device: cpu
precision: f32
data: {$2}
loader: {batch: 16, augment: [{center_crop: {size: 16}}], test_augment: [{center_crop: {size: 16}}]}
model: [{conv: {out: 4, kernel: 3}}, relu, global_avgpool, flatten, {linear: {out: classes}}]
train: {epochs: 2, threads: 1}
checkpoint: {every: 2 steps, keep: 20}
Y
}
train() {
    "$NNPIPE" train "$1.yaml" --json -o runs="$TMP/runs-$1" >"$1.json" 2>"$1.err" || {
        tail -n 2 "$1.err"
        return 1
    }
}

config folder "train: {source: folder, path: set}"
config dot "train: {source: tar, path: dot.tar}"
config top "train: {source: tar, path: top.tar}"
t "a folder of folders of batches trains" train folder
t "so does an archive of it" train dot
t "and an archive with one more folder above" train top
t "the archive gives the folder's weights" same_weights folder dot
t "with a folder above, too" same_weights folder top

seq 1 12 >by-value.txt
config value "classes: by-value.txt, train: {source: folder, path: set}"
t "a file of classes gives them another order" train value
other_weights() (
    ! [ "$(sed -n "s/.*weights_sha256\": \"\([^\"]*\).*/\1/p" folder.json)" = \
        "$(sed -n "s/.*weights_sha256\": \"\([^\"]*\).*/\1/p" value.json)" ]
)
t "and so other weights" other_weights
# The same labels from a table; Python's own csv quotes a name with a comma.
python3 - <<'P'
import csv, glob, os
with open("table.csv", "w", newline="") as out:
    rows = csv.writer(out)
    rows.writerow(["size", "what, by number", "image"])
    for path in sorted(glob.glob("set/*/*/*.jpg"), reverse=True):
        rows.writerow([os.path.getsize(path), path.split("/")[1], path[len("set/"):]])
P
columns='"image,what, by number"'
config table "train: {source: folder, path: set, labels: table.csv, columns: $columns}"
t "a table gives the labels of its classes, in the order of their numbers" train table
t "and the weights of the file of classes" same_weights value table
head -n 41 table.csv >few.csv
few() {
    config few "train: {source: folder, path: set, labels: few.csv, columns: $columns}" && train few &&
        [ "$(field samples few.json)" != "$(field samples table.json)" ]
}
t "images that are not in the table are left out" few
echo '1,2,3/none.jpg' >>few.csv
t "an image that is missing is named with its line" says "few.csv:42: there is no image '3/none.jpg' below" \
    "$NNPIPE" train few.yaml -o runs="$TMP/none"

# ImageNet's validation set: a flat folder, its ground truth, and the synsets; here with a gap and words behind.
mkdir val && : >truth.txt
for f in $(find set -name '*.jpg' | sort -t/ -k4 | sed -n 1~2p); do
    cp "$f" "val/$(basename "$f")"
done
find set -name '*.jpg' | sed 's,.*/\(.*\),& \1,' >where
for f in $(ls val | LC_ALL=C sort); do
    c=$(grep "/$f " where | cut -d/ -f2)
    echo $((c + (c > 3))) >>truth.txt
done
{ seq 1 3; echo "none of these"; seq 4 12; } | sed 's/$/ word, other words/' >synsets.txt
evaluates() { # NAME: of the weights of runs-folder
    "$NNPIPE" eval "$1.yaml" --weights runs-folder/* --set val --json >"$1.json" 2>"$1.err" || {
        tail -n 2 "$1.err"
        return 1
    }
}
config truth "val: {source: folder, path: val, labels: truth.txt, synsets: synsets.txt},
    train: {source: folder, path: set}"
sed 's/word.*//; s/ *$//' synsets.txt >bare
awk 'NR == FNR { name[NR] = $1; next } { print name[$1] }' bare truth.txt >classes.txt
ls val | LC_ALL=C sort | paste -d, - classes.txt >val.csv
config named "val: {source: folder, path: val, labels: val.csv}, train: {source: folder, path: set}"
by_synset() { evaluates truth && evaluates named && [ "$(field loss truth.json)" = "$(field loss named.json)" ]; }
t "numbers of synsets give the labels of a table with names" by_synset
shifted() { # another order of the synsets: the saved index is not used
    sed '1{h;d};2G' synsets.txt >moved && mv moved synsets.txt
    evaluates truth && [ "$(field loss truth.json)" != "$(field loss named.json)" ]
}
tail -n 1 truth.txt >last && echo 14 >>truth.txt
t "a number above that of the synsets is named with its line" says \
    "truth.txt:49: '14' is not the number of a class, 1 to 13, the lines of " evaluates truth
sed -i '49s/.*/1/' truth.txt
t "so is a number without an image" says "truth.txt:49: there is no image 49: " evaluates truth
sed -i '48,$d' truth.txt
t "and an image without a number" says "truth.txt:47: this is the last number, but there is another image, '" \
    evaluates truth
cat last >>truth.txt
t "another order of the synsets gives other labels" shifted
mkdir val/sub
t "a folder among the images is refused" says "val/sub/: a folder; with \`synsets\` all images lie in one folder" \
    evaluates truth
rmdir val/sub
for key in 'match: "*1*"' 'columns: "a,b"'; do
    config both "train: {source: folder, path: val, labels: truth.txt, synsets: synsets.txt, $key}"
    t "synsets refuse ${key%%:*}" says "both.yaml:4:71: synsets: the numbers in \`labels\` are those of all images" \
        "$NNPIPE" check both.yaml
done
config alone "train: {source: folder, path: val, synsets: synsets.txt}"
t "and need labels" says "synsets: they need \`labels\`, the file with the number of each image's class" \
    "$NNPIPE" check alone.yaml

# What a run of before byte order left: classes by value in its checkpoints, and no file of them.
cp -r runs-value runs-older
run=$(echo runs-older/*)
rm -rf "$run/result.json" "$run"/checkpoints/step-[89] "$run"/checkpoints/step-1[0-9]
# on a line of its own, or not
sed -i -e '/^ *classes: .*by-value/d' -e 's/classes: [^,}]*by-value[^,}]*, *//' "$run/config.yaml"
config older "train: {source: folder, path: set}"
sed -i 's/^name: .*/name: value/' older.yaml
resume() {
    "$NNPIPE" train older.yaml --json --resume "$run" >older.json 2>older.err || {
        tail -n 2 older.err
        return 1
    }
}
t "a run in the order of values resumes without the file" resume
t "with a message" grep -q "the classes keep the order that the run began with: 1, 2" older.err
t "its weights are those of the whole run" same_weights value older
sed -i 's/^10$/ten/' by-value.txt
t "a class that the file lacks is named" says "the class '10' is not among the 12 classes of" "$NNPIPE" train value.yaml

# A changed seed keeps the validation set; a run from before the keys had split by its seed, without regard to classes.
config split "split: 25%, train: {source: folder, path: set}"
evaluated() {
    "$NNPIPE" train split.yaml --json -o runs="$TMP/runs-$1" -o seed=$2 -o data.split_seed=$3 -o data.split_by=random \
        >"$1.json" 2>&1
}
t "a seed of its own splits" evaluated own 5 5
cp -r runs-own runs-before
run=$(echo runs-before/*)
rm -rf "$run/result.json" "$run"/checkpoints/step-[6-9]
sed -i -e 's/, split_seed: 5//' -e 's/, split_by: random//' -e '/^ *split_seed: 5/d' -e '/^ *split_by: /d' \
    "$run/config.yaml"
t "the keys are gone" sh -c '! grep -q "split_seed\|split_by" "$1"' - "$run/config.yaml"
older_resumes() {
    "$NNPIPE" train split.yaml --json --resume "$run" -o seed=5 >before.json 2>before.err || {
        tail -n 2 before.err
        return 1
    }
}
t "a run from before the key resumes" older_resumes
t "with the same samples" same_weights own before
t "another seed of the split is another run" exits 2 \
    "$NNPIPE" train split.yaml --resume "$run" -o seed=5 -o data.split_seed=6

# By class: one image in four of each, the same whatever the seed, and listed.
by_class() {
    "$NNPIPE" train split.yaml --json -o runs="$TMP/runs-class" -o seed=$1 -o train.steps=1 -o train.epochs=0 \
        >class.json 2>class.err && cat runs-class/*/val.txt
}
kept() {
    by_class 1 >val-1 && rm -r runs-class && by_class 2 >val-2 && cmp val-1 val-2 && [ "$(wc -l < val-1)" -eq 24 ]
}
t "a split has the same samples with any seed, and val.txt names them" kept
shares() {
    cut -d/ -f1 val-1 | sort | uniq -c | awk '$1 != 2 { bad = 1 } END { exit bad || NR != 12 }' || {
        cut -d/ -f1 val-1 | sort | uniq -c
        return 1
    }
}
t "each class keeps its share" shares
listed() { "$NNPIPE" data ls split.yaml --split val | cut -f1 | cmp - val-1; }
t "data ls --split val lists the same samples" listed
named() {
    grep -q '"val_images": 24, "test_images": 0' class.json &&
        grep -q '"event": "eval".*"set": "val".*"val_loss"' class.json && ! grep -q '"test_loss": [0-9]' class.json &&
        grep -q '"event": "done".*"val_accuracy": [0-9]' class.json
}
t "every event calls it val" named
said() {
    "$NNPIPE" train split.yaml -o train.epochs=1 >said.txt 2>&1 &&
        grep -q ": 72 training and 24 validation images of 12 classes" said.txt &&
        grep -q "^epoch 1: train loss .*, val loss " said.txt && grep -q "^done in .*: val loss" said.txt &&
            ! grep -q "test" said.txt || {
                cat said.txt
                return 1
            }
}
t "and so does every line" said

# Folds: three parts, of which each image is in one, listed, resumed and evaluated as parts of a split.
config folds "fold: 1/3, train: {source: folder, path: set}"
folds() {
    for k in 1 2 3; do
        "$NNPIPE" data ls folds.yaml -o data.fold=$k/3 --split val | cut -f1 >"fold-$k" || return 1
        [ "$(wc -l <"fold-$k")" -eq 32 ] || return 1
    done
    find set -name '*.jpg' | sed 's,^set/,,' | sort >whole && sort fold-1 fold-2 fold-3 | cmp - whole
}
t "each image is in one of three folds" folds
in_folds() { cut -d/ -f1 fold-2 | sort | uniq -c | awk '$1 < 2 || $1 > 3 { bad = 1 } END { exit bad || NR != 12 }'; }
t "of which each has a third of each class" in_folds
one_fold() {
    "$NNPIPE" train folds.yaml --json -o runs="$TMP/runs-fold" -o data.fold=2/3 >fold.json 2>fold.err &&
        cmp fold-2 runs-fold/*/val.txt && grep -q 'fold: 2/3' runs-fold/*/config.yaml
}
t "a run of one evaluates on its images" one_fold
fold_again() { # also where the config says another fold, or a share
    for other in data.fold=1/3 data.fold=2/3 data.split=25%; do
        sed 's/fold: 1\/3, //' folds.yaml >other.yaml
        "$NNPIPE" eval other.yaml --weights runs-fold/* --set val -o $other --json >again.json 2>again.err &&
            [ "$(field loss again.json)" = "$(field val_loss "$(echo runs-fold/*/result.json)")" ] || return 1
    done
}
t "eval --set val does, too" fold_again
rm -rf runs-fold/*/result.json runs-fold/*/checkpoints/step-[6-9]
t "another fold is another run" exits 2 "$NNPIPE" train folds.yaml --resume runs-fold/* -o data.fold=3/3
t "a fold resumes" exits 0 "$NNPIPE" train folds.yaml --resume runs-fold/* -o data.fold=2/3
t "a fold beyond the last is refused" says "fold: '4/3': expected a part and their number, 2 to 1000" \
    "$NNPIPE" check folds.yaml -o data.fold=4/3
t "as is one beside a split" says "fold: there is also a 'split'; give one of the two" \
    "$NNPIPE" check folds.yaml -o data.split=10%
printf 'base: folds.yaml\ndata: {split: 50%%}\n' >above.yaml
replaced() { "$NNPIPE" show above.yaml | grep -q 'split: 0.5'; }
t "but a split replaces a base's fold" replaced

# Balanced weights: those of the samples that are trained on; 0 for a class without any.
mkdir uneven && cp -r set/1 set/2 set/3 uneven && rm uneven/2/batch*/*[0-4].jpg
config even "train: {source: folder, path: uneven}"
weighted() { # NAME WEIGHTS [KEY=VALUE]: a run of its own
    name=$1
    sed "s/^name:.*/&\nloss: {cross_entropy: {class_weights: $2}}/" even.yaml >"$name.yaml"
    shift 2
    "$NNPIPE" train "$name.yaml" --json -o runs="$TMP/runs-$name" "$@" >"$name.json" 2>"$name.err" || {
        tail -n 2 "$name.err"
        return 1
    }
}
# weights_of FILE: of the classes of the paths in it, by hand
weights_of() {
    cut -d/ -f1 "$1" | awk '{ n[$1]++ } END { for (c in n) k++; for (c = 1; c <= 3; c++)
        printf "%s%.17g", (c > 1 ? ", " : "["), n[c] ? NR / (k * n[c]) : 0; print "]" }'
}
balanced() {
    find uneven -name '*.jpg' | sed 's,^uneven/,,' >all && weighted balanced balanced &&
        weighted by-list "$(weights_of all)" && weighted all-one "[]" && same_weights balanced by-list &&
        ! same_weights balanced all-one
}
t "balanced class weights are those of the samples" balanced
empty() { # with smoothing the weight of a class without samples counts
    printf '1\n2\n3\nnone\n' >four && w=$(weights_of all) && s=', label_smoothing: 0.1' &&
        weighted empty "balanced$s" -o data.classes=four && weighted zero "${w%]}, 0]$s" -o data.classes=four &&
        weighted one "${w%]}, 1]$s" -o data.classes=four && same_weights empty zero && ! same_weights empty one
}
t "a class without samples has the weight 0" empty
balanced_part() {
    "$NNPIPE" data ls even.yaml -o data.fold=1/3 --split val | cut -f1 | sort >left &&
        sort all | comm -23 - left >trained && weighted part balanced -o data.fold=1/3 &&
        weighted by-hand "$(weights_of trained)" -o data.fold=1/3 && same_weights part by-hand &&
        [ "$(weights_of all)" != "$(weights_of trained)" ]
}
too_few() { ! weighted few "[1, 2]"; }
t "weights of two classes are too few for three" says \
    "few.yaml:2:39: class_weights: 2 weights are given, but there are 3 classes" too_few
t "of a fold, of those that are trained on" balanced_part
rm -rf runs-part/*/result.json runs-part/*/checkpoints/step-[2-9]
part_resumes() {
    "$NNPIPE" train part.yaml --resume runs-part/* -o data.fold=1/3 --json >again.json && same_weights part again
}
t "a run that resumes has the same" part_resumes
t "eval needs none" exits 0 "$NNPIPE" eval part.yaml --weights runs-part/* -o data.fold=1/3 --set val

cp -r set loose
cp flat/*/00000000.jpg loose/0.jpg
config loose "train: {source: folder, path: loose}"
t "an image in no class is refused" exits 2 "$NNPIPE" train loose.yaml
t "it is named" says "1 of its 97 samples are in no class, the first is '0.jpg'" "$NNPIPE" train loose.yaml
t "view reports it too" says "in no class, the first is '0.jpg'" "$NNPIPE" data view loose.yaml
t "stats counts it" says "1  in no class" "$NNPIPE" data stats loose.yaml
t "ls lists it" says "0.jpg	-" "$NNPIPE" data ls loose.yaml
sed -i 's/path: loose/path: loose, unlabelled: skip/' loose.yaml
t "it is left out on request" train loose
t "with a message of its own" grep -q "1 of its 97 samples are in no class and left out" loose.err
t "nothing else has changed" same_weights folder loose
t "view shows such a set" exits 0 "$NNPIPE" data view loose.yaml --step 1

t "pack leaves it out, too, and reports it" says "1 samples in no class were left out" \
    "$NNPIPE" data pack loose.yaml --out packed
config packed "train: {source: tar, path: \"packed/train-*.tar*\"}"
t "a packed set trains without changes" train packed
t "to the same weights" same_weights loose packed
t "pack without it has all samples" says "97 samples" "$NNPIPE" data pack loose --out packed-all

mkdir -p one && cp -r flat one/images
config one "train: {source: folder, path: one}"
t "a set of one class is refused" says "all its samples are of one class, 'images'" "$NNPIPE" train one.yaml
config below "train: {source: folder, path: one, match: \"images/*\"}"
t "the message's advice helps" train below
[ "$failed" -eq 0 ]
