# The CUDA device end to end without a GPU: the plugin's own code over the emulated runtime, cuDNN and
# cuBLASLt of tests/emu. Runs agree with the CPU's and with each other, in any order of the streams.
# SEEDS orders (2), FAILS calls that fail (4): the campaign has more.
. "$(dirname "$0")/../lib.sh"
use_emulated_gpu "the CUDA device over the emulated runtime" || exit 0
seeds=${SEEDS:-2} fails=${FAILS:-4}

cat >"$TMP/net.yaml" <<Y
name: net
seed: 3
device: cuda:0
precision: f32
data: {train: {source: synth, samples: 128, size: 16}, test: {source: synth, samples: 40, size: 16, seed: 9}}
loader: {batch: 16, readers: 2, augment: [flip]}
model:
  - conv: {out: 8, kernel: 3, pad: 1, bias: false}
  - batchnorm
  - relu
  - maxpool: {kernel: 2}
  - conv: {out: 16, kernel: 3, pad: 1}
  - relu
  - block: {name: more, use: basic}
  - dropout: {rate: 0.1}
  - global_avgpool
  - linear: {out: 16}
  - relu
  - linear: {out: classes}
blocks:
  basic:
    - conv: {out: 16, kernel: 3, pad: 1, bias: false}
    - batchnorm: {name: bn}
    - add: [bn, input]
    - relu
optimizer: {sgd: {lr: 0.05, momentum: 0.9, nesterov: true, weight_decay: 5e-4}}
schedule: {one_cycle: {warmup: 20%}}
train: {epochs: 2, threads: 1}
checkpoint: {every: 5 steps, keep: 2}
Y

# field NAME FILE: a field of the last line that has it
same() {
    [ -n "$(field "$1" "$2")" ] && [ "$(field "$1" "$2")" = "$(field "$1" "$3")" ] || {
        echo "$1: $(field "$1" "$2") and $(field "$1" "$3")"
        return 1
    }
}
# close A B TOLERANCE: two numbers, by the larger one
close() {
    awk -v a="$1" -v b="$2" -v t="$3" \
        'BEGIN { d = a - b; m = a > b ? a : b; if (d < 0) d = -d; exit !(m > 0 && d <= t * m) }' || {
            echo "$1 and $2"
            return 1
        }
}
# train OUT ARGS...: a run below its own folder, its JSON lines in $TMP/OUT
train() {
    out=$1
    shift
    "$NNPIPE" train "$TMP/net.yaml" --json -o runs="$TMP/runs-$out" "$@" >"$TMP/$out" 2>"$TMP/$out.err" || {
        code=$?
        tail -n 2 "$TMP/$out.err"
        return $code
    }
}
# curve A B TOLERANCE: the losses of all steps, and the test's
curve() {
    for f in "$1" "$2"; do
        sed -n 's/.*"event": "step".*"loss": \([^,]*\).*/\1/p; s/.*"test_loss": \([^,]*\).*"weights.*/\1/p' "$TMP/$f" \
            >"$TMP/$f.loss"
    done
    [ "$(wc -l < "$TMP/$1.loss")" -eq 17 ] && paste "$TMP/$1.loss" "$TMP/$2.loss" |
        awk -v t="$3" '{ d = $1 - $2; if (d < 0) d = -d; if (!(d <= t * $1)) { print "line " NR ": " $0; bad = 1 } }
            END { exit bad }'
}

case $EMU in
*build-thread*) # sixty times slower: one run alone
    t "a run on the emulated GPU has no data race" train threads -o train.epochs=1
    [ "$failed" -eq 0 ]
    exit
    ;;
esac

# --- the same numbers as the CPU device, and as another run
t "a run on the CPU device to compare with" train cpu-f32 --device cpu
t "and one in bf16" train cpu-bf16 --device cpu -o precision=bf16
while read -r precision like tolerance; do
    t "$precision: a run ends with exit 0" train "$precision" -o precision="$precision"
    t "$precision: its losses are the CPU device's in $like, to $tolerance" curve "$precision" "cpu-$like" "$tolerance"
    function again ()
    {
        train again -o precision="$precision" -o loader.readers=1 && same weights_sha256 "$TMP/$precision" "$TMP/again"
    }
    t "$precision: the same seed gives the same weights again" again
done <<TABLE
f32 f32 0.0001
bf16 bf16 0.02
f16 f32 0.01
TABLE
unfused() { NNPIPE_EMU_FUSE=0 train unfused && curve unfused cpu-f32 0.0001; }
t "also if cuDNN fuses nothing" unfused
summed() { train summed -o train.deterministic=false && curve summed cpu-f32 0.001; }
t "also if engines may add in any order" summed

# --- the streams' order
orders() {
    for seed in $(seq 2 $((seeds + 1))); do
        for precision in f32 f16; do
            NNPIPE_EMU_SEED=$seed train order -o precision=$precision &&
                same weights_sha256 "$TMP/$precision" "$TMP/order" || {
                    echo "seed $seed, $precision"
                    return 1
                }
        done
    done
}
t "$seeds orders of the streams give the same weights" orders
missed() { # a missing wait would be found
    for seed in $(seq 24); do
        NNPIPE_EMU_DROP=5 NNPIPE_EMU_SEED=$seed train missed || return 1
        same weights_sha256 "$TMP/f32" "$TMP/missed" || return 0
    done
    return 1
}
t "an omitted wait for an event gives other weights in some order" missed

# --- stopped and resumed
resumed() { # resumed NAME ARGS...: with another order of streams, and without the cache of engines
    name=$1
    shift
    set -- -o train.epochs=6 -o checkpoint.every=never "$@"
    train "whole-$name" "$@" || return 1
    "$NNPIPE" train "$TMP/net.yaml" --json -o runs="$TMP/runs-half-$name" "$@" >"$TMP/half-$name" 2>/dev/null &
    pid=$!
    for i in $(tries 400); do
        [ "$(grep -c '"event": "step"' "$TMP/half-$name")" -ge 9 ] && break
        sleep 0.02
    done
    kill -TERM $pid
    wait $pid
    code=$?
    [ $code -eq 75 ] || { echo "exit $code, not 75"; return 1; }
    rm -rf "$XDG_CACHE_HOME"
    NNPIPE_EMU_SEED=99 train "half-$name" --resume "$@" || return 1
    [ "$(field step "$TMP/half-$name")" -eq 48 ] && same weights_sha256 "$TMP/whole-$name" "$TMP/half-$name"
}
t "f32: stopped with 75 and resumed gives the weights of one run" resumed f32
falls() { # pixels so large that gradients overflow: the loss's scale falls
    resumed f16 -o precision=f16 -o optimizer.sgd.lr=0.0001 -o \
        'loader.normalize={mean: [0.5, 0.5, 0.5], std: [0.005, 0.005, 0.005]}' \
        -o 'model=[{conv: {out: 16, kernel: 3}}, {block: {name: more, use: basic}}, global_avgpool,
            {linear: {out: classes}}]' || return 1
    grep -rqa 'scaler 8192 ' "$TMP/runs-half-f16" || { grep -rhoa 'scaler [0-9]* ' "$TMP/runs-half-f16"; return 1; }
}
t "f16: the same with a loss scale that has fallen" falls

# --- eval
evals() {
    run=$(field run_dir "$TMP/f32")
    for device in cuda:0 cpu; do
        "$NNPIPE" eval "$TMP/net.yaml" --weights "$run" --device $device --json --html "$TMP/$device.html" \
            --predictions "$TMP/$device.csv" >"$TMP/eval-$device" 2>"$TMP/eval.err" \
            || {
                cat "$TMP/eval.err"
                return 1
            }
    done
    same accuracy "$TMP/eval-cuda:0" "$TMP/eval-cpu" && close "$(field loss "$TMP/eval-cuda:0")" \
        "$(field loss "$TMP/eval-cpu")" 0.00001 &&
        close "$(field loss "$TMP/eval-cuda:0")" "$(field test_loss "$TMP/f32")" 0.00001 # engines may be others
}
t "eval of its checkpoint gives the run's numbers, on this device and on the CPU" evals
# class and rank of each image, and its loss to 1e-4; the page has the worst images' pixels, which it reads again
answers() {
    paste -d , "$TMP/cuda:0.csv" "$TMP/cpu.csv" | awk -F , 'NR > 1 { d = $7 - $14; n++
        bad += $1 != $8 || $2 != $9 || $3 != $10 || $6 != $13 || d > 1e-4 || d < -1e-4 }
        END { exit !(n == 40 && !bad) }' &&
        [ "$(grep -o 'data:image/png;base64,[^"]*' "$TMP/cuda:0.html" | sort)" = \
        "$(grep -o 'data:image/png;base64,[^"]*' "$TMP/cpu.html" | sort)" ]
}
t "with the same answer for each image, and the same worst images on its page" answers

# --- memory
full() { # full BYTES TEXT: ends with 1 and these words
    NNPIPE_EMU_MEMORY=$1 exits 1 "$NNPIPE" train "$TMP/net.yaml" -o runs="$TMP/runs-full" -o loader.batch=64 \
        >"$TMP/full.txt" 2>&1 && grep -q -- "$2" "$TMP/full.txt" || {
            tail -n 1 "$TMP/full.txt"
            return 1
        }
}
fitting() { # 32 MiB of workspace, and half of what a batch of 64 wants
    need="a batch of 64 takes 0.00. GB and 0.034 GB of workspace"
    full 35000000 "$need, and 0.035 of its 0.035 GB are free beside the weights; loader.batch: [0-9]* would fit" ||
        return 1
    batch=$(sed -n 's/.*loader.batch: \([0-9]*\) would fit.*/\1/p' "$TMP/full.txt")
    [ "$batch" -gt 8 ] && [ "$batch" -lt 64 ] && NNPIPE_EMU_MEMORY=35000000 train fits -o loader.batch="$batch"
}
t "too little memory ends with 1 and the needed bytes, and the batch that it names fits" fitting
t "no batch fits if the workspace does not" full 30000000 "not even a batch of 1 fits"
t "a model too large is distinguished from a batch too large" full 20000 "parameters with gradients and momentum take"
steady() { NNPIPE_EMU_STEADY=1 train steady "$@"; }
t "nothing is allocated after the first steps" steady
t "nor with AdamW and gradients of two batches" steady -o 'optimizer={adamw: {lr: 0.01}}' -o train.accumulate=2
t "nor is pageable memory copied with the pictures cached on the GPU" steady -o loader.cache=device
allocates() {
    NNPIPE_EMU_STEADY=1 "$NNPIPE" selftest --device cuda:0 --precision f32 --only "batchnorm, relu"
    [ $? -ge 128 ]
}
t "an allocation would be found: the self-test does allocate" allocates

# --- each call that can fail: some 3500 in a short run
breaks() {
    for i in $(seq "$fails"); do
        n=$(((i * 7919) % 3500 + 1))
        ASAN_OPTIONS=exitcode=99 NNPIPE_EMU_FAIL=$n train broken -o train.epochs=1 >"$TMP/broken.txt"
        code=$?
        case $code in 0) continue ;; 1 | 74) grep -q "nnpipe: ." "$TMP/broken.err" && continue ;; esac
        echo "call $n: exit $code: $(cat "$TMP/broken.txt")"
        return 1
    done
}
t "$fails calls of CUDA, cuDNN and cuBLASLt, each failing once, end a run with a message or do not end it" breaks

# --- the self-test, on small networks of each kind
small() {
    for network in "conv 3x3 with bias" "conv 3x3 groups 4" "conv, relu, conv" "batchnorm, add, relu" silu \
        "maxpool 3x3 stride 2" "linear, relu" "dropout" "concat of" "cross-entropy, both" "residual block, stride 2" \
        "groupnorm odd" encoder \
        ${WHOLE:+"conv, relu" "batchnorm, add" "maxpool 3x3" "residual block"}; do
        "$NNPIPE" selftest --device cuda:0 --only "$network" --seed 11 --json >"$TMP/self.txt" 2>&1 || {
            grep -v '"ok": true' "$TMP/self.txt" | tail -n 3
            return 1
        }
    done
}
t "the self-test passes" small
[ "$failed" -eq 0 ]
