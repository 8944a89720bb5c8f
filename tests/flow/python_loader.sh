# The Python package of `make python`: python_loader.py with a Python that has NumPy, and its torch part with one that
# has torch (tests/torch_env.sh).
. "$(dirname "$0")/../lib.sh"
build=${NNPIPE_BUILD:-$ROOT/build}
why=
[ "$build" = "$ROOT/build" ] || why="a sanitizer's build needs an interpreter of its own"
[ -e "$build/python/nnpipe/_nnpipe.abi3.so" ] || why="not built: make python"
[ -z "$why" ] || { skip "python: the package" "$why" && exit 0; }
export PYTHONPATH="$build/python" PYTHONDONTWRITEBYTECODE=1

# with_numpy: prints a Python of 3.11 or later with NumPy
with_numpy() {
    for python in python3 /usr/bin/python3 "$(sh "$ROOT/tests/torch_env.sh" 2>/dev/null)"; do
        "$python" -c 'import sys, numpy; assert sys.version_info >= (3, 11)' 2>/dev/null && echo "$python" && return
    done
    echo none
}
python=$(with_numpy)
if [ "$python" = none ]; then
    skip "python: the package" "no Python of 3.11 or later has NumPy (Debian: python3-numpy)"
else
    "$python" "$ROOT/tests/flow/python_loader.py" "$TMP" || failed=1
    "$python" "$ROOT/tests/flow/python_process.py" "$TMP" || failed=1
    "$python" "$ROOT/tests/flow/python_hostile.py" "$TMP" || failed=1
    "$python" "$ROOT/tests/flow/python_seams.py" "$TMP" || failed=1
fi
torch=$(sh "$ROOT/tests/torch_env.sh" 2>"$TMP/torch.txt")
if [ "$torch" = no-torch ]; then
    skip "python: batches as torch tensors" "$(tail -n 1 "$TMP/torch.txt")"
else
    "$torch" "$ROOT/tests/flow/python_torch.py" "$TMP" || failed=1
fi
[ "$failed" -eq 0 ]
