#!/bin/sh
# Prints the folder that holds cudnn.h: CUDNN_INCLUDE, the system's, the toolkit's, or pip's (of an environment
# that is active, of the user, of the python3 in PATH). Prints nothing if there is none.
first() { # first FOLDER...
    for dir; do
        if [ -e "$dir/cudnn.h" ]; then
            echo "$dir"
            exit 0
        fi
    done
}
pip=nvidia/cudnn/include none=/nowhere
first ${CUDNN_INCLUDE:+"$CUDNN_INCLUDE"} /usr/include /usr/local/cuda/include /usr/include/x86_64-linux-gnu \
    "${VIRTUAL_ENV:-$none}"/lib/python3*/site-packages/$pip \
    "${CONDA_PREFIX:-$none}"/lib/python3*/site-packages/$pip "${CONDA_PREFIX:-$none}/include" \
    "${HOME:-$none}"/.local/lib/python3*/site-packages/$pip /usr/local/lib/python3*/*-packages/$pip \
    "${HOME:-$none}"/.pyenv/versions/*/lib/python3*/site-packages/$pip
first "$(python3 -c 'import nvidia.cudnn as c; print(list(c.__path__)[0])' 2>/dev/null)/include"
exit 1
