# Every convolution of the shipped networks is put before cuDNN itself, for GPUs that are only described
# (tests/cuda/gpus), with a driver that loads kernels into nothing: no GPU is needed. A sample,
# without the networks that take as long as these together; ALL=1 for every GPU, precision and network,
# ALL=h200 for one GPU.
. "$(dirname "$0")/../lib.sh"
PLANS=$NNPIPE_BUILD/tests/cuda/plans
if [ ! -x "$PLANS" ]; then
    skip "cuDNN's plans for the shipped networks" "nvcc or cuDNN is not here, or a sanitizer is"
    exit 0
fi
cd "$ROOT" || exit 1

# nets: CONFIG HEIGHT CHANNELS CLASSES BATCH
nets() {
    cat <<N
resnet50 224 3 1000 256
resnet18 224 3 1000 256
alexnet 224 3 1000 128
cifar10 32 3 10 512
resnet20 32 3 10 128
cnn 32 3 8 128
mnist 28 1 10 128
vgg16 224 3 1000 64
squeezenet 224 3 1000 128
mobilenet_v2 224 3 1000 128
efficientnet_b0 224 3 1000 128
convnext_tiny 224 3 1000 128
vit_tiny 224 3 1000 256
airbench94 32 3 10 1024
resnet18_imagenet16 160 3 1000 1024
N
}
# planned GPU PRECISION CONFIG SIZES... [free], of a shipped network or a file: cuDNN has plans for all of it
planned() {
    config=$3
    # shellcheck disable=SC2086 # sizes are words
    [ -e "$config" ] || config=configs/$3.yaml
    LD_LIBRARY_PATH=$NNPIPE_BUILD/tests/cuda/stub:${LD_LIBRARY_PATH:-} "$PLANS" "tests/cuda/gpus/$1.json" "$2" \
        "$config" $4 $5 $6 $7 ${8:-} >"$OUT" 2>&1 || {
        tail -n 2 "$OUT"
        return 1
    }
    sed "s/^/# $1 /" "$OUT" >>"$TMP/table"
}
sample() {
    gpus="h200 a100 rtx4090 h100 b200"
    for gpu in $(case ${ALL:-h200} in 1) echo "$gpus" ;; *) echo "${ALL:-h200}" ;; esac); do
        for precision in bf16 f16 f32; do
            nets | while read -r sizes; do
                case ${ALL:+all}-$precision-$sizes in
                all-* | -*-cifar10* | -bf16-resnet[25]0* | -bf16-cnn* | -bf16-mnist*)
                    echo "$gpu $precision $sizes"
                    ;;
                esac
            done
        done
    done
}
sample >"$TMP/sample"
while read -r gpu precision sizes; do
    # shellcheck disable=SC2086
    t "cuDNN plans all of ${sizes%% *} in $precision for $gpu" planned $gpu $precision $sizes
done <"$TMP/sample"
# summed GPU PRECISION CONFIG SIZES...: not deterministic, each batchnorm has its sums from a convolution
# (none of a depthwise one has)
summed() {
    planned "$@" free || return 1
    grep -q ' own bn_stats of sums [0-9]' "$OUT" && ! grep ' own bn_stats [0-9]' "$OUT"
}
free_sample() {
    echo "h200 bf16 $(nets | grep '^cnn')"
    [ -n "${ALL:-}" ] || return
    for precision in bf16 f16; do
        nets | grep -e resnet -e cifar10 -e cnn -e airbench94 | sed "s/^/h200 $precision /"
    done
    for gpu in a100 rtx4090 h100 b200; do echo "$gpu bf16 $(nets | grep '^resnet18')"; done
}
free_sample | sort -u >"$TMP/free"
while read -r gpu precision sizes; do
    # shellcheck disable=SC2086
    t "cuDNN sums the channels for each batchnorm of ${sizes%% *} in $precision for $gpu" summed $gpu $precision $sizes
done <"$TMP/free"
# Engines that add a bias and relu are compiled for seconds each: the sample has them in mnist alone.
upward=tests/cuda/upward.yaml
[ -n "${ALL:-}" ] || {
    upward=$TMP/upward.yaml
    sed 's/relu/silu/; s/3, pad: 1}/3, pad: 1, bias: false}/' tests/cuda/upward.yaml >"$upward"
}
for precision in ${ALL:+bf16} f16 f32; do
    t "cuDNN plans transposed convolutions in $precision" planned h200 $precision "$upward" 32 3 10 16
done
t "cuDNN plans all of resnet20 in f32 with TF32 allowed" planned h200 f32 resnet20 32 3 10 128 tf32
cat "$TMP/table"
