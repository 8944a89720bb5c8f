#!/bin/sh
# A run that is resumed in other circumstances: its data moved, its rate, schedule or length changed on
# purpose; and what it says of it.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1
"$NNPIPE" data synth --out "$TMP/data" --samples 96 --test 32 --size 8 >/dev/null || exit 1

cat >"$TMP/net.yaml" <<Y
name: net
device: cpu
precision: f32
data:
  train: {source: tar, path: "\${PLACE}/train-*.tar*"}
  test: {source: tar, path: "\${PLACE}/test-*.tar*"}
loader: {batch: 8, readers: 1, augment: [flip]}
model: [{conv: {out: 4, kernel: 3}}, relu, global_avgpool, {linear: {out: classes}}]
optimizer: {sgd: {lr: 0.05, momentum: 0.9, weight_decay: 5e-4}}
schedule: {cosine: {warmup: 20%}}
train: {epochs: 4, threads: 1}
checkpoint: {every: 4 steps, keep: 100}
Y
export PLACE="$TMP/data"

same() {
    [ -n "$(field weights_sha256 "$1")" ] && [ "$(field weights_sha256 "$1")" = "$(field weights_sha256 "$2")" ] || {
        tail -n 2 "$1.err" "$2.err"
        return 1
    }
}
# train OUT ARGS...: with the config file; go OUT ARGS...: without
train() { out=$1; shift; go "$out" "$TMP/net.yaml" "$@"; }
go() { out=$1; shift; "$NNPIPE" train "$@" --json >"$out" 2>"$out.err"; }
# killed RUNS STEP: the whole run as a kill behind the checkpoint of STEP leaves it; its folder is in $run
killed() {
    rm -rf "$1" && cp -r "$TMP/whole" "$1" || return 1
    run=$(ls -d "$1"/*)
    rm -f "$run/result.json"
    for c in "$run"/checkpoints/step-*; do [ "${c##*-}" -le "$2" ] || rm -r "$c"; done
}
train "$TMP/whole.json" -o "runs=$TMP/whole" || { cat "$TMP/whole.json.err"; exit 1; }

# --- the data's place
moved() {
    killed "$TMP/moved" 20 && mv "$TMP/data" "$TMP/other-node" || return 1
    PLACE=$TMP/other-node train "$TMP/moved.json" --resume -o "runs=$TMP/moved"
    code=$?
    mv "$TMP/other-node" "$TMP/data"
    [ $code -eq 0 ] && [ "$(ls "$TMP/moved" | wc -l)" -eq 1 ] && same "$TMP/whole.json" "$TMP/moved.json"
}
t "a run whose data moved is found and resumes, to the same weights" moved
moved_named() {
    killed "$TMP/named" 20 && cp -r "$TMP/data" "$TMP/copy" &&
        go "$TMP/named.json" --resume "$run" -o "data.train.path=$TMP/copy/train-*" &&
        same "$TMP/whole.json" "$TMP/named.json"
}
t "a named run takes its data from another path" moved_named
# Keys that are newer than the run have their defaults: its config lacks them.
older() {
    killed "$TMP/older" 20 && [ "$(grep -c '^  \(tf32\|best\):' "$run/config.yaml")" -eq 2 ] &&
        sed -i '/^  \(tf32\|best\):/d' "$run/config.yaml" && go "$TMP/older.json" --resume "$run" &&
        same "$TMP/whole.json" "$TMP/older.json" || return 1
    killed "$TMP/older" 20 && sed -i '/^  tf32:/s/false/true/' "$run/config.yaml" &&
        ! go "$TMP/older.json" "$TMP/net.yaml" --resume "$run" && grep -q 'tf32 was true' "$TMP/older.json.err"
}
t "a run that is older than some keys resumes" older
cat >"$TMP/folder.yaml" <<Y
name: folder
device: cpu
data: {train: {source: folder, path: "$TMP/pictures"}}
loader: {batch: 8, augment: [{resize: 8}, {center_crop: 8}]}
model: [{conv: {out: 4, kernel: 3}}, relu, global_avgpool, {linear: {out: classes}}]
train: {epochs: 2, threads: 1}
checkpoint: {every: 2 steps, keep: 100}
Y
ppm() { printf 'P6 %s %s 255\n' "$1" "$1" && head -c $((3 * $1 * $1)) /dev/zero | tr '\0' "$2"; }
picture_set() {
    for i in 1 2 3 4 5 6 7 8; do
        mkdir -p "$TMP/pictures/a" "$TMP/pictures/b" && ppm 8 "$i" >"$TMP/pictures/a/$i.ppm" &&
            ppm 8 z >"$TMP/pictures/b/$i.ppm" || return 1
    done
}
unfinished() { rm -f "$folder/result.json" && rm -rf "$folder/checkpoints/step-4"; }
picture_set && go "$TMP/folder.json" "$TMP/folder.yaml" -o "runs=$TMP/folder-runs" || exit 1
folder=$(ls -d "$TMP"/folder-runs/*)
renamed() {
    unfinished && mv "$TMP/pictures/a/3.ppm" "$TMP/pictures/a/33.ppm"
    exits 2 go "$TMP/renamed.json" --resume "$folder"
    code=$?
    mv "$TMP/pictures/a/33.ppm" "$TMP/pictures/a/3.ppm"
    renamed="samples of data.train have other names or labels than when the run began"
    [ $code -eq 0 ] && grep -q "$renamed; .*--weights $folder" "$TMP/renamed.json.err" || {
        cat "$TMP/renamed.json.err"
        return 1
    }
}
t "a sample with another name is another set: refused, with 2" renamed
more() { # one picture more, one less: said by what was and is
    unfinished && cp "$TMP/pictures/a/3.ppm" "$TMP/pictures/a/9.ppm"
    exits 2 go "$TMP/more.json" --resume "$folder" &&
        grep -q "data.train has 17 samples and had 16 when the run began; remove the new ones" \
        "$TMP/more.json.err" || {
            cat "$TMP/more.json.err"
            return 1
        }
    rm "$TMP/pictures/a/9.ppm" && mv "$TMP/pictures/a/8.ppm" "$TMP/8.ppm"
    exits 2 go "$TMP/more.json" --resume "$folder" &&
        grep -q "data.train has 15 samples and had 16 when the run began; restore the missing ones" \
        "$TMP/more.json.err"
    code=$?
    mv "$TMP/8.ppm" "$TMP/pictures/a/8.ppm"
    return $code
}
t "more or fewer samples are refused, with both numbers" more
rewritten() {
    unfinished && ppm 9 c >"$TMP/pictures/a/3.ppm" && go "$TMP/rewritten.json" --resume "$folder" &&
        grep -q "some have another size now" "$TMP/rewritten.json.err" ||
        { cat "$TMP/rewritten.json.err"; return 1; }
}
t "a rewritten picture is reported, and the run resumes" rewritten

# --- what a checkpoint or a config cannot keep: refused before anything is written, so that no run is
# trained that cannot be resumed
bytes=$(printf 'caf\351')
class_of_bytes() {
    mkdir -p "$TMP/latin/$bytes" "$TMP/latin/b" && cp "$TMP"/pictures/a/1.ppm "$TMP/latin/$bytes" &&
        cp "$TMP"/pictures/b/1.ppm "$TMP/latin/b" || return 1
    exits 2 go "$TMP/latin.json" "$TMP/folder.yaml" -o "runs=$TMP/latin-runs" -o "data.train.path=$TMP/latin" &&
        grep -qF "the class name 'caf\\xe9' is not UTF-8 text" "$TMP/latin.json.err" && [ ! -e "$TMP/latin-runs" ] ||
        { cat "$TMP/latin.json.err"; return 1; }
}
t "a class whose name is not UTF-8 is refused by name" class_of_bytes
path_of_bytes() {
    mkdir -p "$TMP/in$bytes" && cp -r "$TMP/pictures" "$TMP/in$bytes/p" || return 1
    export BYTES="$TMP/in$bytes"
    sed "s|$TMP/pictures|\${BYTES}/p|" "$TMP/folder.yaml" >"$TMP/bytes.yaml"
    exits 2 go "$TMP/bytes.json" "$TMP/bytes.yaml" -o "runs=$TMP/bytes-runs" &&
        grep -qF "not UTF-8 text" "$TMP/bytes.json.err" && grep -qF "path: \"$TMP/incaf\\xe9/p\"" \
        "$TMP/bytes.json.err" &&
        [ ! -e "$TMP/bytes-runs" ] || { cat "$TMP/bytes.json.err"; return 1; }
}
t "so is a data path" path_of_bytes

# --- rate, decay, schedule, length
accident() {
    killed "$TMP/accident" 20 && sed 's/lr: 0.05/lr: 0.02/' "$TMP/net.yaml" >"$TMP/edited.yaml"
    exits 2 go "$TMP/accident.json" "$TMP/edited.yaml" --resume "$run" &&
        grep -q "optimizer.sgd.lr was 0.05 and is 0.02" "$TMP/accident.json.err" || return 1
    sed 's/epochs: 4/epochs: 6/' "$TMP/net.yaml" >"$TMP/edited.yaml"
    exits 2 go "$TMP/accident.json" "$TMP/edited.yaml" --resume "$run" &&
        grep -q "train.epochs was 4 and is 6: this schedule depends on the length" "$TMP/accident.json.err" || return 1
    exits 2 go "$TMP/accident.json" "$TMP/net.yaml" --resume -o "runs=$TMP/accident" -o loader.batch=4 &&
        grep -q "loader.batch was 8 and is 4" "$TMP/accident.json.err"
}
t "a rate or a length that changed by accident is refused by its name" accident
ways() { # what can be done about it, for a key that may be changed on purpose and one that may not
    killed "$TMP/ways" 20 && sed 's/lr: 0.05/lr: 0.02/' "$TMP/net.yaml" >"$TMP/edited.yaml"
    exits 2 go "$TMP/ways.json" "$TMP/edited.yaml" --resume "$run" &&
        grep -q "use -o or add --reset-schedule; --resume $run without CONFIG continues the run as it is" \
            "$TMP/ways.json.err" && grep -q ", --weights $run begins a new run" "$TMP/ways.json.err" || return 1
    exits 2 go "$TMP/ways.json" --resume "$run" -o loader.batch=4 &&
        grep -q "loader.batch was 8 and is 4; --resume $run without CONFIG" "$TMP/ways.json.err"
}
t "the message for a changed key says what to do" ways
passed_over() { # three runs that do not fit: all are named with their reasons, and nothing is begun
    killed "$TMP/passed" 20 && mv "$run" "$TMP/passed/net-20260101-000003-aaaa" &&
        cp -r "$TMP"/whole/* "$TMP/passed/net-20260101-000002-aaaa" &&
        mkdir "$TMP/passed/net-20260101-000001-aaaa" && cp "$TMP"/passed/net-20260101-000002-aaaa/config.yaml \
        "$TMP/passed/net-20260101-000001-aaaa" || return 1
    sed 's/lr: 0.05/lr: 0.02/' "$TMP/net.yaml" >"$TMP/edited.yaml"
    exits 2 go "$TMP/passed.json" "$TMP/edited.yaml" --resume -o "runs=$TMP/passed" || return 1
    changed="optimizer.sgd.lr was 0.05 and is 0.02"
    reasons="net-20260101-000003-aaaa: $changed; net-20260101-000002-aaaa: $changed"
    reasons="$reasons; net-20260101-000001-aaaa: no checkpoint to resume from; without --resume"
    grep -q "no unfinished run of 'net' with this config below $TMP/passed: $reasons" "$TMP/passed.json.err" &&
        [ "$(ls "$TMP/passed" | wc -l)" -eq 3 ] || return 1
    rm -r "$TMP/passed/net-20260101-000003-aaaa" # held: in the background
    flock "$TMP/passed/net-20260101-000001-aaaa/lock" \
        "$NNPIPE" train "$TMP/net.yaml" --resume -o "runs=$TMP/passed" >/dev/null 2>"$TMP/passed.err"
    [ $? -eq 2 ] && grep -q "net-20260101-000002-aaaa: finished; net-20260101-000001-aaaa: running; without" \
        "$TMP/passed.err" || {
            cat "$TMP/passed.err"
            return 1
        }
}
t "a bare --resume names the skipped runs, with reasons" passed_over
# changed NAME ARGS...: changed at step 20 and run to the end (NAME-a), and the same killed at step 28 (NAME-b)
changed() {
    name=$1
    shift
    killed "$TMP/$name-a" 20 && go "$TMP/$name-a.json" --resume "$run" "$@" || {
        cat "$TMP/$name-a.json.err"
        return 1
    }
    rm -rf "$TMP/$name-b" && cp -r "$TMP/$name-a" "$TMP/$name-b"
    run=$(ls -d "$TMP/$name-b"/*)
    rm -f "$run/result.json"
    for c in "$run"/checkpoints/step-*; do [ "${c##*-}" -le "${stop:-28}" ] || rm -r "$c"; done
}
# each key changed at step 20; then killed, and resumed by the folder, or by the unchanged config file
rate() {
    changed rate -o optimizer.sgd.lr=0.02 -o optimizer.sgd.weight_decay=0.01 || return 1
    grep -q "from step 20 on: optimizer.sgd.lr 0.02, was 0.05" "$TMP/rate-a.json.err" &&
        grep -q "from step 20 on: optimizer.sgd.weight_decay 0.01, was 0.0005" "$TMP/rate-a.json.err" || return 1
    ! same "$TMP/whole.json" "$TMP/rate-a.json" >/dev/null && go "$TMP/rate-b.json" --resume "$run" &&
        same "$TMP/rate-a.json" "$TMP/rate-b.json" &&
        grep -q "from step 20 on: optimizer.sgd.lr 0.02, was 0.05" "$TMP/rate-b.json.err"
}
t "rate and decay changed by -o: reported with the first step, kept over a kill" rate
at_once() { # killed before another checkpoint was written: the change is in the one of step 20 already
    stop=20
    changed once -o optimizer.sgd.lr=0.02 && train "$TMP/once-b.json" --resume -o "runs=$TMP/once-b"
    code=$?
    stop=
    [ $code -eq 0 ] || return 1
    ! same "$TMP/whole.json" "$TMP/once-b.json" >/dev/null || return 1
    same "$TMP/once-a.json" "$TMP/once-b.json"
}
t "a change is kept if the run is killed right after, and the config file may still hold the old value" at_once
lr_at() { sed -n "s/.*\"event\": \"step\", \"step\": $1, .*\"lr\": \([0-9.e+-]*\).*/\1/p" "$2" | tail -n 1; }
about() {
    awk -v a="$1" -v b="$2" 'BEGIN { exit !(a - b < 1e-6 && b - a < 1e-6) }' || {
        echo "$1, not $2"
        return 1
    }
}
# cosine over n updates, warm-up w: 0.05 * (1 + cos(pi * (u - w) / (n - w))) / 2
cosine() { awk -v u="$1" -v n="$2" -v w="$3" 'BEGIN { print 0.05 * (1 + cos(atan2(0, -1) * (u - w) / (n - w))) / 2 }'; }
extended() {
    changed long -o train.epochs=6 && [ "$(field steps "$TMP/long-a.json")" -eq 72 ] || return 1
    about "$(lr_at 31 "$TMP/long-a.json")" "$(cosine 30 72 14.4)" && go "$TMP/long-b.json" --resume "$run" &&
        same "$TMP/long-a.json" "$TMP/long-b.json" &&
        [ "$(field steps "$TMP/long-b.json")" -eq 72 ]
}
t "an extended cosine is that of the whole new length, and stays so" extended
reset() {
    changed reset --reset-schedule -o train.epochs=6 -o 'schedule={cosine: {}}' || return 1
    grep -q "the schedule begins anew at this step" "$TMP/reset-a.json.err" || return 1
    about "$(lr_at 21 "$TMP/reset-a.json")" 0.05 && about "$(lr_at 47 "$TMP/reset-a.json")" "$(cosine 26 52 0)" ||
        return 1
    go "$TMP/reset-b.json" --resume "$run" && same "$TMP/reset-a.json" "$TMP/reset-b.json"
}
t "--reset-schedule restarts the schedule at the step of the resume" reset
damaged() { # the checkpoint of the change, and all behind it, are damaged: it holds from the one before
    changed damaged --reset-schedule -o train.epochs=6 -o optimizer.sgd.lr=0.02 || return 1
    for c in "$run"/checkpoints/step-*; do
        [ "${c##*-}" -lt 20 ] || printf x | dd of="$c/weights.safetensors" bs=1 seek=300 conv=notrunc 2>/dev/null ||
            return 1
    done
    go "$TMP/damaged-b.json" --resume "$run" && grep -q "from step 16 on: optimizer.sgd.lr 0.02, was 0.05" \
        "$TMP/damaged-b.json.err" && [ "$(field steps "$TMP/damaged-b.json")" -eq 72 ] || {
            cat "$TMP/damaged-b.json.err"
            return 1
        }
    # a warm-up of 20 % of the 56 steps left, from 0.04 of the peak
    about "$(lr_at 17 "$run/metrics.jsonl")" 0.0008
}
t "a change with a damaged checkpoint holds from the previous checkpoint" damaged
edited() { # --reset-schedule takes what the config file says now
    killed "$TMP/edited" 20 && sed 's/lr: 0.05/lr: 0.02/; s/cosine: {warmup: 20%}/constant/' "$TMP/net.yaml" \
        >"$TMP/edited.yaml"
    go "$TMP/edited.json" "$TMP/edited.yaml" --resume "$run" --reset-schedule &&
        about "$(lr_at 48 "$TMP/edited.json")" 0.02
}
t "--reset-schedule takes rate and schedule of an edited config file" edited
t "--reset-schedule alone is a mistake of the command line" exits 2 "$NNPIPE" train "$TMP/net.yaml" --reset-schedule
[ "$failed" -eq 0 ]

# --- --resume auto, for launchers
auto() {
    killed "$TMP/auto" 20 && train "$TMP/auto.json" --resume auto -o "runs=$TMP/auto" &&
        same "$TMP/whole.json" "$TMP/auto.json" && [ "$(ls "$TMP/auto" | wc -l)" -eq 1 ]
}
t "--resume auto continues an unfinished run" auto
anew() { # a finished run, and one whose config differs, are named
    train "$TMP/anew.json" --resume auto -o "runs=$TMP/auto" -o optimizer.sgd.momentum=0.5 &&
        [ "$(ls "$TMP/auto" | wc -l)" -eq 2 ] && rm -rf "$TMP/none" && train "$TMP/none.json" --resume auto \
        -o "runs=$TMP/none" && same "$TMP/whole.json" "$TMP/none.json"
}
t "and begins a new one where there is none to continue" anew
weights() {
    train "$TMP/weighed.json" --weights "$TMP"/whole/net-* --resume auto -o "runs=$TMP/weighed" -o train.steps=8 &&
        rm "$TMP"/weighed/net-*/result.json && train "$TMP/again.json" --weights "$TMP"/whole/net-* --resume auto \
        -o "runs=$TMP/weighed" -o train.steps=8 && [ "$(ls "$TMP/weighed" | wc -l)" -eq 1 ] &&
        same "$TMP/weighed.json" "$TMP/again.json"
}
t "with --weights, which a run that continues does not need" weights
auto_reset() { says "needs --resume" exits 2 "$NNPIPE" train "$TMP/net.yaml" --resume auto --reset-schedule; }
t "--reset-schedule needs a run that is there" auto_reset
