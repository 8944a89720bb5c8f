#!/bin/sh
# train --trace: a file that Perfetto's format describes, read back by protoc; it says what the run
# did, span for span; a small limit, a full disk and a kill leave a trace that is whole.
. "$(dirname "$0")/../lib.sh"
here=$(cd "$(dirname "$0")" && pwd)
cd "$TMP" || exit 1
if ! command -v protoc >/dev/null; then
    skip "traces are read back" "no protoc here (Debian: protobuf-compiler)"
    exit 0
fi
"$NNPIPE" data synth --out "$TMP/data" --samples 640 --test 96 >/dev/null || exit 1
for split in train test; do # a read for each picture
    "$NNPIPE" data pack "$TMP/data/$split-"*.tar.zst --out "$TMP/plain" --split $split >/dev/null || exit 1
done
cat >"$TMP/net.yaml" <<Y
name: net
device: {sim: {step_ms: 4}}
data:
  train: {source: tar, path: "$TMP/plain/train-*.tar"}
  test: {source: tar, path: "$TMP/plain/test-*.tar"}
loader: {batch: 32, readers: 2, cache: none, augment: [{random_crop: {size: 32, pad: 2}}, flip]}
model: [flatten, linear: {out: classes}]
train: {epochs: 4, eval_every: 1 epoch}
checkpoint: {every: 20 steps}
Y
train() { "$NNPIPE" train "$TMP/net.yaml" -o runs="$TMP/runs" "$@" >"$TMP/train.txt" 2>&1; }
# read_back FILE: writes its contents to sum.txt; fails if the trace is malformed
read_back() {
    protoc --decode=Trace -I "$here" trace.proto <"$1" >"$TMP/decoded.txt" || return 1
    awk -f "$here/trace_read.awk" "$TMP/decoded.txt" >"$TMP/sum.txt" || { grep ^wrong "$TMP/sum.txt"; return 1; }
}
# spans ROLE NAME: how many, over all tracks whose name begins so
spans() {
    awk -v role="$1" -v name="$2" '$1 == "span" && index($0, "span " role) == 1 && $(NF - 1) == name { n += $NF }
        END { print n + 0 }' "$TMP/sum.txt"
}
mark() { sed -n "s/^mark $1: $2 //p" "$TMP/sum.txt"; }
is() { [ "$2" = "$3" ] || { echo "$1: $2, not $3"; return 1; }; }

t "a run is traced" train --trace "$TMP/a.pftrace"
t "it prints the file and the program that opens it" grep -q \
    "^trace: [0-9]* spans, .* MiB in $TMP/a.pftrace (ui.perfetto.dev opens it)$" "$TMP/train.txt"
t "another parser finds every field in Perfetto's format, times ascending, spans side by side" read_back \
    "$TMP/a.pftrace"

# 80 steps of 32, and after each epoch an evaluation of 96 in three batches.
counts() {
    is dropped "$(mark 'end of trace' 'dropped, ring full')" 0 || return 1
    for stage in batch read decode augment; do
        is "$stage" "$(spans reader $stage)" $((4 * 640 + 4 * 96)) || return 1
    done
    is copy "$(spans 'device copy' copy)" $((80 + 4 * 3)) &&
        is compute "$(spans 'device compute' compute)" $((80 + 4 * 3)) &&
        is step "$(spans trainer step)" 80 && is checkpoint "$(spans trainer checkpoint)" 4
}
t "each stage has as many spans as it had items" counts
whole_sum() {
    is spans "$(mark 'end of trace' spans)" "$(awk '$1 == "span" { n += $NF } END { print n }' "$TMP/sum.txt")" &&
        is message "$(sed -n 's/^trace: \([0-9]*\) spans.*/\1/p' "$TMP/train.txt")" "$(mark 'end of trace' spans)"
}
t "the file and the message have the right number of spans" whole_sum
batches() {
    is batches "$(grep -c '^batch ' "$TMP/sum.txt")" 92 || return 1
    # every one was made by readers, row for row, copied and computed
    awk '$1 == "batch" && !(/reader/ && /device copy/ && /device compute/ && / rows=32$/) { print; bad = 1 }
        END { exit bad }' "$TMP/sum.txt"
}
t "a batch can be followed from its rows to its step" batches
counters() {
    grep -q '^counter batches ready' "$TMP/sum.txt" &&
        awk '/^counter images per second/ { found = $NF > 1000 && $NF < 16000 } END { exit !found }' "$TMP/sum.txt"
}
t "the ring's batches and the rate are counters" counters

packed() {
    train --trace "$TMP/packed.pftrace" -o data.train.path="$TMP/data/train-*.tar.zst" &&
        read_back "$TMP/packed.pftrace" &&
        is decompress "$(spans reader decompress)" $((4 * 640)) &&
        is decode "$(spans reader decode)" $((4 * 640 + 4 * 96))
}
t "packed samples are decompressed, each with a span of its own" packed

# The CPU computes on its own: no streams, no copies.
cpu() {
    train --trace "$TMP/cpu.pftrace" -o device=cpu -o loader.cache=decoded && read_back "$TMP/cpu.pftrace" || return 1
    is copies "$(spans 'device' copy)" 0 && is step "$(spans trainer step)" 80 &&
        ! grep -q '^track device' "$TMP/sum.txt"
}
t "on the CPU device too, with a cache" cpu

plain_weights() {
    train && sed -n 's/.*weights \([0-9a-f]*\),.*/\1/p' "$TMP/train.txt"
}
same() {
    train --trace "$TMP/b.pftrace" -o device=cpu -o train.threads=1 &&
        with=$(sed -n 's/.*weights \([0-9a-f]*\),.*/\1/p' "$TMP/train.txt") &&
        train -o device=cpu -o train.threads=1 &&
        is weights "$with" "$(sed -n 's/.*weights \([0-9a-f]*\),.*/\1/p' "$TMP/train.txt")" && [ -n "$with" ]
}
t "a traced run has the weights of an untraced one" same

# About 35000 spans do not fit a MiB.
limit() {
    train --trace "$TMP/small.pftrace" --trace-limit 1 -o train.epochs=12 -o 'device={sim: {step_ms: 1}}' &&
        read_back "$TMP/small.pftrace" || return 1
    bytes=$(wc -c <"$TMP/small.pftrace")
    [ "$bytes" -le 1048576 ] && [ "$bytes" -gt 1000000 ] || { echo "$bytes bytes"; return 1; }
    left=$(mark 'end of trace' 'left out, file full')
    [ "$left" -gt 1000 ] && whole_sum && says "; $left spans left out: it is at its limit of 1 MiB" cat "$TMP/train.txt"
}
t "at its limit it ends, counts the spans left out, and is valid" limit

# The shell's limit on files (blocks of 512 bytes) stands for a full disk.
full() {
    (
        ulimit -f 1000
        train --trace "$TMP/full.pftrace" -o train.epochs=12 -o 'device={sim: {step_ms: 1}}'
    ) || { tail -n 3 "$TMP/train.txt"; return 1; }
    says "it ends early, without" cat "$TMP/train.txt" && says "done in" cat "$TMP/train.txt" &&
        read_back "$TMP/full.pftrace" || return 1
    [ "$(mark 'end of trace' 'left out, file full')" -gt 1000 ] && whole_sum
}
t "a full disk ends the trace and not the run" full
no_room() {
    train --trace /dev/full && says "No space left on device" cat "$TMP/train.txt" &&
        says "trace: 0 spans" cat "$TMP/train.txt"
}
t "a disk that was full from the start, too" no_room

killed() {
    train --trace "$TMP/killed.pftrace" -o train.epochs=100 &
    pid=$!
    for i in $(tries 100); do
        [ "$(wc -c <"$TMP/killed.pftrace" 2>/dev/null || echo 0)" -gt 100000 ] && break
        sleep 0.1
    done
    # the function's shell, and the program below it
    program=$(cat "/proc/$pid/task/$pid/children" 2>/dev/null)
    kill -9 ${program:-$pid}
    wait $pid 2>/dev/null
    read_back "$TMP/killed.pftrace" && [ "$(spans reader augment)" -gt 100 ]
}
t "of a run that is killed the trace is whole up to there" killed

t "a file that cannot be made is reported before anything is done" exits 1 \
    "$NNPIPE" train "$TMP/net.yaml" -o runs="$TMP/none" --trace "$TMP/no/where"
t "and no run's folder is left" test ! -e "$TMP/none"
t "a limit that is no number is a mistake" exits 2 "$NNPIPE" train "$TMP/net.yaml" -o runs="$TMP/none" --trace \
    "$TMP/x" --trace-limit much
t "so is a limit without a trace" exits 2 "$NNPIPE" train "$TMP/net.yaml" -o runs="$TMP/none" --trace-limit 5
[ "$failed" -eq 0 ]
