# What the service is asked from a terminal: tables, --json, logs that are followed over rotation and a restart,
# --wait over a restart, and `nnpipe top` in a terminal of tmux's.
. "$(dirname "$0")/../lib.sh"
export NNPIPE_SOCKET="$TMP/socket" XDG_STATE_HOME="$TMP/state" XDG_CONFIG_HOME="$TMP/config"
end_all() {
    kill -9 $daemon $(cat "$TMP"/runs/*/lock) 2>/dev/null
    tmux -L "nnpipe-$$" kill-server 2>/dev/null
    sleep 0.2
    rm -rf "$TMP"
}
daemon=
trap end_all EXIT
mkdir -p "$TMP/config/nnpipe"
cat >"$TMP/config/nnpipe/service.yaml" <<Y
devices: [cpu, sim]
spare_bytes: 1M
Y
cat >"$TMP/net.yaml" <<Y
name: net
device: {sim: {step_ms: 20}}
data: {train: {source: synth, samples: 1000, size: 32}}
loader: {batch: 32, cache: none}
model: [flatten, {linear: {out: classes}}]
optimizer: {sgd: {lr: 0.01}}
train: {steps: 100000, eval_every: never}
checkpoint: {every: 5000 steps}
runs: $TMP/runs
Y
start() {
    "$NNPIPE" daemon 2>>"$TMP/daemon.log" &
    daemon=$!
    for _ in $(tries 100); do "$NNPIPE" status >/dev/null 2>&1 && return; sleep 0.1; done
    tail -n 3 "$TMP/daemon.log"
    return 1
}
restart() {
    kill -9 $daemon
    wait $daemon 2>/dev/null
    sleep 0.3
    start
}
state() { "$NNPIPE" status "$1" --json | sed -n 's/.*"state": "\([a-z]*\)".*/\1/p'; }
becomes() { # becomes ID STATE: within half a minute
    for _ in $(tries 300); do [ "$(state "$1")" = "$2" ] && return; sleep 0.1; done
    echo "run $1 is $(state "$1"), not $2"
    return 1
}
until_true() { for _ in $(tries 300); do "$@" >/dev/null 2>&1 && return; sleep 0.1; done; "$@"; }

start || { not_ok "the service starts" "$(tail -n 1 "$TMP/daemon.log")"; exit 1; }
t "an empty queue says how to fill it" says "nnpipe submit CONFIG" "$NNPIPE" ls --all
submitted() {
    "$NNPIPE" submit "$TMP/net.yaml" --name a-name-that-is-longer-than-most-are-and-as-long-as-one-may-be --device cpu \
        --json >"$OUT.id" && grep -q '^{"event": "submitted", "id": 1, "name": "a-name-that' "$OUT.id"
}
t "submit --json is an event with id and name" submitted
t "the run goes on" becomes 1 running
fields() {
    "$NNPIPE" ls --json >"$TMP/ls.json" && for f in id name state config device step epoch progress images_per_second \
        stall_ratio loss submitted_at started_at ended_at run_dir reason; do
            grep -q "\"$f\": " "$TMP/ls.json" || {
                echo "no $f"
                return 1
            }
        done
}
t "ls --json has the fields that scripts rely on" fields
json() {
    "$NNPIPE" ls --json | python3 -c \
        'import json, sys; rows = [json.loads(line) for line in sys.stdin]; sys.exit(not (len(rows) == 1 and rows[0]["ended_at"] is None and rows[0]["id"] == 1 and 0 <= rows[0]["progress"] < 1))'
}
until_true json
t "and is JSON, null where nothing is known" json
top_pipe_plain() (
    "$1" top >"$2" && grep -q "a-name-that.*running.*cpu" "$2" && ! grep -q "$(printf "\033")" "$2"
)
t "top in a pipe is plain lines, once" top_pipe_plain "$NNPIPE" "$TMP/top.txt"
t "top --json is ls --json" sh -c '"$1" top --json | grep -q "^{\"event\": \"run\", \"id\": 1, "' - "$NNPIPE"
t "a run that is not there is told" says "there is no run 77" exits 1 "$NNPIPE" top 77
t "what is no number is told" says "as \`nnpipe ls\` shows it" exits 2 "$NNPIPE" pause one

# --- logs ---------------------------------------------------------------------------------------
t "it is paused" sh -c '"$1" pause 1' - "$NNPIPE"
t "and says so" becomes 1 paused
log=$(echo "$TMP"/runs/*-1)/output
# What a run would print, a hundred thousand bytes now and then, from segment to segment; the first has been there.
write_segments() {
    for segment in 1 2 3 4 5 6; do
        name=$(printf "%s/%06d" "$log" $segment)
        for piece in 1 2 3; do
            awk -v s=$segment -v p=$piece 'BEGIN { for (i = 0; i < 3000; i++) print "segment " s ", piece " p ", line " i }' | tee -a "$TMP/written" >>"$name"
            sleep 0.1
        done
        [ $segment -gt 4 ] && rm "$(printf "%s/%06d" "$log" $((segment - 4)))"
        if [ $segment -eq 3 ]; then
            restart
        fi
    done
}
followed() {
    cp "$log/000001" "$TMP/written"
    "$NNPIPE" logs 1 -f >"$TMP/got" 2>"$TMP/got.err" &
    reader=$!
    write_segments
    "$NNPIPE" stop 1 && wait $reader && cmp "$TMP/written" "$TMP/got" && grep -q "the service is back" "$TMP/got.err"
}
t "logs -f loses and doubles no byte over five rotations and a killed service" followed
logs_rotated_away() (
    "$NNPIPE" logs 1 | head -n 1 | grep -q "^segment 3, piece 1, line 0"
)
t "logs of what was rotated away begins with the oldest that is left" logs_rotated_away
rotated() {
    log=$TMP/runs/turns-2/output
    # paused before it has said a word, a run has no output yet
    "$NNPIPE" submit "$TMP/net.yaml" --name turns --device cpu && becomes 2 running &&
        until_true test -s "$log/000001" && "$NNPIPE" pause 2 && becomes 2 paused || return 1
    truncate -s 16M "$log/000001" && "$NNPIPE" logs 2 -f >"$TMP/got" &
    reader=$!
    "$NNPIPE" resume 2 && until_true test -e "$log/000002" && "$NNPIPE" stop 2 && wait $reader && cat "$log"/* |
        cmp - "$TMP/got"
}
t "so it does where the run itself begins a new segment" rotated
"$NNPIPE" stop 2 >/dev/null 2>&1
waited() {
    "$NNPIPE" submit "$TMP/net.yaml" --name waited -o train.steps=150 --wait >"$TMP/wait.txt" 2>"$TMP/wait.err" &
    waiting=$!
    until_true grep -q queued "$TMP/wait.txt" && becomes 3 running || return 1
    restart && wait $waiting && grep -q "run 3: waited, done" "$TMP/wait.txt" &&
        grep -q "waiting until it is back" "$TMP/wait.err"
}
t "submit --wait waits over a killed service" waited
stopped() {
    "$NNPIPE" submit "$TMP/net.yaml" --name stopped --device cpu --wait >/dev/null & waiting=$!
    becomes 4 running && "$NNPIPE" stop 4 && {
        wait $waiting
        [ $? -eq 75 ]
    }
}
t "and ends with 75 where the run is stopped" stopped

# --- top in a terminal --------------------------------------------------------------------------
if ! command -v tmux >/dev/null; then
    skip "top in a terminal" "no tmux here"
    [ "$failed" -eq 0 ]
    exit
fi
tm() { tmux -L "nnpipe-$$" "$@"; }
shows() { tm capture-pane -p -t top | grep -qE -- "$1"; }
sees() {
    for _ in $(tries 80); do
        shows "$1" && return
        sleep 0.1
    done
    tm capture-pane -p -t top | grep .
    return 1
}
fits() { [ "$(tm capture-pane -p -t top | LC_ALL=C.UTF-8 wc -L)" -le "$1" ]; }
"$NNPIPE" submit "$TMP/net.yaml" --name first >/dev/null
"$NNPIPE" submit "$TMP/net.yaml" --name second >/dev/null
becomes 5 running
tm new-session -d -s top -x 80 -y 24 "$NNPIPE top; echo it has ended; sleep 100"
t "top shows the service's runs" sees "nnpipe: 1 running, 1 queued"
t "at 80 columns, with its last column" sees "^id .* ETA$"
tm send-keys -t top j p
t "p asks about the run that j chose" sees "pause run 6, second[?] y: yes"
tm send-keys -t top n
t "n leaves it" sh -c 'sleep 0.5; "$1" status 6 --json | grep -q "\"state\": \"queued\""' - "$NNPIPE"
tm send-keys -t top p y
t "y does it" becomes 6 paused
t "and the screen says so" sees "nnpipe: 1 running, 0 queued, 1 paused"
tm send-keys -t top k Enter
t "Enter shows its stages, and the verdict" sees "^ (LIMIT|BALANCED|INCONCLUSIVE):"
tm resize-window -t top -x 60 -y 15
last_line() { tm capture-pane -p -t top | tail -n 1 | grep -q "^escape: all runs"; }
t "a smaller terminal is drawn anew, and its last line stays" until_true last_line
t "nothing is wider than it" until_true fits 60
tm resize-window -t top -x 120 -y 30
tm send-keys -t top Escape
t "a larger one shows more columns" sees "owner"
kill -9 $daemon
wait $daemon 2>/dev/null
t "a service that is gone is told, and the runs stay" sees "this is from before"
start
t "it goes on when it is back" sees "j, k: choose"
coloured() { tm capture-pane -e -p -t top | grep -q "$(printf '\033\[[0-9;]*36m')"; }
t "states are coloured" until_true coloured
tm send-keys -t top q
t "q ends it" sees "it has ended"
tm respawn-window -k -t top "NO_COLOR=1 $NNPIPE top 5; sleep 100"
t "top ID begins with the stages" sees "^ (LIMIT|BALANCED|INCONCLUSIVE):"
plain() { ! tm capture-pane -e -p -t top | grep -q "$(printf '\033\[[0-9;]*3[0-9]m')"; }
t "without colours where NO_COLOR is set" plain
[ "$failed" -eq 0 ]
