#!/bin/sh
# make dist: puts everything that a run needs into one folder, and packs that folder as .tar.xz:
#   dist/nnpipe-VERSION-linux-x86_64/   nnpipe, libnnpipe-cuda.so if it was built, lib/ with libnnpipe and the
#                                       shared libraries, include/, configs, a sample set, scripts, docs, licenses
# It runs on x86-64 Linux with glibc 2.36 or newer, and looks for CUDA's own libraries when it starts.
#   dist.sh [--folder DIR]    makes only the folder, as DIR
# nnpipe is linked again so that it looks for libraries in lib/ beside it first (DT_RPATH, which also counts for
# libraries that these libraries need). Fails if another machine would lack a library.
set -eu
cd "$(dirname "$0")/.."
max_mib=64 glibc=2.36
name=nnpipe-$(./nnpipe --version | cut -d' ' -f2)-linux-x86_64
out=dist/$name
[ "${1:-}" != --folder ] || out=$2
system='^(linux-vdso|ld-linux-x86-64|libc|libm|libdl|librt|libpthread)\.so'

rm -rf "$out" "$out.tar.xz"
mkdir -p "$out/lib" "$out/licenses" "$out/docs" "$out/scripts"
make -s NNPIPE="$out/nnpipe" RUNPATH="-Wl,--disable-new-dtags,-rpath,'\$\$ORIGIN/lib'" "$out/nnpipe"
make -s SHARED="$out/lib/libnnpipe.so.1" RUNPATH="-Wl,--disable-new-dtags,-rpath,'\$\$ORIGIN'" "$out/lib/libnnpipe.so.1"
libraries=$(ldd ./nnpipe ./libnnpipe.so.1 | awk '$2 == "=>" { print $1, $3 }' | grep -vE "$system" | sort -u)
echo "$libraries" | while read -r soname path; do cp "$(readlink -f "$path")" "$out/lib/$soname"; done
echo "$libraries" | cut -d' ' -f2 | sh scripts/owners.sh | while read -r path package; do
    if [ -e "/usr/share/doc/$package/copyright" ]; then
        cp -L "/usr/share/doc/$package/copyright" "$out/licenses/$package"
    fi
done
# libnnpipe finds its plugin beside it.
[ ! -e libnnpipe-cuda-rows.so ] || cp libnnpipe-cuda-rows.so "$out/lib/"
if [ -e libnnpipe-cuda.so ]; then
    cp libnnpipe-cuda.so "$out/"
else
    echo "libnnpipe-cuda.so was not built: this folder trains on the CPU only"
fi
find "$out" -name '*.so*' -exec chmod 755 {} + -exec strip --strip-unneeded {} +
strip "$out/nnpipe"
cp LICENSE "$out/licenses/nnpipe"

cp -r configs "$out/"
cat >"$out/README" <<'TEXT'
nnpipe: trains vision networks from one YAML file. This folder needs no installation. It runs on
x86-64 Linux with glibc 2.36 or newer (Debian 12, Ubuntu 24.04) and needs /proc.

  ./nnpipe devices                        the devices it can train on, and why it cannot use others
  ./nnpipe train configs/cnn.yaml         a first run, on the sample set in data/
  ./nnpipe selftest --device cuda:0       does this GPU compute correctly?
  sh scripts/check_gpu.sh                 the self-test, sanitizers, repeatability: docs/GPU.md
  sh scripts/bench_gpu.sh                 compares with PyTorch on the same machine
  man docs/nnpipe.1, docs/CONFIG.md       the manual
  cc -Iinclude docs/example.c -Llib -lnnpipe -Wl,-rpath,$PWD/lib    the loader in a program: docs/LIBRARY.md

A GPU needs NVIDIA's driver 580 or newer, and cuDNN 9 and cuBLAS 13 from the toolkit, the system, or
`pip install nvidia-cudnn-cu13 nvidia-cublas`; several GPUs need NCCL 2, `nvidia-nccl-cu13`.
TEXT
cp docs/*.md docs/*.png docs/nnpipe.1 docs/example.c "$out/docs/"
mkdir -p "$out/include"
cp loader/nnpipe.h "$out/include/"
cp -r scripts/bench_gpu* scripts/check_gpu* scripts/nnpipe.bash-completion "$out/scripts/"
cp -r tests/cuda/gpus "$out/scripts/"
rm -rf "$out"/scripts/*/__pycache__
./nnpipe data synth --out "$out/data/shapes" >/dev/null
git log -1 --format='%H %cs' >"$out/COMMIT" 2>/dev/null || echo "not from a git tree" >"$out/COMMIT"

# Only the system's libraries may come from outside, and no file may need a newer glibc.
for file in "$out/nnpipe" "$out"/*.so "$out"/lib/*; do
    [ -e "$file" ] || continue
    newest=$(objdump -T "$file" | grep -oE 'GLIBC_[0-9.]+' | cut -d_ -f2 | sort -uV | tail -n 1)
    if [ "$(printf '%s\n%s\n' "${newest:-0}" $glibc | sort -V | tail -n 1)" != $glibc ]; then
        echo "$file needs glibc $newest; build on a system with $glibc" >&2
        exit 1
    fi
done
outside=$(ldd "$out/nnpipe" "$out/lib/libnnpipe.so.1" | grep -v ':$' | grep -vF "$(cd "$out" && pwd)/lib/" |
    awk '{ print $1 }' | sed 's|.*/||' |
    grep -vE "$system" || true)
[ -z "$outside" ] || { echo "not in the folder: $outside" >&2; exit 1; }
for plugin in "$out/libnnpipe-cuda.so" "$out/lib/libnnpipe-cuda-rows.so"; do
    [ -e "$plugin" ] || continue
    outside=$(objdump -p "$plugin" | awk '$1 == "NEEDED" { print $2 }' | grep -vE "$system" |
        grep -vE '^lib(stdc\+\+|gcc_s)\.so' || true)
    if [ -n "$outside" ]; then
        echo "${plugin##*/} needs $outside, which a machine without a driver lacks" >&2
        exit 1
    fi
done
[ "${1:-}" != --folder ] || exit 0

tar -C dist --owner=0 --group=0 --numeric-owner --sort=name -cf - "$name" | xz -9 -T0 >"$out.tar.xz"
bytes=$(stat -c %s "$out.tar.xz")
echo "$out.tar.xz: $((bytes / 1048576)).$((bytes % 1048576 * 10 / 1048576)) MiB"
[ "$bytes" -lt $((max_mib * 1048576)) ] || { echo "more than $max_mib MiB" >&2; exit 1; }
