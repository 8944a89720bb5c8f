#!/bin/sh
# The emulated NCCL, with which several emulated GPUs are tested: it moves what it should, and ends a program that uses
# it wrongly.
. "$(dirname "$0")/../lib.sh"
use_emulated_gpu "the emulated NCCL" || exit 0
export TMPDIR="$TMP" NNPIPE_EMU_NCCL_LEAVE_S=1
toolkit=$(dirname "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")/../include
gcc -std=c11 -D_GNU_SOURCE -O1 -Wall -Wextra -I"$ROOT" -isystem "$toolkit" -o "$TMP/nccl" "$ROOT/tests/cuda/nccl.c" \
    "$EMU/libcudart-emu.so" "$EMU/libnccl.so.2" -Wl,-rpath,"$EMU" || exit 1
right() { for seed in 1 2 3; do NNPIPE_EMU_SEED=$seed timeout 300 "$TMP/nccl" right || return 1; done; }
t "swaps and sums, captured and not, arrive in any order of the streams" right
ends() { # CASE TEXT
    exits 1 timeout 300 "$TMP/nccl" "$1" >"$TMP/ends" 2>&1 && grep -q "$2" "$TMP/ends" ||
        { tail -n 3 "$TMP/ends"; return 1; }
}
while read -r case text; do
    t "it ends a program: $case" ends "$case" "$text"
done <<T
counts receives 10000 elements of type 7 .* sends 9999 of type 7
types receives 10000 elements of type 7 .* sends 10000 of type 9
host not the device's memory
itself rank [01] calls [01] of 2
none is no communicator
graph operations are still in graphs or queues: NCCL would wait for ever
captured (captured), and rank . sends .* (not captured)\|(not captured), and rank . sends .* (captured)
T
hangs() { exits 1 timeout 300 "$TMP/nccl" ungrouped; }
t "a send and a receive that are no group wait for each other for ever" hangs
[ "$failed" -eq 0 ]
