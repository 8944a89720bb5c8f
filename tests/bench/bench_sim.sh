#!/bin/sh
# The feed on the sim device, 20 ms a step: is the device ever idle? Prints images a second, the
# stall ratio and the device's busy share. The goal is 99 % busy.
set -eu
cd "$(dirname "$0")/../.."
: "${NNPIPE_DATA:?}"
for round in $(seq "${ROUNDS:-3}"); do
    ./nnpipe bench feed tests/bench/cifar.yaml -o 'device={sim: {h2d_gbps: 25, step_ms: 20}}' -o loader.batch=128 \
        --seconds 10 --json | tail -n 1
done
