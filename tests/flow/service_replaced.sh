# nnpipe is replaced by another while its daemon is running: the daemon starts no run with parts of both, and says so.
. "$(dirname "$0")/../lib.sh"
export NNPIPE_SOCKET="$TMP/socket"
daemon=
trap 'kill -9 $daemon $(cat "$TMP"/runs/*/lock 2>/dev/null) 2>/dev/null; rm -rf "$TMP"' EXIT
cat >"$TMP/short.yaml" <<Y
name: short
device: cpu
data: {train: {source: synth, samples: 64, size: 8}}
loader: {batch: 8, cache: none, readers: 1}
model: [flatten, {linear: {out: classes}}]
train: {steps: 5, eval_every: never, threads: 1}
runs: $TMP/runs
Y
printf 'devices: [cpu]\nspare_bytes: 1M\n' >"$TMP/service.yaml"
mkdir "$TMP/bin" && cp "$NNPIPE" "$TMP/bin/nnpipe"
start() {
    "$TMP/bin/nnpipe" daemon --config "$TMP/service.yaml" --state "$TMP/state" 2>>"$TMP/daemon.log" &
    daemon=$!
    for _ in $(tries 300); do "$NNPIPE" status >/dev/null 2>&1 && return; sleep 0.1; done
    return 1
}
says() {
    for _ in $(tries 300); do
        "$NNPIPE" status 1 --json | grep -q "$1" && return
        sleep 0.1
    done
    "$NNPIPE" status 1 --json
    return 1
}
replaced() {
    cp "$NNPIPE" "$TMP/bin/new" && mv "$TMP/bin/new" "$TMP/bin/nnpipe" && "$NNPIPE" submit "$TMP/short.yaml" &&
        says "restart the daemon" &&
        curl -s --unix-socket "$NNPIPE_SOCKET" http://localhost/healthz | grep '"ok": *false' |
        grep "restart the daemon" && [ ! -e "$TMP/runs/short-1" ]
}
again() { kill $daemon && wait $daemon; start && says '"state": *"done"'; }
start
if command -v curl >/dev/null; then
    t "a daemon whose program was replaced starts no run; ls and /healthz say that it must be restarted" replaced
    t "it does when it was" again
else
    skip "a daemon whose program was replaced starts no run" "curl is not here"
fi
kill $daemon
wait $daemon
[ "$failed" -eq 0 ]
