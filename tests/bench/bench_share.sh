#!/bin/sh
# Jobs that want the same batches, on the sim device: the CPU time (user and system) of the reader threads of JOBS (4)
# jobs at once, divided by one job's. The goal is at most 1.15. NNPIPE_DATA has imagenet/train, or CONFIG names another
# config. The step is so long that the device limits the jobs, as in a sweep.
set -eu
cd "$(dirname "$0")/../.."
root=$PWD
config=$(realpath "${CONFIG:-configs/resnet18.yaml}")
jobs=${JOBS:-4}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
cd "$tmp"

# readers N: CPU seconds of the readers, batches made and taken, of N jobs that start together
readers() {
    rm -rf runs
    pids=
    for _ in $(seq "$1"); do
        "$root/nnpipe" train "$config" -o "device={sim: {h2d_gbps: 25, step_ms: ${STEP_MS:-100}}}" -o runs=runs \
            -o "checkpoint.every=1000000 epochs" \
            -o "loader.batch=${BATCH:-50}" -o "train.epochs=${EPOCHS:-20}" >>out.txt 2>&1 &
        pids="$pids $!"
    done
    for pid in $pids; do wait "$pid"; done
    cat runs/*/metrics.jsonl | awk '
        function field(name) {
            if (!match($0, "\"" name "\": *[0-9.e+-]+"))
                return 0
            return substr($0, RSTART + length(name) + 3, RLENGTH - length(name) - 3) + 0
        }
        /"pipeline"/ {
            cpu += field("reader_cpu_seconds")
            made += field("made_batches")
            taken += field("taken_batches")
        }
        END { print cpu, made, taken }'
}
readers 1 >/dev/null # the page cache and the entries
for _ in $(seq "${ROUNDS:-3}"); do
    one=$(readers 1)
    all=$(readers "$jobs")
    echo "$one $all $jobs" | awk '{
        printf "one job: %.2f s of readers, %d batches; %d jobs: %.2f s, %d made, %d taken; ratio %.2f\n",
            $1, $2, $7, $4, $5, $6, $4 / $1 }'
done

# Other augmentations over one decoded cache, with the Python package (make python) and FOLDER, an ImageFolder.
if [ -n "${FOLDER:-}" ] && [ -d "$root/build/python/nnpipe" ]; then
    for epochs in 1 4; do
        PYTHONPATH="$root/build/python" "${PYTHON:-python3}" "$root/tests/bench/bench_share_pictures.py" "$FOLDER" \
            "$epochs" "${ROUNDS:-3}"
    done
fi
