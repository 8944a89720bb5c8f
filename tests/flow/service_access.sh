# Who may do what: every path of docs/openapi.json, asked by everybody of docs/SERVICE.md's table.
. "$(dirname "$0")/../lib.sh"
what="who may do what over the socket and TCP is as docs/SERVICE.md says"
command -v python3 >/dev/null || { skip "$what" "python3 is not here"; exit 0; }
[ "$(id -u)" -eq 0 ] || { skip "$what" "only root can be other users"; exit 0; }
unshare -m true 2>/dev/null || {
    skip "$what" "no mount namespace here, in which /etc/group has the group nnpipe"
    exit 0
}
export NNPIPE
python3 "$ROOT/tests/flow/service_access.py"
