# The Debian package: lintian, reproducible bytes, and install to purge under a real systemd.
. "$(dirname "$0")/../lib.sh"
export ROOT
command -v dpkg-shlibdeps >/dev/null || { skip "the Debian package" "there is no dpkg-dev"; exit 0; }
if [ -n "${NNPIPE_BUILD:-}" ] && [ "${NNPIPE_BUILD##*/}" != build ]; then
    skip "the Debian package" "a build with sanitizers is not for other machines"
    exit 0
fi
made() { # made V FOLDER: compressed little, which is quick
    sh "$ROOT/scripts/deb/build.sh" --version "0.1+$1" --folder "$2" --level 0
}
mkdir "$TMP/again" "$TMP/package"
t "it is built" made 1 "$TMP/package"
same() { made 1 "$TMP/again" && cmp "$TMP"/again/*.deb "$TMP"/package/*.deb; }
t "the same tree gives the same bytes" same
library() { # a program is compiled and linked with the files of the package alone
    dpkg-deb -x "$TMP"/again/*.deb "$TMP/root" || return 1
    PKG_CONFIG_PATH="$TMP/root/usr/lib/pkgconfig" pkg-config --libs nnpipe | grep -qxE -- "-lnnpipe *" &&
        cc -I"$TMP/root/usr/include" -o "$TMP/example" "$ROOT/docs/example.c" -L"$TMP/root/usr/lib" -lnnpipe &&
        LD_LIBRARY_PATH="$TMP/root/usr/lib" says "expected a config" exits 1 "$TMP/example"
}
t "its library, header and pkg-config file serve a program" library
if command -v lintian >/dev/null; then
    t "lintian has no complaint" lintian --fail-on error,warning --allow-root "$TMP"/again/*.deb
else
    skip "lintian has no complaint" "it is not installed"
fi
made 2 "$TMP/package" >/dev/null
sh "$ROOT/tests/systemd/boot.sh" "$TMP/package" "$ROOT/tests/systemd/package.sh" >"$OUT" 2>&1
code=$?
if [ $code -eq 125 ]; then
    skip "install, upgrade, remove, purge" "$(tail -n 1 "$OUT")"
else
    grep -E '^(ok|not ok|skip) - ' "$TMP/package/out"
    failed=$((failed + $(grep -c '^not ok - ' "$TMP/package/out")))
    [ $code -eq 0 ] || grep -q '^not ok - ' "$TMP/package/out" ||
        not_ok "package.sh runs under systemd" "$(tail -n 2 "$OUT" "$TMP/package/out" | tr '\n' ' ')"
fi
[ "$failed" -eq 0 ]
