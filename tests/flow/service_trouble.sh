# The service when things go wrong: hung workers, full disks, settings that are wrong, runs that die each time;
# and what it tells of runs that are over.
. "$(dirname "$0")/../lib.sh"
export NNPIPE_SOCKET="$TMP/socket" XDG_STATE_HOME="$TMP/state" XDG_CONFIG_HOME="$TMP/config"
daemon= server=
trap 'kill -9 $daemon $server $(cat "$TMP"/*/*/lock "$TMP"/small/runs/*/lock 2>/dev/null) 2>/dev/null; umount "$TMP/small" 2>/dev/null; rm -rf "$TMP"' EXIT
mkdir -p "$TMP/config/nnpipe"
settings() { # settings LINE...
    printf 'devices: [cpu]\nretry: {first: 0.05, cap: 0.2}\nspare_bytes: 1M\n' >"$TMP/config/nnpipe/service.yaml"
    for line in "$@"; do echo "$line" >>"$TMP/config/nnpipe/service.yaml"; done
}
net() { # net NAME STEPS [RUNS]
    cat >"$TMP/$1.yaml" <<Y
name: $1
device: cpu
data: {train: {source: synth, samples: 2000, size: 32}}
loader: {batch: 32, cache: none, readers: 1}
model: [{conv: {out: 8, kernel: 3, pad: 1}}, relu, global_avgpool, {linear: {out: classes}}]
train: {steps: $2, eval_every: never, threads: 1}
checkpoint: {every: 20 steps, keep: 2}
runs: ${3:-$TMP/runs}
Y
}
net short 40
net long 100000
start() {
    "$NNPIPE" daemon 2>>"$TMP/daemon.log" &
    daemon=$!
    for _ in $(tries 100); do "$NNPIPE" status >/dev/null 2>&1 && return; sleep 0.1; done
    tail -n 3 "$TMP/daemon.log"
    return 1
}
again() { kill -TERM $daemon && wait $daemon; start; }
field() { # field ID NAME
    "$NNPIPE" status "$1" --json | sed -n "s/.*\"$2\": *\"\{0,1\}\([^\",}]*\).*/\1/p" | head -n 1
}
becomes() { # becomes ID STATE [SECONDS]
    for _ in $(tries $((10 * ${3:-30}))); do [ "$(field "$1" state)" = "$2" ] && return; sleep 0.1; done
    echo "run $1 is $(field "$1" state), not $2: $(field "$1" reason)"
    return 1
}
says_why() { # says_why ID TEXT [SECONDS]: its reason comes to hold that
    for _ in $(tries $((10 * ${3:-30}))); do
        "$NNPIPE" status "$1" --json | grep -q "\"reason\": *\"[^\"]*$2" && return
        sleep 0.1
    done
    echo "run $1 says: $("$NNPIPE" status "$1" --json | grep -o '"reason"[^,]*')"
    return 1
}
submitted() { "$NNPIPE" submit "$@" --json | sed -n 's/.*"id": *\([0-9]*\).*/\1/p'; }
worker_of() { # worker_of ID: its process, if there is one
    pid_=$(cat "$TMP"/*/*-"$1"/lock "$TMP"/small/runs/*-"$1"/lock 2>/dev/null | head -n 1)
    [ -z "$pid_" ] || ! kill -0 "$pid_" 2>/dev/null || echo "$pid_"
}
trained() { # trained ID [NAME]: it has written a checkpoint
    for _ in $(tries 300); do ls "$TMP"/runs/${2:-*}-"$1"/checkpoints/step-* >/dev/null 2>&1 && return; sleep 0.1; done
    return 1
}

settings
start

hung() {
    settings "hang_minutes: 0.1" && kill -HUP $daemon
    id=$(submitted "$TMP/long.yaml" --name hung) && trained "$id" && pid=$(worker_of "$id") && kill -STOP "$pid" &&
        for _ in $(tries 300); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
    now=
    for _ in $(tries 300); do now=$(worker_of "$id"); [ -n "$now" ] && [ "$now" != "$pid" ] && break; sleep 0.1; done
    code=1
    for _ in $(tries 300); do
        grep -q "going on from the checkpoint" "$TMP"/runs/hung-"$id"/output/* && code=0 && break
        sleep 0.1
    done
    [ -n "$now" ] && [ "$now" != "$pid" ] || code=1
    "$NNPIPE" stop "$id" >/dev/null && becomes "$id" stopped && settings && kill -HUP $daemon && return $code
}
t "a worker that makes no progress is ended, and its run goes on from its checkpoint" hung

dying() {
    id=$(submitted "$TMP/long.yaml" --name dying --max-retries 2) && for _ in $(tries 600); do
        pid=$(worker_of "$id")
        [ -z "$pid" ] || kill -9 "$pid" 2>/dev/null
        [ "$(field "$id" state)" = failed ] && break
    done
    [ "$(field "$id" state)" = failed ] && [ "$(field "$id" retries)" -eq 3 ] && says_why "$id" SIGKILL
}
t "a run whose process dies each time, without a checkpoint, fails after its tries and says of what" dying

waiting() {
    printf 'devices: [cpu]\nretry: {first: 60, cap: 60}\nspare_bytes: 1M\n' >"$TMP/config/nnpipe/service.yaml" &&
        kill -HUP $daemon
    id=$(submitted "$TMP/long.yaml" --name waiting) && trained "$id" && kill -9 "$(worker_of "$id")" &&
        says_why "$id" "try 1" && "$NNPIPE" pause "$id" &&
        [ "$(field "$id" state)" = paused ] && ! "$NNPIPE" status "$id" --json | grep "try 1" && settings &&
        kill -HUP $daemon && "$NNPIPE" resume "$id" &&
        becomes "$id" running && "$NNPIPE" stop "$id" && becomes "$id" stopped
}
t "a run that is paused while it waits for its next try says no more of it, and is resumed at once" waiting

deaf() {
    settings "stop_seconds: 1" && kill -HUP $daemon
    id=$(submitted "$TMP/long.yaml" --name deaf) && trained "$id" && kill -STOP "$(worker_of "$id")" &&
        kill -TERM $daemon && wait $daemon &&
        [ -z "$(worker_of "$id")" ] && settings && start && becomes "$id" running && "$NNPIPE" stop "$id" &&
        becomes "$id" stopped
}
t "a worker that does not hear SIGTERM does not keep the daemon from ending, and its run goes on later" deaf

wrong_settings() {
    id=$(submitted "$TMP/long.yaml" --name kept) && trained "$id" && pid=$(worker_of "$id")
    echo "devcies: [sim]" >>"$TMP/config/nnpipe/service.yaml" && kill -HUP $daemon
    for _ in $(tries 300); do grep -q "nothing is changed.*service.yaml:4" "$TMP/daemon.log" && break; sleep 0.1; done
    grep -q "nothing is changed.*service.yaml:4" "$TMP/daemon.log" && [ "$(worker_of "$id")" = "$pid" ] &&
        settings "devices: auto" && ! "$NNPIPE" daemon --state "$TMP/other" --socket "$TMP/other.socket" \
        2>"$TMP/twice" && grep -q "service.yaml:4" "$TMP/twice" &&
        settings "runs_per_device: 2" && kill -HUP $daemon && other=$(submitted "$TMP/short.yaml") &&
        becomes "$other" done && [ "$(worker_of "$id")" = "$pid" ]
    code=$?
    settings
    kill -HUP $daemon
    "$NNPIPE" stop "$id" && becomes "$id" stopped && return $code
}
t "settings that are wrong change nothing, and good ones hold at once; runs go on meanwhile" wrong_settings

removed_device() {
    printf 'devices: [cpu, sim]\nspare_bytes: 1M\n' >"$TMP/config/nnpipe/service.yaml" && kill -HUP $daemon && sleep 0.3
    id=$(submitted "$TMP/long.yaml" --name simulated --device sim) && becomes "$id" running &&
        other=$(submitted "$TMP/short.yaml" --name placeless --device sim) && pid=$(worker_of "$id") &&
        settings && kill -HUP $daemon && says_why "$other" "no device 'sim'" && [ "$(worker_of "$id")" = "$pid" ] &&
        "$NNPIPE" stop "$id" "$other" && becomes "$id" stopped
}
t "a run on a device that is taken out of the settings goes on, and one that waits for it says so" removed_device

if mkdir "$TMP/small" && mount -t tmpfs -o size=6m none "$TMP/small" 2>/dev/null; then
    fill() { # fill KIB: so much is left
        rm -f "$TMP/small/filler"
        head -c "$(($(df -k --output=avail "$TMP/small" | tail -n 1) - $1))k" /dev/zero >"$TMP/small/filler"
    }
    full_before() {
        net full 40 "$TMP/small/runs"
        id=$(submitted "$TMP/full.yaml") && becomes "$id" done && fill 700
        other=$(submitted "$TMP/full.yaml" 2>&1) && [ -n "$other" ] && says_why "$other" "disk" &&
            [ "$(field "$other" state)" = queued ] &&
            rm "$TMP/small/filler" && becomes "$other" done 40
    }
    t "a run whose disk is full is not started, says so, and is when there is room" full_before
    full_between() {
        net filling 3000 "$TMP/small/runs"
        id=$(submitted "$TMP/filling.yaml") && becomes "$id" running &&
            head -c 8m /dev/zero >"$TMP/small/filler" 2>/dev/null
        says_why "$id" "No space\|full" 60 && rm -f "$TMP/small/filler" && becomes "$id" done 60 &&
            [ "$(field "$id" retries)" -eq 0 ]
    }
    t "a run whose disk becomes full waits, says so, and goes on when there is room" full_between
    no_room() {
        fill 700
        id=$(submitted "$TMP/long.yaml" --name low) && trained "$id" && pid=$(worker_of "$id") &&
            other=$(submitted "$TMP/full.yaml" --priority 9) && says_why "$other" "disk" &&
            sleep 2 && [ "$(field "$id" state)" = running ] && [ "$(worker_of "$id")" = "$pid" ]
        code=$?
        rm "$TMP/small/filler" && { [ $code -ne 0 ] || becomes "$other" done 40; } || code=1
        "$NNPIPE" stop "$id" && becomes "$id" stopped && return $code
    }
    t "a run of higher priority whose disk is full makes nobody yield" no_room
    deaf_queue() {
        kill -TERM $daemon && wait $daemon
        rm -rf "$TMP/small/state" && "$NNPIPE" daemon --state "$TMP/small/state" 2>>"$TMP/daemon.log" &
        daemon=$!
        for _ in $(tries 100); do "$NNPIPE" status >/dev/null 2>&1 && break; sleep 0.1; done
        sed "s|^runs:.*|runs: $TMP/elsewhere|" "$TMP/long.yaml" >"$TMP/far.yaml"
        id=$(submitted "$TMP/far.yaml" --name unheard) && becomes "$id" running && {
            cat /dev/zero >"$TMP/small/filler" 2>/dev/null
            kill -TERM $daemon
        }
        for _ in $(tries 150); do kill -0 $daemon 2>/dev/null || break; sleep 0.1; done
        ! kill -0 $daemon 2>/dev/null
        code=$?
        kill -9 $daemon 2>/dev/null
        rm -f "$TMP/small/filler"
        "$NNPIPE" daemon --state "$TMP/small/state" 2>>"$TMP/daemon.log" &
        daemon=$!
        for _ in $(tries 100); do "$NNPIPE" status >/dev/null 2>&1 && break; sleep 0.1; done
        becomes "$id" running && "$NNPIPE" stop "$id" && becomes "$id" stopped && again && return $code
    }
    t "a service whose queue cannot be written ends when it is told to, and its runs go on later" deaf_queue
    refused_full() {
        fill 150
        net large 40 "$TMP/small/runs" &&
            sed -i 's/linear: {out: classes}/linear: {out: 400000}}, relu, {linear: {out: classes}/' "$TMP/large.yaml"
        ! "$NNPIPE" submit "$TMP/large.yaml" >"$TMP/large.txt" 2>&1 && grep -q "large.yaml:[0-9]*" "$TMP/large.txt" &&
            cat "$TMP/large.txt"
    }
    t "a run whose checkpoints have no room is refused with its line" refused_full
    umount "$TMP/small"
else
    skip "full disks" "no file system can be mounted here"
fi

cat >"$TMP/server.py" <<'P'
import http.server, sys
class Taker(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        open(sys.argv[1], "ab").write(body if body.endswith(b"\n") else body + b"\n")
        self.send_response(200); self.end_headers()
    def log_message(self, *args): pass
server = http.server.HTTPServer(("127.0.0.1", 0), Taker)
open(sys.argv[2], "w").write(str(server.server_port))
server.serve_forever()
P
told() {
    python3 "$TMP/server.py" "$TMP/posted" "$TMP/port" &
    server=$!
    for _ in $(tries 50); do [ -s "$TMP/port" ] && break; sleep 0.1; done
    settings "on_end: \"cat >> $TMP/hooked\"" "webhook: \"http://127.0.0.1:$(cat "$TMP/port")/ended\"" &&
        kill -HUP $daemon && sleep 0.3
    id=$(submitted "$TMP/short.yaml" --name told --wait | tail -n 1) && becomes "$id" done &&
        for _ in $(tries 100); do [ -s "$TMP/hooked" ] && [ -s "$TMP/posted" ] && break; sleep 0.1; done
    for file in hooked posted; do
        [ "$(wc -l < "$TMP/$file")" -eq 1 ] &&
            python3 -c 'import json, sys; run = json.load(open(sys.argv[1])); assert run["id"] == int(sys.argv[2]) and run["state"] == "done" and run["exit_code"] == 0, run' "$TMP/$file" "$id" || {
                cat "$TMP/$file"
                return 1
            }
    done
}
t "a hook and a webhook are told of a run that is over, once" told
bad_hook() {
    settings "on_end: \"sleep 300.$$\"" "webhook: \"http://127.0.0.1:1/nobody\"" && kill -HUP $daemon && sleep 0.3
    id=$(submitted "$TMP/short.yaml") && other=$(submitted "$TMP/short.yaml" --after "$id") && becomes "$other" done
    code=$?
    for _ in $(tries 50); do pgrep -fx "sleep 300.$$" >/dev/null && break; sleep 0.1; done
    hook= && for pid in $(pgrep -x sleep); do
        [ "$(tr '\0' ' ' < "/proc/$pid/cmdline")" = "sleep 300.$$ " ] && hook="$hook $pid"
    done
    [ -n "$hook" ] || code=1
    for pid in $hook; do
        kill -ALRM "$(ps -o sid= -p "$pid" | tr -d ' ')" # as after some minutes
        for _ in $(tries 50); do kill -0 "$pid" 2>/dev/null || break; sleep 0.1; done
        kill -9 "$pid" 2>/dev/null && echo "the command goes on" && code=1
    done
    settings && kill -HUP $daemon
    return $code
}
t "a hook that hangs and an address where nobody is hold nothing up" bad_hook

forgotten() {
    settings "keep: {runs: 2}" && kill -HUP $daemon && for _ in 1 2 3; do
        last=$(submitted "$TMP/short.yaml") && becomes "$last" done || return 1
    done
    for _ in $(tries 50); do [ "$("$NNPIPE" ls --all --json | grep -c '"id"')" -eq 2 ] && break; sleep 0.1; done
    [ "$("$NNPIPE" ls --all --json | grep -c '"id"')" -eq 2 ] && [ "$(field "$last" state)" = done ] &&
        [ -d "$TMP/runs/short-$((last - 2))" ]
}
t "no more runs are kept than the settings say, and their folders stay" forgotten

kept() { ls -d "$TMP"/runs/"$1"/checkpoints/step-* | wc -l; }
pruned() {
    settings "keep: {bytes: 1K}" && kill -HUP $daemon && first=$(submitted "$TMP/short.yaml") &&
        becomes "$first" done &&
        for _ in $(tries 100); do [ "$(kept "short-$first")" -eq 1 ] && break; sleep 0.1; done
    ls -d "$TMP/runs/short-$first/checkpoints"/*40 && [ "$(kept "short-$first")" -eq 1 ] || return 1
    "$NNPIPE" eval "$TMP/short.yaml" --weights "$TMP/runs/short-$first" -o \
        "data.test={source: synth, samples: 50, size: 32}"
}
t "checkpoints of runs that are over take no more than the settings say; one of each run stays" pruned
by_hand() {
    "$NNPIPE" train "$TMP/short.yaml" -o name=hand -o checkpoint.keep=100 -o checkpoint.every="10 steps" >/dev/null \
        2>&1 && run=$(echo "$TMP"/runs/hand-*) && run=${run##*/} &&
        [ "$(kept "$run")" -eq 4 ] && says "would go" "$NNPIPE" prune "$TMP/runs/$run" --dry-run &&
        [ "$(kept "$run")" -eq 4 ] &&
        "$NNPIPE" prune "$TMP/runs/$run" --keep 2 && [ "$(kept "$run")" -eq 2 ] &&
        "$NNPIPE" prune "$TMP/runs/$run" --json | grep '"freed_bytes": *[1-9]' && [ "$(kept "$run")" -eq 1 ]
}
t "prune does the same by hand, and says first what would go" by_hand
t "what is no run's folder is not pruned" says "is not a run's folder" exits 1 "$NNPIPE" prune "$TMP"

rival() { # somebody trains in the run's folder: the service waits its tries, and says why; then goes on
    id=$(submitted "$TMP/long.yaml" --name rival --max-retries 0) && trained "$id" && "$NNPIPE" pause "$id" &&
        becomes "$id" paused || return 1
    "$NNPIPE" train "$TMP/long.yaml" -o name=rival --resume "$TMP/runs/rival-$id" >"$TMP/rival.txt" 2>&1 &
    rival=$!
    for _ in $(tries 100); do grep -q "going on" "$TMP/rival.txt" && break; sleep 0.1; done
    "$NNPIPE" resume "$id" && says_why "$id" "another one is at work" && kill -0 $rival
    code=$?
    kill -9 $rival
    wait $rival 2>/dev/null
    return $code
}
t "a folder that another process is at work in is left to it, and the run says so" rival
other_config() { # a queue begun anew gives ids, and folders, again
    kill -TERM $daemon && wait $daemon && rm -rf "$TMP/state/nnpipe" && settings && start &&
        id=$(submitted "$TMP/long.yaml" --name again) &&
        for _ in $(tries 300); do ls "$TMP"/runs/again-*/checkpoints/step-* >/dev/null 2>&1 && break; sleep 0.1; done &&
        "$NNPIPE" stop "$id" && becomes "$id" stopped &&
        kill -TERM $daemon && wait $daemon && rm -rf "$TMP/state/nnpipe" && start &&
        sed 's/out: 8/out: 9/' "$TMP/long.yaml" >"$TMP/other.yaml" &&
        before=$(ls -lR "$TMP"/runs/again-*) && id=$(submitted "$TMP/other.yaml" --name again) &&
        becomes "$id" failed && says_why "$id" "exists already and is not this run's" &&
        [ "$(field "$id" retries)" -eq 0 ] &&
        [ "$(ls -lR "$TMP"/runs/again-*)" = "$before" ]
}
t "a folder of another run is left as it is, and no try is made twice" other_config
planted() { # somebody who may write to the folder of runs is there first
    echo mine >"$TMP/mine" && last=$(submitted "$TMP/short.yaml" --name earlier) && becomes "$last" done &&
        mkdir -m 777 "$TMP/runs/planted-$((last + 1))" &&
        ln -s "$TMP/mine" "$TMP/runs/planted-$((last + 1))/lock" && id=$(submitted "$TMP/short.yaml" --name planted) &&
        [ "$id" -eq $((last + 1)) ] &&
        becomes "$id" failed && says_why "$id" "planted-$id exists already" && [ "$(cat "$TMP/mine")" = mine ] &&
        [ "$(ls -A "$TMP/runs/planted-$id")" = lock ]
}
t "a folder that is there before the run is refused, and no link in it is followed" planted
swapped() { # between two tries its folder becomes a link; an older queue's run had its number
    id=$(submitted "$TMP/long.yaml" --name swapped) && trained "$id" swapped && "$NNPIPE" pause "$id" &&
        becomes "$id" paused && mv "$TMP/runs/swapped-$id" "$TMP/elsewhere-$id" &&
        ln -s "$TMP/elsewhere-$id" "$TMP/runs/swapped-$id" && "$NNPIPE" resume "$id" && becomes "$id" failed &&
        says_why "$id" "is a link"
}
t "and so is a link in its place later" swapped
[ "$failed" -eq 0 ]
