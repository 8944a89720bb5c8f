#!/bin/sh
# The scripts that compare with torch where the tests' Python has one, with the Python of tests/torch_env.sh: shipped
# networks' predictions and training steps, frozen parameters, optimizers and schedules.
python=$(sh "$(dirname "$0")/../torch_env.sh" 2>/dev/null)
[ "$python" = no-torch ] || export PYTHON="$python"
code=0
for what in nets freeze optim; do sh "$(dirname "$0")/torch_$what.sh" || code=1; done
exit $code
