#!/bin/sh
# Installs missing packages, builds, and runs all tests except the long campaigns. The plugin's kernels are
# compiled for one GPU alone here (CUDA_ARCHS). The last line is `N passed, N failed`.
set -eu
cd "$(dirname "$0")/.."
sh scripts/setup.sh test
CUDA_ARCHS=${CUDA_ARCHS:-90}
export CUDA_ARCHS
exec make -s -j"$(nproc)" test-all
