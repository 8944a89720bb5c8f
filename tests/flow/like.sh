#!/bin/sh
# like.sh: nnpipe.like() beside torch's DataLoader; the Python that tests/torch_env.sh names. $LIKE: all (the campaign)
# or some, of like_batches.py. $PARTS: some of the files.
cd "$(dirname "$0")/../.." || exit 1
what="nnpipe.like() gives the batches of torch's DataLoader"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python=$(sh tests/torch_env.sh 2>"$work/why")
if [ "$python" = no-torch ]; then
    echo "skip - $what: no torch: $(tail -n 1 "$work/why")"
    exit 0
fi
build=${NNPIPE_BUILD:-$PWD/build}
if [ ! -e "$build/python/nnpipe/_nnpipe.abi3.so" ]; then
    echo "skip - $what: no $build/python: make python"
    exit 0
fi
export PYTHONPATH="$build/python:$PWD/tests/flow" PYTHONDONTWRITEBYTECODE=1 LIKE="${LIKE:-some}"
code=0
for part in ${PARTS:-like_refused.py like_batches.py like_web.py}; do
    "$python" "tests/flow/$part" || code=1
done
exit $code
