# profile.html of made-up profiles: whole, alone, and, in a real browser, what a reader must see at once.
# Without a Chromium the last are skipped, and said to be.
. "$(dirname "$0")/../lib.sh"
render=${NNPIPE_BUILD:-$ROOT/build}/tests/flow/render_profile
stages="read decompress decode augment batch copy step checkpoint"
page=$TMP/decode.html

has() { grep -qF -- "$1" "$2" || { echo "no $1 in $2"; return 1; }; }
lacks() { # lacks PATTERN PAGE...
    pattern=$1
    shift
    for file in "$@"; do [ -s "$file" ] && ! grep -nE -- "$pattern" "$file" || return 1; done
}
all_rendered() {
    for which in $stages balanced inconclusive; do "$render" $which "$TMP/$which.html" || return 1; done
}
named() { # the verdict in words, and one red bar, the stage's own
    for stage in $stages; do
        loud=$(echo $stage | tr a-z A-Z)
        has "<h1><em>$loud</em> is the limit</h1>" "$TMP/$stage.html" || return 1
        [ "$(grep -o 'class="bar limit" data-stage="[a-z]*"' "$TMP/$stage.html")" = "class=\"bar limit\" data-stage=\"$stage\"" ] || { echo "red is not $stage alone"; return 1; }
    done
}
t "a page is written of every verdict" all_rendered
t "its large words and its one red bar name the limiter" named
t "it needs no other file, no network and no script" lacks '<script|<link|<img|@import|url\(|https?:|src=' "$TMP"/*.html
t "balanced says so in large words and has no red bar" has "<h1>Balanced</h1>" "$TMP/balanced.html"
t "inconclusive does, too" has "<h1>Inconclusive</h1>" "$TMP/inconclusive.html"
t "neither marks a limiter" lacks 'class="bar limit|◄ LIMIT' "$TMP/balanced.html" "$TMP/inconclusive.html"
t "with a profile before it both are drawn" sh -c "'$render' decode '$TMP/pair.html' read && grep -q 'id=\"pair\"' '$TMP/pair.html' && grep -q 'bar limit before' '$TMP/pair.html'"
t "without one there is no such part" lacks 'id="pair"' "$page"
t "a folder that is not there is named" says "$TMP/none/p.html: cannot be written" "$render" decode "$TMP/none/p.html"

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome || true)
if [ -z "$browser" ]; then
    skip "a browser shows what must be seen" "no chromium here: profile.html was looked at as text alone"
    [ "$failed" -eq 0 ]
    exit
fi

browse() { timeout 60 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$TMP/browser" "$@" 2>>"$TMP/browser.log"; }
# A copy of the page with a script that measures it once it is laid out, and writes what it saw into it.
cat >"$TMP/look.js" <<'LOOK'
addEventListener("load", () => {
  const seen = [], say = (name, value) => seen.push(name + "=" + value);
  const box = (what) => { const e = document.querySelector(what); return e ? e.getBoundingClientRect() : { width: 0, height: 0 }; };
  const bars = [...document.querySelectorAll("#ceilings .bar")].map((e) => ({ limit: e.classList.contains("limit"), fill: getComputedStyle(e).fill, width: e.getBoundingClientRect().width }));
  const red = (c) => { const [r, g, b] = c.match(/\d+/g).map(Number); return r > 180 && g < 110 && b < 110; };
  const least = Math.min(...bars.map((b) => b.width)), limit = bars.filter((b) => b.limit);
  say("limiters", limit.length);
  say("limiter_red", limit.length === 1 && red(limit[0].fill));
  say("limiter_shortest", limit.length === 1 && limit[0].width <= least && limit[0].width > 4);
  say("others_grey", bars.filter((b) => !b.limit).every((b) => !red(b.fill)));
  const now = [...document.querySelectorAll("#ceilings .now")].map((e) => e.getBoundingClientRect());
  say("line_unbroken", now.length > 2 && now.every((b, i) => !i || (Math.abs(b.left - now[i - 1].left) < 1 && b.top - now[i - 1].bottom < 1.5)));
  const h1 = document.querySelector("h1"), top = h1.getBoundingClientRect();
  say("verdict", h1.textContent.trim());
  say("verdict_large", parseFloat(getComputedStyle(h1).fontSize) >= 32 && top.top >= 0 && top.bottom < 400);
  const bands = [...document.querySelectorAll("#waits .band")].filter((e) => e.getBoundingClientRect().height > 4);
  say("ribbon", box("#waits .ribbon").height > 150 && bands.length > 0);
  const curve = box("#whatif .curve"), knee = box("#whatif .knee");
  say("curve", curve.width > 200 && curve.height > 20);
  say("knee_on_curve", knee.width > 8 && Math.abs(knee.top + knee.height / 2 - curve.top) < 4);
  const wide = document.documentElement.clientWidth;
  say("no_sideways_scroll", document.documentElement.scrollWidth <= wide);
  say("nothing_cut", [...document.querySelectorAll("svg text")].every((e) => { const b = e.getBoundingClientRect(); return b.width === 0 || (b.left >= -1 && b.right <= wide + 1); }));
  document.documentElement.setAttribute("data-seen", seen.join(";") + ";");
});
LOOK
look() { # look PAGE WIDTH HEIGHT: what the browser saw, into $TMP/seen.txt
    { sed '/<\/body>/,$d' "$1"; echo "<script>"; cat "$TMP/look.js"; echo "</script></body></html>"; } >"$TMP/look.html"
    browse --window-size="$2,$3" --dump-dom "file://$TMP/look.html" >"$TMP/dom.html" && grep -o 'data-seen="[^"]*"' "$TMP/dom.html" >"$TMP/seen.txt"
}
sees() { # sees PAGE WIDTH fact=value...
    look "$1" "$2" 1000 || { tail -n 3 "$TMP/browser.log"; return 1; }
    shift 2
    for fact in "$@"; do grep -qE "[\";]$fact;" "$TMP/seen.txt" || { echo "not $fact: $(cat "$TMP/seen.txt")"; return 1; }; done
}
shot() { # a picture at a width, with red in it where there is a limiter: a PNG of some size
    browse --window-size="$2,1400" --screenshot="$TMP/shot.png" "file://$1" >/dev/null && [ "$(stat -c %s "$TMP/shot.png")" -gt 20000 ]
}
layout="no_sideways_scroll=true nothing_cut=true line_unbroken=true others_grey=true verdict_large=true ribbon=true"
for stage in $stages; do
    loud=$(echo $stage | tr a-z A-Z)
    # shellcheck disable=SC2086 # words are facts
    t "a browser shows $stage as the red and shortest bar, the verdict, ribbon and curve" sees "$TMP/$stage.html" 1280 \
        "verdict=$loud is the limit" limiters=1 limiter_red=true limiter_shortest=true curve=true knee_on_curve=true $layout
done
# shellcheck disable=SC2086
t "so it does on a telephone" sees "$page" 500 "verdict=DECODE is the limit" limiter_red=true limiter_shortest=true curve=true $layout
# shellcheck disable=SC2086
t "balanced shows no red bar" sees "$TMP/balanced.html" 1280 verdict=Balanced limiters=0 $layout
# shellcheck disable=SC2086
t "before and after fit, too" sees "$TMP/pair.html" 500 limiter_red=true $layout
t "a picture is drawn at 1280" shot "$page" 1280
t "a picture is drawn at a telephone's width" shot "$page" 500
[ "$failed" -eq 0 ]
