# Checkpoints on the emulated GPU, longer: 20 orders of the streams, 30 kills, 150 calls that fail once each.
KILLS="$(seq 0.02 0.01 0.31)" SEEDS=20 EPOCHS=60 FAILS=150 exec sh "$(dirname "$0")/cuda_checkpoints.sh"
