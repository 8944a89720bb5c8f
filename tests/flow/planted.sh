#!/bin/sh
# The plants that the profiler is judged by (tests/bench/plants): each makes its own stage slower,
# and none changes a byte of the batches.
. "$(dirname "$0")/../lib.sh"

bin=${NNPIPE_BUILD:-$ROOT/build}/tests/plants
planted=$bin/nnpipe
[ -x "$planted" ] || { not_ok "the program with plants is there" "make plants"; exit 1; }
"$NNPIPE" data synth --out "$TMP/set" --samples 2000 --test 0 --size 32 >/dev/null || exit 1
cat >"$TMP/planted.yaml" <<YAML
name: planted
data: {train: {source: tar, path: "$TMP/set/train-*.tar.zst"}}
loader: {batch: 32, readers: 1, prefetch: 2, cache: none, augment: [{random_crop: {size: 32, pad: 4}}, flip]}
model: [flatten, linear: {out: classes}]
optimizer: {sgd: {lr: 0.1}}
device: {sim: {h2d_gbps: 25, step_ms: 2}}
train: {epochs: 100000}
checkpoint: {every: 20 steps}
runs: $TMP/runs
YAML

# bench CALLS: the loader with such plants, into $TMP/bench.json
bench() {
    printf '%s\n' "$1" >"$TMP/calls"
    NNPIPE_PLANT=$TMP/calls "$planted" bench loader "$TMP/planted.yaml" --seconds 0.5 --json >"$TMP/bench.json"
}
field() { sed -n 's/.*"'"$1"'": "\{0,1\}\([^,"}]*\).*/\1/p' "${2:-$TMP/bench.json}"; }
# above A B FACTOR: A is more than FACTOR times B
above() { awk "BEGIN { exit !($1 > $2 * $3) }" || { echo "$1 is not above $3 times $2"; return 1; }; }

bench '' || exit 1
cp "$TMP/bench.json" "$TMP/none.json"
"$NNPIPE" bench loader "$TMP/planted.yaml" --seconds 0.5 --json >"$TMP/real.json"
t "the program with plants makes the bytes of the real one" [ "$(field digest "$TMP/none.json")" = \
    "$(field digest "$TMP/real.json")" ]

# A stage done 100 times takes more than four times as long. On a busy box: best of three tries.
slower() {
    for try in 1 2 3; do
        bench "$1 100" && [ "$(field digest)" = "$(field digest "$TMP/none.json")" ] ||
            { echo "other bytes"; return 1; }
        above "$(field "$1_us")" "$(field "$1_us" "$TMP/none.json")" 4 && return
        bench '' && cp "$TMP/bench.json" "$TMP/none.json"
    done
    return 1
}
for stage in decompress decode augment; do
    t "$stage done a hundred times is slow and changes no byte" slower "$stage"
done

# rate CALLS SIM [-o ...]: batches a second of a run
rate() {
    printf '%s\n' "$1" >"$TMP/calls"
    printf '%s\n' "$2" >"$TMP/sim"
    shift 2
    NNPIPE_PLANT=$TMP/calls NNPIPE_SIM_PLANT=$TMP/sim "$bin/rate" 0.2 0.6 "$planted" train "$TMP/planted.yaml" --json \
        "$@" 2>"$TMP/err" | cut -d ' ' -f 1
}
# A plant bounds the rate from above; a busy box may be slower still. The limits leave room for the four steps that a
# process which got no core for a while has ready when its 0.6 seconds begin; without plants, it does some 450 a second.
# near CALLS SIM LOW HIGH [-o ...]: the run does between LOW and HIGH batches a second
near() {
    calls=$1 sim=$2 low=$3 high=$4
    shift 4
    for try in 1 2 3; do
        got=$(rate "$calls" "$sim" "$@")
        awk "BEGIN { exit !(${got:-0} >= $low && ${got:-0} <= $high) }" && return
    done
    echo "${got:-none} batches a second: $(tail -n 1 "$TMP/err")"
    return 1
}
t "a step of 20 ms instead of 2: about 50 batches a second" near '' step_ms=20 0.01 60 -o checkpoint.every=never
t "copies of 98,432 bytes at 2 MB/s: about 20 batches a second" near '' h2d_gbps=0.002 0.01 30 -o checkpoint.every=never
t "a disk whose reads take 50 ms, one in flight: few batches" near '' disk_latency_us=50000 0.01 30 -o \
    checkpoint.every=never -o loader.io=uring
t "readers that pause 90 of 100 ms: a tenth, and the content of two slots" near 'pause_every_ms 100
pause_ms 90' '' 0.01 260 -o checkpoint.every=never
t "a checkpoint of 100 ms every 20 steps of 2 ms" near 'fsync_ms 100' '' 0.01 110
printf 'decoed 2\n' >"$TMP/calls"
t "a misspelt plant is refused" env NNPIPE_PLANT="$TMP/calls" sh -c '"$0" check "$1"; [ $? = 64 ]' "$planted" \
    "$TMP/planted.yaml"

[ "$failed" -eq 0 ]
