# The CUDA device over the emulated runtime, under address and undefined sanitizers: see device.c.
. "$(dirname "$0")/../lib.sh"
cd "$ROOT" || exit 1
EMU=${EMU_ROOT:-.}
toolkit=$(dirname "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")/../include
[ -e "$EMU/tests/emu/cudart.c" ] || {
    skip "the CUDA device over the emulated runtime" "there is no emulated runtime"
    exit 0
}
headers=$(sh scripts/find_cudnn.sh) || { skip "the CUDA device over the emulated runtime" "no cuDNN headers"; exit 0; }

# Libraries that have every function, and do nothing: opening wants no more.
library() { # library FILE VERSION_FUNCTION VERSION PREFIX
    {
        echo "unsigned long $2(void); unsigned long $2(void) { return $3; }"
        grep -o "\"$4[A-Z][A-Za-z]*\"" trainer/cuda/libs.c | tr -d '"' | sort -u | grep -v -e "$2" -e Cudart |
            sed 's/.*/int &(void **out); int &(void **out) { (void)out; return 0; }/'
    } >"$TMP/library.c"
    gcc -shared -fPIC -w -o "$TMP/libs/$1" "$TMP/library.c"
}
mkdir "$TMP/libs"
library libcudnn.so.9 cudnnGetVersion 91900 cudnn
library libcublasLt.so.13 cublasLtGetVersion 130100 cublasLt
flags="-g -O1 -pthread -fsanitize=address,undefined -fno-sanitize-recover=undefined"
flags="$flags -I. -I$EMU -isystem $headers -isystem $toolkit"
# shellcheck disable=SC2086 # words are flags
{
g++ -std=c++17 $flags -c -o "$TMP/grid.o" tests/emu/grid.cc &&
    g++ -std=c++17 -ffp-contract=off $flags -x c++ -c -o "$TMP/rows.o" trainer/cuda/kernels_rows.cu &&
    g++ -std=c++17 $flags -x c++ -c -o "$TMP/planted.o" tests/cuda/planted.cu &&
    gcc -std=c11 -D_GNU_SOURCE $flags -o "$TMP/device" tests/cuda/device.c "$TMP/grid.o" "$TMP/rows.o" \
    "$TMP/planted.o" \
    trainer/cuda/device_cuda.c trainer/cuda/clock_cuda.c trainer/cuda/pinned_cuda.c trainer/cuda/gpu_cuda.c \
    trainer/cuda/libs.c trainer/cuda/doctor_cuda.c "$EMU"/tests/emu/cudart*.c "$EMU"/tests/emu/traffic.c \
    loader/base/err.c loader/base/mem.c loader/base/clock.c loader/base/text.c -lstdc++ -ldl -lm || exit 1
}
for seed in $(seq "${NNPIPE_SEEDS:-1}"); do
    NNPIPE_EMU_SEED=$seed NNPIPE_CUDA_LIBS=$TMP/libs NNPIPE_CUDA_LIBS_ONLY=1 timeout 300 "$TMP/device" \
        >"$TMP/$seed.txt" 2>&1 ||
        not_ok "the CUDA device, seed $seed" \
        "$(grep -v -e "^ok" -e "NNPIPE_EMU_FAIL says" "$TMP/$seed.txt" | head -n 8 | tr '\n' ' ')"
done
grep '^ok' "$TMP/1.txt"
[ "$failed" -eq 0 ]
