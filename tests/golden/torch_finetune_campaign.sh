#!/bin/sh
# Fine-tuning of a file of torch.save() beside torch, frozen and not: 50 steps on photographs, in some minutes.
#   NNPIPE_DATA   a folder with imagenet-sample-500.tar (default: ../data)
. "$(dirname "$0")/../lib.sh"
python=$(sh "$ROOT/tests/torch_env.sh" 2>"$TMP/why")
[ "$python" != no-torch ] || {
    skip "fine-tuning is torch's" "$(cat "$TMP/why")"
    exit 0
}
archive=${NNPIPE_DATA:-$ROOT/../data}/imagenet-sample-500.tar
[ -e "$archive" ] || {
    skip "fine-tuning is torch's" "there is no $archive"
    exit 0
}

"$python" -W ignore "$ROOT/tests/golden/torch_finetune.py" "$NNPIPE" "$ROOT/configs/resnet18.yaml" "$TMP" "$archive" \
    2>"$OUT"
code=$?
[ $code -eq 0 ] || not_ok "fine-tuning is torch's" "exit $code: $(tail -n 1 "$OUT")"
[ $code -eq 0 ]
