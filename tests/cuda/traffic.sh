# The bytes that a training step reads and writes in the GPU's memory, and its launches: a model
# (tests/cuda/traffic.c) beside what the emulated GPU counts (tests/emu/traffic.h), which must agree. ALL=1: all seven
# networks, and the tables of docs/GPU.md: by the model at each config's own batch.
. "$(dirname "$0")/../lib.sh"
MODEL=${NNPIPE_BUILD:-$ROOT/build}/tests/cuda/traffic
if [ ! -x "$MODEL" ] || ! grep -qw fma /proc/cpuinfo; then
    skip "bytes and launches of a step" "nvcc or cuDNN is not here, or a sanitizer is, or the CPU has no fma"
    exit 0
fi
cd "$ROOT" || exit 1
export NNPIPE_CUDA_LIBS="$EMU" NNPIPE_CUDA_LIBS_ONLY=1 HOME="$TMP"

# nets: CONFIG HEIGHT CHANNELS CLASSES BATCH SMALL_BATCH
nets() {
    cat <<N
resnet50 224 3 1000 256 2
resnet18 224 3 1000 256 2
alexnet 224 3 1000 128 2
cifar10 32 3 10 512 4
resnet20 32 3 10 128 4
cnn 32 3 8 128 4
mnist 28 1 10 128 4
N
}
# counted CONFIG BATCH: what the emulated GPU counts, in $TMP/counted
counted() {
    NNPIPE_EMU_TRAFFIC=$TMP/traffic NNPIPE_EMU_MEMORY=17179869184 "$EMU/fma/nnpipe" bench step "configs/$1.yaml" \
        --steps 2 --device cuda:0 -o loader.batch="$2" -o precision=bf16 -o train.accumulate=1 >"$OUT" 2>&1 || {
        cat "$OUT"
        return 1
    }
    awk -f tests/cuda/traffic.awk "$TMP/traffic" >"$TMP/counted"
}
# agrees CONFIG SIZE CHANNELS CLASSES BATCH SMALL_BATCH: each part's launches are the model's, its bytes to 3 % and
# 4 KiB (sectors of small operands). The bench says which number of classes it assumes.
agrees() {
    counted "$1" "$6" || return 1
    "$MODEL" bf16 "configs/$1.yaml" "$2" "$3" "$(sed -n 's/.* \([0-9]*\) classes are assumed.*/\1/p' "$OUT")" \
        "$6" >"$TMP/model" || return 1
    awk -F '; ' '
        function off(a, b) { d = a - b; if (d < 0) d = -d; return d > 0.03 * b + 4096 }
        FNR == NR { split($2, m, " "); launches[$1] = m[1]; read[$1] = m[2]; written[$1] = m[3]; n++; next }
        $1 == "launches" || $1 == "banks" { next }
        {
            split($2, c, " ")
            seen++
            if (c[1] != launches[$1] || off(c[2], read[$1]) || off(c[3], written[$1])) {
                printf "%s: %d launches read %d and write %d; the model: %d, %d, %d\n", $1, c[1], c[2], c[3], \
                    launches[$1], read[$1], written[$1]
                bad = 1
            }
        }
        END { exit bad || seen != n || n < 5 }' "$TMP/model" "$TMP/counted"
}
# An element that a kernel reads twice is counted twice: the global pool of 8x8 pixels reads once 64 times what it
# writes, a loss reads its logits again and again.
reads_once() {
    awk -F '; ' '/np_cuda_global_avgpool\(/ {
            if (split($NF, c, " ") == 7 && c[2] == c[3] && c[2] == 64 * c[4]) ok = 1
        }
        /np_cuda_cross_entropy/ { split($NF, c, " "); if (c[2] > 2 * c[3]) again = 1 }
        END { exit !(ok && again) }' "$TMP/traffic"
}
some() { if [ -n "${ALL:-}" ]; then nets; else nets | grep -e '^resnet20' -e '^mnist'; fi; }
some >"$TMP/some"
while read -r net; do
    # shellcheck disable=SC2086 # a network's sizes are words
    t "bytes and launches of a step of ${net%% *} are the model's" agrees $net
    [ "${net%% *}" != resnet20 ] || t "each access is counted, and each sector once" reads_once
    sed "s/^/${net%% *} /" "$TMP/counted" >>"$TMP/all"
    sed "s/^/${net%% *} /" "$TMP/model" >>"$TMP/models"
done <"$TMP/some"

# --- the tables ------------------------------------------------------------------------------------
row() { printf '# |'; printf ' %s |' "$@"; printf '\n'; }
# mb PART CONFIG BATCH: of a step by the model, for an image
mb() { awk -F '; ' -v part="$1" -v batch="$3" '$1 == part { split($2, m, " "); sum += m[2] + m[3] }
    part == "all" && NF > 1 { split($2, m, " "); sum += m[2] + m[3] }
    END { printf "%.2f\n", sum / batch * 1e-6 }' "$TMP/own-$2"; }
tables() {
    echo "# shared memory, all networks: passes of a launch's first block beside those without conflicts"
    awk '$2 == "banks;" { passes[$3] += $4; least[$3] += $5 }
        END { for (k in passes) printf "# | %s | %.1f |\n", k, passes[k] / least[k] }' "$TMP/all" | sort
    echo "# bytes that the threads of own kernels access, beside the sectors of 32 bytes, of each part:" \
        "the caches' load"
    awk '$2 ~ /^(bn_|add|pool|loss|update|rest)/ { sub(/;/, "", $2); read[$2] += $4 + $5; issued[$2] += $6 }
        END { for (p in read) printf "# | %s | %.2f |\n", p, issued[p] / read[p] }' "$TMP/all" | sort
    names=$(nets | cut -d ' ' -f 1)
    while read -r name size channels classes batch small; do
        "$MODEL" bf16 "configs/$name.yaml" "$size" "$channels" "$classes" "$batch" >"$TMP/own-$name"
    done <"$TMP/some"
    # shellcheck disable=SC2086
    row "MB an image" $names
    echo "# |---|---|---|---|---|---|---|---|"
    for part in conv dgrad wgrad linear bn_stats bn_apply bn_reduce bn_dgrad add pool loss update rest all; do
        # shellcheck disable=SC2046
        row "$part" $(nets | while read -r name size channels classes batch small; do mb $part "$name" "$batch"; done)
    done
    for column in "1 own kernels" "2 calls of cuDNN and cuBLASLt" "3 nodes of the step's graph"; do
        # shellcheck disable=SC2046
        row "${column#* }" $(for name in $names; do
            awk -v name="$name" -v at="${column%% *}" '$1 == name && $2 == "launches;" { print $(2 + at) }' "$TMP/all"
        done)
    done
}
[ -z "${ALL:-}" ] || tables
[ "$failed" -eq 0 ]
