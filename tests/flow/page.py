"""Tests the page of page.sh's service in a browser: page.py BROWSER FOLDER URL NNPIPE. A line for each test."""
import json
import os
import signal
import subprocess
import sys
import time

from browser import Browser

program, folder, url, nnpipe = sys.argv[1:]
failed = 0


def test(what, seen, why=""):
    global failed
    print(f"ok - {what}" if seen else f"not ok - {what}: {why}", flush=True)
    failed += not seen


def state_of(run):
    text = subprocess.run([nnpipe, "status", str(run), "--json"], capture_output=True, text=True).stdout
    return json.loads(text or "{}").get("state")


def becomes(run, state):
    until = time.monotonic() + 180
    while state_of(run) != state and time.monotonic() < until:
        time.sleep(0.1)
    return state_of(run) == state


def limiter_at(run, step):
    """The limiter that the run itself reported at this step."""
    with open(f"{folder}/runs/{run}/metrics.jsonl", encoding="utf-8") as lines:
        events = [json.loads(line) for line in lines if line.startswith('{"event": "pipeline"') and line.endswith("\n")]
    return next((line["limiter"] for line in events if line["step"] == step), "nothing")


def press(what):
    """Presses a button with the keyboard."""
    browser.see(f"document.querySelector({what!r}).focus()")
    browser.key("Enter", 13, "\r")


STATES = '[...document.querySelectorAll("#runs tbody tr")].map(tr => tr.dataset.id + tr.dataset.state).sort().join()'
WANTED = "1done,2stopped,3failed,4paused,5running,6queued"

browser = Browser(program, folder)
browser.open(url)
seen = browser.wait(f"{STATES} === {WANTED!r}")
test("each run has a row with its state", seen, browser.see(STATES))

# --- without the token --------------------------------------------------------------------------
off = '[...document.querySelectorAll("td.actions button")].map(button => button.disabled)'
test("without the token all buttons are off", browser.see(f"{off}.length === 6 && {off}.every(Boolean)"),
     browser.see(off))
browser.see('document.querySelector("tr[data-id=\\"5\\"] a").click()')
shown = browser.wait('!document.getElementById("denied").hidden && document.getElementById("shown").hidden', 5)
test("nor are curves and log asked for", shown and not any("/metrics" in u or "/log" in u for u in browser.asked),
     browser.asked[-5:])
browser.see('document.getElementById("token").focus()')
browser.type("0" * 64)
browser.key("Enter", 13, "\r")
hint = 'document.getElementById("token-hint").textContent'
test("a wrong token is refused with a hint", browser.wait(f'{hint}.startsWith("That is not the token")', 5))

# --- with it ------------------------------------------------------------------------------------
with open(f"{folder}/state/nnpipe/token", encoding="ascii") as file:
    browser.see('document.getElementById("token").focus()')
    browser.type(file.read())
    browser.key("Enter", 13, "\r")
test("with the token the buttons are on", browser.wait(f"{off}.length === 6 && !{off}.some(Boolean)", 5),
     browser.see(off))
test("a path with markup in it stands there as text",
     browser.wait('document.getElementById("facts").textContent.includes("<img src=x") && '
                  '!document.querySelector("main img") && document.title !== "1"', 5),
     browser.see('document.getElementById("facts").innerHTML'))
points = '(feed && feed.charts.loss ? feed.charts.loss.numRows() : 0)'
before = browser.wait(points)
test("a curve is drawn, and gets points", before and browser.wait(f"{points} > {before}", 10), before)
painted = """[...document.querySelectorAll("#loss canvas")].some(
    c => c.getContext("2d").getImageData(0, 0, c.width, c.height).data.some(Boolean))"""
test("it is on the screen", browser.see(painted))
log = 'document.getElementById("log").textContent.length'
before = browser.wait(log)
test("the log grows", before and browser.wait(f"{log} > {before}", 15), before)
browser.wait('Boolean(document.querySelector(".bar.limit"))')
limit, step, red, words = browser.see("""(() => {
    const bars = [...document.querySelectorAll(".bar.limit")];
    const fill = bars.length ? bars[0].querySelector(".fill") : null;
    const [r, g, b] = fill ? getComputedStyle(fill).backgroundColor.match(/\\d+/g).map(Number) : [0, 0, 0];
    return [bars.map(bar => bar.dataset.stage).join(), feed.drawn.step, r > 150 && g < 100 && b < 100,
            document.querySelector("#verdict b").textContent];
})()""")
wanted = limiter_at("going-5", step)
test("only the limiter's bar is marked", limit and limit == wanted, f"{limit}, not {wanted}")
test("it is red, and named in words", red and words == f"limited by {limit}", f"{red} {words}")
test("the device names its run", browser.see('document.getElementById("devices").textContent.includes("5 going")'))
browser.shot(f"{folder}/page.png")
test("a picture is taken", os.path.getsize(f"{folder}/page.png") > 30000)
for scheme in "light", "dark":
    browser.scheme(scheme)
    browser.size(390, 800, True)
    time.sleep(0.3)
    test(f"nothing goes beyond a telephone's width, {scheme}",
         browser.see("document.documentElement.scrollWidth <= 390"))
browser.size(1280, 1000)

press('tr[data-id="5"] button[data-verb="pause"]')
test("Pause pauses the run", becomes(5, "paused"), state_of(5))
test("and the page shows it", browser.wait('document.getElementById("one-state").textContent === "paused"', 5))
press('tr[data-id="4"] button[data-verb="resume"]')
row = """document.querySelector('tr[data-id="4"]')"""
test("Resume queues a run again", browser.wait(f'["queued", "running"].includes({row}.dataset.state)', 5), state_of(4))
press('tr[data-id="5"] button[data-verb="stop"]')
asked = browser.wait('document.getElementById("sure").open', 5)
browser.key("Escape", 27)
time.sleep(0.5)
test("Stop asks, and Escape leaves the run", asked and state_of(5) == "paused", state_of(5))
press('tr[data-id="5"] button[data-verb="stop"]')
browser.wait('document.getElementById("sure").open', 5)
press("#sure-yes")
test("Stop stops it", becomes(5, "stopped"), state_of(5))

# --- a run that writes damaged metrics ------------------------------------------------------------
lines = ['null', '7', '{"event": "step"}', '{"event": "step", "step": 21, "loss": "<b>", "accuracy": {}}',
         '{"event": "eval", "step": 21, "set": {}}',
         '{"event": "pipeline", "step": 22, "bars": [null], "verdict": 7, "images_per_second": "x"}']
with open(f"{folder}/runs/short-1/metrics.jsonl", "a", encoding="utf-8") as file:
    file.write("\n".join(lines) + "\n")
browser.see("location.hash = 'run-1'")
verdict = 'document.getElementById("verdict").textContent'
reported = browser.wait(f'{verdict}.startsWith("What the run wrote cannot be drawn")', 5)
test("damaged metrics of a run do not break the page", reported
     and browser.see('!document.body.classList.contains("lost") && document.getElementById("problem").hidden && '
                     'document.getElementById("log").textContent.length > 0'),
     browser.see('document.getElementById("problem").textContent + document.getElementById("verdict").textContent'))
browser.see("location.hash = 'run-5'")
browser.wait('document.getElementById("one-name").textContent === "5 going"', 5)

# --- the service dies and returns ---------------------------------------------------------------
quiet = list(browser.complaints)
with open(f"{folder}/pid", encoding="ascii") as file:
    os.kill(int(file.read()), signal.SIGKILL)
gone = browser.wait('document.body.classList.contains("lost") && !document.getElementById("problem").hidden', 10)
test("a lost service is reported", gone and browser.see(f"{off}.every(Boolean)"))
subprocess.Popen([f"{folder}/serve"])
back = browser.wait('!document.body.classList.contains("lost") && document.getElementById("problem").hidden', 15)
test("when it is back the page continues", back and browser.wait(f"!{off}.some(Boolean)", 5),
     browser.see('document.getElementById("problem").textContent'))
browser.see("location.reload()")
test("a reload keeps the token and the run",
     browser.wait('document.getElementById("one-name").textContent === "5 going" && '
                  '!document.getElementById("token-taken").hidden', 10))
# --- a sweep, side by side ------------------------------------------------------------------------
subprocess.run([nnpipe, "stop", "4", "6"], capture_output=True)
subprocess.run([nnpipe, "submit", f"{folder}/<img src=x onerror=document.title=1>/net.yaml", "--name", "grid",
                "--device", "cpu", "-o", "train.steps=60", "-o", "train.eval_every=20 steps", "--sweep",
                "optimizer.sgd.lr=0.1,0.01,0.001", "--wait"], capture_output=True)
finished = [number for number in (7, 8, 9) if state_of(number) == "done"]
test("a sweep for the page has ended", finished == [7, 8, 9], finished)
browser.wait("""Boolean(document.querySelector('tr[data-id="9"] a.sweep'))""")
browser.see("""document.querySelector('tr[data-id="9"] a.sweep').click()""")
cells = '[...document.querySelectorAll(".compared tbody tr")].map(tr => [...tr.cells].map(td => td.textContent))'
heads = '[...document.querySelectorAll(".compared th")].map(th => th.textContent)'
shown = browser.wait(f"{cells}.length === 3", 10)
test("the link of a sweep shows its runs alone, side by side", shown and browser.see(
    '[...document.querySelectorAll("#runs tbody tr")].map(tr => tr.dataset.id).sort().join()') == "7,8,9",
     browser.see(cells))
printed = [json.loads(line) for line in subprocess.run([nnpipe, "compare", "--sweep", "grid", "--json"],
                                                       capture_output=True, text=True).stdout.splitlines()]
wanted = [[f"{run['id']} {run['run'].rsplit('-', 1)[0]}", "done", f"{100 * run['best_accuracy']:.2f}%",
           f"{100 * run['accuracy']:.2f}%", f"{run['loss']:.4f}", run["values"]["optimizer.sgd.lr"]] for run in printed]
seen = [[row[0], row[1], row[2], row[3], row[4], row[-1]] for row in browser.see(cells) or []]
test("with the results and the order of nnpipe compare", seen == wanted, f"{seen}, not {wanted}")
test("of the keys only the one that differs is there", (browser.see(heads) or [])[10:] == ["lr"], browser.see(heads))
lines = """beside ? beside.view.charts.map(chart => chart.numRows() > 2 && chart.getLabels().length === 4 && [...chart
    .graphDiv.querySelectorAll("canvas")].some(c => c.getContext("2d").getImageData(0, 0, c.width, c.height).data
    .some(Boolean))).join() : ''"""
test("both curves have a line for each run, on the screen", browser.see(lines) == "true,true", browser.see(lines))
browser.shot(f"{folder}/compare.png")
browser.see('location.hash = ""')
test("Close ends the comparison, and all runs are back", browser.wait(
    'document.getElementById("beside").hidden && Boolean(document.querySelector(\'tr[data-id="6"]\'))', 5))
for number in 7, 9:
    browser.wait(f"""Boolean(document.querySelector('tr[data-id="{number}"] input'))""")
    browser.see(f"""document.querySelector('tr[data-id="{number}"] input').click()""")
test("boxes choose runs", browser.wait(f'location.hash === "#compare-7,9" && {cells}.length === 2', 10),
     browser.see("location.hash"))
browser.see("""document.querySelector('tr[data-id="7"] input').click()""")
test("one run alone asks for another", browser.wait(
    'document.getElementById("beside-note").textContent === "Choose another run."', 5))
browser.see('location.hash = ""')
noise = "ERR_CONNECTION", "Failed to fetch", "willReadFrequently"  # of the service's end, and of this test itself
loud = [one for one in browser.complaints[len(quiet):] if not any(word in str(one) for word in noise)]
test("nothing of it is in the console", not loud, loud[:3])
# a comparison that `nnpipe compare` wrote
subprocess.run([nnpipe, "compare", "--sweep", "grid", "--html", f"{folder}/compare.html"], capture_output=True)
browser.open("about:blank")  # the page of the service, which has ended, asks no more
browser.wait('location.href === "about:blank"', 10)
before = len(browser.complaints)
browser.open(f"file://{folder}/compare.html")
shown = browser.wait(f'document.readyState === "complete" && {cells}.length === 3', 10)
test("the page of nnpipe compare --html shows the same", shown
     and [[row[0], row[-1]] for row in browser.see(cells)] == [[f"{run['id']} {run['run']}", run["values"][
         "optimizer.sgd.lr"]] for run in printed], browser.see(cells))
test("and draws both curves, without a word in the console", browser.see("""view.charts.map(
    chart => chart.numRows() > 2 && chart.getLabels().length === 4).join()""") == "true,true"
     and len(browser.complaints) == before, browser.complaints[before:])
others = [u for u in browser.asked if not u.startswith((url, "about:", f"file://{folder}/"))]
test("the page sent requests to the service only", not others, others[:3])
test("the console is empty", not quiet, quiet[:2])
browser.close()
sys.exit(failed > 0)
