#!/bin/sh
# pillow_env.sh VERSION: prints the python of a venv with this Pillow, built on this machine's libjpeg-turbo (a wheel
# has its own); makes it in build/pillow-VERSION first. If that fails: `no-pillow-VERSION`, and why on stderr.
cd "$(dirname "$0")/.." || exit 1
dir=build/pillow-$1
log=$dir.log
mkdir -p build
[ -x "$dir/done" ] || {
    rm -rf "$dir"
    /usr/bin/python3 -m venv "$dir" >"$log" 2>&1 &&
        "$dir/bin/pip" -q install --no-binary pillow "pillow==$1" >>"$log" 2>&1 && ln -s bin/python "$dir/done"
}
if [ -x "$dir/done" ]; then
    echo "$PWD/$dir/bin/python"
else
    tail -n 2 "$log" >&2
    echo "no-pillow-$1"
fi
