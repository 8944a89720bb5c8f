#!/bin/sh
# Every pixel against Pillow's: files of all kinds that Pillow writes, and the photographs of
# NNPIPE_DATA. PILLOW_ROWS says how many random boxes a kind of crop gets.
. "$(dirname "$0")/../lib.sh"
build=${NNPIPE_BUILD:-$ROOT/build}
python=${PYTHON:-/usr/bin/python3}
"$python" -c 'import PIL' 2>/dev/null || { skip "pixels are Pillow's" "no Pillow for $python"; exit 0; }

san=$(basename "$build" | sed -n 's/^build-//p' | tr - ,)
cd "$ROOT" || exit 1
# shellcheck disable=SC2046
t "the row tool builds" ${CC:-gcc} -std=c11 -D_GNU_SOURCE -O2 ${san:+-fsanitize=$san} -I. -o "$TMP/rows" tests/golden/pillow_rows.c \
    "$build/libnnpipe.a" $(pkg-config --libs libjpeg spng zlib libzstd) -lm -pthread
"$python" tests/golden/pillow.py "$TMP/rows" "$TMP" "${PILLOW_ROWS:-160}" ${NNPIPE_DATA:+"$NNPIPE_DATA"} >"$OUT" 2>&1
code=$?
grep ' rows, .* bytes, 0 differ$' "$OUT" | sed "s/^/ok - Pillow's bytes: /"
grep -v ' rows, .* bytes, 0 differ$' "$OUT" | while read -r line; do not_ok "Pillow's bytes" "$line"; done
[ $code -eq 0 ] || not_ok "the comparison ends well" "exit $code: $(tail -n 1 "$OUT")"
[ -n "${NNPIPE_DATA:-}" ] || skip "photographs are Pillow's" "NNPIPE_DATA is not set"
[ $code -eq 0 ]
