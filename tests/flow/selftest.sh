#!/bin/sh
# nnpipe selftest: the CPU device passes it, and a device with one thing wrong does not: a plugin that
# is the CPU device with a planted fault stands in for it.
. "$(dirname "$0")/../lib.sh"

# A draw that rounding spoils is made again, so that all seeds pass.
drawn=$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')
echo "# drawn seed $drawn"
# Every precision with NNPIPE_SEEDS (tests/fault/seeds_campaign.sh), else a drawn one: each is 12 s of CPU.
precision=$([ $((drawn % 2)) = 0 ] && echo f32 || echo bf16)
[ -z "${NNPIPE_SEEDS:-}" ] || precision=
t "the CPU device passes in ${precision:-every precision it has}, with seed $drawn" \
    "$NNPIPE" selftest --device cpu --seed "$drawn" ${precision:+--precision $precision}
[ "$failed" -eq 0 ] || grep FAILED "$OUT"
any_seed() { # relu and pooling on one image: what a single element does shows most
    for seed in $(seq "${NNPIPE_SEEDS:-3}"); do
        "$NNPIPE" selftest --device cpu --precision bf16 --only "$1" --seed "$seed" || return 1
    done
}
t "no seed of ${NNPIPE_SEEDS:-3} puts rounding past the tolerance" any_seed "batch of one"

lines() { # one object a row with its numbers, and `done` last
    "$NNPIPE" selftest --device cpu --precision f32 --only dropout --seed 7 --json >"$TMP/out.json" &&
        [ "$(wc -l <"$TMP/out.json")" = 3 ] &&
        grep -q '"what": "dropout".*"gradients": [0-9.e-]*, "gradients_tolerance": 0.0001' "$TMP/out.json" &&
        tail -n 1 "$TMP/out.json" | grep -q '"event": "done".*"seed": 7, "tests": 2, "failed": 0'
}
t "--json gives a line for each network and the seed at the end" lines

repeats() {
    for _ in 1 2; do
        "$NNPIPE" selftest --device cpu --only "batchnorm, relu" --seed 123 --json |
            sed 's/"seconds": [0-9.e-]*//' >"$TMP/run.json" || return 1
        [ ! -e "$TMP/first.json" ] || cmp "$TMP/first.json" "$TMP/run.json" || return 1
        cp "$TMP/run.json" "$TMP/first.json"
    done
}
t "a seed gives the same numbers again" repeats
t "an unknown network is a failure" exits 1 "$NNPIPE" selftest --device cpu --only nosuchlayer
t "sim is refused: it computes no values" says "computes no values" "$NNPIPE" selftest --device sim
t "an unknown precision is a usage error" exits 2 "$NNPIPE" selftest --precision f64
t "a wrong seed is a usage error" exits 2 "$NNPIPE" selftest --seed soon
t "an operand is a usage error" exits 2 "$NNPIPE" selftest cpu

# The plugin has to be found beside the program.
cp "$NNPIPE" "$TMP/nnpipe"
cc=${CC:-gcc}
sh "$ROOT/scripts/build_id.sh" "$TMP/build_id.h"
if ! "$cc" -std=c11 -D_GNU_SOURCE -O1 -Wall -Werror -fPIC -shared -I"$ROOT" -I"$TMP" -o "$TMP/libnnpipe-cuda.so" \
    "$ROOT/tests/fault/planted_plugin.c" >"$TMP/cc.txt" 2>&1; then
    not_ok "the planted plugin builds" "$(head -n 3 "$TMP/cc.txt")"
    exit 1
fi
device() { # device ONLY [PRECISION]: the plugin's self-test
    ASAN_OPTIONS=detect_leaks=0 "$TMP/nnpipe" selftest --device cuda:0 --precision "${2:-f32}" --only "$1" --seed 11
}
t "a plugin without a fault passes" device batchnorm
t "and in bf16" device "conv 3x3 with bias" bf16

found() { # found PLANT ONLY NUMBER [PRECISION]: fails, by this number
    NP_PLANT=$1 device "$2" "${4:-f32}" >"$TMP/found.txt"
    [ $? -eq 1 ] || { echo "passed with $1"; return 1; }
    grep -E "^$2 .*FAILED" "$TMP/found.txt" | grep -qE "off: .*$3" || { head -n 5 "$TMP/found.txt"; return 1; }
}
# Small networks: one that fails is drawn several times.
while read -r plant number precision only; do
    t "a wrong $plant is found ($precision)" found "$plant" "$only" "$number" "$precision"
done <<TABLE
gradient gradients f32 conv 3x3 on pixels
gradient gradients f32 batchnorm
gradient sgd bf16 residual block
nan gradients f32 maxpool 2x2
logit logits f32 linear, relu, linear
loss loss f32 flatten, linear
scale gradients f32 flatten, linear
smoothing loss f32 cross-entropy, smoothing
smoothing gradients bf16 cross-entropy, smoothing
correct counts f32 flatten, linear
newest counts f32 flatten, linear
momentum running f32 batchnorm
eps logits f32 batchnorm
running running f32 batchnorm
dropout logits f32 dropout
dropout logits bf16 dropout
input logits f32 conv 1x1 odd channels
accumulate accumulated f32 add
nesterov sgd f32 conv 1x1 odd channels
clip sgd f32 conv 1x1 odd channels
correction adamw f32 conv 1x1 odd channels
decay adamw bf16 conv 1x1 odd channels
race again f32 relu
nesterov curve f32 training, 60 steps
nesterov curve bf16 training, 60 steps
TABLE
t "a device that fails is reported with its message" says "FAILED: a planted error" env NP_PLANT=error \
    sh -c "ASAN_OPTIONS=detect_leaks=0 '$TMP/nnpipe' selftest --device cuda:0 --precision f32 --only relu"

[ "$failed" -eq 0 ]
