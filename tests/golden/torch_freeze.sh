#!/bin/sh
# Frozen parameters and rates of their own: the losses that torch gave, and, where a torch is, torch itself; with whole
# batches, and with batches in four lanes.
#   PYTHON   a python3 that has torch (default: /usr/bin/python3)
. "$(dirname "$0")/../lib.sh"
python=${PYTHON:-/usr/bin/python3}
mode=live
"$python" -c 'import torch' 2>/dev/null || mode=golden

for lanes in 1 4; do
    mkdir "$TMP/$lanes"
    [ "$lanes" = 1 ] || echo "# in four lanes:"
    "$python" "$ROOT/tests/golden/torch_freeze.py" "$mode" "$NNPIPE" "$TMP/$lanes" \
        "$ROOT/tests/golden/torch_freeze.json" "$lanes" 2>"$OUT"
    code=$?
    [ $code -eq 0 ] || not_ok "frozen parameters are torch's" "exit $code: $(tail -n 1 "$OUT")"
done
[ "$failed" -eq 0 ]
