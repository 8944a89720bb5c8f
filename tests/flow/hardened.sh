#!/bin/sh
# Compiler and linker options that make a bug in a parser harder to exploit are on, for program and plugin.
. "$(dirname "$0")/../lib.sh"
if [ -n "${NNPIPE_BUILD:-}" ] && [ "${NNPIPE_BUILD##*/}" != build ]; then
    skip "the program is hardened" "a build with sanitizers has its own checks"
    exit 0
fi
has() { readelf "$1" -W "$3" | grep -q -- "$2"; }
hardened() { # hardened FILE: relocations read-only, bound at start, no executable stack
    has -l GNU_RELRO "$1" && has -d 'BIND_NOW\|NOW' "$1" && has -l 'GNU_STACK.* RW ' "$1"
}
t "the program is a position-independent executable" has -h 'DYN (Position-Independent Executable file)' "$NNPIPE"
t "the program's relocations are read-only and bound at start" hardened "$NNPIPE"
t "the program checks its stack" has --dyn-syms __stack_chk_fail "$NNPIPE"
t "the program checks the sizes it gives to libc" has --dyn-syms __memcpy_chk "$NNPIPE"
for plugin in libnnpipe-cuda.so libnnpipe-cuda-rows.so; do
    if [ -e "$(dirname "$NNPIPE")/$plugin" ]; then
        t "the relocations of $plugin are read-only and bound at start" hardened "$(dirname "$NNPIPE")/$plugin"
    else
        skip "the relocations of $plugin are read-only" "it was not built"
    fi
done
[ "$failed" -eq 0 ]
