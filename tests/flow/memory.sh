# The memory of a run: slots, cache, 64 bytes a sample, the model and 64 MiB; and no growth from
# epoch to epoch.
. "$(dirname "$0")/../lib.sh"
case ${NNPIPE_BUILD:-build} in
*build-*)
    skip "the memory of a run" "a sanitizer's shadow and quarantine are counted in"
    exit 0
    ;;
esac

cat >"$TMP/grow.yaml" <<Y
name: grow
runs: $TMP/runs
device: cpu
data: {train: {source: synth, samples: 2000, size: 16}}
loader: {batch: 50, readers: 2, augment: [flip]}
model: [{conv: {out: 4, kernel: 3, stride: 2}}, relu, global_avgpool, flatten, {linear: {out: classes}}]
optimizer: {sgd: {lr: 0.01}}
train: {epochs: ${EPOCHS:-50}, threads: 1, eval_every: never}
checkpoint: {every: 10 epochs, keep: 2}
Y

# Resident KiB at each tenth step, not by the clock: a slow start or a busy machine does not shift the
# quarters. The last quarter may not exceed the second by 2 %. The pipe keeps the trainer near its reader.
no_growth() {
    mkfifo "$TMP/events"
    "$NNPIPE" train "$TMP/grow.yaml" --json >"$TMP/events" 2>"$TMP/grow.log" &
    pid=$!
    while read -r line; do
        case $line in
        *'"event": "step"'*'0, "epoch"'*) awk '/^VmRSS/ { print $2 }' /proc/$pid/status 2>/dev/null ;;
        esac
    done <"$TMP/events" >"$TMP/rss"
    wait $pid || { cat "$TMP/grow.log"; return 1; }
    awk '{ v[NR] = $1 } END {
        if (NR < 12) { print NR " samples only"; exit 1 }
        for (i = int(NR / 4); i < NR / 2; i++) if (v[i] > early) early = v[i]
        for (i = int(3 * NR / 4); i < NR; i++) if (v[i] > late) late = v[i]
        print NR " samples, KiB: " early " then " late
        exit late > 1.02 * early + 512 }' "$TMP/rss"
}
t "resident memory does not grow over ${EPOCHS:-50} epochs" no_growth

# The whole run's peak: 2 threads, small model and slots: below 64 MiB and its parts (~8 MiB).
peak() {
    "$NNPIPE" train "$TMP/grow.yaml" -o train.epochs=2 >"$TMP/grow.log" 2>&1 &
    pid=$! most=0
    while kill -0 $pid 2>/dev/null; do
        now=$(awk '/^VmHWM/ { print $2 }' /proc/$pid/status 2>/dev/null)
        [ "${now:-0}" -gt "$most" ] && most=$now
    done
    wait $pid || return 1
    echo "peak $most KiB"
    [ "$most" -lt $(((64 + 16) * 1024)) ]
}
t "a small run stays within its slots, its model and 64 MiB" peak
