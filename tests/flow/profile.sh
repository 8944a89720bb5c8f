# `nnpipe profile` from the command line: what it says, writes and leaves behind. Whether it is right is
# measured in tests/bench/plants: the machines that run these tests are too noisy.
. "$(dirname "$0")/../lib.sh"
cat >"$TMP/net.yaml" <<Y
name: net
device: {sim: {h2d_gbps: 10, step_ms: 4}}
data: {train: {source: synth, samples: 2000, size: 32}}
loader: {batch: 32, readers: 1, cache: none, augment: [{random_crop: {size: 32, pad: 4}}, flip]}
model: [{conv: {out: 8, kernel: 3, pad: 1}}, relu, global_avgpool, {linear: {out: classes}}]
train: {epochs: 3}
checkpoint: {every: 1 epoch}
runs: $TMP/runs
Y
P="$NNPIPE profile $TMP/net.yaml --seconds 0.2"
field() { sed -n "s/.*\"event\": *\"done\".*\"$1\": *\"\{0,1\}\([^\",}]*\).*/\1/p" "$2" | tail -n 1; }

# shellcheck disable=SC2086 # $P is words
whole() {
    $P --json --out "$TMP/a" >"$TMP/a.json" 2>"$TMP/err" || { tail -n 2 "$TMP/err"; return 1; }
    case $(field verdict "$TMP/a.json") in limited | balanced | inconclusive) ;; *) return 1 ;; esac
    for stage in decode augment copy step; do
        grep -q "\"name\": *\"$stage\", *\"ceiling_images_per_second\": *[0-9]" "$TMP/a.json" || {
            echo "no $stage"
            return 1
        }
    done
    [ "$(grep -c '"event"' "$TMP/a.json")" -eq 1 ] && [ -s "$TMP/a/profile.json" ] && [ -s "$TMP/a/profile.html" ]
}
t "a profile has a verdict and a ceiling for each stage, in one JSON line" whole
unshared() { # as a run of the same config does
    [ ! -e "$XDG_RUNTIME_DIR/nnpipe-share" ] &&
        "$NNPIPE" train "$TMP/net.yaml" -o train.epochs=1 -o "runs=$TMP/trained" &&
        [ -d "$XDG_RUNTIME_DIR/nnpipe-share" ]
}
t "it takes no part in sharing" unshared
t "and leaves only its folder" sh -c '[ -z "$(ls -A "$0" 2>/dev/null)" ]' "$TMP/runs"
screen() {
    $P -o loader.readers=2 --html "$TMP/page.html" >"$TMP/screen" || return 1
    grep -qE '^ (LIMIT|BALANCED|INCONCLUSIVE)' "$TMP/screen" && grep -q 'trust: noise' "$TMP/screen" &&
        [ -s "$TMP/page.html" ] &&
        ls "$TMP"/runs/profile-net-*/profile.json >/dev/null
}
t "the screen has a verdict; --out places the page; a folder below runs is made" screen
shares() {
    python3 - "$TMP/a/profile.json" <<'PY'
import json, sys
o = json.load(open(sys.argv[1]))["observation"]
blame = o["blame_seconds"]
blame = sum(blame.values() if isinstance(blame, dict) else blame)
assert abs(o["stall_seconds"] - blame) < 1e-6, (o["stall_seconds"], blame)
PY
}
if command -v python3 >/dev/null; then
    t "the causes of the stall add up to it" shares
else
    skip "the causes of the stall add up to it" "no python3"
fi
# The slowdown itself depends on other load; message and exit code must follow from the numbers.
slower() {
    $P --out "$TMP/b" --compare "$TMP/a/profile.json" -o 'device={sim: {h2d_gbps: 10, step_ms: 16}}' >"$TMP/said" 2>&1
    code=$?
    if grep -q 'slower: .* because of ' "$TMP/said"; then [ $code -eq 3 ]; else [ $code -eq 0 ] &&
        grep -qE 'faster:|as fast as before' "$TMP/said"; fi ||
        { echo "exit $code"; tail -n 1 "$TMP/said"; return 1; }
    [ -s "$TMP/b/profile.json" ]
}
t "a run is compared with an older one, and the exit code agrees with the text" slower
stored() { # made up: the second has a step that takes four times as long, and hardly any scatter
    made=${NNPIPE_BUILD:-$ROOT/build}/tests/flow/render_profile
    "$made" --json balanced "$TMP/quick.json" && "$made" --json balanced "$TMP/slow.json" 4 || return 1
    exits 3 "$NNPIPE" profile "$TMP/slow.json" --compare "$TMP/quick.json" >"$TMP/said" 2>&1 &&
        grep -q 'slower: .* because of STEP' "$TMP/said" &&
        "$NNPIPE" profile "$TMP/quick.json" --compare "$TMP/slow.json" >"$TMP/said" &&
        "$NNPIPE" profile "$TMP/quick.json" --compare "$TMP/quick.json" --json | grep -q '"verdict": "not slower"'
}
t "of two stored profiles the one with a slower step is found, with exit code 3" stored
seconds() { for s in 0 0.05 601 2s ''; do exits 2 $P --seconds "$s" || return 1; done; }
t "a wrong length of trials is a mistake of the command line" seconds
other() {
    exits 1 $P --out "$TMP/c" --compare "$TMP/a/profile.json" -o loader.batch=16 >"$TMP/said" 2>&1 &&
        grep -q 'cannot be compared' "$TMP/said"
}
t "profiles of other batches are not compared" other
torn() {
    head -c 300 "$TMP/a/profile.json" >"$TMP/torn.json"
    exits 1 $P --compare "$TMP/torn.json" >"$TMP/said" 2>&1 && grep -q 'torn.json' "$TMP/said"
}
t "a truncated profile.json is named" torn
consistent() {
    "${NNPIPE_BUILD:-$ROOT/build}/tests/plants/profile_check" "$TMP"/?/profile.json "$TMP"/runs/*/profile.json
}
t "no figure of these profiles contradicts another" consistent
# Copies that take 20 times as long as steps: a device cache gains several times the rate. Whatever the trials
# measured, the file, the event and profile.json must agree.
mkdir "$TMP/it's here"
sed -e 's/^device:.*/device: {sim: {h2d_gbps: 0.005, step_ms: 1}}/' -e 's/samples: 2000/samples: 320/' \
    -e 's/every: 1 epoch/every: never/' "$TMP/net.yaml" >"$TMP/it's here/slow.copies.yaml"
verified() {
    (cd "$TMP" &&
        "$NNPIPE" profile "it's here/slow.copies.yaml" --seconds 0.2 --verify --json --out v >v.json) || return 1
    made=$(sed -n 's/^{"event": *"advised", *"file": *"\(.*\)"}$/\1/p' "$TMP/v.json")
    python3 - "$TMP/v/profile.json" "$made" <<'PY' || return 1
import json, sys
p = json.load(open(sys.argv[1]))
gain = p["verified_images_per_second"] / p["model"]["rate"] - 1 if p["verified"] else 0
print(p["setting"], p["verified"], gain, p["noise"])
assert bool(sys.argv[2]) == (gain > p["noise"])
PY
    if [ -z "$made" ]; then ! ls "$TMP"/v/*.yaml; return; fi
    cat "$TMP/$made"
    [ "$made" = v/slow.copies.advised.yaml ] && [ "$(sed -n 2p "$TMP/$made")" = \
        "base: \"$(realpath "$TMP/it's here/slow.copies.yaml")\"" ] && [ "$(wc -l <"$TMP/$made")" -eq 4 ] &&
        [ "$(sed -n 3p "$TMP/$made")" = loader: ] &&
        sed -n 4p "$TMP/$made" | grep -qE '^  [a-z]+: [0-9a-z]+ # not [0-9a-z]+: [+][0-9.]+% measured$' || return 1
    # shellcheck disable=SC2046 # words
    set -- $(sed -n 4p "$TMP/$made") # KEY: VALUE # not OLD: ...
    [ "loader.${1%:} $2" = "$(field setting "$TMP/v.json") $(field value "$TMP/v.json")" ] &&
        "$NNPIPE" show "$TMP/$made" | grep -qE "^  $1 $2\$" && "$NNPIPE" show "$TMP/$made" | grep -q '^name: net$' &&
        "$NNPIPE" train "$TMP/$made" -o train.epochs=1 -o "runs=$TMP/trained"
}
if command -v python3 >/dev/null; then
    t "a config with the verified advice builds on the measured one and trains, or there is none" verified
else
    skip "a config with the verified advice builds on the measured one and trains, or there is none" "no python3"
fi
t "without --verify there is none" sh -c '! ls "$0"/[a-c]/*.yaml' "$TMP"
t "no config is a mistake of the command line" exits 2 "$NNPIPE" profile
wrong() { exits 2 $P -o loader.readers=none >"$TMP/said" 2>&1 && grep -q readers "$TMP/said"; }
t "a wrong config is reported, before anything is measured" wrong
page_stays() { # the folder cannot be made, once the page has been found writable
    echo kept >"$TMP/kept.html"
    for page in none kept; do exits 1 $P --html "$TMP/$page.html" --out "$TMP/net.yaml/d" || return 1; done
    [ ! -e "$TMP/none.html" ] && [ "$(cat "$TMP/kept.html")" = kept ] && exits 1 $P --html "$TMP/none/p.html"
}
t "a failed profile leaves no page, and an older page unchanged" page_stays
stopped() { # stopped SECONDS
    rm -rf "$TMP/runs"
    "$NNPIPE" profile "$TMP/net.yaml" --out "$TMP/d" --html "$TMP/d.html" >"$TMP/said" 2>&1 &
    pid=$!
    sleep "$1"
    kill -TERM $pid
    wait $pid
    code=$?
    [ $code -eq 75 ] || { echo "exit code $code"; tail -n 2 "$TMP/said"; return 1; }
    [ -z "$(ls -A "$TMP/runs" 2>/dev/null)" ] || { ls -A "$TMP/runs"; return 1; }
    [ ! -e "$TMP/d.html" ] || { echo "a page"; return 1; }
}
t "a signal ends it with 75 and leaves nothing behind" stopped 0.7
t "also while a part is measured alone" stopped 2
limit() {
    exits 2 $P --trace-limit 3 && exits 1 $P --trace "$TMP/none/t" >"$TMP/said" 2>&1 && grep -q none/t "$TMP/said"
}
t "a trace that cannot be written is reported at once" limit
[ "$failed" -eq 0 ]
