# The service's page in a real Chromium, by mouse, keyboard and at a telephone's width: tests/flow/page.py.
. "$(dirname "$0")/../lib.sh"
export NNPIPE_SOCKET="$TMP/socket" XDG_STATE_HOME="$TMP/state" XDG_CONFIG_HOME="$TMP/config"
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$browser" ]; then
    skip "a browser shows the service's page" "no chromium here: the page was not opened"
    exit 0
fi
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
odd="$TMP/<img src=x onerror=document.title=1>" # a folder's name is its owner's
mkdir -p "$TMP/config/nnpipe" "$odd"
cat >"$TMP/config/nnpipe/service.yaml" <<Y
devices: [cpu, sim]
spare_bytes: 1M
listen: 127.0.0.1:$port
Y
cat >"$odd/net.yaml" <<Y
name: net
device: {sim: {step_ms: 20}}
data: {train: {source: synth, samples: 1000, size: 32}, test: {source: synth, samples: 100, size: 32}}
loader: {batch: 32, cache: none}
model: [flatten, {linear: {out: classes}}]
optimizer: {sgd: {lr: 0.01}}
train: {steps: 100000, eval_every: 50 steps}
checkpoint: {every: 5000 steps}
runs: $TMP/runs
Y
cat >"$TMP/serve" <<E
#!/bin/sh
echo \$\$ >"$TMP/pid"
exec "$NNPIPE" daemon 2>>"$TMP/daemon.log"
E
chmod +x "$TMP/serve"
trap 'kill -9 $(cat "$TMP/pid") $(cat "$TMP"/runs/*/lock) 2>/dev/null; sleep 0.2; rm -rf "$TMP"' EXIT
"$TMP/serve" &
for _ in $(tries 100); do "$NNPIPE" status >/dev/null 2>&1 && break; sleep 0.1; done
queue() { "$NNPIPE" submit "$odd/net.yaml" "$@"; }
runs() {
    queue --name short --device cpu -o train.steps=20 --wait && queue --name gone --device cpu && "$NNPIPE" stop 2 &&
        queue --name orphan --device cpu --after 2 &&
        queue --name held --device cpu && sleep 1 && "$NNPIPE" pause 4 && queue --name going && queue --name waiting
}
t "runs for the page are there" runs
PYTHONDONTWRITEBYTECODE=1 python3 "$ROOT/tests/flow/page.py" "$browser" "$TMP" "http://127.0.0.1:$port/" "$NNPIPE" ||
    failed=1
[ "$failed" -eq 0 ]
