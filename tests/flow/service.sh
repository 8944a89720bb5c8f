# The service from the command line: runs queued, done, paused, stopped, refused; daemon and worker killed.
. "$(dirname "$0")/../lib.sh"
export NNPIPE_SOCKET="$TMP/socket" XDG_STATE_HOME="$TMP/state" XDG_CONFIG_HOME="$TMP/config"
daemon=
trap 'kill -9 $daemon $(workers 2>/dev/null) 2>/dev/null; rm -rf "$TMP"' EXIT
mkdir -p "$TMP/config/nnpipe"
cat >"$TMP/config/nnpipe/service.yaml" <<Y
devices: [cpu]
retry: {first: 0.1, cap: 1}
spare_bytes: 1M
Y
net() { # net NAME STEPS
    cat >"$TMP/$1.yaml" <<Y
name: $1
device: cpu
data: {train: {source: synth, samples: 2000, size: 32}}
loader: {batch: 32, cache: none}
model: [{conv: {out: 8, kernel: 3, pad: 1}}, relu, global_avgpool, {linear: {out: classes}}]
train: {steps: $2, eval_every: never}
checkpoint: {every: 20 steps}
runs: $TMP/runs
Y
}
net short 40
net long 4000
start() {
    "$NNPIPE" daemon 2>>"$TMP/daemon.log" &
    daemon=$!
    for _ in $(tries 100); do "$NNPIPE" status >/dev/null 2>&1 && return; sleep 0.1; done
    tail -n 3 "$TMP/daemon.log"
    return 1
}
field() { # field ID NAME
    "$NNPIPE" status "$1" --json | grep -o "\"$2\": *\"\{0,1\}[^\",}]*" | head -n 1 | sed 's/.*: *"\{0,1\}//'
}
becomes() { # becomes ID STATE: within half a minute
    for _ in $(tries 300); do [ "$(field "$1" state)" = "$2" ] && return; sleep 0.1; done
    echo "run $1 is $(field "$1" state), not $2: $(field "$1" reason)"
    return 1
}
worker_of() { # worker_of NAME-ID: its process, from the lock that it holds; fails where there is none
    pid=$(cat "$TMP/runs/$1/lock" 2>/dev/null) && tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" |
        grep -q "nnpipe worker $1" && echo "$pid"
}
trained() { # trained NAME-ID: waits for its first checkpoint
    for _ in $(tries 300); do ls "$TMP/runs/$1"/checkpoints/step-* >/dev/null 2>&1 && return; sleep 0.1; done
    return 1
}
kill_worker() { # kill_worker NAME-ID: as soon as it has its folder
    for _ in $(tries 100); do pid=$(worker_of "$1") && kill -9 "$pid" && return; sleep 0.1; done
    return 1
}
workers() { # of this test's runs; fails where there are none
    found=1
    for lock in "$TMP"/runs/*/lock; do worker_of "$(basename "$(dirname "$lock")")" && found=0; done
    return $found
}
weights() { sha256sum "$1"/checkpoints/step-*"$2"/weights.safetensors | cut -d ' ' -f 1; }

t "a command without a service says how to start one" says "nnpipe daemon" exits 1 "$NNPIPE" ls
t "the service starts" start
echo precious >"$TMP/file"
t "a file is not taken for a socket that was left, and stays" says "not a sock" exits 1 \
    "$NNPIPE" daemon --state "$TMP/elsewhere" --socket "$TMP/file"
t "what it was is still there" grep -q precious "$TMP/file"
t "a second one on the same queue is told" says "another nnpipe daemon" exits 1 "$NNPIPE" daemon --socket "$TMP/other"
t "a run is done, and --wait says so" exits 0 "$NNPIPE" submit "$TMP/short.yaml" --wait
t "its folder has its result" test -s "$TMP/runs/short-1/result.json"
t "its log is read back" says "done in" "$NNPIPE" logs 1
config_mistake_refused() (
    sed "s/^device: .*/device: cpu\nlodaer: 1/" "$2" >"$3"
    exec "$1" submit "$3"
)
t "a config with a mistake is refused with its line" says "bad.yaml:3:" config_mistake_refused \
    "$NNPIPE" "$TMP/short.yaml" "$TMP/bad.yaml"
data_there_refused() (
    sed "s|source: synth, samples: 2000, size: 32|source: folder, path: /no/where|" "$2" >"$3"
    exec "$1" submit "$3"
)
t "data that is not there is refused with its line" says "lost.yaml:3" data_there_refused \
    "$NNPIPE" "$TMP/short.yaml" "$TMP/lost.yaml"
t "a device that is not there is refused" says "no device 'cuda:7'" exits 2 \
    "$NNPIPE" submit "$TMP/short.yaml" --device cuda:7
paused() {
    "$NNPIPE" submit "$TMP/long.yaml" --name pausing && trained pausing-2 && "$NNPIPE" pause 2 && becomes 2 paused &&
        ls "$TMP"/runs/pausing-2/checkpoints/step-* && "$NNPIPE" resume 2 && becomes 2 running && "$NNPIPE" stop 2 &&
        becomes 2 stopped
}
t "a run is paused with a checkpoint, resumed and stopped" paused
t "what is over is forgotten" sh -c '"$1" rm 2 && ! "$1" status 2' - "$NNPIPE"
order() {
    "$NNPIPE" submit "$TMP/long.yaml" --name low --priority -5 && trained low-3 &&
        "$NNPIPE" submit "$TMP/short.yaml" --name high --priority 5 --wait &&
        [ -n "$(ls "$TMP"/runs/low-3/checkpoints/)" ] && becomes 3 running &&
        "$NNPIPE" submit "$TMP/short.yaml" --name later --after 3 && becomes 5 queued && "$NNPIPE" stop 3 &&
        becomes 3 stopped && becomes 5 failed
}
t "a run of higher priority takes the device, and gives it back; one after a stopped run fails" order
killed_worker() {
    net counted 1500 && "$NNPIPE" submit "$TMP/counted.yaml" && trained counted-6 &&
        kill_worker counted-6 && becomes 6 done && [ "$(field 6 retries)" -ge 0 ]
}
t "a killed worker is started again and ends" killed_worker
killed_daemon() {
    "$NNPIPE" submit "$TMP/counted.yaml" && trained counted-7 && kill -9 $daemon && wait $daemon 2>/dev/null
    start && becomes 7 done && [ "$(field 7 step)" = 1500 ] && [ "$(field 7 accuracy)" = null ]
}
t "a killed daemon finds its worker again" killed_daemon
stopped_daemon() {
    "$NNPIPE" submit "$TMP/counted.yaml" && trained counted-8 && kill -TERM $daemon && wait $daemon && ! workers &&
        start && becomes 8 done
}
t "a stopped daemon leaves no worker, and goes on when it is started" stopped_daemon
same() {
    sed 's/^name: .*/name: alone/' "$TMP/counted.yaml" >"$TMP/alone.yaml" &&
        "$NNPIPE" train "$TMP/alone.yaml" >/dev/null 2>&1 &&
        want=$(weights "$TMP"/runs/alone-* 1500) && for run in counted-6 counted-7 counted-8; do
            [ "$(weights "$TMP/runs/$run" 1500)" = "$want" ] || {
                echo "$run has other weights"
                return 1
            }
        done
}
t "all of them have the weights of a run that nobody disturbed" same
[ "$failed" -eq 0 ]
