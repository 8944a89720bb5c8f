"""The page as its reader meets it: trial.py BROWSER URL TOKEN, in a folder of theirs. Pictures are left there."""
import subprocess
import sys
import time

from browser import Browser

program, url, token = sys.argv[1:]


def state():
    return subprocess.run(["nnpipe", "status", "2", "--json"], capture_output=True,
                          text=True).stdout.split('"state": "')[1].split('"')[0]


def must(what, seen):
    if not seen:
        browser.shot("failed.png")
        sys.exit(f"no {what}; the run is {state()}")


def press(what):
    must(what, browser.wait(f"document.querySelector({what!r}) && !document.querySelector({what!r}).disabled", 10))
    x, y = browser.see(f"""(() => {{
        const e = document.querySelector({what!r});
        e.scrollIntoView({{block: 'center'}});
        const r = e.getBoundingClientRect();
        return [r.x + r.width / 2, r.y + r.height / 2];
    }})()""")
    for kind in "mousePressed", "mouseReleased":
        browser.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)


def row(state):
    return browser.wait(f"document.querySelector('tr[data-id=\"2\"]').dataset.state === {state!r}", 30)


browser = Browser(program, ".")
browser.open(url)
must("running row", row("running"))
browser.shot("70-page.png")
press('tr[data-id="2"] a')
time.sleep(1)
browser.shot("71-no-token.png")
press("#token")
with open(token, encoding="ascii") as file:
    browser.type(file.read().strip())
browser.key("Enter", 13, "\r")
must("pipeline", browser.wait('Boolean(document.querySelector(".bar.limit"))', 20))
time.sleep(2)
browser.shot("72-run.png")
for verb, then in ("pause", "paused"), ("resume", "running"), ("stop", "stopped"):
    press(f'tr[data-id="2"] button[data-verb="{verb}"]')
    if verb == "stop":
        must("question", browser.wait('document.getElementById("sure").open', 5))
        browser.shot("73-sure.png", whole=False)
        press("#sure-yes")
    must(then, row(then) and state() == then)
browser.shot("74-stopped.png")
must("quiet console: " + str(browser.complaints[:2]), not browser.complaints)
browser.close()
