# All of tests/cuda/plans.sh: every described GPU, precision and shipped network.
ALL=1 exec sh "$(dirname "$0")/plans.sh"
