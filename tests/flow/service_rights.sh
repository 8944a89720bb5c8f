# What a run, a command that is told of its end, and another's submission may: no more than their user.
. "$(dirname "$0")/../lib.sh"
[ "$(id -u)" -eq 0 ] || { skip "rights of what the service starts" "only root can be other users"; exit 0; }
ANN=64341
export NNPIPE_SOCKET="$TMP/ann/socket"
daemon=
trap 'kill -9 $daemon $(cat "$TMP"/ann/runs/*/lock 2>/dev/null) 2>/dev/null; umount "$TMP/closed/private" 2>/dev/null; rm -rf "$TMP"' EXIT
chmod 755 "$TMP"
mkdir "$TMP/ann" && chown $ANN "$TMP/ann"
cat >"$TMP/short.yaml" <<Y
name: short
device: cpu
data: {train: {source: synth, samples: 2000, size: 32}}
loader: {batch: 32, cache: none}
model: [{conv: {out: 8, kernel: 3, pad: 1}}, relu, global_avgpool, {linear: {out: classes}}]
train: {steps: 40, eval_every: never}
runs: $TMP/ann/runs
Y
printf 'devices: [cpu]\nspare_bytes: 1M\non_end: "cat /proc/self/status >%s/ann/hook.new && mv %s/ann/hook.new %s/ann/hook"\n' "$TMP" "$TMP" "$TMP" >"$TMP/service.yaml"
start() { # start [--box]: a service of ann's, which may become anybody
    rm -f "$TMP/ann/hook" "$TMP/ann/socket"
    setpriv --reuid $ANN --regid $ANN --clear-groups --inh-caps=+setuid,+setgid,+kill \
        --ambient-caps=+setuid,+setgid,+kill \
        env HOME="$TMP/ann" "$NNPIPE" daemon --config "$TMP/service.yaml" --state "$TMP/ann/state$*" "$@" \
        2>>"$TMP/daemon.log" &
    daemon=$!
    for _ in $(tries 100); do "$NNPIPE" status >/dev/null 2>&1 && return; sleep 0.1; done
    tail -n 3 "$TMP/daemon.log"
    return 1
}
told() { for _ in $(tries 100); do [ -s "$TMP/ann/hook" ] && return; sleep 0.1; done; return 1; }

start
roots() {
    "$NNPIPE" submit "$TMP/short.yaml" --wait && [ "$(stat -c %u "$TMP/ann/runs/short-1")" = $ANN ] &&
        "$NNPIPE" status 1 --json | grep -q "\"uid\": *$ANN"
}
t "what root submits to a user's service is a run of that user's" roots
kill $daemon
wait $daemon
if setpriv --inh-caps=+setuid --ambient-caps=+setuid --reuid $ANN true 2>/dev/null; then
    start --box
    hook() {
        setpriv --reuid $ANN --regid $ANN --clear-groups "$NNPIPE" submit "$TMP/short.yaml" --name hooked --wait &&
            told &&
            grep "^Uid:.$ANN" "$TMP/ann/hook" && grep "^CapEff:.0*$" "$TMP/ann/hook" &&
            grep "^CapPrm:.0*$" "$TMP/ann/hook"
    }
    grep "CapEff" "/proc/$daemon/status" | grep -q e0 || not_ok "the box's service may become others" \
        "$(grep Cap "/proc/$daemon/status")"
    t "a command that is told of a run's end may not become others, as the service may" hook
    if mkdir -m 700 "$TMP/closed" && mkdir "$TMP/closed/private" &&
        mount -t tmpfs -o size=6m none "$TMP/closed/private" 2>/dev/null; then
        room() { # of another's disk, in a folder that the service may not enter
            head -c 5200k /dev/zero >"$TMP/closed/private/filler" &&
                sed "s|^runs:.*|runs: $TMP/closed/private/runs|" "$TMP/short.yaml" >"$TMP/private.yaml" &&
                "$NNPIPE" submit "$TMP/private.yaml" --name unseen && for _ in $(tries 50); do
                    "$NNPIPE" status 2 --json | grep -q "disk of .* is full" && break
                    sleep 0.1
                done
            "$NNPIPE" status 2 --json | grep "disk of .* is full"
        }
        t "whether there is room for a run is asked with its owner's rights" room
        umount "$TMP/closed/private"
    else
        skip "whether there is room for a run is asked with its owner's rights" "no file system can be mounted here"
    fi
else
    skip "a command that is told of a run's end may not become others" "setpriv cannot pass rights on here"
fi
kill $daemon
wait $daemon
cat >"$TMP/terminal.py" <<'P' # a daemon in the foreground of a terminal: who of its children has it?
import os, pty, subprocess, sys, time
master, slave = pty.openpty()
def own():
    os.setsid(); import fcntl, termios; fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
os.environ["NNPIPE_SOCKET"] = sys.argv[2] + "/socket"
with subprocess.Popen([sys.argv[1], "daemon", "--config", sys.argv[2] + "/service.yaml", "--state", sys.argv[2] + "/state"], preexec_fn=own, stderr=subprocess.DEVNULL) as daemon:
    has = set()
    while subprocess.run([sys.argv[1], "status"], capture_output=True).returncode: time.sleep(0.1)
    subprocess.run([sys.argv[1], "submit", sys.argv[2] + "/short.yaml", "--name", "tty"], check=True)
    for _ in range(100):
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                words = open("/proc/%s/stat" % pid).read().rsplit(")", 1)[1].split()
                if "worker" in open("/proc/%s/cmdline" % pid).read().split("\0") and int(words[1]) == daemon.pid: has.add(int(words[4]))
            except OSError: pass
        if has: break
        time.sleep(0.05)
    daemon.terminate()
print("terminals of workers:", has)
sys.exit(has != {0})
P
if command -v python3 >/dev/null; then
    t "a run has no way to the terminal of the service" python3 "$TMP/terminal.py" "$NNPIPE" "$TMP"
else
    skip "a run has no way to the terminal of the service" "python3 is not here"
fi
[ "$failed" -eq 0 ]
