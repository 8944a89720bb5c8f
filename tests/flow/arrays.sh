#!/bin/sh
# Batches in NumPy and in JAX (arrays.py), each in the first Python here that has it: NNPIPE_TORCH_PYTHON or the venv
# of tests/torch_env.sh, python3, Debian's python3.
. "$(dirname "$0")/../lib.sh"
build=${NNPIPE_BUILD:-$ROOT/build}
if [ "${build##*/}" != build ]; then
    skip "batches in NumPy and JAX" "Python is not built with sanitizers"
    exit 0
fi
make -s -C "$ROOT" python >"$OUT" 2>&1
[ -e "$build/python/nnpipe/_nnpipe.abi3.so" ] || { skip "batches in NumPy and JAX" "$(tail -n 1 "$OUT")"; exit 0; }
export PYTHONPATH="$build/python" JAX_PLATFORMS=cpu
"$NNPIPE" data synth --samples 1000 --test 10 --out "$TMP/shapes" >/dev/null || exit 1
cat >"$TMP/my.yaml" <<Y
data: {train: {source: tar, path: "$TMP/shapes/train-*.tar.zst"}}
loader:
  batch: 64
  augment: [{random_crop: {size: 32, pad: 4}}, flip]
  normalize: {mean: [0.5, 0.4, 0.3], std: [0.25, 0.25, 0.25]}
Y
torch=$(sh "$ROOT/tests/torch_env.sh" 2>/dev/null)
for library in numpy jax; do
    for python in "$torch" ${NNPIPE_JAX_PYTHON:+"$NNPIPE_JAX_PYTHON"} python3 /usr/bin/python3; do
        "$python" -c "import $library, sys; assert sys.version_info >= (3, 11)" 2>/dev/null || continue
        timeout 200 "$python" "$ROOT/tests/flow/arrays.py" $library "$TMP/my.yaml" >"$OUT" 2>&1
        code=$?
        grep -E '^(ok|not ok) - ' "$OUT"
        failed=$((failed + $(grep -c '^not ok - ' "$OUT")))
        [ $code -eq 0 ] || not_ok "arrays.py $library runs to its end" "$(tail -n 2 "$OUT" | tr '\n' ' ')"
        continue 2
    done
    skip "batches in $library" "no Python of 3.11 or later here has it: sh tests/torch_env.sh --make"
done
[ "$failed" -eq 0 ]
