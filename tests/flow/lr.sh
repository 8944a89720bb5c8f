#!/bin/sh
# nnpipe lr: a range test of the learning rate trains as a run does at these rates, and leaves nothing behind.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1
export TMPDIR="$TMP/tmp"
mkdir "$TMPDIR" || exit 1
cat >net.yaml <<Y
name: net
device: cpu
precision: f32
data: {train: {source: synth, samples: 96, size: 8}, test: {source: synth, samples: 32, size: 8}}
loader: {batch: 8, readers: 1, share: off}
model: [{conv: {out: 4, kernel: 3}}, batchnorm, relu, global_avgpool, {linear: {out: classes}}]
optimizer: {sgd: {momentum: 0.9}}
schedule: {one_cycle: {warmup: 20%}}
train: {threads: 1, stop: {patience: 1}}
track: tensorboard
Y
rates() { # 30 rates from 1e-4 to 1, each 10^(4/29) times the one before; nothing is left
    "$NNPIPE" lr net.yaml --from 1e-4 --to 1 --steps 30 --json >range.json && python3 - <<'P' &&
import json
rows = [json.loads(line) for line in open("range.json")]
points, done = rows[:-1], rows[-1]
assert len(points) == done["steps"] == 30 and done["event"] == "done" and not done["diverged"], done
for i, p in enumerate(points):
    want = 1e-4 * 10 ** (4 * i / 29)
    assert p["event"] == "rate" and p["step"] == i + 1 and abs(p["lr"] / want - 1) < 1e-9, (i, p, want)
assert 1e-5 <= done["minimum_tenth"] <= 0.1
P
        [ ! -e runs ] && [ -z "$(ls "$TMPDIR")" ]
}
t "the rates, and nothing is left" rates
trained() { # the first losses are those of a run at the same rates, here nearly constant ones
    "$NNPIPE" lr net.yaml --from 0.1 --to 0.1000001 --steps 10 --json >range.json || return 1
    "$NNPIPE" train net.yaml -o runs=own -o 'train={steps: 10, threads: 1}' -o schedule=constant \
        -o optimizer.sgd.lr=0.1 --json >run.json || return 1
    python3 - <<'P'
import json
losses = lambda name, event: [r["loss"] for r in map(json.loads, open(name)) if r["event"] == event]
a, b = losses("range.json", "rate"), losses("run.json", "step")
assert len(a) == len(b) == 10 and all(abs(x - y) < 1e-5 for x, y in zip(a, b)), (a, b)
assert a[0] != a[9]
P
}
t "it trains as a run with these rates does" trained
weights() { # it begins with the loss that the weights have
    run=$(ls -d own/net-*) && "$NNPIPE" lr net.yaml --from 1e-6 --steps 10 --weights "$run" --json >range.json &&
        "$NNPIPE" lr net.yaml --from 1e-6 --steps 10 --json >fresh.json &&
        [ "$(sed -n 1p range.json)" != "$(sed -n 1p fresh.json)" ]
}
t "--weights" weights
accumulated() {
    "$NNPIPE" lr net.yaml --steps 12 -o train.accumulate=3 -o train.ema={} --json >range.json &&
        [ "$(grep -c '"rate"' range.json)" = 12 ]
}
t "an accumulated update is one point" accumulated
muon() { # its other rate cannot keep its proportion to 0
    "$NNPIPE" lr net.yaml --from 1e-4 --to 1e-3 --steps 10 -o 'optimizer={muon: {lr: 0}}' --json |
        grep -q '"steps": 10, "diverged": false'
}
t "muon with a rate of 0" muon
diverges() {
    "$NNPIPE" lr net.yaml --from 1e-3 --to 1e6 --steps 60 --html page.html >text.txt &&
        "$NNPIPE" lr net.yaml --from 1e-3 --to 1e6 --steps 60 --json | grep -q '"diverged": true' &&
        grep -q '^a first choice: -o optimizer.sgd.lr=[0-9.e-]*$' text.txt && [ "$(grep -c '│' text.txt)" = 12 ] &&
        grep -q '"diverged": true' page.html && ! grep -q '{json}\|{style}' page.html && [ -z "$(ls "$TMPDIR")" ]
}
t "it ends when the loss diverges; the plot, and the page" diverges
wrong() { # wrong TEXT FLAGS...
    says "$1" exits 2 "$NNPIPE" lr net.yaml "${@:2}"
}
t "--to below --from is refused" wrong 'is not above --from' --from 1 --to 0.1
t "a rate that is no number is refused" wrong '--from takes a learning rate' --from fast
t "too few steps are refused" wrong '--steps takes 10 to' --steps 2
t "a missing file of weights is named" says '/nosuch' exits 1 "$NNPIPE" lr net.yaml --weights /nosuch
if use_emulated_gpu "nnpipe lr on the emulated GPU"; then
    on_gpu() {
        "$NNPIPE" lr net.yaml --steps 10 --device cuda:0 --json >range.json &&
            grep -q '"device": "cuda:0".*"steps": 10' range.json
    }
    t "on a GPU" on_gpu
fi
[ "$failed" -eq 0 ]
