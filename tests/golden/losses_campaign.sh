#!/bin/sh
# The tables of tests/kernel/test_losses.c and test_mix.c are what the installed torch and torchvision give.
. "$(dirname "$0")/../lib.sh"
python=$(sh "$ROOT/tests/torch_env.sh" 2>/dev/null)
if [ "$python" = no-torch ]; then
    skip "losses are torch's, boxes of cutmix torchvision's" "no torchvision"
    exit 0
fi
# rows SCRIPT TEST: each line that the script prints is in the test, whatever its spaces
rows() {
    "$python" "$ROOT/tests/golden/$1" >"$TMP/rows.txt" && [ -s "$TMP/rows.txt" ] || return 1
    tr -d ' \n' <"$ROOT/tests/kernel/$2" >"$TMP/table.txt"
    tr -d ' ' <"$TMP/rows.txt" | while read -r row; do
        grep -qF -- "$row" "$TMP/table.txt" || { echo "$2 lacks $row"; return 1; }
    done
}
t "losses are torch's" rows torch_losses.py test_losses.c
t "boxes of cutmix are torchvision's" rows torchvision_mix.py test_mix.c
