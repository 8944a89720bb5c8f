#!/bin/sh
# `nnpipe profile --compare` on real runs: PROFILES (10) of a run as it is and as many of it 5 % slower, in
# turn; the step limits it, on the sim device, and another file for that device slows it down, which the profiler never
# sees. Every profile is compared with every other of its kind (nothing has changed: exit 3 is a false alarm) and
# each of the first kind with each of the second (exit 3, and the step named, is what should be). Goals: false
# alarms in at most 5 %, found in at least 95 %. Needs `make plants` and half a minute a profile.
set -eu
cd "$(dirname "$0")/../.."
work=$(mktemp -d "${TMPDIR:-/tmp}/nnpipe-bench.XXXXXX")
trap 'rm -rf "$work"' EXIT
export XDG_CACHE_HOME="$work/cache"
./nnpipe data synth --out "$work/data" --samples 4000 --test 0 >/dev/null
cat >"$work/run.yaml" <<Y
name: compare
device: {sim: {h2d_gbps: 25, step_ms: 4}}
data: {train: {source: tar, path: "$work/data/train-*.tar*"}}
loader: {batch: 128, cache: none, augment: [{random_crop: {size: 32, pad: 4}}, flip]}
model: [global_avgpool, flatten, {linear: {out: classes}}]
optimizer: {sgd: {lr: 0.1}}
runs: $work/runs
Y
echo step_ms=4 >"$work/a.plant"
echo step_ms=4.2 >"$work/b.plant"
n=${PROFILES:-10}
for i in $(seq "$n"); do
    for side in a b; do
        NNPIPE_SIM_PLANT=$work/$side.plant build/tests/plants/nnpipe profile "$work/run.yaml" --json \
            --out "$work/$side$i" >/dev/null
    done
done
tally() { # tally NAME OLDS NEWS: how many of these pairs end with exit code 3, and by which stage
    pairs=0 slower=0 step=0
    for old in $2; do
        for new in $3; do
            [ "$old" != "$new" ] || continue
            pairs=$((pairs + 1))
            ./nnpipe profile "$work/$new/profile.json" --compare "$work/$old/profile.json" --json >"$work/said" &&
                continue
            [ $? = 3 ] || exit 1
            slower=$((slower + 1))
            ! grep -q '"stage": "step"' "$work/said" || step=$((step + 1))
        done
    done
    echo "| $1 | $pairs | $slower | $step |"
}
as=$(seq -f 'a%g' "$n" | tr '\n' ' ') bs=$(seq -f 'b%g' "$n" | tr '\n' ' ')
echo "| pairs | compared | reported as slower | with the step as the cause |"
echo "|---|---|---|---|"
tally 'unchanged, unchanged' "$as" "$as"
tally 'slow, slow' "$bs" "$bs"
tally 'unchanged, then 5 % slower' "$as" "$bs"
tally 'slow, then unchanged' "$bs" "$as"
