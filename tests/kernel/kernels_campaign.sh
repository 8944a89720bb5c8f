#!/bin/sh
# Every operation on shapes drawn at random, forward and backward, f32 and bf16, against the reference,
# with each set of instructions that this CPU has. KERNEL_SHAPES of them a set (1000) from KERNEL_SEED on;
# STATE keeps the seed and which sets have passed.
. "$(dirname "$0")/../lib.sh"
tests=${NNPIPE_BUILD:-$ROOT/build}/tests/unit_tests
state=${STATE:-$TMP}/kernels-${KERNEL_SHAPES:-1000}
mkdir -p "$state"
[ -e "$state/seed" ] || echo "${KERNEL_SEED:-$(date +%s)}" >"$state/seed"
KERNEL_SEED=$(cat "$state/seed") KERNEL_SHAPES=${KERNEL_SHAPES:-1000}
export KERNEL_SEED KERNEL_SHAPES

has() { grep -qw "$1" /proc/cpuinfo; }
# scan NAME FLAG SETTING...: with what a CPU of that kind would use
scan() {
    name=$1 flag=$2
    shift 2
    what="$KERNEL_SHAPES shapes of each operation with $name are the reference (seed $KERNEL_SEED)"
    if ! has "$flag"; then
        skip "$what" "this CPU has no $flag"
    elif [ -e "$state/$name" ]; then
        ok "$what: had passed before"
    else
        before=$failed
        t "$what" env "$@" "$tests" --jobs 1 --filter 'kernels_*/shapes_drawn*'
        [ "$failed" -gt "$before" ] || : >"$state/$name"
    fi
}
scan sse41 sse4_1 ONEDNN_MAX_CPU_ISA=SSE41 NNPIPE_CPU=sse2
scan avx2 avx2 ONEDNN_MAX_CPU_ISA=AVX2 NNPIPE_CPU=avx2
scan avx512 avx512bw ONEDNN_MAX_CPU_ISA=AVX512_CORE NNPIPE_CPU=avx512
scan avx512_bf16 avx512_bf16 ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16
scan all sse4_1 ONEDNN_MAX_CPU_ISA=ALL
[ "$failed" -eq 0 ]
