#!/bin/sh
# nnpipe.like() beside torch's DataLoader, all of it: like.sh's tests with 0, 1, 4 and 8 workers and 300 chains drawn
# at random, and like_real.py: 20 chains over the ImageNet sample and CIFAR-10. It can be resumed: a file that passed
# stands in $STATE, and like_real.py keeps each of its results there. About 25 minutes on two quiet cores.
cd "$(dirname "$0")/../.." || exit 1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
export STATE="${STATE:-$tmp}" LIKE=all
code=0
for part in like_refused.py like_web.py like_batches.py like_real.py; do
    passed=$STATE/$part.passed
    if [ -e "$passed" ]; then
        cat "$passed"
    elif PARTS=$part sh tests/flow/like.sh >"$tmp/log" 2>&1; then
        tee "$passed" <"$tmp/log"
    else
        cat "$tmp/log"
        code=1
    fi
done
exit $code
