# Every path and method of docs/openapi.json answers as it says, and the server has no other; the commands' --json too.
. "$(dirname "$0")/../lib.sh"
command -v python3 >/dev/null || { skip "the service's API is as documented" "python3 is not here"; exit 0; }
export NNPIPE
python3 "$ROOT/tests/flow/service_api.py"
