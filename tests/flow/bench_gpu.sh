# bench_gpu.sh end to end, with this program on the CPU and stand-ins for PyTorch's half, nvidia-smi and nsys:
# which work both sides are given, and what is written down with the numbers.
. "$(dirname "$0")/../lib.sh"
cd "$ROOT" || exit 1
command -v python3 >/dev/null || { skip "the bench of GPUs" "there is no python3"; exit 0; }
mkdir -p "$TMP/root/scripts/bench_gpu" "$TMP/bin" "$TMP/out" "$XDG_CACHE_HOME/nnpipe"
cp scripts/bench_gpu.sh "$TMP/root/scripts/"
cp scripts/bench_gpu/bench.py scripts/bench_gpu/cifar.yaml "$TMP/root/scripts/bench_gpu/"
ln -s "$ROOT/configs" "$TMP/root/configs"
echo "conv 3 = engine 7" >"$XDG_CACHE_HOME/nnpipe/engines-some GPU.txt"
cat >"$TMP/root/scripts/bench_gpu/peer.py" <<'Y'
import json, os, sys
with open(os.environ["PEER_LOG"], "a") as log:
    log.write(" ".join(sys.argv[1:]) + "\n")
kernels = [{"name": "a_kernel", "calls": 2, "ms": 1.5}]
print(json.dumps({"event": "done", "torch": "0", "images_per_second": 10, "gigabytes_per_second": 5,
                  "kernels": kernels}))
Y
cat >"$TMP/bin/nvidia-smi" <<'Y'
#!/bin/sh
case "$*" in *driver_version*) echo "A GPU, 580.1"; exit ;; esac
while :; do
    echo "1980, 2619, 650.5, 61, 99, 0x0000000000000004"
    echo "[N/A], 2619, 700.5, 63, 99, 0x0000000000000000"
    sleep 0.1
done
Y
cat >"$TMP/bin/nsys" <<'Y'
#!/bin/sh
[ "$1" = stats ] || { echo "$*" >>"$NSYS_LOG"; exit; }
echo "Processing"
echo "Time (%),Total Time (ns),Instances,Name"
echo '90.0,5000000,100,"void bn_dgrad<8>(x, y)"'
Y
chmod +x "$TMP/bin/nvidia-smi" "$TMP/bin/nsys"
export PEER_LOG=$TMP/peer.log NSYS_LOG=$TMP/nsys.log PATH="$TMP/bin:$PATH" NNPIPE

bench() {
    PYTHONDONTWRITEBYTECODE=1 sh "$TMP/root/scripts/bench_gpu.sh" --cpu --seconds 0.2 --out "$TMP/out" --parts \
        step,profile --tools nnpipe,torch "$@"
}
lines() { grep -c "$@" "$TMP/out/results.jsonl"; } # lines that have the word
all() { [ "$(lines "$1")" -eq "$2" ] || { echo "$1: $(lines "$1") lines, not $2"; return 1; }; }
t "it runs to its table" bench --tf32
cp "$OUT" "$TMP/table.txt"
both() { # twice each: f32 and bf16, nnpipe and torch
    all '"part": "step".*"deterministic": "yes".*"ok": true' 4 &&
        all '"part": "step".*"deterministic": "no".*"ok": true' 4
}
t "each row is measured deterministic and not, on both sides" both
asked() { # the peer is asked for what the row says
    [ "$(grep -c '^step .*--deterministic' "$PEER_LOG")" -eq 2 ] &&
        [ "$(grep -vc -e --deterministic -e '^versions' -e '^profile' "$PEER_LOG")" -eq 2 ] || {
            cat "$PEER_LOG"
            return 1
        }
}
t "PyTorch gets the same setting" asked
tf32_only_in_f32() (
    [ "$(grep -c -- "--precision f32.*--tf32" "$1")" -ge 2 ] && ! grep -q -- "--precision bf16.*--tf32" "$1" &&
        grep -q "step resnet18 4 tf32" "$2"
)
t "TF32 goes to f32 alone, and is named" tf32_only_in_f32 "$PEER_LOG" "$TMP/out/results.jsonl"
seen() {
    reasons='"clocks_event_reasons.active": \["0x0000000000000000", "0x0000000000000004"\]'
    all '"part": "step".*"gpu_seen".*"clocks.sm": 1980.0.*'"$reasons" 8 && all '"cell": "box".*A GPU, 580.1' 1
}
t "clocks, power and reasons for lower clocks are stored with each" seen
t "the chosen engines are stored with nnpipe's steps" all \
    '"tool": "nnpipe".*engines-some GPU.txt": \["conv 3 = engine 7"\]' 4
where() { # 100 of 50 steps, and the command that was profiled
    grep -q '^| void bn_dgrad<8>(x, y) | 2.0 | 0.100 |' "$TMP/table.txt" &&
        grep -q '^| a_kernel | 2.0 | 1.500 |' "$TMP/table.txt" &&
        grep -q 'train.deterministic=true' "$NSYS_LOG" && grep -q 'train.deterministic=false' "$NSYS_LOG"
}
t "the kernels of a step are in the table, for both sides" where
rows() {
    [ "$(grep -c "^| resnet18 at 64" "$TMP/table.txt")" -eq 4 ] || {
        grep "^| resnet" "$TMP/table.txt"
        return 1
    }
}
t "the table has a row for each" rows
without() { # nsys has to be there for that part, and is named
    rm "$TMP/bin/nsys"
    bench --again --parts profile
    grep -q 'there is no nsys: install' "$TMP/out/results.jsonl"
}
t "without nsys the part says what to install" without
[ "$failed" -eq 0 ]
