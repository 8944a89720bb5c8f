# libnnpipe's batches on a GPU over the emulated runtime: see lib_cuda.c. SEEDS orders of the streams (3).
. "$(dirname "$0")/../lib.sh"
cd "$ROOT" || exit 1
BUILD=${NNPIPE_BUILD:-$ROOT/build}
EMU=$BUILD/tests/emu
toolkit=$(dirname "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")/../include
if [ ! -e "$EMU/libnnpipe-cuda-rows.so" ]; then
    skip "batches on a GPU over the emulated runtime" "this build has no headers of CUDA"
    exit 0
fi
case $BUILD in
*-address*) san="-fsanitize=address,undefined" ;;
*-thread*) san="-fsanitize=thread" SEEDS=1 ;; # forty times slower
*) san= ;;
esac
mkdir "$TMP/rt" && cp "$EMU/libcudart-emu.so" "$TMP/rt" # alone: the plugin beside it would be found there
# shellcheck disable=SC2086,SC2046 # words are flags
gcc -std=c11 -D_GNU_SOURCE -g -O1 -Wall -Wextra -Wno-unused-parameter -pthread $san -I. -isystem "$toolkit" \
    -o "$TMP/lib_cuda" tests/cuda/lib_cuda.c "$BUILD/libnnpipe.a" "$TMP/rt/libcudart-emu.so" -Wl,-rpath,"$TMP/rt" \
    $(pkg-config --libs liburing libzstd zlib yaml-0.1 libjpeg jansson libxxhash spng) -lm || exit 1
export NNPIPE_CUDA_PLUGIN="$EMU/libnnpipe-cuda-rows.so" TMP_BAD="$TMP"
echo "no picture" >"$TMP/lib_cuda.bad"

for seed in $(seq "${SEEDS:-3}"); do
    NNPIPE_EMU_SEED=$seed timeout 300 "$TMP/lib_cuda" >"$TMP/$seed.txt" 2>&1 ||
        not_ok "batches on a GPU, seed $seed" "$(grep -v -e "^ok" -e "NNPIPE_EMU_FAIL says" "$TMP/$seed.txt" |
            head -n 8 | tr '\n' ' ')"
done
grep '^ok' "$TMP/1.txt"

# Waits are left out one by one, ours for the program and the program's for ours.
dropped() {
    wrong=0
    for n in $(seq 4 27); do
        NNPIPE_EMU_DROP=$n timeout 300 "$TMP/lib_cuda" late >/dev/null 2>&1 || wrong=$((wrong + 1))
    done
    echo "$wrong of 24 are seen"
    [ "$wrong" -ge 1 ]
}
t "with every wait in place the bytes are right" timeout 300 "$TMP/lib_cuda" late
t "a release and nnp_close() while the process exits queue nothing, and end" timeout 300 "$TMP/lib_cuda" exit
t "the test sees a wait that is left out" dropped

# --- opening --------------------------------------------------------------------------------------------
NODEV=$(printf '#include <errno.h>\nENODEV' | gcc -E -P - | tail -n 1)
opens() { NNPIPE_CUDA_PLUGIN=$1 says "$2" "$TMP/lib_cuda" open && grep -q "^-$NODEV " "$TMP/says.txt"; }
t "no GPU is -ENODEV" env NNPIPE_EMU_DEVICES=0 sh -c "'$TMP/lib_cuda' open | grep '^-$NODEV cuda:0: .*no GPU'"
t "a plugin that is not there is named" opens "$TMP/none.so" "there is no $TMP/none.so"
t "without a plugin the message tells how to get it" opens "" "no plugin for CUDA: libnnpipe-cuda-rows.so is neither in"
mkdir "$TMP/lacks" && echo "int lacking;" | gcc -shared -fPIC -x c -Wl,-soname,liblacking.so -o "$TMP/lacking.so" -
echo "extern int lacking; int *use(void) { return &lacking; }" |
    gcc -shared -fPIC -x c -o "$TMP/lacks/libnnpipe-cuda-rows.so" - -x none "$TMP/lacking.so"
LACKS='libnnpipe-cuda-rows.so does not load: liblacking.so: cannot open'
t "a library that a plugin on the library path needs is named" \
    env LD_LIBRARY_PATH="$TMP/lacks" NNPIPE_CUDA_PLUGIN= sh -c "'$TMP/lib_cuda' open | grep '^-$NODEV .*$LACKS'"
echo "int nothing;" | gcc -shared -fPIC -x c -o "$TMP/library.so" -
t "another library is no plugin" opens "$TMP/library.so" "is not libnnpipe's plugin"
echo "damaged" >"$TMP/damaged.so"
t "a damaged plugin is named" opens "$TMP/damaged.so" "damaged.so does not load"
cat >"$TMP/other.c" <<'C'
#include "loader/rows_gpu.h"
const struct np_rows_plugin *np_plugin_rows(void);
static const struct np_rows_plugin plugin = {.contract = "another", .build = "0123"};
const struct np_rows_plugin *np_plugin_rows(void) { return &plugin; }
C
gcc -shared -fPIC -I. -o "$TMP/other.so" "$TMP/other.c"
t "a plugin of another build is refused" opens "$TMP/other.so" "is from another build (0123;"
if [ -e libnnpipe-cuda-rows.so ] && ! ldconfig -p | grep -q 'libcuda\.so\.1'; then
    t "without a driver the message says what to install" opens ./libnnpipe-cuda-rows.so "install NVIDIA's driver"
    links_no_cuda() { ! objdump -p libnnpipe.so.1 libnnpipe-cuda-rows.so | grep NEEDED | grep -i -e cuda -e cudnn; }
    t "neither libnnpipe nor its plugin links a library of CUDA" links_no_cuda
else
    skip "without a driver the message says what to install" "there is a driver, or no plugin was built"
fi
[ "$failed" -eq 0 ]
