# What the CUDA plugin needs and does not find: no plugin, one of another build, no driver, an old one, no GPU, a
# missing GPU, libraries that are missing, of another version or damaged. Each has its own message and exit
# code, and comes at once.
. "$(dirname "$0")/../lib.sh"
cd "$ROOT" || exit 1
BUILD=${NNPIPE_BUILD:-$ROOT/build}
CONFIG=configs/cnn.yaml
AT_ONCE_S=30 # a search for libraries that hangs takes longer; a busy machine does not
unset NNPIPE_CUDA_LIBS NNPIPE_CUDA_LIBS_ONLY CUDA_VISIBLE_DEVICES LD_LIBRARY_PATH

folder() { # folder NAME [PLUGIN] -> $TMP/NAME with the program and this plugin beside it
    mkdir -p "$TMP/$1" && cp "$NNPIPE" "$TMP/$1/nnpipe" && { [ -z "${2:-}" ] || cp "$2" "$TMP/$1/libnnpipe-cuda.so"; }
}
fails() { # fails NAME TEXT [VAR=VALUE...]: train on cuda:$GPU ends at once with exit 1 and these words
    name=$1 text=$2
    shift 2
    env "$@" timeout "$AT_ONCE_S" "$TMP/$name/nnpipe" train "$CONFIG" --device "cuda:${GPU:-0}" -o "runs=$TMP/runs" \
        >"$TMP/said.txt" 2>&1
    code=$?
    [ $code -eq 1 ] && grep -qF -- "$text" "$TMP/said.txt" && return
    echo "exit $code: $(tail -n 2 "$TMP/said.txt")"
    return 1
}
lists() { # lists NAME TEXT [VAR=VALUE...]: devices ends at once with exit 0, and its line of cuda:0 has these words
    name=$1 text=$2
    shift 2
    env "$@" timeout "$AT_ONCE_S" "$TMP/$name/nnpipe" devices --json >"$TMP/said.txt" 2>&1 || {
        echo "exit $?"
        return 1
    }
    grep '"name": "cuda:0"' "$TMP/said.txt" | grep -qF -- "$text" || { tail -n 1 "$TMP/said.txt"; return 1; }
}
nothing_written() { [ ! -e "$TMP/runs" ]; }

# --- the plugin itself
folder bare
t "without the plugin the message tells how to get it" fails bare "no CUDA plugin: libnnpipe-cuda.so is neither in"
t "devices prints it too" lists bare "no CUDA plugin"
plugin() { # plugin NAME VERSION CONTRACT: a program with a plugin of this version and contract
    cat >"$TMP/p.c" <<C
#include "trainer/device.h"
static const struct np_plugin p = {.version = $2, .contract = "$3", .build = "0123abcd"};
const struct np_plugin *np_plugin_cuda(void);
const struct np_plugin *np_plugin_cuda(void) { return &p; }
C
    gcc -I. -fPIC -shared -o "$TMP/p.so" "$TMP/p.c" && folder "$1" "$TMP/p.so"
}
plugin old "NP_PLUGIN_VERSION - 1" none
t "a plugin of another version is refused with both numbers" fails old "has plugin version"
plugin other NP_PLUGIN_VERSION none
t "a plugin from another build is refused with its commit" fails other "is from another build (0123abcd;"
echo "no library" >"$TMP/text.so"
folder damaged "$TMP/text.so"
t "a damaged plugin is named" fails damaged "libnnpipe-cuda.so does not load"

# --- auto takes the CPU: with a word where there seems to be a GPU, without one elsewhere
mkdir "$TMP/driver" && gcc -shared -fPIC -o "$TMP/driver/libcuda.so.1" tests/emu/stub_driver.c
cat >"$TMP/small.yaml" <<Y
data: {train: {source: synth, samples: 16, size: 8}}
loader: {batch: 8, readers: 1}
model: [{conv: {out: 4, kernel: 3}}, relu, global_avgpool, {linear: {out: classes}}]
optimizer: {sgd: {lr: 0.1}}
train: {steps: 2, threads: 1}
Y
# auto_run NAME [VAR=VALUE...]: a run of `auto` on the CPU; $TMP/auto.json, $TMP/auto.err, its log
auto_run() {
    name=$1
    shift
    rm -rf "$TMP/auto-runs"
    env "$@" "$TMP/$name/nnpipe" train "$TMP/small.yaml" --device auto --json -o "runs=$TMP/auto-runs" \
        >"$TMP/auto.json" 2>"$TMP/auto.err" || {
            cat "$TMP/auto.err"
            return 1
        }
    grep -q '"event": "start".*"device": "cpu"' "$TMP/auto.json"
}
# warns NAME TEXT [VAR=VALUE...]: on the terminal, in the log and in --json
warns() {
    name=$1 text=$2
    shift 2
    auto_run "$name" "$@" || return 1
    for file in "$TMP/auto.err" "$TMP/auto.json" "$TMP"/auto-runs/*/log; do
        grep 'there seems to be an NVIDIA GPU (' "$file" | grep -F -- "$text" | grep -q 'nnpipe devices' || {
            echo "$file: $(grep -a auto "$file" | head -n 1)"
            return 1
        }
    done
    grep -q '"device_reason": "device: auto took the CPU' "$TMP/auto.json"
}
silent() { # silent NAME [VAR=VALUE...]
    auto_run "$@" || return 1
    ! grep -q 'NVIDIA\|device_reason' "$TMP/auto.err" "$TMP/auto.json" "$TMP"/auto-runs/*/log
}
sees="LD_LIBRARY_PATH=$TMP/driver NNPIPE_STUB_GPUS=1"
t "auto gives the reason for the CPU if the driver counts a GPU" warns bare "no CUDA plugin" $sees
t "so does bench step" says "there seems to be an NVIDIA GPU" env $sees "$TMP/bare/nnpipe" bench step \
    "$TMP/small.yaml" --steps 1 --device auto
if [ -e /dev/nvidia0 ] || [ -n "$(ls /proc/driver/nvidia/gpus 2>/dev/null)" ]; then
    skip "auto is silent without a sign of a GPU" "this machine has one"
else
    t "auto is silent without a sign of a GPU" silent bare
    t "auto is silent if a driver counts none" silent bare LD_LIBRARY_PATH="$TMP/driver"
fi

# --- driver and libraries, with the plugin that was built
if [ -e libnnpipe-cuda.so ] && [ "$BUILD" = "$ROOT/build" ]; then
    folder real libnnpipe-cuda.so
    if ldconfig -p | grep -q libcuda.so.1; then
        skip "without a driver the message names what to install" "this machine has one"
    else
        t "without a driver the message names what to install" fails real \
            "cuda:0: no NVIDIA driver: this machine has no libcuda.so.1"
        t "devices prints it too" lists real '"usable": false, "reason": "no NVIDIA driver'
        t "auto takes the CPU then" says '"device": "cpu"' "$TMP/real/nnpipe" bench step "$CONFIG" --steps 1 --device \
            auto --json
    fi
    t "a driver too old is named with both versions" fails real "supports CUDA 12.4, and this plugin needs" \
        LD_LIBRARY_PATH="$TMP/driver" NNPIPE_STUB_CUDA=12040
    t "a driver without a GPU is distinguished from no driver" fails real "the NVIDIA driver sees no GPU" \
        LD_LIBRARY_PATH="$TMP/driver"
    t "hidden GPUs are named as hidden" fails real "CUDA_VISIBLE_DEVICES is '-1'" LD_LIBRARY_PATH="$TMP/driver" \
        CUDA_VISIBLE_DEVICES=-1
    t "the doctor of a missing GPU ends with 1" exits 1 "$TMP/real/nnpipe" doctor --device cuda:0 \
        "$TMP"

    only() { # only FOLDER TEXT: libraries are looked for in this folder alone
        lists real "$2" NNPIPE_CUDA_LIBS="$1" NNPIPE_CUDA_LIBS_ONLY=1
    }
    libs=$(dirname "$(readlink -f "$(ldconfig -p | sed -n 's/.*libcudnn.so.9 .*=> //p' | head -n 1)")")
    [ -e "$libs/libcublasLt.so.13" ] || libs=/usr/local/cuda/lib64
    mkdir "$TMP/none" "$TMP/half" "$TMP/eight" "$TMP/lies" "$TMP/torn" "$TMP/bare_nine"
    for d in half eight lies torn bare_nine; do ln -s "$libs/libcublasLt.so.13" "$TMP/$d/"; done
    t "a missing cuBLASLt is named, with the place and the package" only "$TMP/none" \
        "cuBLASLt is missing: no libcublasLt.so.13 in $TMP/none; install"
    t "a missing cuDNN is named, with the place and the package" only "$TMP/half" \
        "cuDNN is missing: no libcudnn.so.9 in $TMP/half; install"
    : >"$TMP/eight/libcudnn.so.8"
    t "cuDNN 8 in place of 9 is named" only "$TMP/eight" \
        "cuDNN is installed in another version, $TMP/eight/libcudnn.so.8, and libcudnn.so.9 is needed"
    echo 'unsigned long cudnnGetVersion(void) { return 8907; }' >"$TMP/lies.c"
    grep -o '"cudnn[A-Z][A-Za-z]*"' trainer/cuda/libs.c | tr -d '"' | sort -u | grep -v cudnnGetVersion |
        sed 's/.*/void &(void); void &(void) {}/' >>"$TMP/lies.c"
    gcc -shared -fPIC -o "$TMP/lies/libcudnn.so.9" "$TMP/lies.c"
    t "a cuDNN that reports version 8 is refused" only "$TMP/lies" \
        "$TMP/lies/libcudnn.so.9 is version 8.9.7, and 9 is needed"
    echo 'int nothing;' >"$TMP/nine.c"
    gcc -shared -fPIC -o "$TMP/bare_nine/libcudnn.so.9" "$TMP/nine.c"
    t "a library without the functions is refused by name" only "$TMP/bare_nine" "libcudnn.so.9 has no cudnnGetVersion"
    echo torn >"$TMP/torn/libcudnn.so.9"
    t "a damaged library is named" only "$TMP/torn" "$TMP/torn/libcudnn.so.9 does not load"
    t "other missing libraries are named with the driver" only "$TMP/none" "or use device: cpu; cuBLASLt is missing"

    # --- where they lie: as pip lays them out, cuDNN's own parts beside it
    pip=$TMP/home/.local/lib/python3.11/site-packages/nvidia
    mkdir -p "$pip/cudnn/lib" "$pip/cu13/lib"
    ln -s "$libs"/libcudnn*.so.9 "$pip/cudnn/lib/"
    ln -s "$libs"/libcublasLt.so.13 "$libs"/libnvrtc.so.13 "$libs"/libnvrtc-builtins.so.13.* "$pip/cu13/lib/"
    gcc -std=c11 -D_GNU_SOURCE -I. -I"$(dirname "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")/../include" \
        -I"$(sh scripts/find_cudnn.sh)" -o "$TMP/probe" \
        tests/fault/libs_probe.c trainer/cuda/libs.c "$BUILD/libnnpipe.a" -ldl ||
        echo "not ok - the probe builds: see above"
    beside() { # what the probe printed: every library from pip's folders
        grep -q "^cuDNN 9.* $pip/cudnn/lib/libcudnn.so.9$" "$1" &&
            grep -q "^libcudnn_graph.so.9 $pip/cudnn/lib/" "$1" &&
            grep -q "^cuBLASLt 13.* $pip/cu13/lib/" "$1" && grep -q "^NVRTC 13.* $pip/cu13/lib/" "$1" &&
            grep -q "^libnvrtc-builtins.* $pip/cu13/lib/" "$1"
    }
    function named ()
    {
        NNPIPE_CUDA_LIBS=$pip/cudnn/lib:$pip/cu13/lib NNPIPE_CUDA_LIBS_ONLY=1 "$TMP/probe" >"$TMP/named.txt" &&
            beside "$TMP/named.txt" || {
                cat "$TMP/named.txt"
                return 1
            }
    }
    t "libraries of named folders bring their own parts from there" named
    if unshare -m true 2>/dev/null; then
        # The toolkit is hidden and the loader's cache with it; the real files stay reachable elsewhere.
        hidden() { # hidden VAR=VALUE...
            env -u CUDA_HOME -u CUDA_PATH -u VIRTUAL_ENV -u CONDA_PREFIX "$@" unshare -m sh -c '
                mkdir -p "$1/kept" && mount --bind "$2" "$1/kept" && mount -t tmpfs none "$2" &&
                for l in "$3"/*/lib/*; do ln -sf "$1/kept/${l##*/}" "$l"; done
                "$1/probe"' - "$TMP" "$libs" "$pip" >"$TMP/hidden.txt" 2>&1
            beside "$TMP/hidden.txt" || { cat "$TMP/hidden.txt"; return 1; }
        }
        t "pip's nvidia/*/lib of the user is found without a toolkit" hidden HOME="$TMP/home"
        # An environment that is not activated: python3 of PATH is a link into it.
        mkdir -p "$TMP/venv/bin" "$TMP/links"
        mv "$TMP/home/.local/lib" "$TMP/venv/lib"
        pip=$TMP/venv/lib/python3.11/site-packages/nvidia
        ln -s "$(command -v sh)" "$TMP/venv/bin/python3"
        ln -s "$TMP/venv/bin/python3" "$TMP/links/python3"
        t "pip's nvidia/*/lib of the python3 in PATH is found" hidden HOME="$TMP/home" PATH="$TMP/links:$PATH"
    else
        skip "pip's nvidia/*/lib of the user is found without a toolkit" "needs a mount namespace"
    fi
else
    skip "driver and libraries of the CUDA plugin" "this build has none"
fi

# --- the same words on the way to a GPU: the plugin over the emulated runtime, which has one
if [ -e "$BUILD/tests/emu/libnnpipe-cuda.so" ]; then
    folder emu "$BUILD/tests/emu/libnnpipe-cuda.so"
    mkdir -p "$TMP/none"
    export LD_LIBRARY_PATH="$BUILD/tests/emu"
    GPU=5
    t "a missing GPU is distinguished from one that is there" fails emu \
        "there is no cuda:5: this machine has one GPU, cuda:0" NNPIPE_CUDA_LIBS="$BUILD/tests/emu"
    GPU=0
    t "a missing library ends a run by its name" fails emu \
        "cuda:0: cuBLASLt is missing: no libcublasLt.so.13 in $TMP/none" NNPIPE_CUDA_LIBS="$TMP/none" \
        NNPIPE_CUDA_LIBS_ONLY=1
    t "a GPU is not usable without it, and devices prints the reason" lists emu \
        '"usable": false, "reason": "cuBLASLt is missing' NNPIPE_CUDA_LIBS="$TMP/none" NNPIPE_CUDA_LIBS_ONLY=1
    t "auto names the library that the GPU lacks" warns emu "cuda:0: cuBLASLt is missing" \
        NNPIPE_CUDA_LIBS="$TMP/none" NNPIPE_CUDA_LIBS_ONLY=1 LD_LIBRARY_PATH="$TMP/driver:$BUILD/tests/emu" \
        NNPIPE_STUB_GPUS=1
    t "no GPU ends a run" fails emu "the NVIDIA driver sees no GPU" NNPIPE_EMU_DEVICES=0 \
        NNPIPE_CUDA_LIBS="$BUILD/tests/emu"
    unset LD_LIBRARY_PATH
else
    skip "a missing GPU is distinguished from one that is there" "there is no emulated runtime in this build"
fi
t "no run was begun" nothing_written
[ "$failed" -eq 0 ]
