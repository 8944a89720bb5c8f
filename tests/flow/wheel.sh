#!/bin/sh
# make wheel: the same bytes twice, nothing in it newer than glibc 2.34, and pip installs it into a bare venv of each
# Python, where README's lines for Python run without a compiler.
. "$(dirname "$0")/../lib.sh"
export ROOT
if [ -n "${NNPIPE_BUILD:-}" ] && [ "${NNPIPE_BUILD##*/}" != build ]; then
    skip "the wheel" "a build with sanitizers is not for other machines"
    exit 0
fi
python=${PYTHON:-python3}
cd "$ROOT" || exit 1
# lacks TOOL WORDS: with every tool in PATH but this one it says so, and makes nothing
lacks() {
    mkdir "$TMP/without-$1" && ln -s /usr/bin/* "$TMP/without-$1" 2>/dev/null
    rm -f "$TMP/without-$1/$1"
    PATH="$TMP/without-$1" says "$2" exits 77 /bin/sh scripts/wheel.sh --folder "$TMP/none" && [ ! -e "$TMP/none" ]
}
t "without dpkg it says where a wheel can be made" lacks dpkg "dpkg is missing, which finds the licences"
t "without strip it names the package" lacks strip "strip is missing: apt install binutils"
bare() { # a Python without headers
    printf '#!/bin/sh\ncase "$2" in *Python.h*) exit 1 ;; esac\nexec %s "$@"\n' "$(command -v "$python")" >"$TMP/bare"
    chmod +x "$TMP/bare"
    PYTHON="$TMP/bare" says "Python.h is missing: apt install python3-dev" exits 77 sh scripts/wheel.sh
}
t "without Python's headers it names the package" bare
sh scripts/wheel.sh --folder "$TMP/dist" >"$OUT" 2>&1
code=$?
[ $code -ne 77 ] || { skip "the wheel" "$(tail -n 1 "$OUT")"; exit 0; }
t "it is built" exits 0 test $code -eq 0
[ $code -eq 0 ] || { tail -n 5 "$OUT" | sed 's/^/#   /'; exit 1; }
version=$(sed -n 's/.*NP_VERSION "\(.*\)"/\1/p' loader/base/version.h)
wheel=$TMP/dist/nnpipe-$version-cp311-abi3-manylinux_2_34_x86_64.whl
t "its name has the version, the stable ABI, and glibc 2.34" test -f "$wheel"

# A copy of the source tree in another folder, with another umask; without git the time comes from outside.
epoch=$(git log -1 --format=%ct)
same() {
    mkdir -p "$TMP/copy/build" "$TMP/copy/loader/base" &&
        cp -r scripts libnnpipe*.so* LICENSE "$TMP/copy" && cp -r loader/python loader/nnpipe.h "$TMP/copy/loader" &&
        cp loader/base/version.h "$TMP/copy/loader/base" && ln -s "$ROOT/build/wheel-tools" "$TMP/copy/build" &&
        (umask 077 && export SOURCE_DATE_EPOCH="$epoch" &&
            sh "$TMP/copy/scripts/wheel.sh" --folder "$TMP/again") &&
        cmp "$wheel" "$TMP/again/${wheel##*/}"
}
t "two folders with the same files give the same bytes" same

files=$TMP/files
"$python" -m zipfile -e "$wheel" "$files" || exit 1
newer() { # newer FOLDER: names symbols of a glibc above 2.34 that shared objects in FOLDER need; succeeds if there are
    find "$1" -name '*.so*' -type f | while read -r file; do
        objdump -T "$file" | sed -n "s|.*(\(GLIBC_[0-9.]*\)) \(.*\)|\1 \2 ${file##*/}|p"
    done | sort -V | awk '{ split($1, v, /[_.]/); if (v[2] > 2 || v[3] > 34) { print; found = 1 } } END { exit !found }'
}
old_enough() { newer "$files" && return 1; [ "$(find "$files" -name '*.so*' -type f | wc -l)" -ge 7 ]; }
t "no file in it needs a symbol of a glibc newer than 2.34" old_enough
planted() {
    mkdir "$TMP/planted" && echo 'double hypot(double, double); double f(double x) { return hypot(x, x); }' |
        ${CC:-gcc} -shared -fPIC -x c -o "$TMP/planted/a.so" - -lm && newer "$TMP/planted"
}
if getconf GNU_LIBC_VERSION | grep -qE ' 2\.(3[5-9]|[4-9])'; then
    t "this test finds a newer symbol" planted
fi
foreign() { # the libraries that a file of the wheel needs and the wheel lacks
    for file in "$files"/nnpipe/*.so "$files"/nnpipe.libs/*; do
        objdump -p "$file" | awk '$1 == "NEEDED" { print $2 }'
    done | sort -u | while read -r name; do
        [ -e "$files/nnpipe.libs/$name" ] || echo "$name" | grep -vE '^(libc|libm|libz|ld-linux-x86-64)\.so\.[0-9]$'
    done
}
own() { foreign; [ -z "$(foreign)" ]; }
t "it has all libraries but those of each Linux" own
licensed() {
    cmp LICENSE "$files/nnpipe-$version.dist-info/licenses/LICENSE" || return 1
    for file in "$files"/nnpipe.libs/*; do
        case ${file##*/} in libnnpipe-*) continue ;; esac
        name=${file##*/}
        compgen -G "$files/nnpipe-$version.dist-info/licenses/libraries/${name%%[-.]*}*" || { echo "$name"; return 1; }
    done
}
t "the licence of each library is in it" licensed
typed() { [ -e "$files/nnpipe/py.typed" ] && [ -e "$files/nnpipe/_nnpipe.pyi" ]; }
t "the marker for type checkers and the stubs are in it" typed
clean() { ! grep -rlF -e "$ROOT" -e "$TMP" "$files"; }
t "no path of this machine is in it" clean
needs_nothing() { ! grep -i '^Requires-Dist' "$files/nnpipe-$version.dist-info/METADATA"; }
t "it depends on no other package" needs_nothing


pythons() { # one Python of each version from 3.11 on: VERSION PATH
    for python in python3 /usr/bin/python3 python3.1{1,2,3,4,5} "$HOME"/.pyenv/versions/3.1[1-9]*/bin/python3; do
        "$python" -c 'import sys, venv, ensurepip
if sys.version_info >= (3, 11) and getattr(sys, "_is_gil_enabled", lambda: True)():
    print("%d.%d" % sys.version_info[:2], sys.executable)' 2>/dev/null
    done | sort -V | awk '!seen[$1]++'
}
# README's lines for Python, without dots for a training step, in a folder that has my.yaml.
"$NNPIPE" data synth --samples 600 --test 10 --out "$TMP/shapes" >/dev/null || exit 1
cat >"$TMP/my.yaml" <<Y
base: $ROOT/configs/cnn.yaml
data:
  train: {source: tar, path: "$TMP/shapes/train-*.tar.zst"}
  test: {source: tar, path: "$TMP/shapes/test-*.tar.zst"}
Y
sed -n "/^\`\`\`python/,/^\`\`\`$/p" README.md | grep -v "^\`\`\`" >"$TMP/lines.py"
echo 'import sys; assert not {"numpy", "torch"} & set(sys.modules); memoryview(images); print("images", images.shape)' \
    >>"$TMP/lines.py"
bare() { # bare VENV ARGUMENTS...: its Python, without the rest of this machine's programs and variables
    (cd "$TMP" && env -i HOME="$TMP" PATH="$1/bin" "$1/bin/python" "${@:2}")
}
installs() { # installs PYTHON VENV: with the pip of the first venv, because it takes seconds to make one with pip
    pip=${first:-$2}
    "$1" -m venv ${first:+--without-pip} "$2" &&
        bare "$pip" -m pip --python "$2/bin/python" install -q --no-index --no-cache-dir "$wheel" &&
        ! bare "$2" -c 'import numpy'
}
lines() { grep -q 'nnpipe.Loader' "$TMP/lines.py" && says "images (" bare "$1" "$TMP/lines.py"; }
manual() { says "class Loader" bare "$1" -m pydoc nnpipe && grep -q 'images' "$TMP/says.txt"; }
on_gpu() { # the program's own message, of the plugin in the wheel: there is no driver, or no GPU, or it opens
    bare "$1" -c 'import nnpipe; nnpipe.Loader("my.yaml", device="cuda:0")' >"$TMP/gpu.txt" 2>&1
    tail -n 1 "$TMP/gpu.txt"
    ! grep -e "no plugin" -e "another build" -e "does not load" -e "cuda-rows.so is not" "$TMP/gpu.txt"
}
while read -r version path; do
    venv=$TMP/venv-$version
    t "Python $version: pip installs it without a compiler or a network" installs "$path" "$venv"
    t "Python $version: README's lines run without NumPy" lines "$venv"
    t "Python $version: pydoc nnpipe prints a manual" manual "$venv"
    [ ! -e "$files/nnpipe/libnnpipe-cuda-rows.so" ] ||
        t "Python $version: the plugin for GPUs is found in it" on_gpu "$venv"
    first=${first:-$venv}
done < <(pythons)
[ -n "${first:-}" ] || skip "pip installs it" "there is no Python of 3.11 or later that makes venvs"
grep -q . <(pythons | grep '^3\.1[3-9]') || skip "Python 3.13: pip installs it" "there is none here"

# What pip must fetch from the network.
extra() { # extra PACKAGE SENTENCE: installs PACKAGE into the first venv
    [ "${NNPIPE_LONG:-0}" = 1 ] || { skip "$2" "$1 comes from the network; make test-long runs it"; return 1; }
    [ -n "${first:-}" ] && "$first/bin/pip" -q install "$1" >"$OUT" 2>&1 && return
    skip "$2" "pip cannot install $1: $(tail -n 1 "$OUT")"
    return 1
}
numpy_lines() {
    sed 's/^import nnpipe/import numpy\n&/; /^import sys/d' "$TMP/lines.py" >"$TMP/numpy_lines.py" &&
        echo 'assert isinstance(images, numpy.ndarray) and images.any()' >>"$TMP/numpy_lines.py" &&
        bare "$first" "$TMP/numpy_lines.py"
}
sentence="README's lines give NumPy's arrays where it is imported"
extra numpy "$sentence" && t "$sentence" numpy_lines
cat >"$TMP/user.py" <<'P'
import nnpipe


def count(path: str) -> int:
    with nnpipe.Loader(path, dtype="float32", layout="nchw", drop_last=True) as loader:
        loader.set_epoch(1)
        rows = 0
        for images, labels in loader:
            rows += len(labels)
        loader.load_state_dict(loader.state_dict())
        return rows // len(loader)


def as_in_torch(dataloader: object) -> int:
    with nnpipe.like(dataloader, loader={"readers": 4}) as loader:
        return sum(len(labels) for images, labels in loader) // len(loader)
P
sed 's/drop_last=True/drop_list=True/; s/set_epoch(1)/set_epoch("one")/; s/{"readers": 4}/4/' "$TMP/user.py" \
    >"$TMP/wrong.py"
typed_lines() {
    cd "$TMP" && "$first/bin/mypy" --strict user.py && ! "$first/bin/mypy" --strict wrong.py >wrong.txt &&
        grep -q drop_list wrong.txt && grep -q set_epoch wrong.txt && grep -q '"like"' wrong.txt
}
sentence="mypy --strict accepts a user's program, and finds its mistakes"
extra mypy "$sentence" && t "$sentence" typed_lines
[ "$failed" -eq 0 ]
