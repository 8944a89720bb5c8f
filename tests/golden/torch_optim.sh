#!/bin/sh
# The stored numbers of torch's optimizers and schedules, tests/unit/golden_*.h, against the torch here.
#   PYTHON   a python3 that has torch (default: /usr/bin/python3)
. "$(dirname "$0")/../lib.sh"
python=${PYTHON:-/usr/bin/python3}
"$python" -c 'import torch' 2>/dev/null || {
    skip "optimizers are torch's" "no torch for $python"
    exit 0
}

for what in optim schedule; do
    t "the stored numbers of torch's ${what}s are those of the torch here" "$python" \
        "$ROOT/tests/golden/torch_$what.py" check "$ROOT/tests/unit/golden_$what.h"
done
[ "$failed" -eq 0 ]
