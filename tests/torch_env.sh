#!/bin/sh
# torch_env.sh [--make]: prints a Python with torch, torchvision, NumPy, webdataset and jax, for the tests that compare
# with them: the one that NNPIPE_TORCH_PYTHON names, else the venv $HOME/.cache/nnpipe-tests/torch-VERSION. --make, or
# NNPIPE_LONG=1 (make test-long): makes the venv first, 2 GiB without CUDA's libraries, 5 GiB with them. If there is
# none: `no-torch`, and why on stderr.
#   TORCH_INDEX    an index where pip finds a torch without CUDA
python=${NNPIPE_TORCH_PYTHON:-}
if [ -n "$python" ]; then
    if "$python" -c 'import torch, torchvision' 2>/dev/null; then
        echo "$python"
    else
        echo "NNPIPE_TORCH_PYTHON names $python, which cannot import torch and torchvision" >&2
        echo no-torch
    fi
    exit 0
fi
version=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
dir=$HOME/.cache/nnpipe-tests/torch-$version
log=$dir.log
if [ ! -e "$dir/done" ] && { [ "${1:-}" = --make ] || [ "${NNPIPE_LONG:-0}" = 1 ]; }; then
    rm -rf "$dir"
    mkdir -p "${dir%/*}"
    # shellcheck disable=SC2086 # words
    python3 -m venv "$dir" >"$log" 2>&1 &&
        "$dir/bin/pip" -q install torch torchvision ${TORCH_INDEX:+--index-url $TORCH_INDEX} >>"$log" 2>&1 &&
        "$dir/bin/pip" -q install numpy webdataset 'jax[cpu]' >>"$log" 2>&1 &&
        "$dir/bin/python" -c 'import torch, torchvision, numpy, webdataset, jax' >>"$log" 2>&1 && : >"$dir/done"
fi
if [ -e "$dir/done" ]; then
    echo "$dir/bin/python"
else
    if [ -e "$log" ]; then tail -n 2 "$log"; else echo "there is no $dir: sh tests/torch_env.sh --make"; fi >&2
    echo no-torch
fi
