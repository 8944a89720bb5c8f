# What ptxas said of each own kernel when the plugin was built, for every GPU in it: nothing is spilled, no
# array lies in local memory (a stack frame: ptxas calls that no spill), and what the most costly takes. A table is
# printed for docs/GPU.md.
. "$(dirname "$0")/../lib.sh"
cd "$ROOT" || exit 1
if ! ls build/cuda/*.ptxas >/dev/null 2>&1 || [ "$NNPIPE_BUILD" != "$ROOT/build" ]; then
    skip "registers of the own kernels" "nvcc or cuDNN is not here, or a sanitizer is"
    exit 0
fi
# kernels: ARCH REGISTERS SPILLED FRAME NAME, a line a kernel
kernels() {
    cat build/cuda/*.ptxas build/cuda/rows/*.ptxas | awk '
        /Compiling entry function/ { split($0, quoted, "\047"); name = quoted[2]; arch = quoted[4] }
        /bytes stack frame/ { frame = $1; spilled = $5 + $9; }
        /Used [0-9]+ registers/ {
            for (i = 1; i < NF; i++) if ($i == "Used") print arch, $(i + 1), spilled, frame, name
        }'
}
kernels >"$TMP/kernels"
none_spills() {
    [ "$(wc -l <"$TMP/kernels")" -ge 100 ] || { echo "$(wc -l <"$TMP/kernels") kernels were compiled"; return 1; }
    awk '$3 > 0 { print $5 " spills " $3 " bytes on " $1; bad = 1 } END { exit bad }' "$TMP/kernels"
}
# Weights that a row of pictures keeps are as many as the scale makes: make_rows has a frame by design.
no_frame() {
    awk '$4 !~ /^[0-9]+$/ { print $5 ": no word of its stack frame"; bad = 1 }
        $4 > 0 && $5 !~ /make_rows/ { print $5 " has a stack frame of " $4 " bytes on " $1; bad = 1 }
        END { exit bad }' "$TMP/kernels"
}
# 256 threads of at most 128 registers: two blocks share the 65536 of a multiprocessor
few_registers() {
    awk '$2 > 128 { print $5 " takes " $2 " registers on " $1; bad = 1 } END { exit bad }' "$TMP/kernels"
}
t "none of our kernels spills a register, on any GPU of the build" none_spills
t "none of our kernels except make_rows has an array in local memory" no_frame
t "none takes more than 128 registers a thread" few_registers
# A pixel is 8 halves: written one by one they are eight stores of 2 bytes.
one_store() {
    toolkit=$(dirname "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")
    "$toolkit/nvcc" -std=c++17 -O3 -I. -arch=compute_80 -ptx -o "$TMP/pointwise.ptx" trainer/cuda/kernels_pointwise.cu \
        || return 1
    awk '/\.entry/ { halves = /input_pixel.*Li8ELi8E/ }
        halves && /st\.global/ { if (/st\.global\.v4\.[a-z]32/) whole++; else parts++ }
        END { if (whole != 2 || parts) { print whole + 0 " stores of 16 bytes, " parts + 0 " others"; exit 1 } }' \
        "$TMP/pointwise.ptx"
}
t "the input's pixel of 8 halves leaves in one store of 16 bytes" one_store
awk '{ if ($2 > max[$1]) max[$1] = $2; n[$1]++ }
    END { for (a in n) print "# " a ": " n[a] " kernels, at most " max[a] " registers" }' "$TMP/kernels" | sort
