#!/bin/sh
# Small networks of the newer layers beside torch, and all 100 steps of them on the emulated GPU.
python=$(sh "$(dirname "$0")/../torch_env.sh" 2>/dev/null)
[ "$python" = no-torch ] || export PYTHON="$python"
EMULATED_STEPS=100 exec sh "$(dirname "$0")/torch_layers.sh"
