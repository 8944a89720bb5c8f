# The rows of a run depend on its seed and data alone: one digest for all readers, backends, depths, caches, entries
# (off, noted, used) and instruction sets; replayed rows are those that were trained on; and a run that is killed
# while it writes entries, at KILLS (50) places, leaves entries with which the rows are the same.
# SETS: odd, photos, cifar (the last two of NNPIPE_DATA). STATE keeps what has passed.
. "$(dirname "$0")/../lib.sh"
export MALLOC_PERTURB_=90 # memory from malloc() is not zero by chance
build=${NNPIPE_BUILD:-$ROOT/build}
san=$(basename "$build" | sed -n 's/^build-//p' | tr - ,)
state=${STATE:-$TMP}/rows
second=$build/tests/flow/nnpipe # with rows_log.c and kill_entries.c
mkdir -p "$state"
cd "$ROOT" || exit 1
# shellcheck disable=SC2046
t "the tool that makes JPEG files builds" "${CC:-gcc}" -std=c11 -D_GNU_SOURCE -O2 -Werror ${san:+-fsanitize=$san} -I. \
    -o "$TMP/jpegs" tests/golden/jpegs.c tests/unit/made_jpegs.c tests/unit/made_images.c "$build/libnnpipe.a" \
    $(pkg-config --libs libjpeg spng zlib libzstd) -lm -pthread
nr_odd=320
[ -z "${NNPIPE_LONG:-}" ] || nr_odd=2400
mkdir -p "$TMP/odd/sound" "$TMP/odd/damaged"
"$TMP/jpegs" files 0 "$nr_odd" "$TMP/odd/sound" &&
    "$TMP/jpegs" damaged $nr_odd $((nr_odd / 4)) "$TMP/odd/damaged" || exit 1
cd "$TMP" || exit 1

# config SET SOURCE PATH SIZE [MORE OPERATIONS]
config() {
    cat >"$1.yaml" <<Y
name: $1
seed: 7
device: cpu
precision: f32
data: {train: {source: $2, path: "$3"}}
loader: {batch: 40, cache: none, bad_samples: {budget: 100%}, augment: [{random_resized_crop: {size: $4}}, flip$5]}
model: [{conv: {out: 4, kernel: 3, stride: 2}}, relu, global_avgpool, {linear: {out: classes}}]
train: {epochs: 2, eval_every: never, threads: 1}
checkpoint: {every: 1 steps, keep: 2}
Y
}

# --- one digest
# field NAME: of bench.json
field() { sed -n "s/.*\"$1\": \"\{0,1\}\([^\",}]*\).*/\1/p" bench.json | tail -n 1; }
# digest SET CPU -o...: of $steps batches
digest() {
    set_name=$1 cpu=$2
    shift 2
    NNPIPE_CPU=$cpu "$NNPIPE" bench loader "$set_name.yaml" --steps "$steps" --entries --json "$@" \
        >bench.json 2>"$OUT" && field digest
}
# one_digest SET CPU ENTRIES IO READERS DEPTH CACHE
one_digest() {
    ! grep -qxF "$* $wanted" "$state/digests" 2>/dev/null || return 0
    case $3 in
    new) rm -rf "$XDG_CACHE_HOME" ;;
    used) ls -d "$XDG_CACHE_HOME"/nnpipe/index/*.entries || "$NNPIPE" data index "$1.yaml" --entries || return 1 ;;
    esac
    found=$(digest "$1" "$2" -o "loader.entries=$(echo "$3" | sed 's/new\|used/auto/')" -o "loader.io=$4" \
        -o "loader.readers=$5" -o "loader.depth=$6" -o "loader.cache=$7")
    [ -n "$found" ] && [ "$found" = "$wanted" ] || { echo "$*: $found, not $wanted"; return 1; }
    [ "$3,$7" != used,none ] || [ "$2" = sse2 ] || [ "$1" = cifar ] || enters || return 1
    echo "$* $wanted" >>"$state/digests"
}
# Entries are used: the rows that begin at one, of those whose files have some
enters() {
    [ "$(field entered)" -ge $(($(field images) * least / 100)) ] ||
        { echo "only $(field entered) of $(field images) rows begin at entries"; return 1; }
}
# The cross product; in the short form, and for CIFAR-10, whose archive is listed anew each time, six of it.
combinations() {
    if [ -z "${NNPIPE_LONG:-}" ] || [ "$1" = cifar ]; then
        echo "avx512 new $io 2 3 none
            avx512 used pread 3 1 none
            avx2 used $io 1 auto none
            avx2 off pread 8 auto encoded
            sse2 used $io 2 auto decoded
            avx512 new pread 2 2 decoded"
        return
    fi
    for cpu in sse2 avx2 avx512; do
        for entries in off new used; do
            for backend in pread $io; do
                for readers in 1 3 8; do
                    for depth in 1 auto; do
                        for cache in none encoded decoded "{decoded: 3M}"; do
                            echo "$cpu $entries $backend $readers $depth $cache"
                        done
                    done
                done
            done
        done
    done
}
all_digests() {
    rm -rf "$XDG_CACHE_HOME"
    wanted=$(digest "$1" "" -o loader.entries=off -o loader.readers=1 -o loader.io=pread)
    [ ${#wanted} -eq 16 ] || return 1
    nr=0
    while read -r cpu entries backend readers depth cache; do
        one_digest "$1" "$cpu" "$entries" "$backend" "$readers" "$depth" "$cache" || return 1
        nr=$((nr + 1))
    done <<L
$(combinations "$1")
L
}
digests() {
    t "$1: one digest for readers, backend, depth, cache, entries and instruction set" all_digests "$1"
    echo "# $wanted in $nr combinations"
}

# --- replay
# train SET EPOCHS BATCH: the rows that it took: a line `STEP ROW SAMPLE CRC32C` each
train() {
    rm -rf "$1.runs"
    NNPIPE_ROWS=$TMP/$1.rows "$second" train "$1.yaml" -o "runs=$1.runs" -o "checkpoint.every=1 epochs" \
        -o "train.epochs=$2" -o "loader.batch=$3" || return 1
    run=$(ls -d "$1.runs"/*) && cut -d ' ' -f 1-3,6 "$1.rows" | sort -u >"$1.trained"
}
step_row='"step": \([0-9]*\),.*"row": \([0-9]*\),'
sample_crc='.*"sample": \([0-9]*\),.*"crc32c": "\([^"]*\)"'
# replayed SET: the rows named on stdin, `STEP` or `STEP ROW`, are those that were trained on
replayed() {
    while read -r step row; do
        "$NNPIPE" replay "$run" --step "$step" ${row:+--row "$row"} --out replayed --json >out.json 2>"$OUT" || return 1
        sed -n "s/.*$step_row$sample_crc.*/\\1 \\2 \\3 \\4/p" out.json
    done >"$1.again" && sort -u "$1.again" | comm -23 - "$1.trained" >"$1.others" &&
        [ -s "$1.again" ] && [ ! -s "$1.others" ] || {
        echo "$(wc -l <"$1.others") of $(wc -l <"$1.again") differ: $(head -n 1 "$1.others")"
        return 1
    }
}
# replay SET EPOCHS BATCH STEPS ROWS: whole steps, and single rows at random
replay() {
    train "$1" "$2" "$3" >"$OUT" 2>&1 || { not_ok "$1: a run to replay" "$(tail -n 1 "$OUT")"; return; }
    cut -d ' ' -f 1 "$1.trained" | sort -un >steps
    shuf -n "$4" --random-source=/bin/sh steps >some
    cut -d ' ' -f 1-2 "$1.trained" | shuf -n "$5" --random-source=/bin/sh >>some
    before=$failed
    t "$1: replayed steps and rows are those that were trained on" replayed "$1" <some
    echo "# $4 steps and $5 single rows: $(wc -l <"$1.again") rows replayed, $(wc -l <"$1.trained") trained on"
}

# --- kills
# killed SET K: a run dies at the next place; then the rows are the same with what it left
killed() {
    for place in $((1 + $2 * 5 % 9)) $((1 + $2 % 4)); do
        rm -rf "$1.runs" copy
        NNPIPE_KILL_ENTRIES=$place "$second" train "$1.yaml" -o "runs=$1.runs" >out 2>&1
        code=$?
        [ $code -eq 0 ] || break
        rm -rf "$XDG_CACHE_HOME" # nothing was left to write
    done
    [ $code -eq 137 ] || { echo "exit $code: $(tail -n 1 out)"; return 1; }
    cp -r "$XDG_CACHE_HOME" copy
    found=$(XDG_CACHE_HOME=$TMP/copy digest "$1" "")
    [ "$found" = "$wanted" ] || { echo "$found, not $wanted"; return 1; }
    ! ls copy/nnpipe/index/*.entries/new.segment 2>/dev/null
}
all_killed() {
    for k in $(seq "${KILLS:-50}"); do
        killed "$1" "$k" || { echo "kill $k"; return 1; }
    done
}
kills() {
    rm -rf "$XDG_CACHE_HOME"
    wanted=$(digest "$1" "" -o loader.entries=off)
    t "$1: killed at ${KILLS:-50} places while it writes entries, the rows are the same" all_killed "$1"
}

config odd folder "$TMP/odd" 24 \
    ', {color_jitter: {brightness: 0.4, saturation: 0.4, hue: 0.1}}, {rand_augment: {ops: 3}}, flip'
io=uring steps=$((nr_odd / 12)) least=15 # % of the rows that begin at entries: a quarter of the files is large
"$NNPIPE" bench loader odd.yaml --steps 1 -o loader.io=uring >"$OUT" 2>&1 || io=pread
SETS=${SETS:-odd photos cifar}
[ "$SETS" = odd ] || [ -n "${NNPIPE_DATA:-}" ] || {
    skip "rows of photographs and CIFAR-10" "NNPIPE_DATA is not set"
    SETS=odd
}
for set in $SETS; do
    case $set in
    photos) config photos tar "$NNPIPE_DATA/imagenet-sample-500.tar" 64 && steps=32 least=80 ;;
    cifar) config cifar tar "$NNPIPE_DATA/cifar10-jpeg.tar.zst" 28 && steps=200 ;;
    esac
    digests $set
    [ $set = cifar ] || kills $set
    case $set in
    odd) replay odd 2 40 "${REPLAYED:-16}" 20 ;;
    photos) replay photos 21 50 200 1000 ;;
    esac
done
[ $failed -eq 0 ]
