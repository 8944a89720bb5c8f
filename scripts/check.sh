#!/bin/sh
# make check: layers, the walk of ARCHITECTURE.md, format, lines' length, a build with warnings as errors (tests too),
# unused public names, cppcheck. Prints each fault; exit 1 if there is one.
cd "$(dirname "$0")/.." || exit 1
status=0
sources=$(git ls-files '*.c' '*.h')

echo "layers"
sh scripts/check_layers.sh || status=1
echo "walk"
sh scripts/check_walk.sh || status=1
echo "format"
# shellcheck disable=SC2086
clang-format --dry-run --Werror $sources 2>&1 | head -n 20 | grep . && status=1
echo "lines of at most 120 columns in tests, scripts and .ci"
git ls-files tests scripts .ci | grep -E '\.(sh|py|c|h|cu|cc)$|run$' |
    xargs awk 'length($0) > 120 { print FILENAME ":" FNR ": " length($0) " columns" }' | grep . && status=1
echo "warnings as errors"
warnings="-Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wpointer-arith"
warnings="$warnings -Wno-format-truncation -Wno-unused-parameter -Werror"
make -s -j"$(nproc)" B=build-check NNPIPE=build-check/nnpipe WARN="$warnings" build-check/nnpipe || status=1
echo "unused"
sh scripts/check_unused.sh build-check || status=1
echo "tests, with Criterion and for the sanitizers' runner"
for runner in NP_CRITERION NP_SAN; do
    git ls-files 'tests/unit/*.c' 'tests/kernel/*.c' 'tests/sim/*.c' | xargs -P "$(nproc)" -n 8 \
        gcc -std=c11 -D_GNU_SOURCE -I. -Ibuild-check -D$runner -Wall -Wextra \
        -Wno-unused-parameter -Wno-format-truncation -Werror \
        -fsyntax-only || status=1
done
echo "cppcheck"
cppcheck -q -j"$(nproc)" --std=c11 --enable=warning,portability --inline-suppr --error-exitcode=1 \
    --suppress=missingIncludeSystem --suppress=unknownMacro --suppress=invalidPointerCast -I. \
    daemon loader trainer || status=1
[ $status -eq 0 ] && echo "check: all fine"
exit $status
