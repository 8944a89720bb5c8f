#!/bin/sh
# pixel_ops.sh [FILE]: operations on pixels make torchvision's bytes. FILE has the CRC-32 of each picture that
# pixel_ops.py made; pixel_ops.txt has those of torchvision 0.29.2 over Pillow 13, so that neither is needed.
# pixel_ops_campaign.sh uses the installed ones.
. "$(dirname "$0")/../lib.sh"
build=${NNPIPE_BUILD:-$ROOT/build}
san=$(basename "$build" | sed -n 's/^build-//p' | tr - ,)
cd "$ROOT" || exit 1
file=${1:-tests/golden/pixel_ops.txt}
# shellcheck disable=SC2046
t "the tool builds" "${CC:-gcc}" -std=c11 -D_GNU_SOURCE -O2 -ffp-contract=off ${san:+-fsanitize=$san} -I. \
    -o "$TMP/ops" tests/golden/pixel_ops.c "$build/libnnpipe.a" \
    $(pkg-config --libs libjpeg spng zlib libzstd yaml-0.1) -lm -pthread

nr_rows() { grep -vc '^#' "$file"; }
same() { # same SIMD
    "$TMP/ops" "$1" <"$file" >"$TMP/ops.txt" || return 1
    [ "$(nr_rows)" -gt 0 ] && cmp "$file" "$TMP/ops.txt" && return
    diff "$file" "$TMP/ops.txt" >"$TMP/ops.diff"
    echo "$(grep -c '^<' "$TMP/ops.diff") of $(nr_rows) pictures differ, the first: $(sed -n 2p "$TMP/ops.diff")"
    return 1
}
maker=$(sed -n '1s/^# \([^:]*\):.*/\1/p' "$file")
t "$(nr_rows) pictures are those of $maker, in plain C" same 0
t "$(nr_rows) pictures are those of $maker, with AVX2 where it is" same 1
t "$(nr_rows) pictures are those of $maker, with all this CPU has" same 3
[ $failed -eq 0 ]
