#!/bin/sh
# The sum of AlexNet's gradients (244 MB) over processes of this machine, each way that trainer/comm.h has, beside
# memcpy() of as many bytes: a table for docs/BENCHMARKS.md; half a minute. Needs Open MPI's mpirun. ROUNDS (11).
set -eu
cd "$(dirname "$0")/../.."
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
# shellcheck disable=SC2046 # words
gcc -std=c11 -D_GNU_SOURCE -O2 -I. -o "$out/bench" tests/bench/bench_comm.c build/libnnpipe.a -pthread -ldl \
    $(pkg-config --libs libxxhash)
run() { # NAME PROCESSES VARIABLE...
    name=$1 processes=$2
    shift 2
    env "$@" mpirun --allow-run-as-root --oversubscribe --bind-to none -np "$processes" "$out/bench" "$name" \
        "${ROUNDS:-11}"
}
echo "| way | processes | sum, ms | memcpy, ms | times memcpy |"
echo "|---|---|---|---|---|"
for n in 2 4; do
    run "a socket of the machine" $n NNPIPE_COMM_DATA=tcp
    run "TCP" $n NNPIPE_COMM=tcp:127.0.0.1:$((20000 + $$ % 10000 + n))
    run "Open MPI" $n NNPIPE_COMM_DATA=mpi
done
