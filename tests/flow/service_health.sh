# /healthz and /metrics in all states, a full disk among them; Prometheus itself scrapes the latter.
. "$(dirname "$0")/../lib.sh"
what="the service's health and metrics are told"
command -v python3 >/dev/null || { skip "$what" "python3 is not here"; exit 0; }
export NNPIPE
if [ "$(id -u)" -eq 0 ] && unshare -m true 2>/dev/null; then
    FULL_DISK=1 unshare -m python3 "$ROOT/tests/flow/service_health.py"
else
    skip "a full disk is told" "only root can mount one of their own here"
    python3 "$ROOT/tests/flow/service_health.py"
fi
