#!/bin/sh
# Is this GPU computed right? One command, one exit code: 0 when nothing failed.
#
#   sh scripts/check_gpu.sh [--quick] [--parts selftest,twice] [--device cuda:0] [--out DIR]
#
#   devices     what nnpipe finds                    doctor     is the box set up well (findings fail nothing)
#   selftest    every layer against the reference, gradients and updates too: three seeds, --quick one
#   memcheck, racecheck, synccheck, initcheck        compute-sanitizer over a part of the self-test
#   twice       the same training twice: the same weights, bit for bit
#   curve       CIFAR-10 (NNPIPE_DATA) on the GPU and on the CPU, f32: the losses of two epochs
#   properties  the GPU as cuDNN describes it, beside the description the planner's tests use
#
# Parts that cannot run here are named, and do not count as passed. Each part has a time cap; logs go into DIR
# (default dist/check_gpu), with the summary in DIR/summary.txt. --device cpu: a dry run.
cd "$(dirname "$0")/.." || exit 1
exec "${PYTHON:-python3}" scripts/check_gpu/check.py "$@"
