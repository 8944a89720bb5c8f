# cuDNN's plans over the emulated runtime: steps that cannot be captured as a graph, which engine is taken
# and found again, and how many plans are built.
. "$(dirname "$0")/../lib.sh"
EMU=${NNPIPE_BUILD:-$ROOT/build}/tests/emu
case $EMU in *build-thread*) thread=1 ;; *) thread= ;; esac
if [ ! -e "$EMU/libnnpipe-cuda.so" ] || [ -n "$thread" ]; then
    skip "cuDNN's plans over the emulated runtime" "${thread:+sixty times slower here}${thread:-this build has no headers of CUDA and cuDNN}"
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
    "$NNPIPE" train "$TMP/net.yaml" -o runs="$TMP/runs-$out" "$@" >"$TMP/$out" 2>&1 || { code=$?; tail -n 2 "$TMP/$out"; return $code; }
}
weights() { sed -n 's/.*, weights \([0-9a-f]*\),.*/\1/p' "$TMP/$1"; }
same() { [ -n "$(weights "$1")" ] && [ "$(weights "$1")" = "$(weights "$2")" ] || { echo "weights $(weights "$1") and $(weights "$2")"; return 1; }; }
said() { [ "$(grep -c -- "$2" "$TMP/$1")" -eq "${3:-1}" ] || { cat "$TMP/$1"; return 1; }; }

t "a run to compare with" train first

# --- capture
quiet() { ! grep 'CUDA graph' "$TMP/first"; }
t "each kind of step has run once before it is captured" quiet
refused() {
    NNPIPE_EMU_NO_CAPTURE="4 5" train refused && same first refused && said refused 'CUDA graph' &&
        said refused '^stem: cannot be captured in a CUDA graph: cuDNN refuses to run a plan: .*; steps are queued call by call'
}
t "an engine that refuses capture is named once, and the run ends with the same weights" refused
silent() { NNPIPE_EMU_NO_CAPTURE="4=1 5=1" train silent && same first silent && said silent '^stem: cannot be captured in a CUDA graph'; }
t "so it is where the capture breaks without an error" silent
ungraphed() { NNPIPE_EMU_NO_CAPTURE="4 5" NNPIPE_CUDA_GRAPH=0 train ungraphed && same first ungraphed && said ungraphed 'CUDA graph' 0; }
t "NNPIPE_CUDA_GRAPH=0 captures nothing" ungraphed
[ "$failed" -eq 0 ]
