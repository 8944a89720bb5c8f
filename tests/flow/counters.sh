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
train: {steps: 400, eval_every: never}
checkpoint: {every: 150 steps}
runs: $TMP/runs
YAML
"$NNPIPE" train "$TMP/counted.yaml" --json >"$TMP/out.json" 2>"$TMP/err" || { not_ok "a run on the sim device ends" "$(tail -n 1 "$TMP/err")"; exit 1; }
grep '"event": "pipeline"' "$TMP"/runs/counted-*/metrics.jsonl | tail -n 1 >"$TMP/line"

# number OBJECT FIELD; "" for OBJECT: of the first level
number() { sed -n 's/.*"'"$1"'": {\([^{}]*\)}.*/\1/p' "$TMP/line" | tr ',' '\n' | sed -n 's/^ *"'"$2"'": //p'; }
top() { sed -n 's/^[^{]*{.*[ {]"'"$1"'": \([-0-9.e+]*\)[,}].*/\1/p' "$TMP/line"; }
sum() { sed -n 's/.*"'"$1"'": {\([^{}]*\)}.*/\1/p' "$TMP/line" | tr ',' '\n' | awk -F': ' '{ s += $2 } END { printf "%.9f", s }'; }
near() { awk "BEGIN { d = ($1) - ($2); d = d < 0 ? -d : d; exit !(d <= $3) }" || { echo "$1 is not within $3 of $2"; return 1; }; }

t "a run ends with a line about its pipeline, on the screen's side too" \
    sh -c '[ -s "$0/line" ] && grep -q "\"event\": \"pipeline\"" "$0/out.json"' "$TMP"
# The readers end a little before the run does.
t "the readers' states add up to their time" near "$(sum reader_seconds)" "2 * $(top seconds)" "0.05 * 2 * $(top seconds)"
t "the trainer's states add up to its time" near "$(sum trainer_seconds)" "$(top seconds)" "0.005 * $(top seconds)"
t "the shares of the stall add up to it" near "$(sum blame_seconds)" "$(top stall_seconds)" 0.000001
t "the stages that a reader works in add up to its work" near \
    "$(number read work_seconds) + $(number decompress work_seconds) + $(number decode work_seconds) + $(number augment work_seconds) + $(number batch work_seconds)" \
    "$(number reader_seconds work)" "0.02 * 2 * $(top seconds)"
t "every image of the steps since went through decode" near "$(number decode items)" "100 * $(top steps)" 1200
t "both checkpoints are counted" [ "$(number checkpoint items)" = 2 ]
t "the readers were on a core for most of their work" near "$(top reader_cpu_seconds)" "$(number reader_seconds work)" "0.7 * $(number reader_seconds work)"
