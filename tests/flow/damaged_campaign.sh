# 500 damaged pictures among as many sound ones (tests/golden/damage.py): each has Pillow's verdict, decoded whole and
# as a
# crop; and a run on them ends with the same weights whatever the cache, the readers, the I/O backend,
# and whether it is killed: at KILLS (20) of its 100 steps.
. "$(dirname "$0")/../lib.sh"
build=${NNPIPE_BUILD:-$ROOT/build}
python=${PYTHON:-/usr/bin/python3}
kills=${KILLS:-20}
[ -x "$python" ] || { skip "damaged pictures" "no $python"; exit 0; }
cd "$ROOT" || exit 1
mkdir "$TMP/bases" "$TMP/set"
t "the tool that makes sound pictures builds" ${CC:-gcc} -std=c11 -D_GNU_SOURCE -I. -o "$TMP/make_bases" \
    tests/golden/damage_bases.c tests/unit/made_images.c -ljpeg
t "it makes them" "$TMP/make_bases" "$TMP/bases"
t "500 damaged pictures" "$python" tests/golden/damage.py make "$TMP/bases" "$TMP/set"
cat "$OUT"
[ $failed -eq 0 ] || exit 1
if "$python" -c 'import PIL; raise SystemExit(PIL.__version__ != "9.4.0")' 2>/dev/null; then
    t "their verdicts are those of Pillow 9.4" "$python" tests/golden/damage.py judge "$TMP/set"
else
    skip "their verdicts are those of Pillow 9.4" "it is not installed for $python"
fi
sed -n 's/^bad [a-z]* //p' "$TMP/set/verdicts" | sort >"$TMP/bad"

cat >"$TMP/damaged.yaml" <<Y
name: damaged
seed: 3
device: cpu
precision: f32
data: {train: {source: folder, path: "$TMP/set", match: "*.*g"}}
loader: {batch: 20, bad_samples: {budget: 100%}, augment: [{center_crop: {size: 40}}, flip]}
model: [flatten, {linear: {out: classes}}]
optimizer: {sgd: {lr: 0.01}}
train: {epochs: 2, threads: 1}
checkpoint: {every: 4 steps, keep: 2}
Y

# field NAME FILE: the value of a field in the last line that has it

# named FILE: the pictures that its bad samples name are those that Pillow refuses
named() {
    sed -n 's/.*"path": *"\([^"]*\)".*/\1/p' "$1" | sed 's/.*\/\([ab]\/[^/]*\)$/\1/' | sort -u >"$TMP/named"
    cmp -s "$TMP/named" "$TMP/bad" || { diff "$TMP/bad" "$TMP/named" | head -n 5; return 1; }
}

verify() {
    "$NNPIPE" data verify "$TMP/damaged.yaml" --json >"$TMP/verify" 2>&1
    named "$TMP/verify"
}
t "decoded whole, those are bad that Pillow refuses" verify

# run RUNS CACHE READERS IO: whole
run() {
    "$NNPIPE" train "$TMP/damaged.yaml" --json -o "runs=$TMP/$1" -o "loader.cache=$2" -o "loader.readers=$3" -o \
        "loader.io=$4" >"$TMP/life" 2>"$TMP/err" || {
        tail -n 2 "$TMP/err"
        return 1
    }
    weights=$(field weights_sha256 "$TMP/life") dir=$(field run_dir "$TMP/life")
    [ ${#weights} -eq 64 ]
}
first() { run first none 1 pread && wanted=$weights && named "$dir/bad_samples.jsonl"; }
t "decoded as crops, those are bad that Pillow refuses" first
[ $failed -eq 0 ] || exit 1
same() {
    run "$@" && named "$dir/bad_samples.jsonl" && [ "$weights" = "$wanted" ] || {
        echo "weights $weights, not $wanted"
        return 1
    }
}
other=uring
t "the same weights with io_uring" same uring none 2 uring || other=pread
n=2
for cache in none encoded decoded "{decoded: 5M}" "{encoded: 400K}"; do
    n=$((n % 8 + 1))
    t "the same weights with cache $cache, $n readers, $other" same "cache-$n" "$cache" $n $other
    n=$((n % 8 + 1))
    t "the same weights with cache $cache, $n readers, pread" same "cache-$n" "$cache" $n pread
done

# killed STEP: killed behind that step, gone on with, with another cache and other readers
killed() {
    k=$1
    runs=$TMP/kill-$k
    set -- none encoded decoded "{decoded: 5M}"
    shift $((k % 4))
    : >"$TMP/life" # not left to the child, which may come late
    "$NNPIPE" train "$TMP/damaged.yaml" --json -o "runs=$runs" -o "loader.cache=$1" -o "loader.readers=$((k % 8 + 1))" \
        -o loader.io=pread >"$TMP/life" 2>"$TMP/err" &
    pid=$!
    while kill -0 $pid 2>/dev/null && ! grep -q "\"event\": *\"step\".*\"step\": *$k[,}]" "$TMP/life"; do
        sleep 0.01
    done
    kill -KILL $pid 2>/dev/null
    wait $pid 2>/dev/null
    ls "$runs"/*/checkpoints/step-* >/dev/null || return 1
    [ ! -e "$runs"/*/result.json ] || return 0 # it was faster than the kill
    set -- none "{decoded: 5M}" encoded decoded
    shift $((k / 4 % 4))
    "$NNPIPE" train "$TMP/damaged.yaml" --resume --json -o "runs=$runs" -o "loader.cache=$1" -o \
        "loader.readers=$((k / 3 % 8 + 1))" -o "loader.io=$other" >"$TMP/life" 2>"$TMP/err" || {
        tail -n 2 "$TMP/err"
        return 1
    }
    weights=$(field weights_sha256 "$TMP/life")
    [ "$weights" = "$wanted" ] || { echo "weights $weights, not $wanted"; return 1; }
    named "$(field run_dir "$TMP/life")/bad_samples.jsonl"
}
i=0
while [ $i -lt "$kills" ]; do
    i=$((i + 1))
    step=$((5 + 90 * i / (kills + 1)))
    t "killed behind step $step, the same weights" killed $step
done
[ $failed -eq 0 ]
