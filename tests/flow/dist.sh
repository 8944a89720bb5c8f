#!/bin/sh
# make dist: the folder runs from its own libraries, wherever it lies.
. "$(dirname "$0")/../lib.sh"

if [ -n "${NNPIPE_BUILD:-}" ] && [ "${NNPIPE_BUILD##*/}" != build ]; then
    skip "the folder of make dist works" "a build with sanitizers is not for other machines"
    exit 0
fi
t "make dist makes a folder, and nothing in it wants more than the system has" \
    sh "$ROOT/scripts/dist.sh" --folder "$TMP/made"
mv "$TMP/made" "$TMP/moved"

foreign() { # the libraries that come from elsewhere, glibc's aside
    ldd "$TMP/moved/nnpipe" | grep '=>' | grep -vF "$TMP/moved/lib/" |
        grep -vE '(libc|libm|libdl|librt|libpthread)\.so'
}
own_libraries() {
    [ -z "$(foreign)" ] || { foreign; return 1; }
    mv "$TMP/moved/lib/libyaml-0.so.2" "$TMP/" && foreign | grep -q libyaml &&
        mv "$TMP/libyaml-0.so.2" "$TMP/moved/lib/"
}
t "all libraries but glibc are its own, moved or not" own_libraries

licensed() { # each package's terms stand beside its library
    [ "$(find "$TMP/moved/licenses" -type f | wc -l)" -ge 12 ]
}
t "the libraries' terms are with them" licensed

trains() {
    cd "$TMP" && env -i "$TMP/moved/nnpipe" train "$TMP/moved/configs/cnn.yaml" -o train.steps=4 \
        -o train.epochs=0 -o train.eval_every=never -o "runs=$TMP/runs"
}
t "it trains on the sample set that is with it" trains
t "its self-test runs" env -i "$TMP/moved/nnpipe" selftest --device cpu --only LeNet

[ "$failed" -eq 0 ]
