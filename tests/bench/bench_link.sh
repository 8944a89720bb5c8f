#!/bin/sh
# The model of scripts/cluster_model.sh beside a run: two processes in two network namespaces, with a link of RATES
# Mbit/s between them, so slow that the sums limit. As root, with ip and tc.
#   RATES ("50 100 200"), STEPS (60)
#   NNPIPE (./nnpipe): the program, to compare two of them
#   NET: deep has a backward pass that sums can be hidden behind; conv has one without large linear layers
set -eu
cd "$(dirname "$0")/../.."
. tests/bench/field.sh
program=${NNPIPE:-$PWD/nnpipe} out=$(mktemp -d) a=nnpipe-link-a-$$ b=nnpipe-link-b-$$ steps=${STEPS:-60}
trap 'ip netns del "$a" 2>/dev/null || :; ip netns del "$b" 2>/dev/null || :; rm -rf "$out"' EXIT
export XDG_CACHE_HOME="$out/cache"
ip netns add "$a"
ip netns add "$b"
ip link add wire netns "$a" type veth peer name wire netns "$b"
for of in "$a 1" "$b 2"; do
    ip netns exec "${of% *}" \
        sh -c "ip link set lo up && ip addr add 192.0.2.${of#* }/24 dev wire && ip link set wire up"
done
size=12 batch=32
model='[flatten, {linear: {out: 1000}}, relu, {linear: {out: classes}}]'
if [ "${NET-}" = deep ]; then
    size=32 batch=64
    model='[{conv: {out: 64, kernel: 3, stride: 2, pad: 1}}, relu, {conv: {out: 128, kernel: 3, pad: 1}}, relu,
  {conv: {out: 256, kernel: 3, stride: 2, pad: 1}}, relu, {conv: {out: 512, kernel: 3, pad: 1}}, relu,
  global_avgpool, {linear: {out: 2000}}, relu, {linear: {out: 1000}}, relu, {linear: {out: classes}}]'
fi
if [ "${NET-}" = conv ]; then
    size=32 batch=64
    model='[{conv: {out: 64, kernel: 3, stride: 2, pad: 1}}, relu, {conv: {out: 128, kernel: 3, pad: 1}}, relu,
  {conv: {out: 256, kernel: 3, stride: 2, pad: 1}}, relu, {conv: {out: 512, kernel: 3, pad: 1}}, relu,
  {conv: {out: 512, kernel: 3, stride: 2, pad: 1}}, relu, global_avgpool, {linear: {out: classes}}]'
fi
"$program" data synth --out "$out/data" --samples 256 --test 0 --size $size >"$out/log"
cat >"$out/net.yaml" <<Y
name: net
device: cpu
precision: f32
runs: "$out/runs"
data: {train: {source: tar, path: "$out/data/train-*.tar*"}}
loader: {batch: $batch, readers: 1}
model: $model
train: {steps: $steps, threads: 1, lanes: 2, eval_every: never}
checkpoint: {every: never}
Y
train() { "$program" train "$out/net.yaml" --json "$@"; }
train >"$out/json" 2>"$out/log"
alone=$(field images_per_second <"$out/json") params=$(grep -o '"parameters": [0-9]*' "$out/json" | grep -o '[0-9]*')
bytes=$((4 * params))
echo "$bytes bytes of gradients; one process alone: $alone images/s"
echo "| link, Mbit/s | images/s | the model's | of it |"
echo "|---|---|---|---|"
for rate in ${RATES:-50 100 200}; do
    for rank in 0 1; do
        machine=$a
        [ "$rank" = 0 ] || machine=$b
        ip netns exec "$machine" tc qdisc replace dev wire root tbf rate "${rate}mbit" burst 64kb latency 400ms
    done
    for rank in 0 1; do
        machine=$a
        [ "$rank" = 0 ] || machine=$b
        RANK=$rank WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=192.0.2.1 NNPIPE_COMM_PORT=29500 \
            ip netns exec "$machine" "$program" train "$out/net.yaml" --json >"$out/rank$rank" 2>"$out/log$rank" &
    done
    wait
    seen=$(field images_per_second <"$out/rank0")
    model=$(sh scripts/cluster_model.sh gpus=1 boxes=2 batch=$((batch / 2)) rate="$alone" gradients="$bytes" \
        row=$((3 * size * size)) file=400 decode=1e-6 cores=2 \
        network="$(awk "BEGIN { print $rate * 125000 }")" | awk -F'|' '$2 == 2 { print $4 }')
    awk "BEGIN { printf \"| %d | %.0f | %.0f | %.2f |\\n\", $rate, $seen, $model, $seen / $model }"
done
