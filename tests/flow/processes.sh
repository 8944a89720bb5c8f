#!/bin/sh
# One run in several processes: the same bits for 1, 2, 4 and 8 of them, or 1, 3 and 6; stopped and killed runs that
# resume with another number; what one process meets, all say; starts that cannot work are refused.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1
"$NNPIPE" data synth --out "$TMP/data" --samples 200 --test 40 --size 12 >/dev/null || exit 1

# lanes of four rows; 32 does not divide 200, so batches run across the epoch's end
cat >"$TMP/net.yaml" <<Y
name: net
device: cpu
precision: f32
data:
  train: {source: tar, path: "$TMP/data/train-*.tar*"}
  test: {source: tar, path: "$TMP/data/test-*.tar*"}
loader: {batch: 32, readers: 1, augment: [flip, {random_crop: {size: 12, pad: 2}}]}
model:
  - {conv: {out: 8, kernel: 3}}
  - batchnorm
  - relu
  - {conv: {out: 8, kernel: 3}}
  - batchnorm
  - relu
  - global_avgpool
  - {dropout: {rate: 0.2}}
  - {linear: {out: classes}}
optimizer: {adamw: {lr: 0.01}}
schedule: {cosine: {warmup: 10%}}
train: {epochs: 4, threads: 2, lanes: 8, eval_every: 5 steps, clip_norm: 1, ema: {decay: 0.9}, history: true}
checkpoint: {every: 5 steps, keep: 100}
Y

# run NAME PROCESSES CHANGE...: its folder is $TMP/NAME/net-*
run() {
    name=$1 processes=$2
    shift 2
    timeout 300 "$NNPIPE" train "$TMP/net.yaml" --processes "$processes" -o "runs=$TMP/$name" --json "$@" \
        >"$TMP/$name.json" 2>"$TMP/$name.err"
}
hash_of() { field weights_sha256 "$TMP/$1.json"; }
# facts NAME: steps and losses, with all digits. A slow run also has lines of what its threads did.
facts() {
    grep -E '"event": "(step|eval)"' "$TMP/$1"/net-*/metrics.jsonl |
        grep -oE '"(step|loss|test_loss|accuracy|test_accuracy|grad_norm)": [^,}]*'
}
# alike NAME NAME: weights, optimizer, every loss, and the order of the samples
alike() {
    [ -n "$(hash_of "$1")" ] && [ "$(hash_of "$1")" = "$(hash_of "$2")" ] || return 1
    [ "$(facts "$1")" = "$(facts "$2")" ] || { echo "losses differ"; return 1; }
    a=$(ls -d "$TMP/$1"/net-*) b=$(ls -d "$TMP/$2"/net-*)
    cmp "$a/history.bin" "$b/history.bin" || return 1
    [ ! -e "$a/sample_losses.bin" ] || cmp "$a/sample_losses.bin" "$b/sample_losses.bin" || return 1
    for at in "$a"/checkpoints/step-*; do
        for file in weights optimizer; do
            cmp "$at/$file.safetensors" "$b/checkpoints/$(basename "$at")/$file.safetensors" || return 1
        done
    done
}
as_one() { run "$1" "$2" && alike one "$1"; }
t "a run in eight lanes and one process" run one 1
for n in 2 4 8; do
    t "$n processes: the same weights, losses and order of samples" as_one "of$n" "$n"
done

# same PROCESSES CHANGE...: one process and several
same() {
    processes=$1
    shift
    rm -rf "$TMP/alone" "$TMP/shared"
    run alone 1 "$@" && run shared "$processes" "$@" && alike alone shared
}
t "the same in bf16" same 4 -o precision=bf16
t "the same with batchnorm over groups of two lanes" same 4 -o train.batchnorm_over=8
t "the same with groups of half a lane, and accumulated batches" same 8 -o train.batchnorm_over=2 \
    -o train.accumulate=2 -o precision=bf16
t "the same with SAM, and layers that are computed again" same 2 -o 'train.sam={}' -o train.batchnorm_over=16 \
    -o train.recompute=true
tokens='[{conv: {out: 8, kernel: 4, stride: 4}}, class_token, position, {layernorm: {}}, {linear: {name: q, out: 24}},
    {attention: {heads: 2}}, {scale: {init: 0.5}}, {stochastic_depth: {rate: 0.3}}, gelu, {dropout: {rate: 0.1}},
    first_token, {linear: {out: classes}}]'
t "the same with tokens, weighted classes and rows dropped" same 4 -o "model=$(echo $tokens)" \
    -o 'loss={cross_entropy: {class_weights: [1, 2, 3, 1, 2, 3, 1, 4]}}'
t "the same with the losses of all samples, and the best checkpoint by F1" same 4 -o train.sample_losses=true \
    -o train.best=f1 -o train.batchnorm_over=process -o 'model=[flatten, {linear: {out: classes}}]'
t "the same with gradients that go in several buckets, without batchnorm" same 4 -o train.epochs=2 \
    -o 'model=[{conv: {out: 64, kernel: 3, stride: 2}}, relu, {conv: {out: 192, kernel: 3, stride: 2}}, relu,
    {conv: {out: 192, kernel: 3, pad: 1}}, relu, {conv: {out: 192, kernel: 3, pad: 1}}, relu, global_avgpool,
    {linear: {out: classes}}]'
winograd() {
    export NNPIPE_CPU=avx2
    same 4 -o train.epochs=2 -o 'model=[{conv: {out: 8, kernel: 3, pad: 1}}, relu, {conv: {out: 16, kernel: 3, pad: 1}},
        batchnorm, relu, global_avgpool, {linear: {out: classes}}]'
    code=$?
    unset NNPIPE_CPU
    return $code
}
t "the same with Winograd's kernels" winograd
# several classes of a picture, and numbers
typed() {
    mkdir -p "$TMP/typed"
    for i in $(seq 10 73); do
        { printf 'P6 8 8 255\n'; seq $((i * i)) $((i * i + 99)) | head -c 192; } >"$TMP/typed/$i.ppm"
    done
    { echo file,labels; for i in $(seq 10 73); do echo "$i.ppm,c$((i % 3))|d$((i % 5))"; done; } >"$TMP/multi.csv"
    { echo file,x,y; for i in $(seq 10 73); do echo "$i.ppm,$i,$((i * i % 7))"; done; } >"$TMP/values.csv"
    set -- -o loader.batch=16 -o loader.augment=[flip] -o train.mixup=0.3
    same 4 "$@" -o "data={train: {source: folder, path: $TMP/typed, labels: $TMP/multi.csv,
            label_type: multi}, split: 25%}" \
        -o loss=bce -o train.best=map &&
        same 8 "$@" -o "data={train: {source: folder, path: $TMP/typed, labels: $TMP/values.csv,
            columns: 'file,x,y', label_type: value}, split: 25%}" \
            -o loss=mse -o train.best=mae
}
t "the same with several classes of a picture, and with numbers" typed
# lanes of its own: several processes choose them, and the run keeps them
own_lanes() {
    set -- -o train.lanes=auto -o schedule=constant
    run auto 2 "$@" -o train.epochs=1 && run auto 4 --resume "$@" -o train.epochs=2 &&
        run eight 1 "$@" -o train.lanes=8 -o train.epochs=2 && [ -n "$(hash_of eight)" ] &&
        [ "$(hash_of auto)" = "$(hash_of eight)" ] && run whole 1 "$@" -o train.epochs=1 &&
        exits 2 run whole 2 --resume "$@" -o train.epochs=2 &&
        grep -q "train.lanes of this run is 1, for 1 process; begin a new run for 2" "$TMP/whole.err" &&
        run whole 1 --resume "$@" -o train.epochs=2
}
t "train.lanes: auto is 8 in several processes, kept when they are resumed, and 1 in one" own_lanes
# threads: the number of compute threads changes no bit
threads() {
    for n in 1 3; do
        run "threads$n" 1 -o "train.threads=$n" "$@" && alike one "threads$n" || return 1
    done
}
t "one and three compute threads: the same weights" threads
# over the rows of a process: not the same, and rank 0's statistics are what all of them evaluate with
of_process() {
    run over1 1 -o train.batchnorm_over=process && alike one over1 && run over2 2 -o train.batchnorm_over=process &&
        [ -n "$(hash_of over2)" ] && [ "$(hash_of over2)" != "$(hash_of one)" ] || return 1
    run again2 2 -o train.batchnorm_over=process && alike over2 again2 &&
        grep -q "statistics are rank 0's, and the weights depend on the number of processes, 2" "$TMP"/over2/net-*/log
}
t "batchnorm over the rows of a process: as PyTorch's DDP" of_process
t "the same with rows that grow from batch to batch" same 8 \
    -o 'loader.augment=[{random_resized_crop: {size: 12}}]' -o 'loader.grow={from: 8, since: 0, until: 2, step: 2}'
t "the same with mixup, and rows that grow" same 4 -o train.mixup=0.2 \
    -o 'loader.augment=[{random_resized_crop: {size: 12}}]' -o 'loader.grow={from: 8, since: 0, until: 3, step: 2}'
t "the same with a val set, a test at the end, and its early end" same 2 -o data.split=20% \
    -o 'train.stop={patience: 1}' -o 'schedule={plateau: {patience: 0}}'
t "the same while a part of the weights is frozen" same 4 -o 'freeze=[{names: ["0.*", "1.*"], until: {step: 7}}]'
t "the same with test-time augmentation, repeated samples and balanced classes" same 2 -o train.tta=flip_shift \
    -o loader.repeat=2 -o loader.balance=classes

# --- stops, kills, resumes ---

# wait_step NAME STEP: the run has written its checkpoint
wait_step() {
    for _ in $(tries 100); do
        [ -e "$TMP/$1"/net-*/checkpoints/step-"$2"/manifest.json ] && return 0
        sleep 0.05
    done
    return 1
}
ranks() { pgrep -f "^nnpipe train $TMP/net.yaml .*runs=$TMP/$1 " || pgrep -f "runs=$TMP/$1 "; }
# process NAME RANK
process() {
    for pid in $(ranks "$1"); do
        ! tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx "NNPIPE_RANK=$2" || echo "$pid"
    done
}
# tell NAME SIGNAL RANK
tell() { kill "-$2" "$(process "$1" "$3")"; }
# go_on NAME PROCESSES FLAG...: resumes until the end
go_on() { run "$@" --resume -o train.epochs=40; }
# long NAME PROCESSES FLAG...: a run of 250 steps begins
long() {
    rm -rf "${TMP:?}/$1"
    run "$@" -o train.epochs=40 &
    job=$!
}
newest() { ls -d "$TMP/$1"/net-*/checkpoints/step-*[0-9] | sort -V | tail -n 1; }
# stops SIGNAL: one rank of two is told to stop, the run goes on with four, is told again, and ends with one
stops() {
    long stopped 2 && wait_step stopped 10 && kill "-$1" "$(ranks stopped | tail -n 1)"
    exits 75 wait "$job" || return 1
    before=$(newest stopped)
    run stopped 4 --resume -o train.epochs=40 &
    job=$!
    for _ in $(tries 100); do [ "$(newest stopped)" = "$before" ] || break; sleep 0.05; done
    kill "-$1" "$(ranks stopped | tail -n 1)"
    exits 75 wait "$job" && go_on stopped 1 && [ "$(hash_of stopped)" = "$(hash_of undisturbed)" ]
}
t "a longer run, undisturbed" run undisturbed 1 -o train.epochs=40
t "SIGTERM at one of two processes; resumed with four, stopped, resumed with one: the same weights" stops TERM
t "SIGUSR1 stops them, too" stops USR1

# Rank 1 is told, too, while rank 0 writes: a launcher that sees it end may end rank 0. Both wait for pictures.
told_late() {
    cc -shared -fPIC -D_GNU_SOURCE -o "$TMP/slow.so" "$ROOT/tests/flow/slow_calls.c" -ldl || return 1
    export LD_PRELOAD="$TMP/slow.so" SLOW_READ_US=5000 SLOW_SYNC_US=200000
    long late 2 -o loader.cache=none -o loader.io=pread -o loader.share=off -o train.epochs=400 \
        -o 'checkpoint.every=5000 steps' -o train.eval_every=never
    unset LD_PRELOAD SLOW_READ_US SLOW_SYNC_US
    for _ in $(tries 100); do ! grep -q '"step": 4,' "$TMP/late.json" || break; sleep 0.05; done
    rank1=$(process late 1)
    tell late TERM 0
    for _ in $(tries 100); do
        ! ls -A "$TMP"/late/net-*/checkpoints 2>/dev/null | grep -q tmp || break
        sleep 0.02
    done
    kill -TERM "$rank1"
    while kill -0 "$rank1" 2>/dev/null; do sleep 0.02; done
    [ -e "$(newest late)/manifest.json" ] && exits 75 wait "$job"
}
t "a rank that is told while rank 0 saves ends after it" told_late

# killed RANK: kill -9 of one rank of four; all end and name it
killed() {
    long killed 4 && wait_step killed 20 || return 1
    tell killed KILL "$1"
    if [ "$1" = 0 ]; then
        exits 137 wait "$job" || return 1
    else
        exits 1 wait "$job" && cat "$TMP/killed.err" >&2 &&
            grep -q "rank $1 (process .* has ended" "$TMP/killed.err" || return 1
    fi
    go_on killed 2 && [ "$(hash_of killed)" = "$(hash_of undisturbed)" ]
}
for rank in 0 1 3; do
    t "kill -9 of rank $rank: all end; resumed with two processes, the same weights" killed "$rank"
done

# Rank 1 is suspended when rank 2 is killed: the others do not wait for it.
suspended() {
    long suspended 4 && wait_step suspended 20 || return 1
    tell suspended STOP 1
    tell suspended KILL 2
    for _ in $(tries 200); do
        [ -n "$(process suspended 0)$(process suspended 3)" ] || break
        sleep 0.1
    done
    [ -z "$(process suspended 0)$(process suspended 3)" ] && tell suspended KILL 1 && exits 1 wait "$job" &&
        grep -q "rank 2 (process .* has ended" "$TMP/suspended.err"
}
t "kill -9 of a rank while another is suspended: the others end" suspended

# late RANK: kill -9 of one rank behind rank 0's last word: the others, which meet over TCP, end with 0
late=${NNPIPE_BUILD:-$ROOT/build}/tests/flow/nnpipe
late_is_done() {
    grep -q '"event": "done"' "$TMP"/late/net-*/result.json &&
        cmp "$TMP"/late/net-*/checkpoints/step-25/weights.safetensors \
            "$TMP"/one/net-*/checkpoints/step-25/weights.safetensors
}
late() {
    rm -rf "$TMP/late"
    for r in 0 1 2 3; do
        RANK=$r WORLD_SIZE=4 MASTER_ADDR=localhost MASTER_PORT=1 NNPIPE_COMM_PORT=$((20000 + $$ % 10000)) \
            NNPIPE_END_RANK=$1 timeout 120 "$late" train "$TMP/net.yaml" -o "runs=$TMP/late" >"$TMP/late.$r" 2>&1 &
        eval "late_$r=$!"
    done
    for r in 0 1 2 3; do
        code=0
        eval "wait \$late_$r" || code=$?
        [ $code -eq "$([ $r -eq "$1" ] && echo 137 || echo 0)" ] || { echo "rank $r ended with $code"; return 1; }
    done
    late_is_done && [ ! -s "$TMP/late.3" ] || { cat "$TMP/late.3"; return 1; }
}
for rank in 0 1 2 3; do
    t "kill -9 of rank $rank behind the end: the others end with 0, and the run is done" late "$rank"
done
late_local() {
    rm -rf "$TMP/late"
    NNPIPE=$late NNPIPE_END_RANK=2 run late 4 && late_is_done && grep -q "rank 2 was killed by signal 9" "$TMP/late.err"
}
t "the same by --processes: it returns 0, and names the rank" late_local

# --- numbers that are no power of two ---

twelve="-o loader.batch=36 -o train.lanes=12" # four lanes in each of three, two in each of six
# shellcheck disable=SC2086 # words
{
    t "three processes: the same weights as one" same 3 $twelve
    mv "$TMP/alone" "$TMP/alone3"
    t "six, in bf16, with groups of a lane and accumulated batches: the same" same 6 $twelve -o precision=bf16 \
        -o train.batchnorm_over=3 -o train.accumulate=2
}
# Three lanes in each process are no subtree of one process's: other bits, which is said, near its.
odd() {
    set -- -o loader.batch=36 -o train.lanes=6
    run odd1 1 "$@" && run odd2 2 "$@" && run odd 2 "$@" -o train.threads=4 && alike odd2 odd || return 1
    [ "$(hash_of odd)" != "$(hash_of odd1)" ] && close_to test_loss "$TMP/odd1.json" "$TMP/odd.json" 0.001 &&
        [ "$(grep -c "sums of 3 lanes in each process round as with 2 processes only" "$TMP/odd.err")" -eq 1 ] &&
        [ "$(field sums_of "$TMP/odd.json")" = 2 ] || { cat "$TMP/odd.err"; return 1; }
    run odd 3 "$@" --resume -o train.epochs=5 && [ "$(grep -c "sums round as with one process from step 23 on, and as \
with 2 processes before" "$TMP/odd.err")" -eq 1 ] && ! grep -q "sums.* round" "$TMP/odd1.err"
}
t "three lanes in each of two processes: the same again, near one's; said then, and when six lanes go on with three" odd
# ends3 RANK: kill -9 of this one of three; six go on, are stopped, and one ends it
ends3() {
    long three 3 $twelve && wait_step three 20 || return 1
    tell three KILL "$1"
    exits 1 wait "$job" && grep -q "rank $1 (process .* has ended" "$TMP/three.err" ||
        { cat "$TMP/three.err"; return 1; }
    go_on three 6 $twelve &
    job=$!
    wait_step three 100 && tell three TERM 5
    exits 75 wait "$job" && go_on three 1 $twelve && [ "$(hash_of three)" = "$(hash_of undisturbed3)" ]
}
# shellcheck disable=SC2086
t "a longer run of twelve lanes, undisturbed" run undisturbed3 1 -o train.epochs=40 $twelve
for rank in 1 2; do
    t "kill -9 of rank $rank of three; resumed with six, stopped, resumed with one: the same weights" ends3 "$rank"
done

# --- what one of them meets ---

damaged() {
    mkdir -p "$TMP/folder" && tar -xf "$TMP"/data/train-*.tar.zst -C "$TMP/folder" || return 1
    n=0
    for file in $(find "$TMP/folder" -type f | sort | sed -n '3~40p'); do
        head -c 40 "$file" >"$file.cut" && mv "$file.cut" "$file" && n=$((n + 1))
    done
    same 4 -o "data.train={source: folder, path: $TMP/folder}" -o 'data.test={source: folder, path: '"$TMP/folder"'}' \
        -o 'loader.bad_samples={policy: replace, budget: 50%}' || return 1
    [ "$(wc -l <"$(ls "$TMP"/alone/net-*/bad_samples.jsonl)")" -ge "$n" ] &&
        cmp "$TMP"/alone/net-*/bad_samples.jsonl "$TMP"/shared/net-*/bad_samples.jsonl
}
t "samples that do not decode: the same are replaced and listed" damaged
# spends NAME PROCESSES: ends with 1; its last checkpoint and what it lists are in $TMP/NAME.spent
spends() {
    rm -rf "${TMP:?}/$1"
    exits 1 run "$1" "$2" -o "data.train={source: folder, path: $TMP/folder}" \
        -o 'loader.bad_samples={policy: replace, budget: 1.5%}' && ls "$TMP/$1"/net-*/checkpoints >"$TMP/$1.spent" &&
        cat "$TMP/$1"/net-*/bad_samples.jsonl >>"$TMP/$1.spent" &&
        [ "$(grep -c "more than loader.bad_samples.budget" "$TMP/$1.err")" -eq 1 ] ||
        { tail -n 3 "$TMP/$1.err"; return 1; }
}
budget() {
    spends spent1 1 && spends spent4 4 && spends spent8 8 && cmp "$TMP/spent1.spent" "$TMP/spent4.spent" &&
        cmp "$TMP/spent1.spent" "$TMP/spent8.spent"
}
t "a spent budget ends them after the same step, with the same list, and is said once" budget

# A FIFO instead of a picture: rank 1 waits in open(), rank 0 for its gradients. hangs WHO: gets SIGTERM
hangs() {
    who=$1
    for i in $(seq 10 57); do
        mkdir -p "$TMP/pictures/$((i % 2))"
        { printf 'P6 8 8 255\n'; seq $((i * i)) $((i * i + 99)) | head -c 192; } >"$TMP/pictures/$((i % 2))/$i.ppm"
    done
    set -- -o "data={train: {source: folder, path: $TMP/pictures}}" -o loader.batch=8 -o loader.shuffle=none \
        -o loader.cache=none -o loader.augment=[flip] -o loader.depth=1 -o train.history=false
    rm -rf "$TMP/calm" "$TMP/hung"
    run calm 1 "$@" || return 1
    touch -r "$TMP/pictures/1" "$TMP/when"
    mv "$TMP/pictures/1/57.ppm" "$TMP/kept" && mkfifo "$TMP/pictures/1/57.ppm" &&
        touch -r "$TMP/when" "$TMP/pictures/1" || return 1
    run hung 2 "$@" &
    job=$!
    for _ in $(tries 100); do grep -q '"step": 4,' "$TMP/hung.json" && break; sleep 0.05; done
    sleep 0.5
    if [ "$who" = parent ]; then
        pkill -TERM -f -- "--processes 2 -o runs=$TMP/hung "
    else
        tell hung TERM "$who"
    fi
    code=0
    wait "$job" || code=$?
    rm "$TMP/pictures/1/57.ppm" && mv "$TMP/kept" "$TMP/pictures/1/57.ppm" && touch -r "$TMP/when" "$TMP/pictures/1"
    [ "$code" -eq 75 ] || { echo "ended with $code"; return 1; }
    run hung 4 "$@" --resume && [ "$(hash_of calm)" = "$(hash_of hung)" ]
}
t "a stop while one waits for storage and the other for it: saved, and resumed with four" hangs parent
t "the same when only the one that does not wait for storage is told" hangs 0
# The same in an evaluation, before any checkpoint was due.
evaluates() {
    cp -r "$TMP/pictures" "$TMP/trained" && rm -rf "$TMP/calm" "$TMP/hung" || return 1
    set -- -o loader.batch=8 -o loader.cache=none -o loader.augment=[flip] -o loader.depth=1 -o train.history=false \
        -o "data={train: {source: folder, path: $TMP/trained}, test: {source: folder, path: $TMP/pictures}}" \
        -o checkpoint.every='100 steps'
    run calm 1 "$@" && touch -r "$TMP/pictures/1" "$TMP/when" && mv "$TMP/pictures/1/57.ppm" "$TMP/kept" &&
        mkfifo "$TMP/pictures/1/57.ppm" && touch -r "$TMP/when" "$TMP/pictures/1" || return 1
    run hung 2 "$@" &
    job=$!
    for _ in $(tries 100); do grep -q '"step": 5,' "$TMP/hung.json" && break; sleep 0.05; done
    sleep 0.5
    tell hung TERM 0
    code=0
    wait "$job" || code=$?
    rm "$TMP/pictures/1/57.ppm" && mv "$TMP/kept" "$TMP/pictures/1/57.ppm" && touch -r "$TMP/when" "$TMP/pictures/1"
    [ "$code" -eq 75 ] || { echo "ended with $code"; cat "$TMP/hung.err"; return 1; }
    run hung 4 "$@" --resume && [ "$(hash_of calm)" = "$(hash_of hung)" ]
}
t "the same while one waits in an evaluation" evaluates

# in_test SIGNAL RANK CODE: while rank 0 waits for a picture of the test after the last step
in_test() {
    signal=$1 rank=$2 code=$3
    rm -rf "$TMP/hung"
    set -- -o loader.batch=8 -o loader.cache=none -o loader.augment=[flip] -o loader.depth=1 -o train.history=false \
        -o data.split=25% -o data.train="{source: folder, path: $TMP/trained}" \
        -o data.test="{source: folder, path: $TMP/pictures}"
    [ -e "$TMP/tested" ] || run tested 1 "$@" || return 1
    touch -r "$TMP/pictures/1" "$TMP/when"
    mv "$TMP/pictures/1/57.ppm" "$TMP/kept" && mkfifo "$TMP/pictures/1/57.ppm" &&
        touch -r "$TMP/when" "$TMP/pictures/1" || return 1
    run hung 4 "$@" &
    job=$!
    wait_step hung 18 && sleep 0.5 && tell hung "$signal" "$rank"
    got=0
    wait "$job" || got=$?
    rm "$TMP/pictures/1/57.ppm" && mv "$TMP/kept" "$TMP/pictures/1/57.ppm" && touch -r "$TMP/when" "$TMP/pictures/1"
    [ "$got" -eq "$code" ] || { echo "ended with $got"; cat "$TMP/hung.err"; return 1; }
    case $signal in
    KILL)
        grep -q "rank $rank (process .* has ended" "$TMP/hung.err" &&
            grep -q "the last checkpoint is of step 18: resume with --resume" "$TMP/hung.err" "$TMP/hung.json" ||
            { cat "$TMP/hung.err"; return 1; }
        ;;
    esac
    run hung 2 "$@" --resume && [ "$(hash_of tested)" = "$(hash_of hung)" ] && [ -n "$(hash_of hung)" ] &&
        [ "$(field test_loss "$TMP/tested.json")" = "$(field test_loss "$TMP/hung.json")" ]
}
t "kill -9 of a rank in the test after the last step ends all with 1, its rank named; the test is made again" \
    in_test KILL 3 1
t "SIGTERM at a rank that waits for that test stops it" in_test TERM 2 75

if mount_faulty "$TMP/pictures" "$TMP/mounted" && mkdir -p "$TMP/kept_runs" "$TMP/full" &&
    mount_faulty "$TMP/kept_runs" "$TMP/full"; then
    # Reads that fail in one process, as those of a disk that does not answer.
    unread() {
        set -- -o "data={train: {source: folder, path: $TMP/mounted}}" -o loader.batch=8 -o loader.shuffle=none \
            -o loader.cache=none -o loader.augment=[flip] -o train.history=false
        run read 1 "$@" && echo 'fail 5 *1/57.ppm' >"$TMP/mounted/.control" || return 1
        exits 74 run unread 2 "$@" && grep -q "57.ppm" "$TMP/unread.err" || { cat "$TMP/unread.err"; return 1; }
        echo clear >"$TMP/mounted/.control"
        run unread 4 "$@" --resume && [ "$(hash_of read)" = "$(hash_of unread)" ]
    }
    t "storage that fails in one process: all end with 74, saved, and go on with four" unread
    # Rank 0's disk is full at its checkpoint.
    no_room() {
        echo 'quota 60000' >"$TMP/full/.control"
        exits 74 run full 4 && grep -q "could not be written" "$TMP/full.err" &&
            [ "$(grep -c '^nnpipe: ' "$TMP/full.err")" -eq 1 ] || { cat "$TMP/full.err"; return 1; }
        echo clear >"$TMP/full/.control"
        run full 2 --resume && [ -n "$(hash_of full)" ] && [ "$(hash_of full)" = "$(hash_of one)" ]
    }
    t "a full disk at rank 0 ends all of them and is said once; with room again, two go on" no_room
else
    skip "storage that fails in one process" "no FUSE here"
    skip "a full disk at rank 0" "no FUSE here"
fi

# A bit of one rank's weights flips between two checkpoints: it is named, and the earlier one is used.
flipped() {
    rm -rf "$TMP/flipped"
    NNPIPE_FLIP_RANK=2 NNPIPE_FLIP_AT=12 NNPIPE=${NNPIPE_BUILD:-$ROOT/build}/tests/flow/nnpipe exits 1 run flipped 4 &&
        grep -q "step 15: rank 2 computed other weights than the rest" "$TMP/flipped.err" &&
        [ -e "$TMP/flipped"/net-*/checkpoints/step-10 ] && [ ! -e "$TMP/flipped"/net-*/checkpoints/step-15 ] ||
        { cat "$TMP/flipped.err"; return 1; }
    run flipped 2 --resume && [ "$(hash_of flipped)" = "$(hash_of one)" ]
}
t "a flipped bit in one rank's weights is found at the next checkpoint, its rank named" flipped

# --- starts that cannot work ---

refuses() { # TEXT FLAG...
    text=$1
    shift
    exits 2 timeout 300 "$NNPIPE" train "$TMP/net.yaml" -o "runs=$TMP/none" "$@" >"$TMP/refused" 2>&1 &&
        grep -qF -- "$text" "$TMP/refused" || { tail -n 3 "$TMP/refused"; return 1; }
}
t "more processes than lanes" refuses \
    "train.lanes: 2 cannot be divided among 4 processes, which need as many each: take 4, 8, 16 or 32" \
    --processes 4 -o train.lanes=2
t "lanes that three processes cannot divide" refuses "among 3 processes, which need as many each: take 3, 6, 12 or 24" \
    --processes 3 -o loader.batch=24
t "a batch that three processes cannot divide" refuses \
    "loader.batch: 32 rows cannot be divided among 3 processes, but 30 and 33 can" --processes 3
t "no processes" refuses "--processes 0: expected a number, 1 to 1024" --processes 0
RANK=1 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=29500 \
    t "processes under a launcher, each of which would start as many" refuses \
    "--processes starts the processes of a run, but torchrun has already started 2" --processes 2
t "lanes that do not divide the batch" refuses \
    "train.lanes: 8 does not divide loader.batch, 36; it divides 32 and 40" -o loader.batch=36
t "groups that are no lanes" refuses "12 rows are neither an equal part of a lane (4 rows) nor whole lanes" \
    -o train.batchnorm_over=12
t "groups without lanes" refuses "groups of rows need a number of train.lanes" \
    -o train.batchnorm_over=8 -o train.lanes=1
t "groups larger than the rows of a process" refuses "groups of rows are of one process" --processes 8 \
    -o train.batchnorm_over=8

# two CHANGE-OF-RANK-1...: two ranks started by hand
two() {
    export NNPIPE_WORLD=2 NNPIPE_COMM="unix:nnpipe-test-$$-$RANDOM" NNPIPE_COMM_TIMEOUT=20
    NNPIPE_RANK=0 timeout 300 "$NNPIPE" train "$TMP/net.yaml" -o "runs=$TMP/two" >"$TMP/rank0" 2>&1 &
    job=$!
    NNPIPE_RANK=1 timeout 300 env "$@" >"$TMP/rank1" 2>&1
    code=$?
    wait "$job"
    code0=$?
    unset NNPIPE_WORLD NNPIPE_COMM NNPIPE_COMM_TIMEOUT
    [ "$code0 $code" = "2 2" ] || { echo "ended with $code0 and $code"; tail -n 2 "$TMP/rank0" "$TMP/rank1"; return 1; }
    [ ! -e "$TMP/two" ]
}
other_rate() {
    two "$NNPIPE" train "$TMP/net.yaml" -o "runs=$TMP/two" -o optimizer.adamw.lr=0.02 &&
        grep -q "rank 0 and rank 1 differ in their configs" "$TMP/rank0"
}
other_data() {
    "$NNPIPE" data synth --out "$TMP/other" --samples 199 --test 40 --size 12 >/dev/null
    two "$NNPIPE" train "$TMP/net.yaml" -o "runs=$TMP/two" -o "data.train.path=$TMP/other/train-*.tar*" &&
        grep -q "differ in the names or labels of data.train" "$TMP/rank0"
}
other_split() {
    two "$NNPIPE" train "$TMP/net.yaml" -o "runs=$TMP/two" -o data.test.path="$TMP/data/train-*.tar*" &&
        grep -q "rank 0 and rank 1 differ in the set that they evaluate" "$TMP/rank0"
}
other_vectors() {
    two NNPIPE_CPU=sse2 "$NNPIPE" train "$TMP/net.yaml" -o "runs=$TMP/two" &&
        grep -q "rank 0 computes with .* rank 1 with .*: all processes need the same" "$TMP/rank0"
}
t "ranks with other learning rates end before anything is written" other_rate
t "ranks with other data" other_data
t "ranks that evaluate another set" other_split
t "ranks with other vectors" other_vectors
absent() {
    NNPIPE_COMM_TIMEOUT=1 NNPIPE_RANK=0 NNPIPE_WORLD=2 NNPIPE_COMM="unix:nnpipe-test-$$-absent" \
        exits 1 timeout 300 "$NNPIPE" train "$TMP/net.yaml" -o "runs=$TMP/none" >"$TMP/absent" 2>&1 &&
        grep -q "of 2 processes, rank 1 did not come within 1 s" "$TMP/absent"
}
t "a rank that does not come is named" absent
contradicts() {
    RANK=9 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=1 refuses "RANK=9: expected 0 to 1"
}
t "a launcher's variables that contradict each other" contradicts

# --- the parent ---

# Some programs start their children with SIGCHLD ignored: then none is left to wait for.
ignored() {
    timeout 300 python3 -c 'import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])' "$NNPIPE" train "$TMP/net.yaml" --processes 2 -o "runs=$TMP/ignored" --json \
        >"$TMP/ignored.json" 2>&1 && alike one ignored
}
t "started with SIGCHLD ignored" ignored
orphans() {
    long orphans 2 && wait_step orphans 10 || return 1
    for pid in $(ranks orphans); do grep -qz "^NNPIPE_RANK" "/proc/$pid/environ" || kill -9 "$pid"; done
    for _ in $(tries 100); do [ -n "$(ranks orphans)" ] || return 0; sleep 0.05; done
    echo "still there: $(ranks orphans)"
    return 1
}
t "a parent that is killed leaves no process behind" orphans
one_mistake() {
    exits 2 run wrong 8 -o optimizer.adamw.rate=1 && [ "$(grep -c "adamw.rate" "$TMP/wrong.err")" -eq 1 ] &&
        exits 1 run wrong 8 -o 'optimizer={sgd: {lr: 1e6}}' -o train.clip_norm=0 &&
        [ "$(grep -c "^nnpipe: " "$TMP/wrong.err")" -eq 1 ] || { cat "$TMP/wrong.err"; return 1; }
}
t "a mistake of the config, and a loss that is not a number, are said once" one_mistake

# --- launchers ---

# by COMMAND...: a launcher starts two processes
by() {
    rm -rf "$TMP/launched"
    timeout 300 "$@" "$NNPIPE" train "$TMP/net.yaml" -o "runs=$TMP/launched" --json >"$TMP/launched.json" \
        2>"$TMP/by.err" || { tail -n 3 "$TMP/by.err"; return 1; }
    alike one launched
}
if command -v mpirun >/dev/null 2>&1; then
    mpi="mpirun --allow-run-as-root --oversubscribe --bind-to none -np"
    # shellcheck disable=SC2086 # words
    t "mpirun" by $mpi 2
    export NNPIPE_COMM_DATA=mpi
    by_mpi() { by $mpi "$1" && grep -q "gradients are summed over Open MPI" "$TMP/by.err"; }
    t "sums over Open MPI, two processes" by_mpi 2
    t "sums over Open MPI, four processes" by_mpi 4
    by_mpi3() {
        rm -rf "$TMP/launched"
        timeout 60 $mpi 3 "$NNPIPE" train "$TMP/net.yaml" -o "runs=$TMP/launched" $twelve >"$TMP/by.out" 2>&1 &&
            cmp "$TMP"/launched/net-*/checkpoints/step-23/weights.safetensors \
                "$TMP"/alone3/net-*/checkpoints/step-23/weights.safetensors || { tail -n 3 "$TMP/by.out"; return 1; }
    }
    t "sums over Open MPI, three processes" by_mpi3
    # ends SIGNAL: sent to the last rank; the run ends as it does over TCP, and goes on without MPI
    ends() {
        rm -rf "$TMP/long"
        timeout 300 $mpi 4 "$NNPIPE" train "$TMP/net.yaml" -o "runs=$TMP/long" -o train.epochs=40 \
            >"$TMP/long.out" 2>&1 &
        job=$!
        wait_step long 20 && tell_mpi "$1" || return 1
        code=0
        wait "$job" || code=$?
        case $1 in
        TERM) [ "$code" -eq 75 ] ;;
        *) [ "$code" -ne 0 ] && [ "$code" -ne 124 ] ;;
        esac || { echo "ended with $code"; return 1; }
        NNPIPE_COMM_DATA=tcp go_on long 2 && [ "$(hash_of long)" = "$(hash_of undisturbed)" ]
    }
    tell_mpi() {
        for pid in $(pgrep -f "$TMP/net.yaml -o runs=$TMP/long"); do
            ! grep -qz "^OMPI_COMM_WORLD_RANK=3" "/proc/$pid/environ" || kill "-$1" "$pid"
        done
    }
    # late_mpi RANK: as late(), where the others wait in MPI_Finalize(). mpirun ends them at once; where it does not
    # watch them, as srun, each ends by itself.
    late_mpi() {
        rm -rf "$TMP/late" "$TMP"/code.*
        NNPIPE_END_RANK=$1 timeout 120 $mpi 4 "$late" train "$TMP/net.yaml" -o "runs=$TMP/late" >"$TMP/late.out" 2>&1
        code=$?
        [ $code -ne 0 ] && [ $code -ne 124 ] && late_is_done || { echo "ended with $code"; return 1; }
        rm -rf "$TMP/late"
        NNPIPE_END_RANK=$1 timeout 120 $mpi 4 --enable-recovery sh -c '"$@"; echo $? >"$0.$OMPI_COMM_WORLD_RANK"' \
            "$TMP/code" "$late" train "$TMP/net.yaml" -o "runs=$TMP/late" >"$TMP/late.out" 2>&1
        [ $? -ne 124 ] && late_is_done || return 1
        for r in 0 1 2 3; do
            [ "$(cat "$TMP/code.$r")" = "$([ $r -eq "$1" ] && echo 137 || echo 0)" ] ||
                { tail "$TMP"/code.*; return 1; }
        done
    }
    for rank in 0 3; do
        t "kill -9 of rank $rank behind the end with sums over Open MPI: none hangs, and the run is done" late_mpi $rank
    done
    t "SIGTERM at one of four with sums over Open MPI: saved; goes on with two over a socket" ends TERM
    t "kill -9 of one of four with sums over Open MPI: none hangs" ends KILL
    unset NNPIPE_COMM_DATA
    no_mpi() {
        NNPIPE_COMM_DATA=fax refuses "NNPIPE_COMM_DATA=fax: expected tcp or mpi" --processes 2
    }
    t "another way of sums" no_mpi
    # As a machine without Open MPI would find it. srun starts ranks that no mpirun watches.
    one_without() {
        mkdir -p "$TMP/no_mpi" && : >"$TMP/no_mpi/libmpi.so.40"
        NNPIPE_COMM_DATA=mpi two LD_LIBRARY_PATH="$TMP/no_mpi" "$NNPIPE" train "$TMP/net.yaml" -o "runs=$TMP/two" &&
            grep -q "rank 1: NNPIPE_COMM_DATA=mpi: .*; install Open MPI" "$TMP/rank0" || { cat "$TMP/rank0"; return 1; }
    }
    t "Open MPI that one of two machines lacks: the rank is named, and none waits" one_without
else
    skip "mpirun" "Open MPI is not here"
fi
torchrun=$(dirname "${PYTHON:-python3}")/torchrun
if [ -x "$torchrun" ]; then
    t "torchrun" by "$torchrun" --no-python --nproc-per-node 2
else
    skip "torchrun" "PYTHON has no torchrun beside it"
fi
tcp() {
    port=$((20000 + $$ % 10000))
    export RANK=1 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=1 NNPIPE_COMM_PORT=$port
    timeout 300 "$NNPIPE" train "$TMP/net.yaml" -o "runs=$TMP/tcp" >"$TMP/rank1" 2>&1 &
    job=$!
    export RANK=0
    timeout 300 "$NNPIPE" train "$TMP/net.yaml" -o "runs=$TMP/tcp" --json >"$TMP/tcp.json" 2>"$TMP/tcp.err"
    code=$?
    unset RANK WORLD_SIZE MASTER_ADDR MASTER_PORT NNPIPE_COMM_PORT
    wait "$job" && [ "$code" -eq 0 ] && [ ! -s "$TMP/rank1" ] && alike one tcp
}
t "torchrun's variables, over TCP; only rank 0 prints" tcp
[ "$failed" -eq 0 ]
