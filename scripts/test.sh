#!/bin/sh
# Installs what is missing, builds, and runs the tests. The last line is `N passed, N failed`.
set -eu
cd "$(dirname "$0")/.."
sh scripts/setup.sh test
exec make -s -j"$(nproc)" test
