# The emulated GPU, longer: 60 orders of its streams, and 400 of its calls failing once each.
SEEDS=60 FAILS=400 exec sh "$(dirname "$0")/cuda.sh"
