#!/bin/sh
# Checks that this GPU computes correctly. Exit code 0: nothing failed.
#
#   sh scripts/check_gpu.sh [--quick] [--parts selftest,twice] [--device cuda:0] [--out DIR]
#
#   devices     the devices that nnpipe finds        doctor     the machine's setup (its findings are not failures)
#   selftest    every layer against the reference, gradients and updates too: three seeds, --quick one
#   memcheck, racecheck, synccheck, initcheck        compute-sanitizer over a part of the self-test
#   twice       the same training twice must give the same weights, bit for bit
#   curve       CIFAR-10 (NNPIPE_DATA) on the GPU and on the CPU, f32: the losses of two epochs
#   properties  cuDNN's description of the GPU, compared with the one that the planner's tests use
#
# A part that cannot run here is reported, and does not count as passed. Each part has a time limit; logs go into DIR
# (default dist/check_gpu), with the summary in DIR/summary.txt. --device cpu: a dry run.
cd "$(dirname "$0")/.." || exit 1
exec "${PYTHON:-python3}" scripts/check_gpu/check.py "$@"
