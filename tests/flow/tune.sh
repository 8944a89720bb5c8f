# `nnpipe profile --tune` from the command line: what it says and writes. Whether the search is good is
# tested by tests/unit/test_tune.c.
. "$(dirname "$0")/../lib.sh"
cat >"$TMP/net.yaml" <<Y
name: net
device: {sim: {h2d_gbps: 10, step_ms: 1}}
data: {train: {source: synth, samples: 2000, size: 32}}
loader: {batch: 32, readers: 1, cache: none, depth: 1, augment: [{random_crop: {size: 32, pad: 4}}, flip]}
model: [{conv: {out: 8, kernel: 3, pad: 1}}, relu, global_avgpool, {linear: {out: classes}}]
train: {epochs: 3}
runs: $TMP/runs
Y
P="$NNPIPE profile $TMP/net.yaml --seconds 0.2"

# shellcheck disable=SC2086 # $P is words
tune() {
    $P --tune --max-cores 2 --max-memory 1G --json --out "$TMP/a" >"$TMP/a.json" 2>"$TMP/err" || {
        tail -n 2 "$TMP/err"
        return 1
    }
}
t "a run is tuned" tune
t "and its measurements take no part in sharing" test ! -e "$XDG_RUNTIME_DIR/nnpipe-share"
reported() {
    grep -q '^{"event": *"tuned"' "$TMP/a.json" && tail -n 1 "$TMP/a.json" | grep -q '"event": *"done"' || return 1
    n=$(grep '"tuned"' "$TMP/a.json" | grep -o '"predicted_images_per_second"' | wc -l)
    echo "$n trials"
    [ "$n" -ge 2 ] && [ "$n" -le 15 ]
}
t "the event has at most 15 trials, and comes before done" reported
# The config that comes of it builds on the one measured: its settings, each with what it is worth.
built() {
    if grep -q '"settings": *{}' "$TMP/a.json"; then [ ! -e "$TMP/a/net.tuned.yaml" ] && return 0; fi
    cat "$TMP/a/net.tuned.yaml"
    [ "$(sed -n 2p "$TMP/a/net.tuned.yaml")" = "base: \"$(realpath "$TMP/net.yaml")\"" ] &&
        [ "$(sed -n 3p "$TMP/a/net.tuned.yaml")" = loader: ] &&
        ! sed 1,3d "$TMP/a/net.tuned.yaml" |
        grep -vE '^  [a-z]+: [0-9a-z]+ # not [0-9a-z]+: [-+][0-9.]+% (measured|predicted)$' &&
        "$NNPIPE" check "$TMP/a/net.tuned.yaml" && "$NNPIPE" show "$TMP/a/net.tuned.yaml" | grep -q '^name: net$'
}
t "the config that it writes builds on the measured one, or there is none" built
# shellcheck disable=SC2086
caps() { exits 2 $P --tune --max-memory lots && exits 2 $P --tune --max-cores -1 && exits 2 $P --max-cores 2; }
t "wrong caps, or caps without --tune, are a mistake of the command line" caps
# shellcheck disable=SC2086
impossible() {
    exits 2 $P --tune --max-memory 1K --out "$TMP/b" >"$TMP/said" 2>&1 &&
        grep -q 'max-memory: the loader needs at least [0-9]*K' "$TMP/said" && [ ! -e "$TMP/b" ]
}
t "so is a cap below the loader's minimum" impossible
[ "$failed" -eq 0 ]
