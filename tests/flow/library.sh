# libnnpipe: docs/example.c is compiled against it and runs, its symbols and soname are its own, and many loaders in one
# process leave nothing behind. LOOPS: of library_loops (default 210).
. "$(dirname "$0")/../lib.sh"
build=${NNPIPE_BUILD:-$ROOT/build}
flags= lib=$ROOT
if [ "${build##*/}" != build ]; then
    flags="-fsanitize=$(echo "${build##*/build-}" | tr - ,) -DNP_SAN -g" lib=$build
fi
export LD_LIBRARY_PATH="$lib"
mkdir -p "$TMP/include" "$TMP/c"
cp "$ROOT/loader/nnpipe.h" "$TMP/include/"

compiles() { # compiles FILE OUT
    # shellcheck disable=SC2086 # words are flags
    cc -std=c11 -D_GNU_SOURCE -Wall -Wextra -Werror -Wno-unused-parameter $flags -I"$TMP/include" -o "$2" "$1" \
        -L"$lib" -lnnpipe -lm -pthread
}
alone() { # the header needs no other and no GNU extension, in C and in C++
    echo '#include <nnpipe.h>' >"$TMP/alone.c"
    cc -std=c99 -pedantic -Wall -Wextra -Werror -I"$TMP/include" -fsyntax-only "$TMP/alone.c" || return 1
    ! command -v c++ >/dev/null ||
        c++ -std=c++11 -pedantic -Wall -Wextra -Werror -I"$TMP/include" -fsyntax-only -x c++ "$TMP/alone.c"
}
t "nnpipe.h compiles alone, as C99 and C++11" alone
t "docs/example.c compiles" compiles "$ROOT/docs/example.c" "$TMP/example"

"$NNPIPE" data synth --out "$TMP/c/shapes" --samples 200 --test 8 >"$OUT" 2>&1
cat >"$TMP/c/config.yaml" <<'YAML'
seed: 1
data: {train: {source: tar, path: 'shapes/train-*.tar.zst'}}
loader: {batch: 64, augment: [{random_crop: {size: 32, pad: 4}}, flip]}
YAML
example_runs() {
    (cd / && "$TMP/example" "$TMP/c/config.yaml") >"$TMP/first.txt" 2>&1 || { cat "$TMP/first.txt"; return 1; }
    cat "$TMP/first.txt"
    grep -qE '^epoch 0: 192 images, sum of the first values -?[0-9.]+$' "$TMP/first.txt" &&
        grep -qE '^epoch 1: 192 images' "$TMP/first.txt" && [ "$(wc -l <"$TMP/first.txt")" -eq 2 ]
}
t "it reads two epochs, at any working directory" example_runs
same_again() { "$TMP/example" "$TMP/c/config.yaml" | cmp - "$TMP/first.txt"; }
t "a second run gives the same values" same_again
sed 's/batch: 64/batch: 0, raeders: 2/' "$TMP/c/config.yaml" >"$TMP/c/wrong.yaml"
t "mistakes of a config are all printed" \
    says "config:3:17: batch: 0 is out of range" exits 1 "$TMP/example" "$TMP/c/wrong.yaml"
t "so is the second" says "config:3:20: raeders: unknown key" exits 1 "$TMP/example" "$TMP/c/wrong.yaml"

exports() {
    ! nm -D --defined-only "$lib/libnnpipe.so.1" | awk '{ print $3 }' | sed 's/@.*//' |
        grep -vE '^(nnp_[a-z_]*|NNPIPE_1)$'
}
declared() { # each function of the header is exported, and no other
    nm -D --defined-only "$lib/libnnpipe.so.1" | sed -n 's/.* T \(nnp_[a-z_]*\).*/\1/p' | sort >"$TMP/exported"
    awk '/^[a-z]/ && match($0, /nnp_[a-z_]*\(/) { print substr($0, RSTART, RLENGTH - 1) }' "$ROOT/loader/nnpipe.h" |
        sort -u >"$TMP/declared"
    diff "$TMP/declared" "$TMP/exported"
}
soname() { objdump -p "$lib/libnnpipe.so.1" | grep -qE 'SONAME +libnnpipe\.so\.1$'; }
[ -z "$flags" ] && t "it exports nnp_* alone" exports
t "it exports what nnpipe.h declares" declared
t "its soname has the version of its interface" soname
old_enough() {
    newest=$(objdump -T "$lib/libnnpipe.so.1" | grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -n 1)
    echo "$newest"
    [ "$(printf '%s\nGLIBC_2.34\n' "$newest" | sort -V | tail -n 1)" = GLIBC_2.34 ]
}
[ -z "$flags" ] && t "it needs no glibc newer than 2.34" old_enough

mkdir -p "$TMP/c/set/a" "$TMP/c/set/b"
for i in 1 2 3 4 5 6 7 8 9; do
    { printf 'P6 24 20 255\n' && head -c 1440 /dev/zero | tr '\0' "$i"; } >"$TMP/c/set/a/$i.ppm"
    { printf 'P6 21 25 255\n' && head -c 1575 /dev/zero | tr '\0' "$i"; } >"$TMP/c/set/b/$i.ppm"
done
t "library_loops compiles" compiles "$ROOT/tests/flow/library_loops.c" "$TMP/loops"
t "memory and threads stay as they are over many loaders" "$TMP/loops" "$TMP/c" "${LOOPS:-210}"
cat "$OUT"
[ "$failed" -eq 0 ]
