#!/bin/sh
# Prints the folder that holds cudnn.h: the system's, the toolkit's, or pip's; nothing where there is none.
for dir in ${CUDNN_INCLUDE:-} /usr/include /usr/local/cuda/include /usr/include/x86_64-linux-gnu \
    /usr/local/lib/python3*/*-packages/nvidia/cudnn/include \
    "$HOME"/.pyenv/versions/*/lib/python3*/site-packages/nvidia/cudnn/include; do
    if [ -e "$dir/cudnn.h" ]; then
        echo "$dir"
        exit 0
    fi
done
exit 1
