# The Python package with device="cuda:0", over the emulated runtime: see python_cuda.py.
. "$(dirname "$0")/../lib.sh"
build=${NNPIPE_BUILD:-$ROOT/build}
plugin=$build/tests/emu/libnnpipe-cuda-rows.so
why=
[ -e "$plugin" ] || why="this build has no headers of CUDA"
[ "$build" = "$ROOT/build" ] || why="a sanitizer's build needs an interpreter of its own"
[ -e "$build/python/nnpipe/_nnpipe.abi3.so" ] || why="not built: make python"
python3 -c 'import sys; assert sys.version_info >= (3, 11)' 2>/dev/null || why="no Python of 3.11 or later"
[ -z "$why" ] || { skip "python: device='cuda:0' over the emulated runtime" "$why" && exit 0; }
export PYTHONPATH="$build/python" PYTHONDONTWRITEBYTECODE=1 NNPIPE_CUDA_PLUGIN="$plugin"
for seed in 1 2 3; do
    NNPIPE_EMU_SEED=$seed timeout 300 python3 "$ROOT/tests/cuda/python_cuda.py" "$build/tests/emu/libcudart-emu.so" \
        >"$TMP/$seed.txt" 2>&1 ||
        not_ok "python: device='cuda:0', seed $seed" "$(grep -v '^ok' "$TMP/$seed.txt" | tail -n 5 | tr '\n' ' ')"
done
grep '^ok' "$TMP/1.txt"
[ "$failed" -eq 0 ]
