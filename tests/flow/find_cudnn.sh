# Where the build looks for cuDNN's headers: each place in turn, with nothing of this machine before it.
. "$(dirname "$0")/../lib.sh"
cd "$ROOT" || exit 1
if ! unshare -m true 2>/dev/null; then
    skip "the folders that are searched for cuDNN's headers" "needs a mount namespace"
    exit 0
fi
mkdir -p "$TMP/bin"
put() { mkdir -p "$1" && : >"$1/cudnn.h"; }
# finds FOLDER VAR=VALUE...: the script prints it, with the system's and the toolkit's folders hidden
finds() {
    want=$1
    shift
    cp scripts/find_cudnn.sh "$TMP/find.sh"
    env -i PATH="$TMP/bin:/usr/bin:/bin" HOME="$TMP/nobody" "$@" unshare -m sh -c '
        for d in /usr/include /usr/local; do mount -t tmpfs none $d; done; sh "$1"' - "$TMP/find.sh" >"$TMP/found.txt"
    [ "$(cat "$TMP/found.txt")" = "$want" ] || { echo "$(cat "$TMP/found.txt"), not $want"; return 1; }
}
pip=lib/python3.11/site-packages/nvidia/cudnn
t "without cuDNN nothing is found" finds ""
put "$TMP/named here"
t "in the folder that CUDNN_INCLUDE names" finds "$TMP/named here" CUDNN_INCLUDE="$TMP/named here"
put "$TMP/venv/$pip/include"
t "in the environment that is active" finds "$TMP/venv/$pip/include" VIRTUAL_ENV="$TMP/venv"
t "also in conda's environment" finds "$TMP/venv/$pip/include" CONDA_PREFIX="$TMP/venv"
put "$TMP/conda/include"
t "in conda's own folder" finds "$TMP/conda/include" CONDA_PREFIX="$TMP/conda"
put "$TMP/home/.local/$pip/include"
t "in the user's own packages" finds "$TMP/home/.local/$pip/include" HOME="$TMP/home"
put "$TMP/other/nvidia/cudnn/include"
: >"$TMP/other/nvidia/cudnn/__init__.py"
t "beside the python3 in PATH" finds "$TMP/other/nvidia/cudnn/include" PYTHONPATH="$TMP/other"
# With a build folder of its own: even `make -n` writes there for which GPUs the kernels are, and this build's would be
# compiled again.
named() {
    mkdir "$TMP/tree" && ln -s "$ROOT"/{Makefile,daemon,docs,loader,scripts,tests,trainer} "$TMP/tree" &&
        make -n -C "$TMP/tree" CUDNN= NVCC=/bin/true plugin | grep -q "CUDNN_INCLUDE=FOLDER"
}
t "without headers the build's message names CUDNN_INCLUDE" named
[ "$failed" -eq 0 ]
