#!/bin/sh
# 20 steps of configs/airbench94.yaml beside torch, its whitening beside torch.linalg.eigh, and its answers over six
# views. The Python that tests/torch_env.sh names. About 30 CPU-seconds.
. "$(dirname "$0")/../lib.sh"
python=$(sh "$ROOT/tests/torch_env.sh" 2>"$TMP/why")
[ "$python" != no-torch ] || {
    skip "airbench94 is torch's" "$(cat "$TMP/why")"
    exit 0
}

"$python" "$ROOT/tests/golden/torch_air.py" "$NNPIPE" "$ROOT/configs/airbench94.yaml" "$TMP" cpu 2>"$OUT"
code=$?
[ $code -eq 0 ] || not_ok "airbench94 is torch's" "exit $code: $(tail -n 1 "$OUT")"
[ $code -eq 0 ]
