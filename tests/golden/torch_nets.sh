#!/bin/sh
# The networks of configs/ against torchvision's: parameters, names, predictions, training steps.
#   PYTHON   a python3 that has torch and torchvision (default: /usr/bin/python3)
. "$(dirname "$0")/../lib.sh"
python=${PYTHON:-/usr/bin/python3}
"$python" -c 'import torch, torchvision' 2>/dev/null || {
    skip "networks are torchvision's" "no torchvision for $python"
    exit 0
}

"$python" "$ROOT/tests/golden/torch_nets.py" "$NNPIPE" "$ROOT/configs" "$TMP" ${NNPIPE_DATA:+"$NNPIPE_DATA"} 2>"$OUT"
code=$?
[ $code -eq 0 ] || not_ok "the networks are torchvision's" "exit $code: $(tail -n 1 "$OUT")"
[ $code -eq 0 ]
