#!/bin/sh
# The stored numbers of torch's optimizers, tests/unit/golden_optim.h, against the torch here.
#   PYTHON   a python3 that has torch (default: /usr/bin/python3)
. "$(dirname "$0")/../lib.sh"
python=${PYTHON:-/usr/bin/python3}
"$python" -c 'import torch' 2>/dev/null || {
    skip "optimizers are torch's" "no torch for $python"
    exit 0
}
t "optimizers are torch's" "$python" "$ROOT/tests/golden/torch_optim.py" check "$ROOT/tests/unit/golden_optim.h"
