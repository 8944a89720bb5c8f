#!/bin/sh
# make dist: the folder runs with its own libraries, at any path.
. "$(dirname "$0")/../lib.sh"

if [ -n "${NNPIPE_BUILD:-}" ] && [ "${NNPIPE_BUILD##*/}" != build ]; then
    skip "the folder of make dist works" "a build with sanitizers is not for other machines"
    exit 0
fi
t "make dist makes a folder whose files need only the system's libraries" \
    sh "$ROOT/scripts/dist.sh" --folder "$TMP/made"
mv "$TMP/made" "$TMP/moved"

foreign() { # the libraries from outside the folder, except glibc's
    ldd "$TMP/moved/nnpipe" | grep '=>' | grep -vF "$TMP/moved/lib/" |
        grep -vE '(libc|libm|libdl|librt|libpthread)\.so'
}
own_libraries() {
    [ -z "$(foreign)" ] || { foreign; return 1; }
    mv "$TMP/moved/lib/libyaml-0.so.2" "$TMP/" && foreign | grep -q libyaml &&
        mv "$TMP/libyaml-0.so.2" "$TMP/moved/lib/"
}
t "all libraries except glibc are its own, also after a move" own_libraries

library() { # finds its own libraries beside it, in a program that has none
    (cd "$TMP/moved" && cc -Iinclude docs/example.c -Llib -lnnpipe -Wl,-rpath,"$PWD/lib" -o "$TMP/example") || return 1
    ! ldd "$TMP/example" | grep '=>' | grep -vF "$TMP/moved/lib/" | grep -vE '(libc|libm|libdl|librt|libpthread)\.so' &&
        env -i "$TMP/example" "$TMP/moved/configs/cnn.yaml"
}
t "a program runs with its libnnpipe" library

licensed() { # the license of each package is beside its library
    [ "$(find "$TMP/moved/licenses" -type f | wc -l)" -ge 12 ]
}
t "the libraries' licenses are included" licensed

trains() {
    cd "$TMP" && env -i "$TMP/moved/nnpipe" train "$TMP/moved/configs/cnn.yaml" -o train.steps=4 \
        -o train.epochs=0 -o train.eval_every=never -o "runs=$TMP/runs"
}
t "it trains on the included sample set" trains
t "its self-test runs" env -i "$TMP/moved/nnpipe" selftest --device cpu --only LeNet

[ "$failed" -eq 0 ]
