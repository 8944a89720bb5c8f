# README's section "The service", followed as it stands: tests/systemd/trial.sh, in a system of its own. TRIAL_SCREENS:
# a
# folder that what was on the terminal and in the browser is copied to.
. "$(dirname "$0")/../lib.sh"
export ROOT
what="the service as README describes it, from the package to a finished run, in a terminal and a browser"
if [ -n "${NNPIPE_BUILD:-}" ] && [ "${NNPIPE_BUILD##*/}" != build ]; then
    skip "$what" "a build with sanitizers is not packed"
    exit 0
fi
for program in tmux chromium python3 dpkg-shlibdeps; do
    command -v $program >/dev/null || { skip "$what" "there is no $program"; exit 0; }
done
mkdir -p "$TMP/trial/checkout/dist" && cp -r "$ROOT/configs" "$ROOT/README.md" "$TMP/trial/checkout/" &&
    cp "$ROOT/tests/flow/browser.py" "$ROOT/tests/systemd/trial.py" "$TMP/trial/"
t "make deb" sh "$ROOT/scripts/deb/build.sh" --version 0.1+trial --folder "$TMP/trial/checkout/dist"
sh "$ROOT/tests/systemd/boot.sh" "$TMP/trial" "$ROOT/tests/systemd/trial.sh" >"$OUT" 2>&1
code=$?
[ -z "${TRIAL_SCREENS:-}" ] || cp -r "$TMP/trial/screens/." "$TMP/trial/out" "$TRIAL_SCREENS"
if [ $code -eq 125 ]; then
    skip "$what" "$(tail -n 1 "$OUT")"
else
    grep -E '^(ok|not ok|skip) - ' "$TMP/trial/out"
    failed=$((failed + $(grep -c '^not ok - ' "$TMP/trial/out")))
    [ $code -eq 0 ] || grep -q '^not ok - ' "$TMP/trial/out" ||
        not_ok "trial.sh runs under systemd" "$(tail -n 2 "$OUT" "$TMP/trial/out" | tr '\n' ' ')"
fi
[ "$failed" -eq 0 ]
