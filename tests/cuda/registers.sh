# What ptxas said of each own kernel when the plugin was built, for every GPU in it: nothing is spilled,
# and what the most costly takes. A table is printed for docs/GPU.md.
. "$(dirname "$0")/../lib.sh"
cd "$ROOT" || exit 1
if ! ls build/cuda/*.ptxas >/dev/null 2>&1 || [ "$NNPIPE_BUILD" != "$ROOT/build" ]; then
    skip "registers of the own kernels" "nvcc or cuDNN is not here, or a sanitizer is"
    exit 0
fi
# kernels: FILE ARCH REGISTERS SPILLED NAME, a line a kernel
kernels() {
    cat build/cuda/*.ptxas | awk '
        /Compiling entry function/ { split($0, quoted, "\047"); name = quoted[2]; arch = quoted[4] }
        /spill stores/ { spilled = $5 + $9 }
        /Used [0-9]+ registers/ { for (i = 1; i < NF; i++) if ($i == "Used") print arch, $(i + 1), spilled, name }'
}
kernels >"$TMP/kernels"
none_spills() {
    [ "$(wc -l <"$TMP/kernels")" -ge 100 ] || { echo "$(wc -l <"$TMP/kernels") kernels were compiled"; return 1; }
    awk '$3 > 0 { print $4 " spills " $3 " bytes on " $1; bad = 1 } END { exit bad }' "$TMP/kernels"
}
# 256 threads of at most 128 registers: two blocks share the 65536 of a multiprocessor
few_registers() {
    awk '$2 > 128 { print $4 " takes " $2 " registers on " $1; bad = 1 } END { exit bad }' "$TMP/kernels"
}
t "no own kernel spills a register, on any GPU of the build" none_spills
t "none takes more than 128 registers a thread" few_registers
awk '{ if ($2 > most[$1]) { most[$1] = $2; name[$1] = $4 } n[$1]++ } END { for (a in n) print "# " a ": " n[a] " kernels, the most is " most[a] " registers" }' "$TMP/kernels" | sort
