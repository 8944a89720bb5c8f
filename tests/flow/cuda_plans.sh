# cuDNN's plans over the emulated runtime: steps that cannot be captured as a graph, which engine is taken
# and found again, and how many plans are built.
. "$(dirname "$0")/../lib.sh"
case $EMU in *build-thread*) thread=1 ;; *) thread= ;; esac
if [ ! -e "$EMU/libnnpipe-cuda.so" ] || [ -n "$thread" ]; then
    skip "cuDNN's plans over the emulated runtime" \
        "${thread:+sixty times slower here}${thread:-this build has no headers of CUDA and cuDNN}"
    exit 0
fi
NNPIPE=$EMU/nnpipe # the plugin is beside it
export NNPIPE_CUDA_LIBS="$EMU" NNPIPE_CUDA_LIBS_ONLY=1
CACHE=$XDG_CACHE_HOME/nnpipe/engines-Emulated_H200-91900.txt

# Four convolutions of one shape.
cat >"$TMP/net.yaml" <<Y
name: net
seed: 3
device: cuda:0
precision: f32
data: {train: {source: synth, samples: 32, size: 8}, test: {source: synth, samples: 16, size: 8, seed: 9}}
loader: {batch: 8, readers: 1}
model:
  - conv: {name: stem, out: 8, kernel: 3, pad: 1, bias: false}
  - batchnorm
  - relu
  - block: {name: one, use: basic}
  - block: {name: two, use: basic}
  - global_avgpool
  - linear: {out: classes}
blocks:
  basic:
    - conv: {out: 8, kernel: 3, pad: 1, bias: false}
    - batchnorm
    - relu
    - conv: {out: 8, kernel: 3, pad: 1, bias: false}
    - batchnorm: {name: bn}
    - add: [bn, input]
    - relu
optimizer: {sgd: {lr: 0.05, momentum: 0.9}}
train: {epochs: 2, threads: 1}
checkpoint: {every: 4 steps, keep: 9}
Y
# train OUT ARGS...: a run below its own folder, what it said in $TMP/OUT
train() {
    out=$1
    shift
    "$NNPIPE" train "$TMP/net.yaml" -o runs="$TMP/runs-$out" "$@" >"$TMP/$out" 2>&1 || {
        code=$?
        tail -n 2 "$TMP/$out"
        return $code
    }
}
weights() { sed -n 's/.*, weights \([0-9a-f]*\),.*/\1/p' "$TMP/$1"; }
same() {
    [ -n "$(weights "$1")" ] && [ "$(weights "$1")" = "$(weights "$2")" ] || {
        echo "weights $(weights "$1") and $(weights "$2")"
        return 1
    }
}
said() { [ "$(grep -c -- "$2" "$TMP/$1")" -eq "${3:-1}" ] || { cat "$TMP/$1"; return 1; }; }

t "a run to compare with" train first

# --- capture
quiet() { ! grep 'CUDA graph' "$TMP/first"; }
t "each kind of step has run once before it is captured" quiet
refused() {
    NNPIPE_EMU_NO_CAPTURE="4 5" train refused && same first refused && said refused 'CUDA graph' &&
        said refused '^stem: cannot be captured in a CUDA graph: cuDNN refuses to run a plan: ' &&
        said refused '; steps are queued call by call'
}
t "an engine that refuses capture is named once, and the run ends with the same weights" refused
silent() {
    NNPIPE_EMU_NO_CAPTURE="4=1 5=1" train silent && same first silent &&
        said silent '^stem: cannot be captured in a CUDA graph'
}
t "also if the capture breaks without an error" silent
ungraphed() {
    NNPIPE_EMU_NO_CAPTURE="4 5" NNPIPE_CUDA_GRAPH=0 train ungraphed && same first ungraphed &&
        said ungraphed 'CUDA graph' 0
}
t "NNPIPE_CUDA_GRAPH=0 captures nothing" ungraphed

# --- which plans are built: five shapes (two forward, two weight gradients, one input gradient), two plans
# each, for nineteen convolutions of training and evaluation
builds() { # builds NAME N ARGS...: a run that builds so many plans, one of each shape counted once
    name=$1 n=$2
    shift 2
    rm -f "$TMP/builds"
    NNPIPE_EMU_BUILDS=$TMP/builds train "$name" "$@" || return 1
    [ "$(wc -l <"$TMP/builds")" -eq "$n" ] || { echo "$(wc -l <"$TMP/builds") plans built, not $n"; return 1; }
}
cp "$CACHE" "$TMP/cache.txt"
cold() { rm "$CACHE" && builds cold 10 && [ "$(grep -c '^plan ' "$CACHE")" -eq 5 ]; }
t "a first run builds each shape's plans once" cold
warm() { builds warm 5 && same cold warm; }
t "a later run builds only the chosen ones" warm
interrupted() { # interrupted NAME: the run as it was at step 4
    run=$(echo "$TMP/runs-$1"/*)
    rm -rf "$run/checkpoints/step-8" "$run/result.json"
}
again() { # again NAME: resumes it, without the cache
    rm -rf "$XDG_CACHE_HOME"
    "$NNPIPE" train --resume "$(echo "$TMP/runs-$1"/*)" >"$TMP/$1" 2>&1 || { tail -n 2 "$TMP/$1"; return 1; }
}
resumed() {
    interrupted warm && rm -f "$TMP/builds" && NNPIPE_EMU_BUILDS=$TMP/builds again warm && same cold warm &&
        [ "$(wc -l <"$TMP/builds")" -eq 5 ] && said warm 'engine' 0
}
t "so does a resumed run, from its checkpoint" resumed

# --- the same engine again: all take the second of two, which differ in a knob
choose() { mkdir -p "${CACHE%/*}" && sed "s/ [^ ]* \([^ ]*\)\$/ $1 \1/" "$TMP/cache.txt" >"$CACHE"; }
other() { choose 40:2=0 && train other && choose 40:2=1 && train second && ! same other second; }
t "another plan gives other weights" other
shifted() { NNPIPE_EMU_SHIFT=5 train shifted && same second shifted; }
t "a choice is found again among offers in another order" shifted
left_out() { NNPIPE_EMU_NO_BUILD=4 train left && same second left && said left 'engine' 0; }
t "and if an offer before it does not build" left_out
gone() {
    NNPIPE_EMU_NO_BUILD=5 train gone && same other gone &&
        said gone '^stem: cuDNN no longer offers the engine 40:2=1 of the cache (5 of its convolutions): timed anew' &&
        ! grep -q 40:2=1 "$CACHE"
}
t "a choice that no longer builds is reported, and timed again" gone
resumes() {
    interrupted second && NNPIPE_EMU_SHIFT=5 again second && same shifted second && said second 'engine' 0 &&
        interrupted second && NNPIPE_EMU_NO_BUILD=5 again second &&
        said second '^stem: cuDNN no longer offers the engine 40:2=1 of the checkpoint (5 of its convolutions): ' &&
        said second 'chosen anew, and weights may round differently'
}
t "the same for a choice of a checkpoint" resumes
older() {
    choose 40:2=1 && sed -i 's/^plan \([^ ]*\) .*/engine \1 1/' "$CACHE" && train older && ! grep -q ^engine "$CACHE" &&
        said older 'the cache of engines is of an older version, which did not name engines: they are timed anew'
}
t "choices of an older version are reported, and made again" older
many() { # 5000 that other networks left
    mkdir -p "${CACHE%/*}" && seq 5000 | sed 's/.*/plan other_& 7:1=1 0.5/' >"$CACHE" && train many &&
        [ "$(wc -l < "$CACHE")" -eq 4096 ] && [ "$(grep -c conv_ "$CACHE")" -eq 5 ] || {
            wc -l "$CACHE"
            return 1
        }
    grep -q 'plan conv_' "$TMP/runs-many"/*/checkpoints/step-8/manifest.json &&
        ! grep -q 'plan other_' "$TMP/runs-many"/*/checkpoints/step-8/manifest.json || {
            echo "a checkpoint has others' choices"
            return 1
        }
}
t "a full cache drops its oldest choices, and a checkpoint has only those of its network" many

# --- timing, in the emulation's modelled clock: only the device's time counts
chosen() { # chosen ID VAR=VALUE...: by a run without a cache, for all shapes
    id=$1
    shift
    rm -f "$CACHE"
    rechosen "$id" "$@"
}
rechosen() {
    id=$1
    shift
    (export NNPIPE_EMU_CLOCK=1 && for v in "$@"; do export "${v?}"; done && train chosen -o train.epochs=1) || return 1
    [ "$(cut -d' ' -f3 "$CACHE" | sort -u)" = "$id" ] || { cat "$CACHE"; return 1; }
}
t "the faster engine is taken, however long the host takes to queue it" chosen 40:2=1 \
    NNPIPE_EMU_DEVICE_US="4=100 5=50" NNPIPE_EMU_HOST_US="5=900"
has_time() { [ "$(cut -d' ' -f4 "$CACHE" | sort -u)" = 0.0505 ] || { cat "$CACHE"; return 1; }; }
t "its time is kept" has_time
t "only NNPIPE_CUDA_RETUNE chooses again" rechosen 40:2=1 NNPIPE_EMU_DEVICE_US="4=200 5=1000"
t "and times again" rechosen 40:2=0 NNPIPE_EMU_DEVICE_US="4=200 5=1000" NNPIPE_CUDA_RETUNE=1
t "cuDNN's first choice stays if another is faster by 2 %" chosen 40:2=0 NNPIPE_EMU_DEVICE_US="4=2000 5=1960"
t "and is replaced if another is faster by 4 %" chosen 40:2=1 NNPIPE_EMU_DEVICE_US="4=2000 5=1920"
t "an engine that cannot be captured is skipped" chosen 40:2=1 NNPIPE_EMU_DEVICE_US="4=200 5=1000" \
    NNPIPE_EMU_NO_CAPTURE=4
t "and taken if there is no other" chosen 40:2=0 NNPIPE_EMU_DEVICE_US="4=200 5=1000" NNPIPE_EMU_NO_CAPTURE="4 5"
t "and if nothing is captured" chosen 40:2=0 NNPIPE_EMU_DEVICE_US="4=200 5=1000" NNPIPE_EMU_NO_CAPTURE="4" \
    NNPIPE_CUDA_GRAPH=0

# --- workspace: 32 MiB are the linear layer's
t "a plan that needs a twentieth of the memory is left out" chosen 40:2=1 NNPIPE_EMU_DEVICE_US="4=200 5=1000" \
    NNPIPE_EMU_MEMORY=100000000 NNPIPE_EMU_WORKSPACE="4=5000001"
t "but not if the others need more" chosen 40:2=0 NNPIPE_EMU_DEVICE_US="4=1000 5=200" NNPIPE_EMU_MEMORY=100000000 \
    NNPIPE_EMU_WORKSPACE="4=5000001 5=5000002"
given_back() { # 60 MB that are wanted by the slower plans
    chosen 40:2=1 NNPIPE_EMU_DEVICE_US="4=1000 5=200" NNPIPE_EMU_WORKSPACE="4=60000000" NNPIPE_EMU_BYTES="$TMP/bytes" &&
        [ "$(cat "$TMP/bytes")" -lt 40000000 ] &&
        chosen 40:2=0 NNPIPE_EMU_DEVICE_US="4=200 5=1000" NNPIPE_EMU_WORKSPACE="4=60000000" \
            NNPIPE_EMU_BYTES="$TMP/bytes" && [ "$(cat "$TMP/bytes")" -gt 60000000 ] || {
                cat "$TMP/bytes"
                return 1
            }
}
t "the workspace is as large as the chosen plans need" given_back
[ "$failed" -eq 0 ]
