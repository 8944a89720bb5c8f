#!/bin/sh
# Pixels are those of the Pillow that $PYTHON (default /usr/bin/python3) has, by the rule of its version: files of
# all kinds that it writes, noise, and the photographs of NNPIPE_DATA. PILLOW_ROWS says how many rows of each.
. "$(dirname "$0")/../lib.sh"
python=${PYTHON:-/usr/bin/python3}
"$python" -c 'import PIL' 2>/dev/null || {
    skip "rows are those of the installed Pillow" "no Pillow for $python"
    exit 0
}
[ -n "${NNPIPE_DATA:-}" ] || skip "rows of photographs are Pillow's" "NNPIPE_DATA is not set"
mkdir "$TMP/rows"
t "the installed Pillow makes rows" "$python" "$ROOT/tests/golden/pillow.py" "$TMP/rows" "${PILLOW_ROWS:-2000}" \
    ${NNPIPE_DATA:+"$NNPIPE_DATA"}
[ $failed -eq 0 ] && sh "$ROOT/tests/golden/pillow.sh" "$TMP/rows"
