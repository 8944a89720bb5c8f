#!/bin/sh
# train.sample_losses and nnpipe replay --worst: the losses of all rows, their sums, after a kill the same bytes;
# planted wrong labels are what --worst shows. With the CUDA device over the emulated runtime, too.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1
python3 - <<'P' || exit 1 # 117 pictures of one colour with noise; every 13th has the label of another class
import os
import random
random.seed(1)
for c in range(3):
    os.makedirs("set/class%d" % c)
for i in range(117):
    pixels = bytes(random.randrange(160, 256) if k % 3 == i % 3 else random.randrange(96) for k in range(6 * 6 * 3))
    wrong = i % 13 == 5
    with open("set/class%d/%s%03d.ppm" % ((i + wrong) % 3, "wrong" if wrong else "right", i), "wb") as f:
        f.write(b"P6 6 6 255\n" + pixels)
P
cat >net.yaml <<Y
name: net
device: cpu
precision: f32
data: {train: {source: folder, path: set}}
loader: {batch: 8, augment: [flip]}
model: [{conv: {out: 6, kernel: 1}}, relu, global_avgpool, {linear: {out: classes}}]
optimizer: {sgd: {lr: 0.05, momentum: 0.9}}
train: {epochs: 5, sample_losses: true, threads: 1}
checkpoint: {every: 4 steps, keep: 100}
Y
cat >check.py <<'P' # RUN STEPS: sums of a step are those of metrics.jsonl
import json
import struct
import sys
data = open(sys.argv[1] + "/sample_losses.bin", "rb").read()
assert data[:8] == b"npLosses" and struct.unpack("<IIQ", data[8:24]) == (1, 8, 117), data[:24]
events = map(json.loads, open(sys.argv[1] + "/metrics.jsonl"))
means = {event["step"]: event["loss"] for event in events if event["event"] == "step"}
steps = list(struct.iter_unpack("<Q8f", data[24:]))
assert len(steps) == len(means) == int(sys.argv[2]), (len(steps), len(means))
for i, (step, *losses) in enumerate(steps):
    assert step == i and abs(sum(losses) / 8 - means[i + 1]) < 1e-5 * (1 + means[i + 1]), (i, losses, means[i + 1])
    assert min(losses) >= 0 and max(losses) > min(losses), losses
P
go() { "$NNPIPE" train "$@" >out 2>&1 || { tail -n 3 out; return 1; }; }
newest() { ls -td "$1"/* | head -n 1; }
go net.yaml -o runs=whole || exit 1
run=$(newest whole)
t "each row's loss is written; their means are those of the steps" python3 check.py "$run" 74
killed() { # as a kill between checkpoints leaves it: behind the checkpoint of step 32, in the middle of a record
    cp -r whole killed && k=$(newest killed) && rm -f "$k/result.json" && rm -r "$k"/checkpoints/best \
        "$k"/checkpoints/last "$k"/checkpoints/step-[4-7]? "$k"/checkpoints/step-3[3-9] 2>/dev/null
    head -c 1555 "$run/sample_losses.bin" >"$k/sample_losses.bin"
    go --resume "$k" && cmp "$k/sample_losses.bin" "$run/sample_losses.bin"
}
t "a run killed and resumed has the same bytes" killed
accumulated() {
    go net.yaml -o runs=acc -o train.accumulate=2 -o train.epochs=2 && python3 check.py "$(newest acc)" 30
}
t "with accumulated gradients, too" accumulated
off_and_on() {
    cp -r killed later && k=$(newest later) && go --resume "$k" -o train.epochs=6 -o train.sample_losses=false &&
        cmp "$k/sample_losses.bin" "$run/sample_losses.bin" && go --resume "$k" -o train.epochs=7 &&
        "$NNPIPE" replay "$k" --worst 3 --out t
}
t "a resumed run may leave them out, and write them again" off_and_on

planted() { # the nine wrong labels come first, and each once
    "$NNPIPE" replay "$run" --worst 12 --json >rows 2>err && [ "$(wc -l <rows)" -eq 12 ] &&
        [ "$(head -n 9 rows | grep -c '"path": "[^"]*/wrong')" -eq 9 ] &&
        [ "$(sed 's/.*"path": "\([^"]*\).*/\1/' rows | sort -u | wc -l)" -eq 12 ] &&
        sed 's/.*"loss": \([^,]*\).*/\1/' rows | sort -gr | cmp - <(sed 's/.*"loss": \([^,]*\).*/\1/' rows) &&
        cmp rows "$run/replay-worst/rows.jsonl" &&
        grep -q "the 12 highest of 117 losses of epoch 4, .* in 4 columns" err
}
t "--worst shows the planted wrong labels first" planted
sheet() { # 4 x 3 pictures of 6 x 6, two pixels apart; the first is the first row's
    python3 - "$run/replay-worst" "$NNPIPE" "$run" "$ROOT/tests/flow" <<'P'
import json
import subprocess
import sys
sys.path.insert(0, sys.argv[4])
from read_png import png
folder, nnpipe, run = sys.argv[1:4]
width, height, pixels = png(folder + "/worst.png")
assert (width, height) == (30, 22), (width, height)
for place, row in enumerate(map(json.loads, open(folder + "/rows.jsonl"))):
    again = subprocess.run([nnpipe, "replay", run, "--step", str(row["step"]), "--row", str(row["row"]), "--json",
                            "--out", "one"], capture_output=True, text=True, check=True).stdout
    again = json.loads(again)
    assert again["crc32c"] == row["crc32c"] and again["path"] == row["path"]
    own, top, left = png(again["file"])[2], place // 4 * 8, place % 4 * 8
    for y in range(6):
        assert pixels[90 * (top + y) + 3 * left:][:18] == own[18 * y:][:18], (place, y)
P
}
t "the sheet has the rows' pixels, in the list's order" sheet
t "the table has losses and steps" says "loss  step  row" "$NNPIPE" replay "$run" --worst 3
fewer() { "$NNPIPE" replay "$run" --worst 1000 --json >rows && [ "$(wc -l <rows)" -eq 117 ]; }
t "there are no more than the samples of an epoch" fewer
early() {
    go net.yaml -o runs=early -o train.epochs=0 -o train.steps=5 &&
        says "of 40 losses of epoch 0, which is not complete" \
        "$NNPIPE" replay "$(newest early)" --worst 4
}
t "an epoch that is not complete is said to be so" early
off() {
    go net.yaml -o runs=off -o train.sample_losses=false -o train.epochs=1 &&
        says "train: {sample_losses: true}" exits 2 "$NNPIPE" replay "$(newest off)" --worst 4
}
t "a run without losses: the message names the key" off
damage() { # damage TEXT COMMAND...: the command changes f
    cp -r "$run" bad && f=bad/sample_losses.bin
    "${@:2}" && says "$1" exits 1 "$NNPIPE" replay bad --worst 2
    code=$?
    rm -r bad
    return $code
}
put() { printf "$1" | dd of=bad/sample_losses.bin bs=1 "seek=$2" conv=notrunc 2>/dev/null; }
t "a file that is no such file" damage "does not begin as such" put x 0
t "a file of a later version" damage "version 2" put '\002' 8
t "a file of another batch" damage "is not the run's" put '\011' 12
t "a step behind the run's end" damage "behind the run's end" put '\377' $((24 + 40 * 73))
t "steps out of order" damage "not in order" put '\111' $((24 + 40 * 72))
t "a torn end is left out" says "117 losses" sh -c 'cp -r "$0" torn && printf abc >>torn/sample_losses.bin &&
    "$1" replay torn --worst 2' "$run" "$NNPIPE"
t "--step and --worst exclude each other" says "or RUN --worst K" exits 2 "$NNPIPE" replay "$run" --step 1 --worst 3
t "--worst takes a number" says "from 1 to 1000" exits 2 "$NNPIPE" replay "$run" --worst 0
t "a device without losses" says "the device sim computes no losses" \
    exits 2 "$NNPIPE" train net.yaml -o device=sim

what="the CUDA device gives the losses of the CPU"
if use_emulated_gpu "$what"; then
    on_cuda() {
        "$NNPIPE" train net.yaml -o device=cuda:0 -o runs=cuda >out 2>&1 || { tail -n 3 out; return 1; }
        c=$(newest cuda) && python3 check.py "$c" 74 && python3 - "$run" "$c" <<'P'
import struct
import sys
a, b = (list(struct.iter_unpack("<f", open(run + "/sample_losses.bin", "rb").read()[24:])) for run in sys.argv[1:])
assert len(a) == len(b) and all(abs(x - y) < 1e-3 * (1 + abs(x)) for (x,), (y,) in zip(a, b))
P
    }
    t "$what" on_cuda
    resumed() {
        cp -r cuda cuda2 && k=$(newest cuda2) && rm -f "$k/result.json" && rm -r "$k"/checkpoints/best \
            "$k"/checkpoints/last "$k"/checkpoints/step-[4-7]? 2>/dev/null
        "$NNPIPE" train --resume "$k" >out 2>&1 && cmp "$k/sample_losses.bin" "$c/sample_losses.bin"
    }
    t "killed and resumed there, the same bytes" resumed
fi
[ "$failed" -eq 0 ]
