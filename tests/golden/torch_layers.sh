#!/bin/sh
# 100 steps of small networks of attention, normalisations, gates and smooth activations: the losses that torch gave,
# 3 of them on the emulated GPU, too; and, where a torch is, torch itself, with the weights.
#   PYTHON   a python3 that has torch (default: /usr/bin/python3)
#   EMULATED_STEPS   steps on the emulated GPU (3)
. "$(dirname "$0")/../lib.sh"
python=${PYTHON:-/usr/bin/python3}
mode=live
"$python" -c 'import torch' 2>/dev/null || mode=golden

# layers MODE NNPIPE DEVICE STEPS
layers() {
    "$python" "$ROOT/tests/golden/torch_layers.py" "$1" "$2" "$TMP/$3" "$ROOT/tests/golden/torch_layers.json" \
        "$3" "$4" 2>"$OUT"
    code=$?
    [ $code -eq 0 ] || not_ok "small networks are torch's on $3" "exit $code: $(tail -n 1 "$OUT")"
}
layers "$mode" "$NNPIPE" cpu 100
if use_emulated_gpu "small networks are torch's on cuda:0"; then
    layers golden "$NNPIPE" cuda:0 "${EMULATED_STEPS:-3}"
fi
[ "$failed" -eq 0 ]
