# All of tests/cuda/traffic.sh: the seven networks, and the tables of docs/GPU.md.
ALL=1 exec sh "$(dirname "$0")/traffic.sh"
