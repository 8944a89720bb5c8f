#!/bin/sh
# track: the files that TensorBoard, MLflow and W&B read have each number of metrics.jsonl once, also after a kill
# and a resume. NNPIPE_TRACK_PYTHON: a Python with tensorboard, mlflow and wandb; else their readers are skipped.
. "$(dirname "$0")/../lib.sh"
export MLFLOW_ALLOW_FILE_STORE=true
python=${NNPIPE_TRACK_PYTHON:-python3}
cat >"$TMP/net.yaml" <<Y
name: net
device: cpu
precision: f32
data: {train: {source: synth, samples: 64, size: 12}, val: {source: synth, samples: 16, size: 12, seed: 2},
  test: {source: synth, samples: 16, size: 12, seed: 3}}
loader: {batch: 8, share: off}
model: [{conv: {out: 4, kernel: 3}}, relu, global_avgpool, {linear: {out: classes}}]
train: {epochs: 3, threads: 1}
checkpoint: {every: 3 steps}
track: [tensorboard, mlflow, wandb]
runs: $TMP/runs
Y
full_disk() { # the first run writes into a folder that is a file: the others go on
    mkdir -p "$TMP/full" && echo no >"$TMP/full/mlruns" &&
        says "track: mlflow: " "$NNPIPE" train "$TMP/net.yaml" -o "runs=$TMP/full" &&
        ls "$TMP"/full/net-*/tensorboard/events.out.tfevents.* "$TMP"/full/net-*/result.json
}
t "a tracker that cannot write is left out with a warning, and the run ends well" full_disk
mistake() { says ":10:9: track: 'tensorflow' is no tracker" exits 2 "$NNPIPE" check "$TMP/bad.yaml"; }
sed 's/^track: .*/track: [tensorflow]/' "$TMP/net.yaml" >"$TMP/bad.yaml"
t "an unknown tracker is a mistake with its line" mistake

# The training is over, and the run is resumed from a checkpoint in its middle, as after a kill.
killed() {
    "$NNPIPE" train "$TMP/net.yaml" && run=$(ls -d "$TMP"/runs/net-*) && rm "$run/result.json" &&
        rm -r "$run"/checkpoints/step-24 "$run"/checkpoints/step-21 &&
        says "resuming from the checkpoint of step 18 of 24" "$NNPIPE" train --resume "$run"
}
t "a run with trackers resumes" killed
numbers() { # numbers EVENT KEY: "step value" of metrics.jsonl
    sed -n "s/^{\"event\": \"$1\", \"step\": \([0-9]*\),.*\"$2\": \([-0-9.e]*\)[,}].*/\1 \2/p" "$run/metrics.jsonl"
}
mlflow_has() { # mlflow_has EVENT KEY TAG
    numbers "$1" "$2" >"$TMP/want" && [ -s "$TMP/want" ] &&
        awk '{ print $3, $2 }' "$TMP"/runs/mlruns/*/*/metrics/"$3" | diff "$TMP/want" -
}
t "MLflow's files have each step's loss once" mlflow_has step loss train/loss
t "and each evaluation's accuracy" mlflow_has eval val_accuracy val/accuracy
t "and the final test's loss" grep -q " 24$" "$TMP"/runs/mlruns/*/*/metrics/final/test_loss

cat >"$TMP/board.py" <<'P'
import glob, json, struct, sys
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
board = EventAccumulator(sys.argv[1] + "/tensorboard", size_guidance={"scalars": 0, "tensors": 0})
board.Reload()
f32 = lambda x: struct.unpack("f", struct.pack("f", x))[0]
rows = [json.loads(line) for line in open(sys.argv[1] + "/metrics.jsonl")]
for event, tag, key in (("step", "train/loss", "loss"), ("eval", "val/accuracy", "val_accuracy")):
    want = [(r["step"], f32(r[key])) for r in rows if r["event"] == event]
    assert want and [(e.step, e.value) for e in board.Scalars(tag)] == want, tag
assert {"train/lr", "pipeline/stall_ratio", "final/test_loss"} <= set(board.Tags()["scalars"]), board.Tags()
P
cat >"$TMP/flow.py" <<'P'
import sys
from mlflow.tracking import MlflowClient
client = MlflowClient("file:" + sys.argv[1])
(experiment,) = client.search_experiments()
(run,) = client.search_runs([experiment.experiment_id])
assert experiment.name == "net" and run.info.status == "FINISHED", run
assert run.data.params["train.epochs"] == "3" and run.data.tags["mlflow.runName"].startswith("net-"), run
assert [m.step for m in client.get_metric_history(run.info.run_id, "train/loss")] == list(range(1, 25))
P
cat >"$TMP/wand.py" <<'P'
import glob, json, struct, sys, zlib
from wandb.proto.wandb_internal_pb2 import Record
(path,) = glob.glob(sys.argv[1] + "/wandb/offline-run-*/run-*.wandb")
data = open(path, "rb").read()
assert data[:7] == b":W&B\xe1\xbe\0"
at, parts, records = 7, b"", []
while at < len(data):
    if 32768 - at % 32768 < 7:
        at += 32768 - at % 32768
        continue
    crc, n, kind = struct.unpack("<IHB", data[at:at + 7])
    part = data[at + 7:at + 7 + n]
    assert len(part) == n and crc == zlib.crc32(part, zlib.crc32(bytes([kind])))
    parts, at = parts + part, at + 7 + n
    if kind in (1, 4): # the whole, or its last part
        records.append(Record.FromString(parts))
        parts = b""
assert [r.num for r in records] == list(range(1, len(records) + 1))
assert [r.WhichOneof("record_type") for r in records] == ["run"] + ["history"] * 24 + ["summary", "exit"]
rows = [{item.key: json.loads(item.value_json) for item in r.history.item} for r in records[1:-2]]
lines = [json.loads(line) for line in open(sys.argv[1] + "/metrics.jsonl")]
for event, tag, key in (("step", "train/loss", "loss"), ("eval", "val/accuracy", "val_accuracy")):
    want = [(r["step"], r[key]) for r in lines if r["event"] == event]
    assert want and [(r["_step"], r[tag]) for r in rows if tag in r] == want
config = {item.key: json.loads(item.value_json) for item in records[0].run.config.update}
assert config["train.epochs"] == 3 and config["precision"] == "f32" and records[0].run.project == "net"
assert {"train/lr", "final/test_loss"} <= {item.key for item in records[-2].summary.update}
P
reader() { # reader MODULE SCRIPT FOLDER SENTENCE
    if "$python" -c "import $1" 2>/dev/null; then
        t "$4" "$python" "$TMP/$2" "$3"
    else
        skip "$4" "no Python with $1"
    fi
}
reader tensorboard board.py "$run" "TensorBoard's reader lists our scalars"
reader wandb wand.py "$run" "W&B's messages hold our rows"
reader mlflow flow.py "$TMP/runs/mlruns" "MLflow's client lists our run"
[ "$failed" -eq 0 ]
