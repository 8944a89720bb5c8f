# CYCLES (10,000) times submit, pause, resume, stop: the daemon does not grow, and idles.
. "$(dirname "$0")/../lib.sh"
case ${NNPIPE_BUILD:-build} in
*build-*)
    skip "what the daemon holds in memory" "a sanitizer's allocator keeps no such account; it looks for leaks itself"
    exit 0
    ;;
esac
daemon=
trap 'kill -9 $daemon 2>/dev/null; rm -rf "$TMP"' EXIT
: "${NNPIPE_BUILD:=$ROOT/build}"
export NNPIPE_SOCKET="$TMP/socket" XDG_STATE_HOME="$TMP/state" XDG_CONFIG_HOME="$TMP/config"
mkdir -p "$TMP/config/nnpipe"
printf 'devices: [cpu]\nspare_bytes: 1M\nkeep: {runs: 50}\n' >"$TMP/config/nnpipe/service.yaml"
cc -shared -fPIC -o "$TMP/live.so" "$ROOT/tests/flow/live_bytes.c" -ldl || {
    not_ok "what counts live bytes builds" ""
    exit 1
}
LIVE_BYTES="$TMP/live" LD_PRELOAD="$TMP/live.so" "$NNPIPE" daemon 2>"$TMP/daemon.log" &
daemon=$!
for _ in $(tries 100); do "$NNPIPE" status >/dev/null 2>&1 && break; sleep 0.1; done
cycles=${CYCLES:-10000}
t "$cycles times submit, pause, resume, stop: nothing is left allocated, no descriptor and no thread" \
    "$NNPIPE_BUILD/tests/flow/service_cycles" "$TMP/socket" $daemon "$TMP" "$cycles" "$TMP/live"
echo "# $(tail -n 1 "$OUT")"
[ "$failed" -eq 0 ]
