# The Python package with 10,000 loops of open, batches, exceptions, forks and close in one process.
LOOPS=${LOOPS:-10000} exec sh "$(dirname "$0")/python_loader.sh"
