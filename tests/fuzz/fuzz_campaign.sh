# Every parser on mutations of its corpus for a long while, under the address and undefined
# sanitizers and from a seed that no campaign had: FUZZ_SECONDS each (60), from FUZZ_SEED on.
# STATE keeps which targets have passed, and the input of one that died.
. "$(dirname "$0")/../lib.sh"
state=${STATE:-$TMP}/fuzz-${FUZZ_SECONDS:-60}
seed=${FUZZ_SEED:-$(date +%s)}
mkdir -p "$state"

t "the targets build with sanitizers" env -u MAKEFLAGS -u MAKELEVEL make -j2 -C "$ROOT" SAN=address,undefined fuzz
[ $failed -eq 0 ] || exit 1
for target in "$ROOT"/tests/fuzz/fuzz_*.c; do
    name=$(basename "$target" .c)
    [ "$name" = fuzz_driver ] && continue
    [ ! -e "$state/$name" ] || { ok "$name: had passed before"; continue; }
    export FUZZ_INPUT="$state/$name.input"
    what="$name: ${FUZZ_SECONDS:-60} s of hostile inputs do no harm (seed $seed)"
    t "$what" "$ROOT/build-address-undefined/tests/fuzz/$name" "$ROOT/tests/fuzz/corpus/${name#fuzz_}" "${FUZZ_SECONDS:-60}" "$seed"
    [ $failed -gt 0 ] || : >"$state/$name"
done
[ $failed -eq 0 ]
