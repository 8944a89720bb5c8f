# Every parser on mutations of its corpus for a long while, under the address and undefined
# sanitizers and from a seed that no campaign had: FUZZ_SECONDS each (60), from FUZZ_SEED on; the
# service's sockets for sixty times as long.
# STATE keeps what has passed, and the input of one that died.
. "$(dirname "$0")/../lib.sh"
state=${STATE:-$TMP}/fuzz-${FUZZ_SECONDS:-60}
seed=${FUZZ_SEED:-$(date +%s)}
mkdir -p "$state"

t "the targets build with sanitizers" env -u MAKEFLAGS -u MAKELEVEL make -j2 -C "$ROOT" SAN=address,undefined fuzz
[ $failed -eq 0 ] || exit 1
# campaign NAME TIMES: so often FUZZ_SECONDS, each time from another seed; what has passed is not done again.
campaign() {
    for n in $(seq "$2"); do
        [ ! -e "$state/$1.$n" ] || { ok "$1, $n of $2: had passed before"; continue; }
        export FUZZ_INPUT="$state/$1.input"
        before=$failed
        t "$1, $n of $2: ${FUZZ_SECONDS:-60} s of hostile inputs do no harm (seed $((seed + n)))" \
            "$ROOT/build-address-undefined/tests/fuzz/$1" "$ROOT/tests/fuzz/corpus/${1#fuzz_}" "${FUZZ_SECONDS:-60}" \
            "$((seed + n))"
        [ "$failed" -gt "$before" ] || : >"$state/$1.$n"
    done
}
for target in "$ROOT"/tests/fuzz/fuzz_*.c; do
    name=$(basename "$target" .c)
    case $name in
    fuzz_driver) ;;
    fuzz_http) campaign "$name" 60 ;; # an hour: it is what strangers talk to
    fuzz_jpeg) campaign "$name" 30 ;; # half an hour: beside libjpeg-turbo, for each instruction set
    *) campaign "$name" 1 ;;
    esac
done
[ $failed -eq 0 ]
