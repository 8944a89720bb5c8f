# What flow/gpus.sh and flow/gpus_campaign.sh share; they source it behind lib.sh: four emulated GPUs and runs of one
# network on them.

# four_gpus SENTENCE: from now on $NNPIPE has four emulated GPUs, and $TMP/net.yaml is a network for 96 pictures in
# batches of 16, to which a test adds its own keys. Fails, and skips SENTENCE, if they are not built.
four_gpus() {
    use_emulated_gpu "$1" || return 1
    export NNPIPE_EMU_DEVICES=4 TMPDIR="$TMP"
    cat >"$TMP/net.yaml" <<'Y'
name: net
seed: 3
device: cuda
data: {train: {source: synth, samples: 96, size: 8}, test: {source: synth, samples: 16, size: 8, seed: 9}}
loader: {batch: 16, readers: 1, augment: [flip]}
model:
  - conv: {out: 8, kernel: 3, pad: 1, bias: false}
  - batchnorm
  - relu
  - conv: {out: 8, kernel: 3, pad: 1}
  - relu
  - dropout: {rate: 0.1}
  - global_avgpool
  - linear: {out: classes}
optimizer: {sgd: {lr: 0.05, momentum: 0.9}}
Y
}
RUN_LIMIT="300" # arguments of timeout
# run NAME FLAG...: trains in the folder $TMP/NAME; its JSON in NAME.json, its messages in NAME.err
run() {
    name=$1
    shift
    # shellcheck disable=SC2086 # words
    timeout $RUN_LIMIT "$NNPIPE" train "$TMP/net.yaml" -o "runs=$TMP/$name" --json "$@" \
        >"$TMP/$name.json" 2>"$TMP/$name.err"
}
# For six lanes of four rows: three GPUs
six="-o loader.batch=24 -o train.lanes=6"
