#!/bin/sh
# `nnpipe serve` of ResNet-18 at 224 pixels: throughput and latency by batch size and delay, asked by wrk; beside it
# `nnpipe predict` on the same pictures, the limit, and with PYTHON a server of PyTorch behind http.server
# (torch_serve.py), which computes each picture alone, as a first server does.
#   PHOTOS   a folder of folders of JPEGs (default: $NNPIPE_DATA/imagenet-sample-500.tar, unpacked)
#   PYTHON   a python3 that has torch and torchvision (none: no peer)
#   SECONDS_EACH (8) BATCHES ("1 8 32") DELAYS ("0 2 10") PRECISION (f32) CLIENTS (32)
set -eu
cd "$(dirname "$0")/../.."
. tests/bench/field.sh
seconds=${SECONDS_EACH:-8} precision=${PRECISION:-f32} clients=${CLIENTS:-32}
out=$(mktemp -d)
pid=
trap 'kill $pid 2>/dev/null || :; rm -rf "$out"' EXIT
command -v wrk >/dev/null || { echo "wrk is missing: apt install wrk" >&2; exit 1; }
photos=${PHOTOS:-}
if [ -z "$photos" ]; then
    photos=$out/photos
    tar=${NNPIPE_DATA:?give PHOTOS, or NNPIPE_DATA with imagenet-sample-500.tar}/imagenet-sample-500.tar
    mkdir "$photos" && tar -xf "$tar" -C "$photos"
fi
photos=$(realpath "$photos")
find "$photos" -type f | sort | head -n 200 >"$out/list"
sed -e "s|\${NNPIPE_DATA:-../data}/imagenet/[a-z]*|$photos|" -e '/^  test: /d' -e 's/batch: 256/batch: 4/' \
    -e 's/train: {epochs: 90}/train: {steps: 1}/' configs/resnet18.yaml >"$out/net.yaml"
./nnpipe train "$out/net.yaml" -o runs="$out/runs" -o precision="$precision" >"$out/log" 2>&1 ||
    { tail -n 3 "$out/log" >&2; exit 1; }
run=$(ls -d "$out"/runs/*)
cat >"$out/post.lua" <<'L'
local pictures, next_one = {}, 0
function init(arguments)
    for path in io.lines(arguments[1]) do
        local file = io.open(path, "rb")
        pictures[#pictures + 1] = wrk.format("POST", "/predict", {["Content-Type"] = "image/jpeg"}, file:read("*a"))
        file:close()
    end
end
function request()
    next_one = next_one % #pictures + 1
    return pictures[next_one]
end
function done(summary, latency)
    io.write(string.format("%.1f %.1f %.1f %d %d\n", summary.requests * 1e6 / summary.duration,
        latency:percentile(50) / 1000, latency:percentile(99) / 1000,
        summary.errors.status + summary.errors.read + summary.errors.timeout, summary.requests))
end
L
# ask PORT CLIENTS: requests a second, p50 and p99 in ms, failures, requests
ask() {
    wrk -t 1 -c "$2" -d "${seconds}s" --timeout 30s -s "$out/post.lua" "http://127.0.0.1:$1" -- "$out/list" | tail -n 1
}
cpu_ms() { awk -v hz="$(getconf CLK_TCK)" '{ print ($14 + $15) * 1000 / hz }' "/proc/$pid/stat"; }
# row NAME PORT CLIENTS: of the server $pid
row() {
    before=$(cpu_ms)
    said=$(ask "$2" "$3")
    echo "$said $before $(cpu_ms)" | awk -v name="$1" -v clients="$3" '{
        printf "| %s | %s | %s | %s | %s | %s | %.1f |\n", name, clients, $1, $2, $3, $4, $5 ? ($7 - $6) / $5 : 0
    }'
}
echo "| server | clients | pictures/s | p50 ms | p99 ms | failed | CPU ms a picture |"
echo "|---|---|---|---|---|---|---|"
start=$(date +%s.%N)
children_ms() { awk -v hz="$(getconf CLK_TCK)" '{ print ($16 + $17) * 1000 / hz }' "/proc/$$/stat"; }
before=$(children_ms)
./nnpipe predict --weights "$run" --list "$out/list" --format csv --out "$out/predicted.csv" 2>/dev/null
used=$(echo "$before $(children_ms) $(wc -l <"$out/list")" | awk '{ printf "%.1f", ($2 - $1) / $3 }')
rate=$(echo "$(wc -l <"$out/list") $start $(date +%s.%N)" | awk '{ printf "%.1f", $1 / ($3 - $2) }')
echo "| nnpipe predict, 200 files, with its start | | $rate | | | | $used |"
for batch in ${BATCHES:-1 8 32}; do
    for delay in ${DELAYS:-0 2 10}; do
        : >"$out/serve.log" # the line of the server before
        ./nnpipe serve "$run" --listen 127.0.0.1:0 --max-batch "$batch" --max-delay "$delay" 2>"$out/serve.log" &
        pid=$!
        until grep -q answers "$out/serve.log"; do sleep 0.1; done
        port=$(sed -n 's|.*http://127.0.0.1:\([0-9]*\)/.*|\1|p' "$out/serve.log")
        for n in 1 $clients; do
            row "nnpipe serve, batch $batch, delay $delay ms" "$port" "$n"
        done
        kill "$pid"
        wait "$pid" || :
    done
done
[ -n "${PYTHON:-}" ] || exit 0
"$PYTHON" tests/bench/torch_serve.py >"$out/torch.log" 2>/dev/null &
pid=$!
until [ -s "$out/torch.log" ]; do sleep 0.1; done
for n in 1 $clients; do row "PyTorch behind http.server, f32" "$(cat "$out/torch.log")" "$n"; done
