"""Tests profile_html.sh's pages in a browser: profile_html.py BROWSER FOLDER CONFIG. A line for each test."""
import os
import sys

from browser import Browser

program, folder, hostile = sys.argv[1:]
STAGES = ["read", "decompress", "decode", "augment", "batch", "copy", "step", "checkpoint"]
failed = 0

# What a reader must see at once, within the width of the page.
LOOK = """(() => {
    const all = what => [...document.querySelectorAll(what)];
    const boxOf = e => e.getBoundingClientRect();
    const box = what => { const e = document.querySelector(what); return e ? boxOf(e) : { width: 0, height: 0 }; };
    const red = colour => {
        const [r, g, b] = colour.match(/\\d+/g).map(Number);
        return r > 180 && g < 110 && b < 110;
    };
    const bars = all("#ceilings .bar .fill").map(e => ({
        stage: e.closest("tr").dataset.stage, limit: Boolean(e.closest(".limit")),
        red: red(getComputedStyle(e).backgroundColor), width: boxOf(e).width }));
    const limit = bars.filter(bar => bar.limit), least = Math.min(...bars.map(bar => bar.width));
    const now = all("#ceilings .now").map(boxOf);
    const h1 = document.querySelector("h1"), top = boxOf(h1), wide = document.documentElement.clientWidth;
    const curve = box("#whatif .curve"), knee = box("#whatif .knee");
    const words = all("svg text, .note, .label");
    return {
        verdict: h1.textContent, title: document.title,
        limiters: limit.map(bar => bar.stage).join(), red: bars.filter(bar => bar.red).map(bar => bar.stage).join(),
        marked: all("#ceilings .note").filter(e => e.textContent.includes("◄ LIMIT")).length,
        shortest: limit.every(bar => bar.width <= least && bar.width > 4),
        unbroken: now.length > 2 && now.every(
            (b, i) => !i || (Math.abs(b.left - now[i - 1].left) < 1 && b.top - now[i - 1].bottom < 1.5)),
        large: parseFloat(getComputedStyle(h1).fontSize) >= 32 && top.top >= 0 && top.bottom < 400,
        ribbon: box("#waits .ribbon").height > 150 && all("#waits .band").some(e => boxOf(e).height > 4),
        knee: curve.width > 200 && curve.height > 20 && knee.width > 8 &&
            Math.abs(knee.top + knee.height / 2 - curve.top) < 4,
        fits: document.documentElement.scrollWidth <= wide,
        whole: words.map(boxOf).every(b => b.width === 0 || (b.left >= -1 && b.right <= wide + 1)),
    };
})()"""
RATES = '[...document.querySelectorAll("#ceilings .could")].map(e => e.textContent).filter(Boolean)'
PROFILE = 'JSON.parse(document.getElementById("profile").textContent)'


def test(what, seen, why=""):
    global failed
    print(f"ok - {what}" if seen else f"not ok - {what}: {why}", flush=True)
    failed += not seen


def show(name):
    browser.open(f"file://{folder}/{name}.html")
    browser.wait(f'document.readyState === "complete" && location.href.endsWith("/{name}.html")')


def looks(name, **wanted):
    """Returns None, or the first difference from what is wanted."""
    wanted = {"unbroken": True, "large": True, "ribbon": True, "fits": True, "whole": True, **wanted}
    seen = browser.see(LOOK)
    return next((f"{name}: {key} is {seen[key]!r}, not {value!r}" for key, value in wanted.items()
                 if seen[key] != value), None)


browser = Browser(program, folder)
numbers = None
for stage in STAGES:
    show(stage)
    wrong = looks(stage, verdict=f"{stage.upper()} is the limit",
                  title=f"{stage.upper()} limits configs/imagenet_resnet50.yaml - nnpipe profile",
                  limiters=stage, red=stage, marked=1, shortest=True, knee=True)
    test(f"{stage} is the one red bar and the shortest; verdict, ribbon and curve are seen", wrong is None, wrong)
    with open(f"{folder}/{stage}.txt", encoding="utf-8") as file:
        screen = file.read()
    lead = browser.see("""[...document.querySelectorAll(
        ".lead b, .tile.do b, .tile.do + .tile b, #numbers dl:first-of-type dd")].map(e => e.textContent)""")
    numbers = numbers or next((f"{rate} of {stage}" for rate in browser.see(RATES) + lead[:2] if rate not in screen),
                              None)
test("the page's rates are the terminal's", numbers is None, numbers)
for name in "balanced", "inconclusive":
    show(name)
    wrong = looks(name, verdict=name.capitalize(), limiters="", red="", marked=0)
    test(f"{name} stands there in large words, and no limiter is marked", wrong is None, wrong)

show("decode")
test("without a profile before there is no such part", browser.see('!document.getElementById("pair")'))
rows = browser.see("""[null, "augment"].map(limiter => rowsOf([
    { name: "decode", busy: 0.9, ceiling_images_per_second: 5 },
    { name: "augment", busy: 0.1, ceiling_images_per_second: 5 }],
    limiter).map(row => [row.limit, row.could, row.note]))""")
test("the readers' stages have one bar, the limiter's or the busiest's; a run of before notes says why", rows == [
    [[False, 5, ""], [False, None, "with decode, in the same threads"]],
    [[False, None, "with augment, in the same threads"], [True, 5, ""]]], rows)
shown = browser.see("""[
    inRate(1730.4), inRate(1234567), inRate(999.7), inRate(48.21), inRate(0.354), inRate(null), inRate(1e300),
    inTime(0.148), inTime(0.000052), inTime(1.12), inShare(0.0041), inShare(0.634), inShare(0),
    inSize(115 * 2 ** 20), inSize(900), inSize(2 ** 64), inGain(1.653)]""")
wanted = ["1,730", "1,234,567", "1,000", "48.2", "0.35", "no limit", "1e+300", "148 ms", "52 µs", "1.1 s", "0.4%",
          "63%", "0%", "115 MiB", "900 bytes", "16 EiB", "1.65x"]
test("numbers have the terminal's short forms", shown == wanted, shown)
knee = browser.see(f"""(() => {{
    const p = {PROFILE}, drawn = more => {{
        const made = whatIfOf({{ ...p, ...more }});
        return [Boolean(made.querySelector(".knee")), made.textContent];
    }};
    const curve = p.curve.map(([times, rate]) => [times, 0.9 * rate]);
    const far = {{ ...p.finding, next_images_per_second: 1e6 }};
    return [drawn({{}}), drawn({{ curve }}), drawn({{ curve, finding: far }})];
}})()""")
test("a knee is drawn only where the curve reaches the next limit",
     [k for k, _ in knee] == [True, False, False] and "1.68x faster is enough" in knee[0][1]
     and "next limit: STEP 2,860" in knee[1][1] and "far above, at 1,000,000" in knee[2][1], knee)
deep = browser.see(f"""(() => {{
    const p = {PROFILE}, more = {{ ...p, deep: true, stubbed: {{ ...p.stubbed, decode: 2810 }}, verified: true,
                                  verified_images_per_second: 2570 }};
    return [numbersOf(more), verdictOf(more), verdictOf({{ ...p, verify_cache_fills: true }})].map(e => e.textContent);
}})()""")
test("rates of --deep and --verify are shown", "without it, img/s" in deep[0] and "2,810" in deep[0] and
     "2,570 img/smeasured with it: 1.49x, predicted 2,590" in deep[1] and "first epoch took longer" in deep[2], deep)
extremes = browser.see(f"""(() => {{
    const all = (value, to) => typeof value === "number" ? to : Array.isArray(value) ? value.map(one => all(one, to)) :
        !value || typeof value !== "object" ? value :
        Object.fromEntries(Object.entries(value).map(([key, one]) => [key, all(one, to)]));
    const bad = to => {{
        const place = document.createElement("main"), whole = all({PROFILE}, to);
        drawProfile({{ ...whole, deep: true, verified: true, before: whole }}, place);
        return place.querySelectorAll("section").length < 5 || /NaN|undefined/.test(place.innerHTML);
    }};
    return [null, 0, -1, 1e308].filter(bad);
}})()""")
test("it is drawn with missing, zero, negative and huge numbers", extremes == [], extremes)

for scheme in "light", "dark":
    browser.scheme(scheme)
    browser.size(390, 800, True)
    show("decode")
    wrong = looks("a telephone", verdict="DECODE is the limit", red="decode", shortest=True, knee=True)
    test(f"it fits a telephone, {scheme}", wrong is None, wrong)
show("pair")
wrong = looks("pair", red="decode")
test("before and after fit, too", wrong is None
     and browser.see('document.querySelectorAll("#pair .fill.limit.before, #pair .fill.limit").length === 2'), wrong)
browser.size(1280, 1000)
show("hostile")
seen = browser.see(f"""[
    document.title, {PROFILE}.config, document.querySelector("header span").textContent,
    document.querySelectorAll("img").length, document.scripts.length]""")
test("names are text and no markup", seen[0] != "1" and seen[1:] == [hostile, hostile, 0, 2], seen)
browser.shot(f"{folder}/shot.png")
test("a picture is taken", os.path.getsize(f"{folder}/shot.png") > 30000)
others = [u for u in browser.asked if not u.startswith(f"file://{folder}/")]
test("the page loads no other file and nothing over the network", not others, others[:3])
test("the console is empty", not browser.complaints, browser.complaints[:2])
browser.close()
sys.exit(failed > 0)
