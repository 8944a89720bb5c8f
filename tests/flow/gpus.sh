#!/bin/sh
# Several GPUs, emulated: the same bits for 1, 2 and 4 processes, or 1 and 3; NCCL's own sum near them; ranks that die
# and calls that fail end the run in words; resumes with other numbers; --gpus. The campaign has a thousand drawn runs.
. "$(dirname "$0")/../lib.sh"
. "$ROOT/tests/lib_gpus.sh"
four_gpus "several emulated GPUs" || exit 0
cd "$TMP" || exit 1
cat >>net.yaml <<Y
precision: f32
train: {epochs: 2, threads: 1, lanes: 4, clip_norm: 1, ema: {decay: 0.9}}
checkpoint: {every: 3 steps, keep: 20}
Y
numbers() {
    grep -v '"event": "pipeline"' "$1"/net-*/metrics.jsonl |
        grep -oE '"(step|loss|best|(test|val)_[a-z0-9]+|accuracy|grad_norm)": [^,}]*'
}
# alike NAME NAME: weights, optimizer and every number
alike() {
    same_weights "$1" "$2" || { tail -n 1 "$2.err"; return 1; }
    [ "$(numbers "$1")" = "$(numbers "$2")" ] || { echo "losses differ"; return 1; }
    [ ! -e "$(echo "$1"/net-*/sample_losses.bin)" ] || cmp "$1"/net-*/sample_losses.bin "$2"/net-*/sample_losses.bin ||
        return 1
    cmp "$1"/net-*/checkpoints/step-12/optimizer.safetensors "$2"/net-*/checkpoints/step-12/optimizer.safetensors
}
as_one() { run "$@" && alike "${1%-*}" "$1"; }
t "f32: a run in four lanes on one GPU" run f32
t "f32: on two GPUs the same weights, losses and optimizer" as_one f32-2 --gpus 0,2
NNPIPE_CUDA_BUCKET=1024 t "f32: on four, in small buckets, the same" as_one f32-4 --gpus all
t "bf16: a run on one GPU" run bf16 -o precision=bf16
t "bf16: on four GPUs the same" as_one bf16-4 --gpus 0-3 -o precision=bf16
t "f16: a run on one GPU" run f16 -o precision=f16
t "f16, whose loss scale follows the sums: on two GPUs the same" as_one f16-2 --gpus 0-1 -o precision=f16
near() {
    run fast --gpus 0-3 -o train.sum=fast && close_to test_loss f32.json fast.json 0.0001 &&
        ! same_weights f32 fast || { tail -n 1 fast.err; return 1; }
    run again --gpus 0-3 -o train.sum=fast && same_weights fast again
}
t "train.sum: fast has other bits, near the exact ones, and the same ones again" near
halves() {
    run halves --gpus 0-3 -o train.sum=fast -o train.comm_dtype=bf16 && close_to test_loss f32.json halves.json 0.01 &&
        ! same_weights fast halves
}
t "comm_dtype: bf16 is near them, too" halves
# same NAME GPUS FLAG...: on one GPU and on several
same() {
    name=$1 gpus=$2
    shift 2
    run "$name" "$@" && as_one "$name-2" --gpus "$gpus" "$@"
}
# near_whole NAME FLAG...: the run in lanes ends near that in whole batches, and with other bits; nothing in it depends
# on the rows beside a row
near_whole() {
    near=$1
    shift
    set -- "$@" -o 'model=[{conv: {out: 8, kernel: 3, pad: 1}}, relu, global_avgpool, {linear: {out: classes}}]'
    run "$near" "$@" && run "$near-whole" "$@" -o train.lanes=1 &&
        close_to test_loss "$near.json" "$near-whole.json" 0.0001 && ! same_weights "$near" "$near-whole"
}
accumulated() {
    same accumulated 0-1 -o train.accumulate=3 -o train.sample_losses=true && same four 0-3 -o train.accumulate=2 &&
        ! same_weights accumulated f32 && near_whole accumulated3 -o train.accumulate=3
}
t "accumulated batches in lanes: on two and on four GPUs the bits of one, near those of whole batches" accumulated
uphill() {
    set -- -o 'train.sam={rho: 0.1}' -o train.sample_losses=true
    same sam 0-3 -o precision=bf16 "$@" && near_whole sam-near "$@" && ! same_weights sam f32
}
t "SAM in lanes: on four GPUs the bits of one, near those of whole batches; and the losses of all samples" uphill
losses() {
    same losses 0-3 -o train.sample_losses=true -o train.best=f1 && same_weights f32 losses &&
        run losses-cpu --device cpu -o train.sample_losses=true -o train.best=f1 -o train.batchnorm_over=4 &&
        [ "$(wc -c <"$(echo losses/net-*/sample_losses.bin)")" -eq \
            "$(wc -c <"$(echo losses-cpu/net-*/sample_losses.bin)")" ] &&
        grep -q '"test_f1": [0-9]' losses/net-*/metrics.jsonl
}
t "the losses of all samples, and the best checkpoint by F1: on four GPUs those of one" losses
# several classes of a picture, and numbers
typed() {
    mkdir -p typed
    for i in $(seq 10 73); do
        { printf 'P6 8 8 255\n'; seq $((i * i)) $((i * i + 99)) | head -c 192; } >"typed/$i.ppm"
    done
    { echo file,labels; for i in $(seq 10 73); do echo "$i.ppm,c$((i % 3))|d$((i % 5))"; done; } >multi.csv
    { echo file,x,y; for i in $(seq 10 73); do echo "$i.ppm,$i,$((i * i % 7))"; done; } >values.csv
    set -- -o train.mixup=0.3 -o train.epochs=4
    same multi 0-1 "$@" -o loss=bce -o train.best=map -o "data={train: {source: folder, path: typed,
            labels: multi.csv, label_type: multi}, split: 25%}" && near_whole multi-near -o loss=bce -o "data={train:
            {source: folder, path: typed, labels: multi.csv, label_type: multi}, test: {source: folder, path: typed,
            labels: multi.csv, label_type: multi}}" -o train.epochs=3 &&
        same values 0-3 "$@" -o loss=mse -o train.best=mae -o "data={train: {source: folder, path: typed,
            labels: values.csv, columns: 'file,x,y', label_type: value}, split: 25%}" &&
        grep -q '"val_map": [0-9]' multi/net-*/metrics.jsonl && grep -q '"val_mae": [0-9]' values/net-*/metrics.jsonl
}
t "several classes of a picture, and numbers: on two and on four GPUs as on one" typed
undivided() { sed 's/, lanes: 4//' net.yaml >auto.yaml && timeout 300 "$NNPIPE" train auto.yaml -o runs=auto --json \
    --gpus 0-3 >auto.json 2>auto.err && same_weights f32 auto; }
t "without train.lanes each GPU is a lane" undivided

# Six lanes: two on each of three GPUs are a subtree, three on each of two are not.
six="$six -o train.epochs=3"
# shellcheck disable=SC2086 # words
{
    t "six lanes on one GPU" run six $six
    t "on three GPUs the same weights, losses and optimizer" as_one six-3 --gpus 0-2 $six
}
odd() {
    run odd --gpus 0-1 $six && close_to test_loss six.json odd.json 0.0001 && ! same_weights six odd &&
        grep -q "sums of 3 lanes in each process round as with 2 processes only" odd.err || { cat odd.err; return 1; }
    run odd2 --gpus 2-3 $six && same_weights odd odd2
}
t "on two GPUs near them, which is said, and the same again" odd
fast3() { run fast3 --gpus 0-2 $six -o train.sum=fast && close_to test_loss six.json fast3.json 0.0001; }
t "train.sum: fast on three GPUs is near them" fast3

# --- what goes wrong ---

# killed RANK:N: a rank dies within its Nth sum; the others end with 1 and say so, and a run on other GPUs goes on
killed() {
    rm -rf killed
    NNPIPE_EMU_NCCL_KILL=$1 exits "$2" run killed --gpus 0-3 || { cat killed.err; return 1; }
    [ "$2" = 137 ] || grep -q "rank ${1%:*} (process [0-9]* on .*) has ended" killed.err || return 1
    run killed --processes "$3" --resume && same_weights f32 killed
}
t "a rank that dies within a captured sum is named; two GPUs go on" killed 2:60 1 2
t "so is rank 0's death; one GPU goes on" killed 0:70 137 1
third() {
    rm -rf third
    NNPIPE_EMU_NCCL_KILL=$1:15 exits 1 run third --gpus 1-3 $six &&
        grep -q "rank $1 (process .*) has ended" third.err || { cat third.err; return 1; }
    run third --resume --gpus 0-2 $six && same_weights six third
}
t "a rank of three that dies; three go on" third 2
last() { grep -q "the last checkpoint is of step [369]: resume with --resume" killed.json killed.err last.out; }
within() {
    rm -rf within
    NNPIPE_EMU_NCCL_KILL=2:47 exits 1 run within --gpus 0-3 -o train.accumulate=2 &&
        run within --gpus 0-1 --resume -o train.accumulate=2 && same_weights four within
}
t "a rank that dies within an accumulation: two GPUs go on to the same weights" within
named() {
    rm -rf killed
    NNPIPE_EMU_NCCL_KILL=3:60 exits 1 timeout 300 "$NNPIPE" train net.yaml -o runs=killed --gpus 0-3 >last.out 2>&1
    last || { cat last.out; return 1; }
}
t "the last checkpoint is named" named
lost() {
    NNPIPE_EMU_NCCL_ERROR=1:30 exits 1 run lost --gpus 0-1 && grep -q "rank 1: NCCL: .* has failed" lost.err ||
        { cat lost.err; return 1; }
}
t "an error that NCCL reports later ends both, which do not wait for ever" lost
absent() {
    NNPIPE_COMM_TIMEOUT=1 NNPIPE_EMU_NCCL_ABSENT=1:1 exits 1 run absent --gpus 0-1 &&
        grep -q "NCCL has not joined the processes within 1 s" absent.err || { cat absent.err; return 1; }
}
t "a process whose NCCL does not start" absent
# Freed memory is overwritten (MALLOC_PERTURB_): who reads it dies of it.
late() {
    NNPIPE_COMM_TIMEOUT=1 NNPIPE_EMU_NCCL_LATE=0:$1 MALLOC_PERTURB_=165 exits 1 run late --gpus 0-1 &&
        grep -q "NCCL has not joined the processes within 1 s" late.err || { cat late.err; return 1; }
}
both_late() { late 1 && late 2; }
t "NCCL that starts, or fails, after its process has closed all" both_late
fails() { # CALL: fails in rank 1 alone
    rm -rf failing
    code=0
    NNPIPE_EMU_FAIL=$1 NNPIPE_EMU_FAIL_RANK=1 run failing --gpus 0-1 || code=$?
    case $code in
    0) same_weights f32 failing ;;
    1) grep "^nnpipe: " failing.err | grep -qv "terminated" ;;
    *) false ;;
    esac || { echo "call $1: $code: $(tail -n 2 failing.err)"; return 1; }
}
some_fail() { for n in 120 300 700; do fails $n || return 1; done; }
t "calls that fail in one process end both in words, or not at all" some_fail
stopped() {
    rm -rf stopped
    run stopped --gpus 0-3 -o train.epochs=40 &
    job=$!
    for _ in $(tries 100); do ls stopped/*/checkpoints/step-6/manifest.json >/dev/null 2>&1 && break; sleep 0.05; done
    kill "$(pgrep -f "runs=$TMP/stopped " | tail -n 1)"
    exits 75 wait "$job" && run stopped --resume -o train.epochs=40 --processes 2 && run whole -o train.epochs=40 &&
        same_weights stopped whole
}
if [ -n "${SLOW:-}" ]; then t "SIGTERM at one of four: saved; two go on to the same weights" stopped; fi

# Reads that fail in one process: the steps that are queued end, are reported and saved, and others go on.
pictures() {
    for i in $(seq 10 57); do
        mkdir -p "$TMP/pictures/$((i % 2))"
        { printf 'P6 8 8 255\n'; seq $((i * i)) $((i * i + 99)) | head -c 192; } >"$TMP/pictures/$((i % 2))/$i.ppm"
    done
}
if pictures && mount_faulty "$TMP/pictures" "$TMP/mounted"; then
    unread() {
        set -- -o "data={train: {source: folder, path: $TMP/mounted}}" -o loader.batch=8 -o loader.shuffle=none \
            -o loader.cache=none -o 'loader.augment=[flip]' -o 'checkpoint.every=40 steps'
        run read "$@" && echo 'fail 5 *1/57.ppm' >"$TMP/mounted/.control" || return 1
        exits 74 run unread --gpus 0-1 "$@" && grep -q "57.ppm" unread.err || { cat unread.err; return 1; }
        [ -e unread/*/checkpoints/step-5 ] || { echo "saved: $(ls unread/*/checkpoints)"; return 1; }
        echo clear >"$TMP/mounted/.control"
        run unread --gpus 0-3 "$@" --resume && same_weights read unread
    }
    t "storage that fails in one of two: the steps before are saved, and four go on to the same weights" unread
else
    skip "storage that fails in one of two" "no FUSE here"
fi

# rank R of two by hand, with its own environment
two() { # NAME R VARIABLE...: rank R has the variables
    export NNPIPE_WORLD=2 NNPIPE_COMM="unix:nnpipe-gpus-$$-$RANDOM"
    for r in 0 1; do
        (
            [ "$r" = "$2" ] && export "$3"
            export NNPIPE_RANK=$r
            timeout 300 "$NNPIPE" train net.yaml -o "runs=$1" --json >"$1$r.json" 2>"$1$r.err"
        ) &
    done
    wait
    unset NNPIPE_WORLD NNPIPE_COMM
}
uncaptured() { two alone 1 NNPIPE_CUDA_GRAPH=0 && mv alone0.json alone.json && same_weights f32 alone; }
t "if one process captures no graph, none captures the sums" uncaptured
twice() { two twice 1 NNPIPE_GPU=0 && grep -q "rank 0 and rank 1 have the same GPU" twice0.err; }
t "two processes with one GPU" twice

# --- starts that cannot work ---

mkdir libs && for lib in "$EMU"/lib*.so*; do ln -s "$lib" libs/; done && rm libs/libnccl.so.2
without() {
    NNPIPE_CUDA_LIBS="$TMP/libs" run without && same_weights f32 without || { cat without.err; return 1; }
    NNPIPE_CUDA_LIBS="$TMP/libs" exits 1 run without2 --gpus 0-1 && grep -q \
        "several processes need NCCL: NCCL is missing: no libnccl.so.2 in .* install .*nvidia-nccl-cu1" without2.err ||
        { cat without2.err; return 1; }
}
t "without NCCL one GPU works, and several say what to install" without
versions() { "$NNPIPE" devices | grep -q "nccl  *2.28.9  *.*libnccl.so.2"; }
t "nnpipe devices has NCCL's version" versions
refuses() { # TEXT FLAG...
    text=$1
    shift
    exits 2 run refused "$@" && grep -qF -- "$text" refused.err && [ "$(wc -l <refused.err)" -eq 1 ] ||
        { cat refused.err; return 1; }
}
t "a GPU that is not there" refuses "--gpus: there is no cuda:4: the driver reports 4 GPUs" --gpus 0-4
t "a list that is none" refuses "--gpus: '0-': expected numbers as 0-3 or 0,2, or all" --gpus 0-
t "a GPU twice" refuses "--gpus: cuda:1 twice" --gpus 0-1,1
t "a batch that three GPUs cannot divide" refuses \
    "loader.batch: 16 rows cannot be divided among 3 processes, but 15 and 18 can" --gpus 0-2
t "--gpus on the CPU" refuses 'the config has `device: cpu`' --gpus 0-1 --device cpu
t "more processes than GPUs" refuses "the driver reports 4 GPUs, and each needs its own" --processes 8 -o train.lanes=8
t "bf16 between the processes of an exact sum" refuses "train.comm_dtype: gradients in bf16 round" \
    -o train.comm_dtype=bf16
many() {
    rm -rf many && cp -r f32 many && rm many/*/result.json && rm -r many/*/checkpoints/step-12 &&
        NNPIPE_EMU_DEVICES=8 exits 2 timeout 300 "$NNPIPE" train auto.yaml -o runs=many --resume --gpus 0-7 \
            >many.err 2>&1 &&
        grep -q "train.lanes of this run is 4, for 1, 2 or 4 processes; begin a new run for 8" many.err ||
        { tail -n 2 many.err; return 1; }
}
t "a resume with more processes than the run has lanes" many

# --- the sim device ---

simulated() {
    timeout 300 "$NNPIPE" train auto.yaml -o runs=sim --json --gpus 0-3 -o 'device={sim: {h2d_gbps: 10, step_ms: 4}}' \
        -o train.epochs=10 >sim.json 2>sim.err || { cat sim.err; return 1; }
    [ "$(field steps sim.json)" = 60 ] && awk -v s="$(field train_seconds sim.json)" 'BEGIN { exit !(s >= 0.23) }'
}
t "--gpus on the sim device: four processes, each with its part of every batch" simulated

# --- the service ---

served() {
    "$NNPIPE" daemon --state "$TMP/state" --socket "$TMP/socket" >daemon.out 2>&1 &
    daemon=$!
    for _ in $(tries 50); do [ -S "$TMP/socket" ] && break; sleep 0.1; done
    NNPIPE_SOCKET="$TMP/socket" timeout 300 "$NNPIPE" submit auto.yaml --gpus 4 -o "runs=$TMP/served" --wait
    code=$?
    kill "$daemon" && wait "$daemon"
    cp "$TMP"/served/*/result.json served.json && [ "$code" -eq 0 ] && same_weights auto served
}
t "submit --gpus 4: the service gives a run four GPUs, and each is a lane" served

# --- launchers ---

by() {
    rm -rf launched
    timeout 300 "$@" "$NNPIPE" train net.yaml -o runs=launched --json >launched.json 2>by.err ||
        { tail -n 3 by.err; return 1; }
    alike f32 launched
}
if command -v mpirun >/dev/null 2>&1; then
    t "mpirun starts two, each with its GPU" by mpirun --allow-run-as-root --oversubscribe --bind-to none -np 2
else
    skip "mpirun starts two, each with its GPU" "Open MPI is not installed"
fi
torchrun=$(dirname "$(command -v "${PYTHON:-python3}" || echo /none/x)")/torchrun
if [ -x "$torchrun" ]; then
    t "torchrun starts two, each with its GPU" by "$torchrun" --no-python --nproc-per-node 2 \
        --master-port $((20000 + RANDOM))
else
    skip "torchrun starts two, each with its GPU" "PYTHON has no torchrun beside it"
fi

# --- the real header ---

header=
for h in "${NCCL_INCLUDE:-/none}" /usr/include /usr/local/include /usr/local/cuda/include; do
    [ -e "$h/nccl.h" ] && header=$h && break
done
toolkit=$(dirname "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")/../include
if [ -n "$header" ]; then
    t "NCCL's functions and numbers are those of its header" gcc -std=c11 -Wall -Wextra -Werror -I"$ROOT" -isystem \
        "$header" -isystem "$toolkit" -c -o types.o "$ROOT/tests/cuda/nccl_types.c"
else
    skip "NCCL's functions and numbers are those of its header" "no nccl.h here"
fi
[ "$failed" -eq 0 ]
