# Rows of 20 chains of augmentations (chains.py) over 350 odd files and, in the long campaign, the photographs and
# CIFAR-10 of NNPIPE_DATA: equal for each instruction set, with entries off, noted and used, and equal to those that
# Pillow 12, Pillow 13 and torchvision make of the same draws. TORCHVISION: a python that has it. CPUS, ENTRIES: fewer
# of them.
. "$(dirname "$0")/../lib.sh"
export MALLOC_PERTURB_=90 # memory from malloc() is not zero by chance
build=${NNPIPE_BUILD:-$ROOT/build}
san=$(basename "$build" | sed -n 's/^build-//p' | tr - ,)
state=${STATE:-$TMP}/chains
log=$build/tests/flow/nnpipe
mkdir -p "$state"
cd "$ROOT" || exit 1
# shellcheck disable=SC2046
t "the tool that makes JPEG files builds" "${CC:-gcc}" -std=c11 -D_GNU_SOURCE -O2 -Werror ${san:+-fsanitize=$san} -I. \
    -o "$TMP/jpegs" tests/golden/jpegs.c tests/unit/made_jpegs.c tests/unit/made_images.c "$build/libnnpipe.a" \
    $(pkg-config --libs libjpeg spng zlib libzstd) -lm -pthread
mkdir -p "$TMP/odd/a" "$TMP/odd/b"
"$TMP/jpegs" files 0 320 "$TMP/odd/a" && cp tests/golden/pillow/*.jpg tests/golden/pillow/*.p[npg][gm] "$TMP/odd/b" &&
    rm "$TMP/odd/b/grey16.png" # Pillow clips it

# config SET SOURCE PATH
config() {
    cat >"$TMP/$1.yaml" <<Y
name: $1
seed: 7
data: {train: {source: $2, path: "$3"}}
loader: {batch: 50, cache: none, augment: [flip]}
model: [global_avgpool, flatten, {linear: {out: classes}}]
Y
    "$NNPIPE" data ls "$TMP/$1.yaml" --json >"$TMP/$1.samples" 2>"$OUT"
}

# rows SET RULE CPU ENTRIES DIR: logs an epoch of each chain
rows() {
    mkdir -p "$5"
    n=0
    while read -r chain; do
        n=$((n + 1))
        [ "$4" != new ] || rm -rf "$XDG_CACHE_HOME"
        NNPIPE_CPU=$3 NNPIPE_ROWS=$5/$n "$log" bench loader "$TMP/$1.yaml" --epochs 1 --entries \
            -o "loader.augment=$chain" -o "loader.pixels=pillow-$2" \
            -o "loader.entries=$(echo "$4" | sed 's/new\|used/auto/')" || return 1
    done <"$TMP/$1.chains"
}
equal() { # equal SET CPU ENTRIES
    rows "$1" 13 "$2" "$3" "$TMP/$1.again" && diff -r "$TMP/$1.13" "$TMP/$1.again" >"$TMP/diff" || {
        echo "$(grep -c '^<' "$TMP/diff") rows differ: $(head -n 2 "$TMP/diff")"
        return 1
    }
}
# made SET RULE KIT PYTHON
made() {
    "$4" tests/golden/chains.py "$3" "$TMP/$1.samples" "$TMP/$1.chains" "$TMP/$1.$2" >"$TMP/counts" || {
        cat "$TMP/counts"
        return 1
    }
}
# compared SET RULE KIT PYTHON WHAT: ok, with the counts in its sentence; once a campaign
compared() {
    version=$("$4" -c "$5" 2>/dev/null) || {
        skip "$1: rows of 20 chains are those of $3, rule $2" "$4 has none"
        return
    }
    [ -e "$state/$1.$2.$3" ] || made "$1" "$2" "$3" "$4" || {
        not_ok "$1: rows are those of $version" "$(cat "$TMP/counts")"
        return
    }
    [ -e "$state/$1.$2.$3" ] || mv "$TMP/counts" "$state/$1.$2.$3"
    ok "$1: rows of 20 chains are those of $version ($(tr '\n' ' ' <"$state/$1.$2.$3"))"
}
pillow='import PIL; print("Pillow", PIL.__version__)'
torchvision='import PIL, torchvision; print("torchvision", torchvision.__version__, "on Pillow", PIL.__version__)'

# chains SET UNIT
chains() {
    /usr/bin/python3 tests/golden/chains.py list "$2" >"$TMP/$1.chains"
    t "$1: an epoch of each of 20 chains" rows "$1" 13 "" off "$TMP/$1.13"
    for cpu in ${CPUS:-sse2 avx2 avx512}; do
        for entries in ${ENTRIES:-off new used}; do
            t "$1: with $cpu and entries $entries the rows are the same" equal "$1" "$cpu" $entries
        done
    done
    t "$1: an epoch of each by the rule of Pillow 12" rows "$1" 12 "" off "$TMP/$1.12"
    if [ -z "${NNPIPE_LONG:-}" ]; then
        compared "$1" 12 pillow /usr/bin/python3 "$pillow"
        return
    fi
    compared "$1" 12 pillow "$(sh tests/pillow_env.sh 12.3.0)" "$pillow"
    compared "$1" 13 pillow "$(sh tests/pillow_env.sh 13.0.0)" "$pillow"
    torch=${TORCHVISION:-python3}
    rule=$("$torch" -c 'import PIL; print(13 if int(PIL.__version__.split(".")[0]) >= 13 else 12)' 2>/dev/null)
    compared "$1" "${rule:-13}" torchvision "$torch" "$torchvision"
}

CHAINS=${CHAINS:-odd photos cifar}
case " $CHAINS " in *" odd "*) config odd folder "$TMP/odd" && chains odd 48 ;; esac
if [ "$CHAINS" != odd ] && [ -z "${NNPIPE_DATA:-}" ]; then
    skip "rows of photographs and CIFAR-10 are Pillow's" "NNPIPE_DATA is not set"
    exit $((failed != 0))
fi
case " $CHAINS " in *" photos "*)
    config photos tar "$NNPIPE_DATA/imagenet-sample-500.tar" && chains photos 224 ;;
esac
case " $CHAINS " in *" cifar "*)
    mkdir "$TMP/cifar" && zstd -qdc "$NNPIPE_DATA/cifar10-jpeg.tar.zst" | tar -C "$TMP/cifar" -x &&
        config cifar folder "$TMP/cifar/train" && chains cifar 32 ;;
esac
[ $failed -eq 0 ]
