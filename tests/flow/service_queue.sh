# What users of a queue ask: retry, hold, release, drain, time limits, priorities, wait, lists; over restarts of the
# service.
. "$(dirname "$0")/../lib.sh"
command -v python3 >/dev/null || { skip "the commands of a queue" "python3 is not here"; exit 0; }
export NNPIPE
python3 "$ROOT/tests/flow/service_queue.py"
