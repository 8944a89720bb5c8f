# Many at the service's door: what one takes is not taken from the others, and all is given back.
. "$(dirname "$0")/../lib.sh"
command -v python3 >/dev/null || { skip "the service answers while many want something" "python3 is not here"; exit 0; }
export NNPIPE
python3 "$ROOT/tests/flow/service_load.py"
