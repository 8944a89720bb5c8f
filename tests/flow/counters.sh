#!/bin/sh
# What a run says of its own pipeline in metrics.jsonl: its numbers add up.
. "$(dirname "$0")/../lib.sh"

"$NNPIPE" data synth --out "$TMP/set" --samples 2000 --test 0 --size 32 >/dev/null || exit 1
cat >"$TMP/counted.yaml" <<YAML
name: counted
data: {train: {source: tar, path: "$TMP/set/train-*.tar.zst"}}
loader: {batch: 100, readers: 2, cache: none, augment: [{random_crop: {size: 32, pad: 4}}, flip]}
model: [flatten, linear: {out: classes}]
optimizer: {sgd: {lr: 0.1}}
device: {sim: {h2d_gbps: 25, step_ms: 0.1}}
train: {steps: 1600, eval_every: never}
checkpoint: {every: 700 steps}
runs: $TMP/runs
YAML
"$NNPIPE" train "$TMP/counted.yaml" --json >"$TMP/out.json" 2>"$TMP/err" || {
    not_ok "a run on the sim device ends" "$(tail -n 1 "$TMP/err")"
    exit 1
}
# All windows of the run: on a busy box there is more than one.
grep -h '"event": "pipeline"' "$TMP"/runs/counted-*/metrics.jsonl >"$TMP/lines"

# number OBJECT FIELD, top FIELD (of the first level), sum OBJECT (of all its fields): over all windows
added() { awk '{ s += $1 } END { printf "%.9f", s }'; }
number() {
    sed -n 's/.*"'"$1"'": {\([^{}]*\)}.*/\1/p' "$TMP/lines" | tr ',' '\n' | sed -n 's/^ *"'"$2"'": //p' | added
}
top() { sed -n 's/^[^{]*{.*[ {]"'"$1"'": \([-0-9.e+]*\)[,}].*/\1/p' "$TMP/lines" | added; }
sum() {
    sed -n 's/.*"'"$1"'": {\([^{}]*\)}.*/\1/p' "$TMP/lines" | tr ',' '\n' |
        awk -F': ' '{ s += $2 } END { printf "%.9f", s }'
}
near() {
    awk "BEGIN { d = ($1) - ($2); d = d < 0 ? -d : d; exit !(d <= $3) }" || {
        echo "$1 is not within $3 of $2"
        return 1
    }
}

t "a run ends with a line about its pipeline, on the screen's side too" \
    sh -c '[ -s "$0/lines" ] && grep -q "\"event\": \"pipeline\"" "$0/out.json"' "$TMP"
# The readers end a little before the run does, and a reader without a core counts its current work later.
late="1 + 0.05 * 2 * $(top seconds)"
t "the readers' states add up to their time" near "$(sum reader_seconds)" "2 * $(top seconds)" "$late"
t "the trainer's states add up to its time" near "$(sum trainer_seconds)" "$(top seconds)" \
    "0.5 + 0.005 * $(top seconds)"
t "the shares of the stall add up to it" near "$(sum blame_seconds)" "$(top stall_seconds)" 0.000001
t "the stages that a reader works in add up to its work" near \
    "$(for stage in read decompress decode augment batch; do printf '%s + ' "$(number $stage work_seconds)"; done)0" \
    "$(number reader_seconds work)" "$late"
t "every image of the steps since went through decode" near "$(number decode items)" "100 * $(top steps)" 1200
t "both checkpoints are counted" near "$(number checkpoint items)" 2 0
t "the readers were on a core, and never for longer than they were there" \
    awk "BEGIN { exit !($(top reader_cpu_seconds) > 0 && $(top reader_cpu_seconds) <= $(sum reader_seconds) + 0.2) }"
