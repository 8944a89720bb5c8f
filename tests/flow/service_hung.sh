# Runs whose folders hang: every request is answered meanwhile, a daemon that is started then is up at once, and when
# the storage answers all runs are found and end. For one user, and for a box, where the runs are other users'.
. "$(dirname "$0")/../lib.sh"
export NNPIPE_SOCKET="$TMP/own/socket"
RUNS=${HUNG_RUNS:-20} ANN=64341
daemon=
trap 'kill -9 $daemon 2>/dev/null; unmount_faulty; kill -9 $(cat "$TMP"/disk/runs/*/lock "$TMP"/own/runs/*/lock 2>/dev/null) 2>/dev/null; rm -rf "$TMP"' EXIT
chmod 755 "$TMP"
mkdir "$TMP/own" "$TMP/disk" && mkdir -m 1777 "$TMP/disk/runs"
what="runs whose folders hang"
command -v python3 >/dev/null || { skip "$what" "python3 is not here"; exit 0; }
printf 'devices: [cpu, sim]\nruns_per_device: 64\nspare_bytes: 1M\nretry: {first: 0.1, cap: 1}\n' >"$TMP/service.yaml"
net() { # net NAME STEPS RUNS
    cat >"$TMP/$1.yaml" <<Y
name: $1
device: cpu
data: {train: {source: synth, samples: 64, size: 8}}
loader: {batch: 8, cache: none, readers: 1}
model: [flatten, {linear: {out: classes}}]
train: {steps: $2, eval_every: never, threads: 1}
checkpoint: {every: 100000 steps}
runs: $3
Y
}
start() { # start PREFIX... [--box]: up within a second, on a quiet machine
    rm -f "$TMP/own/socket"
    "$@" 2>>"$TMP/daemon.log" &
    daemon=$!
    for _ in $(tries 10); do "$NNPIPE" status >/dev/null 2>&1 && return; sleep 0.1; done
    tail -n 3 "$TMP/daemon.log"
    return 1
}
own() { start "$NNPIPE" daemon --config "$TMP/service.yaml" --state "$TMP/own/state"; }
box() {
    start setpriv --reuid $ANN --regid $ANN --clear-groups --inh-caps=+setuid,+setgid,+kill \
        --ambient-caps=+setuid,+setgid,+kill \
        env HOME="$TMP/own" "$NNPIPE" daemon --box --config "$TMP/service.yaml" --state "$TMP/own/box"
}
count() { "$NNPIPE" ls --all --json | grep -c "\"state\": *\"$1\""; }
counts() { # counts STATE NUMBER
    for _ in $(tries 300); do [ "$(count "$1")" -eq "$2" ] && return; sleep 0.1; done
    "$NNPIPE" ls
    return 1
}
cat >"$TMP/ask.py" <<'P' # ask.py SECONDS RUN: requests of all kinds, one after the other; each within a second
import http.client, os, socket, sys, time
class Over(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(20)
        self.sock.connect(os.environ["NNPIPE_SOCKET"])
paths = ["/v1/runs", "/healthz", "/v1/devices", "/v1/service", "/metrics", "/v1/runs/" + sys.argv[2], "/v1/runs/%s/config" % sys.argv[2]]
took, until = [], time.monotonic() + float(sys.argv[1])
while time.monotonic() < until:
    one = Over("localhost")
    began = time.monotonic()
    one.request("GET", paths[len(took) % len(paths)])
    answer = one.getresponse()
    answer.read()
    took.append(time.monotonic() - began)
    assert answer.status < 500, answer.status
    one.close()
    time.sleep(0.003)
took.sort()
print("# %s: %d requests, p50 %.1f ms, p99 %.1f ms, longest %.1f ms" % (os.environ.get("MODE"), len(took), 1e3 * took[len(took) // 2], 1e3 * took[len(took) * 99 // 100], 1e3 * took[-1]))
sys.exit(took[len(took) * 99 // 100] > 1)
P
submit() { # submit NAME [ARGUMENT...]: by root, who is another user than the box's service
    name=$1
    shift
    "$NNPIPE" submit "$TMP/$name.yaml" "$@" >/dev/null
}

hung() { # hung own|box: with the runs of MODE going on
    net hung 100000000 "$TMP/mount/runs"
    net healthy 20 "$TMP/own/runs"
    for i in $(seq "$RUNS"); do submit hung --name "hung$i" || return 1; done
    submit hung --name late && counts running $((RUNS + 1)) &&
        late=$("$NNPIPE" ls --json | sed -n 's/.*"id": *\([0-9]*\), "name": *"late".*/\1/p') &&
        "$NNPIPE" pause "$late" >/dev/null && counts running "$RUNS" || return 1
    for _ in $(tries 300); do [ "$(ls "$TMP"/disk/runs/*/report | wc -l)" -gt "$RUNS" ] && break; sleep 0.1; done
    sleep 0.5
    echo "hang *" >"$TMP/mount/.control"
}
answered() { # while the daemon looks at what hangs, as it ends, and starts again
    python3 "$TMP/ask.py" 2 1 && kill -9 $daemon && wait $daemon
    "$1" && python3 "$TMP/ask.py" 2 1 && [ "$(count running)" -eq "$RUNS" ]
}
others_go_on() { # of a user with hung runs, too; and one that would begin in the hung folder says what it waits for
    submit healthy && "$NNPIPE" resume "$late" >/dev/null && counts done 1 || return 1
    for _ in $(tries 300); do
        "$NNPIPE" ls --json | grep '"name": *"late"' | grep -q 'does not answer' && return
        sleep 0.1
    done
    "$NNPIPE" ls --json | grep '"late"'
    return 1
}
# The check of a submission has a minute; a folder that hangs has its answer long before.
refused() { says "$TMP/mount/runs: its storage does not answer" exits 2 "$NNPIPE" submit "$TMP/hung.yaml" --name new; }
found_again() { # when it answers
    echo clear >"$TMP/mount/.control"
    counts running $((RUNS + 1)) || return 1
    for _ in $(tries 300); do
        [ "$("$NNPIPE" ls --json | grep '"state": *"running"' | grep -c '"step": *[1-9]')" -eq $((RUNS + 1)) ] && break
        sleep 0.1
    done
    ids=$("$NNPIPE" ls --json | sed -n 's/.*"id": *\([0-9]*\).*"state": *"running".*/\1/p')
    # shellcheck disable=SC2086 # words
    "$NNPIPE" stop $ids >/dev/null && counts running 0 && counts stopping 0 &&
        [ "$("$NNPIPE" ls --all --json | grep '"state": *"stopped"' | grep -c '"retries": *0')" -eq $((RUNS + 1)) ]
}
all() { # all own|box
    t "$MODE: $RUNS runs begin" hung "$1"
    t "$MODE: while their folders hang every request is answered, before and after a restart" answered "$1"
    grep "^#" "$OUT"
    t "$MODE: another run goes on, and one that would begin there waits and says why" others_go_on
    t "$MODE: a submission into the hung folder is refused, with the folder's name" refused
    t "$MODE: when the folders answer all runs are found, say how far they are, and stop when told" found_again
    kill $daemon && wait $daemon
    rm -rf "$TMP"/disk/runs/* "$TMP/own/runs"
}
if mount_faulty "$TMP/disk" "$TMP/mount"; then
    MODE=user
    [ "${HUNG_MODE:-user}" = box ] || own || not_ok "the user's service starts" "$(tail -n 3 "$TMP/daemon.log")"
    export MODE
    [ "${HUNG_MODE:-user}" = box ] || all own
    if [ "$(id -u)" -eq 0 ] && setpriv --inh-caps=+setuid --ambient-caps=+setuid --reuid $ANN true 2>/dev/null; then
        MODE=box
        chown $ANN "$TMP/own" && chmod 1777 "$TMP/own"
        box || not_ok "the box's service starts" "$(tail -n 3 "$TMP/daemon.log")"
        RUNS=${HUNG_RUNS:-8}
        all box
    else
        skip "box: $what" "setpriv cannot pass rights on here"
    fi
else
    skip "$what" "no FUSE file system can be mounted here"
fi
[ "$failed" -eq 0 ]
