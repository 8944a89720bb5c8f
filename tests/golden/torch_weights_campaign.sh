# Files of weights that the installed torch writes, in each of its forms, give the predictions of the same weights as
# safetensors. The Python that tests/torch_env.sh names.
. "$(dirname "$0")/../lib.sh"
python=$(sh "$ROOT/tests/torch_env.sh" 2>"$TMP/why")
[ "$python" != no-torch ] || {
    skip "files of torch's weights" "$(cat "$TMP/why")"
    exit 0
}

"$python" -W ignore "$ROOT/tests/golden/torch_weights.py" "$NNPIPE" "$ROOT/configs/resnet18.yaml" "$TMP" 2>"$OUT"
code=$?
[ $code -eq 0 ] || not_ok "files of torch's weights" "exit $code: $(tail -n 1 "$OUT")"
[ $code -eq 0 ]
