# 10,000 loaders in one process: library.sh with all loops.
LOOPS=${LOOPS:-10000} exec sh "$(dirname "$0")/library.sh"
