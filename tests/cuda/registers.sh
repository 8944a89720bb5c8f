# What ptxas said of each own kernel when the plugin was built, for every GPU in it: nothing is spilled, no
# array lies in local memory (a stack frame: ptxas calls that no spill), and what the most costly takes. A table is
# printed for docs/GPU.md.
. "$(dirname "$0")/../lib.sh"
cd "$ROOT" || exit 1
if ! ls build/cuda/*.ptxas >/dev/null 2>&1 || [ "$NNPIPE_BUILD" != "$ROOT/build" ]; then
    skip "registers of the own kernels" "nvcc or cuDNN is not here, or a sanitizer is"
    exit 0
fi
# kernels: ARCH REGISTERS SPILLED FRAME NAME SHARED, a line a kernel
kernels() {
    cat build/cuda/*.ptxas build/cuda/rows/*.ptxas | awk '
        /Compiling entry function/ { split($0, quoted, "\047"); name = quoted[2]; arch = quoted[4] }
        /bytes stack frame/ { frame = $1; spilled = $5 + $9; }
        /Used [0-9]+ registers/ {
            used = shared = 0
            for (i = 1; i < NF; i++) {
                if ($i == "Used") used = $(i + 1)
                if ($(i + 1) == "bytes" && $(i + 2) ~ /^smem/) shared = $i
            }
            print arch, used, spilled, frame, name, shared
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
# A pixel is 8 halves: written one by one they are eight stores of 2 bytes. A thread has several pixels.
one_store() {
    toolkit=$(dirname "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")
    "$toolkit/nvcc" -std=c++17 -O3 -I. -arch=compute_80 -ptx -o "$TMP/pointwise.ptx" trainer/cuda/kernels_pointwise.cu \
        || return 1
    awk '/\.entry/ { halves = /input_pixel.*Li8ELi8E/ }
        halves && /st\.global/ { if (/st\.global\.v4\.[a-z]32/) whole++; else parts++ }
        END { if (whole < 2 || parts) { print whole + 0 " stores of 16 bytes, " parts + 0 " others"; exit 1 } }' \
        "$TMP/pointwise.ptx"
}
t "the input's pixel of 8 halves leaves in one store of 16 bytes" one_store
awk '{ if ($2 > max[$1]) max[$1] = $2; n[$1]++ }
    END { for (a in n) print "# " a ": " n[a] " kernels, at most " max[a] " registers" }' "$TMP/kernels" | sort

# --- the machine code ------------------------------------------------------------------------------
# Loads that a thread issues before it needs one of them, and what an SM has in flight with as many threads as its
# registers and shared memory allow (blocks of 256): bytes in flight limit the bandwidth that a kernel can use.
disassembler() {
    for tool in "${NNPIPE_CUOBJDUMP:-}" "$(command -v cuobjdump)" "$toolkit/cuobjdump" "$(python3 -c '
import importlib.util, os
found = importlib.util.find_spec("triton")
print(os.path.join(os.path.dirname(found.origin), "backends/nvidia/bin/cuobjdump") if found else "")' 2>/dev/null)"; do
        [ -x "$tool" ] && echo "$tool" && return
    done
    return 1
}
toolkit=$(dirname "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")
if ! tool=$(disassembler); then
    skip "loads and stores of the machine code" \
        "there is no cuobjdump (of the toolkit, or of Triton's package; NNPIPE_CUOBJDUMP names one)"
    [ "$failed" -eq 0 ]
    exit
fi
# code: ARCH NAME LOADS16 LOADS STORES16 STORES LOCAL AHEAD SURE SHARED16 SHARED BYTES, a line a kernel
only=
[ -n "${ALL:-}" ] || ! grep -qw 90 build/cuda/archs || only="-arch sm_90" # ALL=1: for every GPU of the build
for object in build/cuda/kernels_*.cu.o; do
    # shellcheck disable=SC2086 # words are flags
    "$tool" $only -sass "$object"
done 2>/dev/null | awk -f tests/cuda/sass.awk >"$TMP/code"
no_local() {
    [ "$(wc -l <"$TMP/code")" -ge 100 ] || { echo "$(wc -l <"$TMP/code") kernels were read"; return 1; }
    awk '$7 > 0 && $2 !~ /make_rows/ { print $2 " accesses local memory on " $1; bad = 1 } END { exit bad }' "$TMP/code"
}
# Of halves, the wide form: what runs for tensors at multiples of 16 bytes. A sum stores no activation, unless it joins
# or masks.
wide_ones() {
    awk '$2 ~ /(bn_apply|bn_dgrad|sum_channels|pointwise|maxpool|dropout).*bfloat16.*Li8/ {
            stores = $2 !~ /sum_channels/ || $2 ~ /bn_sums.*Lb1E/
            n++
            if ($3 == 0 || (stores && $5 == 0)) {
                print $2 " has no load or no store of 16 bytes on " $1
                bad = 1
            }
        }
        END { exit bad || n < 5 }' "$TMP/code"
}
t "no machine code except make_rows accesses local memory" no_local
t "the wide kernels load and store 16 bytes at a time" wide_ones
# figures: ARCH REGISTERS SMEM BLOCKS AHEAD SURE LOADS16/LOADS STORES16/STORES NAME KIB
awk -v threads=256 '
    BEGIN {
        most["sm_80"] = most["sm_90"] = most["sm_100"] = 2048; most["sm_86"] = most["sm_89"] = most["sm_120"] = 1536
        room["sm_80"] = 164; room["sm_86"] = room["sm_89"] = room["sm_120"] = 100; room["sm_90"] = room["sm_100"] = 228
    }
    function least(a, b) { return a < b ? a : b }
    FILENAME ~ /kernels$/ { registers[$1 " " $5] = $2; shared[$1 " " $5] = $6; next }
    {
        key = $1 " " $2
        if (!(key in registers) || !($1 in most)) next
        blocks = least(most[$1] / threads, int(65536 / (threads * int((registers[key] + 7) / 8) * 8)))
        blocks = least(blocks, int(room[$1] * 1024 / (shared[key] + 1024)))
        print $1, registers[key], shared[key], blocks, $8, $9, $3 "/" $4, $5 "/" $6, $2, blocks * threads * $12 / 1024
    }' "$TMP/kernels" "$TMP/code" | sort >"$TMP/figures"
# What runs in every step of a shipped network; input_pixel has single bytes to load and 16 to store.
enough_in_flight() {
    awk '$1 != "sm_90" { next }
        $9 ~ /(bn_apply|bn_dgrad|sum_channels|pointwise|maxpool.*_known|global_avg|dropout).*bfloat16.*Li8E/ ||
        $9 ~ /(update|gradient_norm).*bfloat16.*Li4E/ {
            n++; if ($10 < 32) { print $9 " has " $10 " KiB in flight an SM"; bad = 1 }
        }
        END { exit bad || n < 20 }' "$TMP/figures"
}
t "each of the wide kernels of a step has at least 32 KiB of an SM's loads in flight on sm_90" enough_in_flight
names() { if command -v c++filt >/dev/null; then c++filt -p; else cat; fi; }
echo "# sm_90: registers, shared memory, blocks an SM, 16-byte loads ahead (surely), KiB in flight," \
    "16-byte loads and stores"
awk '$1 == "sm_90" && (/(sum_channels|bn_|pool|dropout).*bfloat16.*Li8|bfloat16.*(sum_of|dropout_back)/ ||
        /(update|gradient_norm).*bfloat16|4cast.*bfloat16f|finish_su|finish_st|input_pixel.*bfloat16Li8/) &&
        !/norm_sums|finish_sums_given.*(half|If)/ {
        printf "# | %s | %d | %d | %d | %d (%d) | %.0f | %s | %s |\n", $9, $2, $3, $4, $5, $6, $10, $7, $8
    }' "$TMP/figures" | names
[ "$failed" -eq 0 ]
