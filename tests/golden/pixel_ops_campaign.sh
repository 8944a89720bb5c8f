#!/bin/sh
# Operations on pixels make the bytes of the installed torchvision and Pillow, with random values: $PIXEL_OPS pictures,
# and every colour once for those that mix channels.
. "$(dirname "$0")/../lib.sh"
python=$(sh "$ROOT/tests/torch_env.sh" 2>/dev/null)
if [ "$python" = no-torch ]; then
    skip "operations on pixels make torchvision's bytes" "no torchvision"
    exit 0
fi
made() { "$python" "$ROOT/tests/golden/pixel_ops.py" "${PIXEL_OPS:-3000}" "$$" colours >"$TMP/live.txt"; }
t "the installed torchvision makes pictures" made
[ $failed -eq 0 ] && sh "$ROOT/tests/golden/pixel_ops.sh" "$TMP/live.txt"
