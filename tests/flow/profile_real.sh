# `nnpipe profile` on storage that is really slow: a FUSE file system that takes its time for each open, read and
# write. Verdicts that need a quiet box are tests/bench/plants/real.sh's; here nothing may be wrong, whatever else runs.
. "$(dirname "$0")/../lib.sh"
check=${NNPIPE_BUILD:-$ROOT/build}/tests/plants/profile_check
mkdir -p "$TMP/set/a" "$TMP/set/b" "$TMP/saved"
for i in $(seq 20); do
    for class in a b; do { echo "P6 32 32 255"; head -c 3072 /dev/urandom; } >"$TMP/set/$class/$i.ppm"; done
done
if ! mount_faulty "$TMP/set" "$TMP/slow" || ! mount_faulty "$TMP/saved" "$TMP/runs"; then
    skip "a profile of slow storage names it" "no FUSE here"
    exit 0
fi
config() { # config FOLDER RUNS EVERY
    cat <<Y
name: slow
device: {sim: {h2d_gbps: 10, step_ms: 2}}
data: {train: {source: folder, path: $1}}
loader: {batch: 4, readers: 2, cache: none, augment: [{random_crop: {size: 32, pad: 4}}, flip]}
model: [flatten, {linear: {out: 64}}, relu, {linear: {out: classes}}]
train: {epochs: 100000}
checkpoint: {every: $3}
runs: $2
Y
}
config "$TMP/slow" "$TMP/fast" never >"$TMP/read.yaml"
config "$TMP/set" "$TMP/runs" '5 steps' >"$TMP/save.yaml"
printf 'direct 1\n' >"$TMP/slow/.control"
printf 'latency 15\n' >"$TMP/slow/.control"
printf 'latency 10\n' >"$TMP/runs/.control"

field() { sed -n "s/.*\"event\": *\"done\".*\"$1\": *\"\{0,1\}\([^\",}]*\).*/\1/p" "$2" | head -n 1; }
# names STAGE CONFIG [FLAG...]: that stage, or none if the machine is too busy; and no figure contradicts
# another. Best of three tries
names() {
    for _ in 1 2 3; do
        named "$@" >"$TMP/other" && return
    done
    cat "$TMP/other"
    return 1
}
named() {
    stage=$1 config=$2
    shift 2
    rm -rf "$TMP/out"
    "$NNPIPE" profile "$config" --seconds 0.3 --out "$TMP/out" --json "$@" >"$TMP/events" 2>&1 || {
        tail -n 2 "$TMP/events"
        return 1
    }
    said=$(field verdict "$TMP/events") limiter=$(field limiter "$TMP/events")
    [ "$said" = inconclusive ] || [ "$limiter" = "$stage" ] || { echo "$said: $limiter"; return 1; }
    "$check" "$TMP/out/profile.json"
}
t "slow reads are named, and no other stage is" names read "$TMP/read.yaml"
t "slow saves are named" names checkpoint "$TMP/save.yaml"
# Of 40 pictures at a few dozen a second no trial of 0.3 s sees a second epoch.
filling() {
    "$NNPIPE" profile "$TMP/read.yaml" -o loader.cache=encoded --seconds 0.1 --out "$TMP/fills" >"$TMP/said" 2>&1 || {
        tail -n 2 "$TMP/said"
        return 1
    }
    # a box so slow that steps took longer than reads
    grep -q '"cache_fills": *true' "$TMP/fills/profile.json" || return 0
    ! grep -q '^ LIMIT: *READ' "$TMP/said" || grep -q 'still fills' "$TMP/said" || { cat "$TMP/said"; return 1; }
}
t "a cache that still fills is reported" filling
[ "$failed" -eq 0 ]
