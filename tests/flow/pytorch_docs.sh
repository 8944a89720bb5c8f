#!/bin/sh
# docs/PYTORCH.md's scripts, before and after; the Python that tests/torch_env.sh names.
cd "$(dirname "$0")/../.." || exit 1
what="PYTORCH.md: the same losses before and after"
why=$(mktemp)
trap 'rm -f "$why"' EXIT
python=$(sh tests/torch_env.sh 2>"$why")
build=${NNPIPE_BUILD:-$PWD/build}
if [ "$python" = no-torch ]; then
    echo "skip - $what: no torch: $(tail -n 1 "$why")"
elif [ ! -e "$build/python/nnpipe/_nnpipe.abi3.so" ]; then
    echo "skip - $what: no $build/python: make python"
else
    PYTHONDONTWRITEBYTECODE=1 "$python" tests/flow/pytorch_docs.py
fi
