#!/bin/sh
# What a run reports of its pipeline while it runs: the `pipeline` events of metrics.jsonl add up, and
# are cut back with the rest; `nnpipe top` shows them from another process.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1
"$NNPIPE" data synth --out "$TMP/data" --samples 600 --test 100 --size 64 >/dev/null || exit 1

cat >"$TMP/net.yaml" <<Y
name: net
device: {sim: {step_ms: 5}}
data:
  train: {source: tar, path: "$TMP/data/train-*.tar*"}
loader: {batch: 32, cache: none, readers: 2, augment: [{random_crop: {size: 64, pad: 2}}, flip]}
model:
  - flatten
  - linear: {out: classes}
optimizer: {sgd: {lr: 0.01}}
train: {epochs: 100000}
checkpoint: {every: 50 steps, keep: 2}
Y

# one KEY FILE: of each pipeline event the first number under KEY
one() { grep '^{"event": "pipeline"' "$2" | grep -o "\"$1\": [-0-9.e+]*" | sed 's/.*: //'; }

"$NNPIPE" train "$TMP/net.yaml" -o runs="$TMP/runs" >"$TMP/train.txt" 2>&1 &
pid=$!
for i in $(tries 300); do
    [ "$(cat "$TMP"/runs/*/metrics.jsonl 2>/dev/null | grep -c '"event": "pipeline"')" -ge 3 ] && break
    kill -0 $pid 2>/dev/null || break
    sleep 0.1
done
run=$(ls -d "$TMP"/runs/*)
reports() {
    [ "$(grep -c '"event": "pipeline"' "$run/metrics.jsonl")" -ge 3 ] || {
        tail -n 3 "$TMP/train.txt"
        return 1
    }
}
t "a run reports its pipeline while it runs" reports
before=$(ls -l --time-style=full-iso "$run/lock" "$run/config.yaml")
"$NNPIPE" top --runs "$TMP/runs" --once >"$TMP/all.txt" 2>&1
t "top --once names the run, its device and its cause of stall" grep -qE \
    "^$(basename "$run") +running +sim +[0-9]+/[0-9]+ " "$TMP/all.txt"
top_json() {
    "$NNPIPE" top --runs "$TMP/runs" --json >"$TMP/top.json" &&
        grep -q "\"pid\": $pid,.* \"running\": true," "$TMP/top.json" && [ "$(wc -l < "$TMP/top.json")" -eq 1 ]
}
t "top --json is one object a run, with the process that runs it" top_json
schema() {
    for f in id name run state running pid config device step total_steps epoch loss images_per_second stall_ratio \
        cause stall_cause eta_seconds owner run_dir; do
            grep -q "\"$f\": " "$TMP/top.json" || {
                echo "no $f"
                return 1
            }
        done
}
t "and has the fields that a run of the service has" schema
stages() {
    "$NNPIPE" top "$(basename "$run")" --runs "$TMP/runs" >"$TMP/one.txt" &&
        grep -q "decode .*img/s\|decode .*%" "$TMP/one.txt" && grep -q "not measured alone: read" "$TMP/one.txt" || {
            cat "$TMP/one.txt"
            return 1
        }
}
t "top RUN shows the stages, and says what was not measured alone" stages
mkdir "$TMP/runs/$(basename "$run" | cut -d- -f1)-older" && : >"$TMP/runs/$(basename "$run" | cut -d- -f1)-older/notes"
begins() {
    "$NNPIPE" top "$(basename "$run" | cut -d- -f1)" --runs "$TMP/runs" | grep -q "^$(basename "$run") " &&
        exits 1 "$NNPIPE" top none --runs "$TMP/runs"
}
t "the beginning of its name is enough" begins
t "so is its path, with a slash at its end" says " running " "$NNPIPE" top "$run/" --once
live() {
    printf q | timeout 300 script -qec "'$NNPIPE' top --runs '$TMP/runs'" /dev/null >"$TMP/live.txt"
    grep -q "$(basename "$run")" "$TMP/live.txt"
}
if command -v script >/dev/null; then
    t "on a terminal q ends it" live
else
    skip "on a terminal q ends it" "no script(1) here"
fi
t "a folder that is no run is an error" exits 1 "$NNPIPE" top "$TMP/data"
t "two runs are one too many" exits 2 "$NNPIPE" top a b
untouched() { kill -0 $pid && [ "$(ls -l --time-style=full-iso "$run/lock" "$run/config.yaml")" = "$before" ]; }
t "the run continues, with its files unchanged" untouched
kill -TERM $pid
wait $pid
code=$?
t "and then ends with 75" [ $code -eq 75 ]

gone() {
    says "no running runs" "$NNPIPE" top --runs "$TMP/runs" && says " stopped " "$NNPIPE" top "$run" &&
        [ -z "$("$NNPIPE" top --runs "$TMP/runs" --json)" ]
}
t "a run that has ended is not shown as running" gone
cp -r "$run" "$TMP/cut" && printf '{"event": "pipeline", "step": 12' >>"$TMP/cut/metrics.jsonl"
t "a line under way is left out" says "$("$NNPIPE" top "$run" | sed -n 2p | grep -o "stopped.*")" \
    "$NNPIPE" top "$TMP/cut"
fields() {
    for f in step epoch total_steps images_per_second stall_ratio stall_causes eta_seconds verdict limiter gain reason \
        bars reader_seconds feed knobs; do
            grep '"event": "pipeline"' "$run/metrics.jsonl" | grep -q "\"$f\": " || {
                echo "no $f"
                return 1
            }
        done
}
t "a pipeline event has its fields" fields
# The parts add up, event by event. The thread that reads clock and counters may be off its core in between
# on a busy machine; tests/unit/test_counters.c tests the exact sums.
lines() {
    grep '^{"event": "pipeline"' "$run/metrics.jsonl" | sed 's/.*"'"$1"'": {\([^}]*\)}.*/\1/; s/"[a-z_]*": //g; s/,//g'
}
closes() {
    paste -d' ' "$TMP/$1" "$TMP/$2" | awk -v most="$3" -v one="$4" '
        { sum = 0; for (i = 2; i <= NF; i++) sum += $i; to = one ? 1 : $1; n++
          if (one && $1 == 0) { if (sum != 0) bad = 1; next }
          if (sum < to * (1 - most) || sum > to * (1 + most)) { print "line " NR ": " sum " of " to; bad = 1 } }
        END { exit bad || n == 0 }'
}
one seconds "$run/metrics.jsonl" >"$TMP/seconds"
awk '{ print 2 * $1 }' "$TMP/seconds" >"$TMP/seconds2"
one stall_ratio "$run/metrics.jsonl" >"$TMP/stall"
one stall_seconds "$run/metrics.jsonl" >"$TMP/stall_s"
lines reader_seconds >"$TMP/readers"
lines trainer_seconds >"$TMP/trainer"
lines stall_causes >"$TMP/causes"
lines blame_seconds >"$TMP/blame"
t "two readers' work, waits for the disk and for slots are their time" closes seconds2 readers 0.1 ""
t "the trainer's work and waits are its time" closes seconds trainer 0.1 ""
t "the causes' shares of a stall add up to 1" closes stall causes 0.001 1
t "the blame adds up to the stall" closes stall_s blame 0.001 ""
periods() { awk '$1 < 1.9 || $1 > 120 { print; bad = 1 } END { exit bad || NR == 0 }' "$TMP/seconds"; }
t "an event comes every two seconds" periods
rate() {
    paste -d' ' "$TMP/seconds" "$TMP/images" "$TMP/rate" |
        awk '{ r = $2 / $1 / $3; if (r < 0.999 || r > 1.001) bad = 1 } END { exit bad || NR == 0 }'
}
one images "$run/metrics.jsonl" >"$TMP/images"
grep '"event": "pipeline"' "$run/metrics.jsonl" | sed 's/.*"images_per_second": \([0-9.e+]*\).*/\1/' >"$TMP/rate"
t "its rate is its images over its seconds" rate

# Killed behind an event and resumed: what the last checkpoint does not know is cut away.
last_event() {
    grep -o '^{"event": "pipeline", "step": [0-9]*' "$run/metrics.jsonl" | sed 's/.* //' | tail -n 1 | grep . || echo 0
}
resumed() {
    "$NNPIPE" train "$TMP/net.yaml" --resume "$run" -o "checkpoint.every=100000 steps" >"$TMP/killed.txt" 2>&1 &
    pid=$!
    had=$(grep -c '"event": "pipeline"' "$run/metrics.jsonl")
    for i in $(tries 300); do
        [ "$(grep -c '"event": "pipeline"' "$run/metrics.jsonl")" -gt "$had" ] && break
        sleep 0.1
    done
    kill -KILL $pid
    wait $pid 2>/dev/null
    [ "$(grep -c '"event": "pipeline"' "$run/metrics.jsonl")" -gt "$had" ] || return 1
    last=$(last_event)
    "$NNPIPE" train "$TMP/net.yaml" --resume "$run" >"$TMP/again.txt" 2>&1 &
    pid=$!
    for i in $(tries 300); do
        [ "$(last_event)" -gt "$last" ] && break
        sleep 0.1
    done
    kill -TERM $pid
    wait $pid
    grep -o '^{"event": "pipeline", "step": [0-9]*' "$run/metrics.jsonl" | sed 's/.* //' |
        awk '$1 <= last { print "step " $1 " after " last; bad = 1 } { last = $1 } END { exit bad }' &&
        sed -n 's/^{"event": "step", "step": \([0-9]*\).*/\1/p' "$run/metrics.jsonl" |
        awk '$1 != NR { bad = 1 } END { exit bad }'
}
t "killed and resumed, each step and each event stands there once" resumed
exit $failed
