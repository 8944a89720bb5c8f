#!/bin/sh
# nnpipe and other loaders that feed the same loop of PyTorch (torch_loop.py), and what Python costs beside
# `nnpipe bench loader`: two readers, threads or worker processes each, from the page cache, in turns. Prints a table
# for docs/BENCHMARKS.md; about a quarter of an hour.
#   PEERS      a folder with the virtual environments torch/ and tf/, and with data/, which bench_loader.sh makes
#   WORKS      "photos cifar"
#   NAMES      only these loaders, separated by semicolons
#   ROUNDS, SECONDS_EACH   5, 3
#   NNPIPE     the program
set -eu
cd "$(dirname "$0")/../.."
: "${PEERS:?}"
[ -d "$PEERS/data/cifar-bin" ] || { echo "no pictures in $PEERS/data: run bench_loader.sh first" >&2; exit 1; }
make -s python
TORCH_PACKAGES=$("$PEERS/torch/bin/python" -c "import os, torch; print(os.path.dirname(torch.__path__[0]))")
XDG_CACHE_HOME=$PEERS/data/cache NNPIPE_PHOTOS=$PEERS/data/photos NNPIPE=${NNPIPE:-./nnpipe}
export XDG_CACHE_HOME NNPIPE_PHOTOS NNPIPE TORCH_PACKAGES PYTHONPATH="$PWD/build/python"
exec python3 tests/bench/bench_pytorch.py
