#!/bin/sh
# From nothing to a trained network: installs missing packages, builds, writes a small sample
# set of drawn shapes into data/shapes and trains configs/cnn.yaml on it.
set -eu
cd "$(dirname "$0")/.."

if [ "${1:-}" != --built ]; then
    sh scripts/setup.sh
    make -s -j"$(nproc)" all
fi
[ -e data/shapes/.complete ] || {
    rm -rf data/shapes
    ./nnpipe data synth --out data/shapes
    : >data/shapes/.complete
}
exec ./nnpipe train configs/cnn.yaml
