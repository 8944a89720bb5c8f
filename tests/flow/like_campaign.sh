#!/bin/sh
# All of like_batches.py: each chain with 0, 1, 4 and 8 workers for 3 epochs, on pictures made here and, where
# $NNPIPE_DATA has them, on CIFAR-10 and the ImageNet sample; 300 steps of ResNet-18.
LIKE=all exec sh "$(dirname "$0")/like.sh"
