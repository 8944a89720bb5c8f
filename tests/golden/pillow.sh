#!/bin/sh
# pillow.sh [FOLDER]: pixels are Pillow's, in plain C and with AVX2. FOLDER has pictures and, in rows-*.txt, the
# CRC-32 of each row that pillow.py made of them and of noise; tests/golden/pillow has those of Pillow 12 and
# Pillow 13, so that no Pillow is needed. pillow_campaign.sh uses the installed Pillow.
. "$(dirname "$0")/../lib.sh"
folder=${1:-$ROOT/tests/golden/pillow}
build=${NNPIPE_BUILD:-$ROOT/build}
san=$(basename "$build" | sed -n 's/^build-//p' | tr - ,)
cd "$ROOT" || exit 1
# shellcheck disable=SC2046
t "the row tool builds" "${CC:-gcc}" -std=c11 -D_GNU_SOURCE -O2 ${san:+-fsanitize=$san} -I. -o "$TMP/rows" \
    tests/golden/pillow_rows.c \
    "$build/libnnpipe.a" $(pkg-config --libs libjpeg spng zlib libzstd) -lm -pthread
cd "$folder" || exit 1

nr_rows() { grep -vc '^#' "$1"; }
same() { # same FILE SIMD
    "$TMP/rows" "$2" <"$1" >"$TMP/rows.txt" || return 1
    [ "$(nr_rows "$1")" -gt 0 ] && cmp "$1" "$TMP/rows.txt" && return
    diff "$1" "$TMP/rows.txt" >"$TMP/rows.diff"
    echo "$(grep -c '^<' "$TMP/rows.diff") of $(nr_rows "$1") rows differ, the first: $(sed -n 2p "$TMP/rows.diff")"
    return 1
}
for file in rows-*.txt; do
    pillow=$(sed -n '1s/^# \(Pillow [^,]*\).*/\1/p' "$file")
    t "$(nr_rows "$file") rows are $pillow's, in plain C" same "$file" 0
    t "$(nr_rows "$file") rows are $pillow's, with AVX2 where it is" same "$file" 1
    t "$(nr_rows "$file") rows are $pillow's, with all this CPU has" same "$file" 3
done
crcs() { sed -n '/^#/!s/.* //p' "rows-$1.txt"; }
differ() { crcs 12 >"$TMP/12.txt" && crcs 13 >"$TMP/13.txt" && ! cmp -s "$TMP/12.txt" "$TMP/13.txt"; }
[ $# -gt 0 ] || t "Pillow 12 and Pillow 13 make other rows" differ
[ $failed -eq 0 ]
