# Random JPEG files (tests/unit/made_jpegs.h). Our decoder makes libjpeg-turbo's pixels of JPEGS pictures (1000000), of
# crops with entries and without, and of damaged copies, or refuses them, for each instruction set of this CPU;
# 25 times as many random blocks come back; and of as many damaged files nnpipe and Pillow decode the same ones, to
# the same pixels. PILLOWS: pythons with a Pillow on this libjpeg-turbo (default: /usr/bin/python3 and, in the long
# campaign, venvs with Pillow 12 and 13). In chunks: STATE keeps those that have passed.
. "$(dirname "$0")/../lib.sh"
export MALLOC_PERTURB_=90 # memory from malloc() is not zero by chance
build=${NNPIPE_BUILD:-$ROOT/build}
san=$(basename "$build" | sed -n 's/^build-//p' | tr - ,)
jpegs=${JPEGS:-1000000} chunk=20000
state=${STATE:-$TMP}/jpegs-$jpegs
mkdir -p "$state"
cd "$ROOT" || exit 1
# shellcheck disable=SC2046
t "the tool that makes JPEG files builds" "${CC:-gcc}" -std=c11 -D_GNU_SOURCE -O2 -Werror ${san:+-fsanitize=$san} -I. \
    -o "$TMP/jpegs" tests/golden/jpegs.c tests/unit/made_jpegs.c tests/unit/made_images.c "$build/libnnpipe.a" \
    $(pkg-config --libs libjpeg spng zlib libzstd) -lm -pthread
[ $failed -eq 0 ] || exit 1

# all SENTENCE NR COMMAND...: calls COMMAND FIRST COUNT for NR items in chunks, which print counts, `NAME NUMBER`; ok if
# all end with 0. The sums are in $TMP/sums.
all() {
    sentence=$1 nr=$2 first=0 name=$(echo "$1 $2" | cksum | tr -d ' ')
    shift 2
    : >"$TMP/counts"
    while [ $first -lt "$nr" ]; do
        n=$((nr - first < chunk ? nr - first : chunk)) file=$state/$name.$first
        if [ ! -e "$file" ]; then
            "$@" $first $n >"$file.new" 2>&1 || {
                not_ok "$sentence" "from $first on: $(head -n 4 "$file.new")"
                return
            }
            mv "$file.new" "$file"
        fi
        cat "$file" >>"$TMP/counts"
        first=$((first + n))
    done
    awk '!/^#/ { sum[$1] += $2 } END { for (name in sum) print name, sum[name] }' "$TMP/counts" >"$TMP/sums"
    ok "$sentence ($(grep -v ' 0$' "$TMP/sums" | sort -k 2nr | tr '\n' ',' | sed 's/,$//; s/,/, /g'))"
}
# least SENTENCE PERCENT PART WHOLE: of the sums
least() {
    share=$(awk -v part="$3" -v whole="$4" \
        '{ n[$1] = $2 } END { printf "%.2f", n[whole] ? 100 * n[part] / n[whole] : 0 }' "$TMP/sums")
    if awk "BEGIN { exit !($share >= $2) }"; then ok "$1 $share %"; else not_ok "$1 $share %" "less than $2"; fi
}

all "random pictures, their crops and damaged copies have libjpeg-turbo's pixels" "$jpegs" "$TMP/jpegs" compare
least "our decoder finishes of the pictures" 95 finished pictures
least "our decoder finishes of the damaged copies" 30 damaged-finished damaged
least "crops below the first row of MCUs, after others, that enter at an entry" 80 crops-entered crops-lower
all "random blocks are decoded to their coefficients and to libjpeg-turbo's pixels" $((jpegs / 300)) \
    "$TMP/jpegs" blocks

verdicts() { # verdicts PYTHON FIRST COUNT
    (set -o pipefail && "$TMP/jpegs" verdicts "$2" "$3" | "$1" tests/golden/pillow_verdicts.py)
}
if [ -z "${PILLOWS:-}" ]; then
    PILLOWS=/usr/bin/python3
    for version in ${NNPIPE_LONG:+12.3.0 13.0.0}; do
        PILLOWS="$PILLOWS $(sh tests/pillow_env.sh $version)"
    done
fi
for python in $PILLOWS; do
    what="damaged files are good or bad, and have the pixels, as in"
    version=$("$python" -c 'import PIL; from PIL import features
print("Pillow", PIL.__version__, "with libjpeg-turbo", features.version("libjpeg_turbo"))' 2>/dev/null) || {
        skip "$what Pillow" "$python"
        continue
    }
    all "$what $version" $((jpegs * 26 / 100)) verdicts "$python"
done
[ $failed -eq 0 ]
