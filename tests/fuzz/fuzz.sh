# Every parser on mutations of its corpus, a second each (FUZZ_SECONDS); with the sanitizers of the
# build under test. fuzz_campaign.sh takes a minute and more for each. A target that dies leaves its
# input in the build folder.
. "$(dirname "$0")/../lib.sh"
build=${NNPIPE_BUILD:-$ROOT/build}

for target in "$ROOT"/tests/fuzz/fuzz_*.c; do
    name=$(basename "$target" .c)
    [ "$name" = fuzz_driver ] && continue
    export FUZZ_INPUT="$build/tests/fuzz/$name.input"
    t "$name: a second of hostile inputs do no harm" \
        "$build/tests/fuzz/$name" "$ROOT/tests/fuzz/corpus/${name#fuzz_}" "${FUZZ_SECONDS:-1}"
done
