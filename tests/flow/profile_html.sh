# profile.html of made-up profiles: one file that holds all it needs; tests/flow/profile_html.py tests what a reader
# sees of it in a real browser.
. "$(dirname "$0")/../lib.sh"
render=${NNPIPE_BUILD:-$ROOT/build}/tests/flow/render_profile
kinds="read decompress decode augment batch copy step checkpoint balanced inconclusive"
hostile='</script><!--<script><img src=x onerror=document.title=1>'$(printf '\342\200\250')'&amp;"\'

lacks() { # lacks PATTERN PAGE...
    pattern=$1
    shift
    for file in "$@"; do [ -s "$file" ] && ! grep -nE -- "$pattern" "$file" || return 1; done
}
all_rendered() {
    for which in $kinds; do
        "$render" "$which" "$TMP/$which.html" && "$render" --screen "$which" >"$TMP/$which.txt" || return 1
    done
    "$render" decode "$TMP/pair.html" read && "$render" decode "$TMP/hostile.html" read "$hostile"
}
ends_twice() { # the JSON's script, and the page's own
    [ "$(grep -o '</script' "$TMP/hostile.html" | wc -l)" = 2 ] && lacks '<!--|<img' "$TMP/hostile.html"
}
policy() {
    grep -q "default-src 'none'; style-src 'nonce-[0-9a-f]*'; script-src 'nonce-[0-9a-f]*'" "$TMP/decode.html" ||
        return 1
    [ "$(grep -o 'nonce-[0-9a-f]*' "$TMP/decode.html" | sort -u)" != \
        "$(grep -o 'nonce-[0-9a-f]*' "$TMP/pair.html" | sort -u)" ]
}
t "every verdict gives a page" all_rendered
t "it names no other file" lacks '<link|<img|@import|url\(|src=' "$TMP"/[a-g]*.html "$TMP/pair.html"
t "no name ends a script or opens a comment" ends_twice
t "its policy lets its own script run and fetches nothing, by a nonce of each file" policy
t "a missing folder is named" says "cannot write $TMP/none/p.html: " "$render" decode "$TMP/none/p.html"

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$browser" ]; then
    skip "a browser shows what must be seen" "no chromium here: profile.html was looked at as text alone"
    [ "$failed" -eq 0 ]
    exit
fi
PYTHONDONTWRITEBYTECODE=1 python3 "$ROOT/tests/flow/profile_html.py" "$browser" "$TMP" "$hostile" || failed=1
[ "$failed" -eq 0 ]
