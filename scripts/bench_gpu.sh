#!/bin/sh
# nnpipe against PyTorch on one GPU box: the same work, in turn, and the ratios.
#
#   sh scripts/bench_gpu.sh [--quick] [--parts step,copy,feed,cifar,profile] [--out DIR] [--again] [--help]
#
#   step   ResNet-50 and ResNet-18 at 224, batch 256 and 400, bf16 and f16, on resident data; PyTorch with
#          channels_last, autocast and cudnn.benchmark, eager and compile(mode="max-autotune"). Each row
#          twice: both sides deterministic, and neither. --precisions f32: without TF32 on both sides, with
#          it on both under --tf32
#   copy   host to device, by the device's clock: the feed's copies against a loop of pinned non_blocking ones
#   feed   ResNet-50 fed from packed JPEG and from raw shards, against torch's DataLoader on the same files
#   cifar  CIFAR-10 to 94 % (ResNet-18, 24 epochs), pictures on the GPU for PyTorch
#   profile  (only when asked for) kernels of one step by their time: nnpipe's by nsys, which has to be
#          installed, PyTorch's by its own profiler
#
# Needs the driver, cuDNN, python3 with PyTorch (PYTHON names another); works in a build's tree and in the
# folder of `make dist`. Both sides run on the NVIDIA libraries that pip put beside PyTorch, unless
# NNPIPE_CUDA_LIBS names others for nnpipe. No other process may use the GPU. NNPIPE_DATA: the folder of
# imagenet-sample-500.tar (or --photos PATH; without both, pictures are drawn) and of cifar10-jpeg.tar.zst (without
# it, cifar is left out).
# Each measurement is stored with the GPU's clocks, power and the reasons for lower clocks, which nvidia-smi reads
# once a second, and nnpipe's steps with the engines it chose; the first line has driver and libraries.
# Each measurement has a time cap and is one line of DIR/results.jsonl (default dist/bench_gpu); the same
# command continues where it was stopped. The table comes at the end and with --table. --cpu: a dry run of all
# of it on the CPU in tiny sizes; its numbers mean nothing.
cd "$(dirname "$0")/.." || exit 1
exec "${PYTHON:-python3}" scripts/bench_gpu/bench.py "$@"
