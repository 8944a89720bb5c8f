#!/bin/sh
# --weights with files of PyTorch: the table at the start of a run, eval and predict, and files that do not fit.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1
files=$ROOT/tests/fuzz/corpus/torch
"$NNPIPE" data synth --out s --samples 64 --test 8 >/dev/null || exit 1
mkdir flat two && tar --zstd -C flat -xf s/train-00000.tar.zst || exit 1
for class in $(ls flat | head -n 2); do mv "flat/$class" two/; done
cat >net.yaml <<'Y'
name: net
device: cpu
data:
  train: {source: folder, path: two}
  test: {source: folder, path: two}
loader: {batch: 4}
model: [global_avgpool, flatten, {linear: {name: fc, out: 2}}]
train: {epochs: 0, steps: 1, threads: 1}
Y
sed 's/name: fc, out: 2}}/&, relu, {linear: {name: head, out: classes}}/' net.yaml >tuned.yaml

table() {
    "$NNPIPE" train tuned.yaml --weights "$files/new" --json >events.json 2>said.txt || return 1
    sed -n '/^weights from/,/^  not/p' said.txt >table.txt
    cat >wanted.txt <<T
weights from $files/new:
  fc    loaded  2 tensors, 8 values
  head  fresh   weight is missing; bias is missing
  not of this network: bn.running_mean
T
    diff wanted.txt table.txt && grep -q "head  fresh" runs/net-*/log &&
        grep '"event": "weights"' events.json >event.json && python3 - <<'P'
import json
event = json.load(open("event.json"))
fc, head = event["layers"]
assert (fc["layer"], fc["tensors"], fc["loaded"], fc["values"], fc["why"]) == ("fc", 2, 2, 8, None), fc
assert (head["layer"], head["loaded"], head["misshapen"]) == ("head", 0, 0) and "weight is missing" in head["why"], head
assert (event["unused"], event["unused_names"], event["prefix"], event["part"]) == (1, "bn.running_mean", None, None)
P
}
t "the table of what was loaded is printed, logged and an event" table
t "the table says what is frozen" says "fc    loaded  2 tensors, 8 values, 2 frozen" \
    "$NNPIPE" train tuned.yaml --weights "$files/new" -o 'freeze=["fc.*"]'
t "eval takes a part of a PyTorch file, and says which" says "only_fc, its part 'model'" \
    "$NNPIPE" eval net.yaml --weights "$files/only_fc"
t "predict, too" sh -c '"$0" predict net.yaml --weights "$1" two/*/*.jpg | grep -q %' "$NNPIPE" "$files/only_fc#model"
t "eval names tensors that the network does not have" says "not of this network: bn.running_mean" \
    exits 1 "$NNPIPE" eval net.yaml --weights "$files/new"
t "and those that the file does not have" says "head: weight is missing; bias is missing" \
    exits 1 "$NNPIPE" eval tuned.yaml --weights "$files/only_fc"
t "a part that is not there is an error with those that are" \
    says "there is no part 'ema' with tensors; there is model" exits 1 \
    "$NNPIPE" train net.yaml --weights "$files/only_fc#ema"
t "a file that is not there is one, too" says "none.pth: cannot be opened" \
    exits 1 "$NNPIPE" train net.yaml --weights "none.pth#model"
t "show lists the tensors" sh -c '"$0" show "$1" | grep -qx "fc.weight  *F32  *2x3"' "$NNPIPE" "$files/reference#model"
