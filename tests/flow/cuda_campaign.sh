# The emulated GPU, longer: 60 orders of its streams, 400 of its calls failing once each, and more networks.
WHOLE=1 SEEDS=60 FAILS=400 exec sh "$(dirname "$0")/cuda.sh"
