"""The service's commands in a terminal and in pipes: tables, --json, logs that are followed over rotation and a
restart, --wait over a restart, and `nnpipe top` in tmux."""
import json
import os
import re
import shutil
import subprocess
import time

from api import equal, expect, run_stories, settles, skip, story
from cli import Service

NAME = "a-name-that-is-longer-than-most-are-and-as-long-as-one-may-be"
FIELDS = ("id name state config device step epoch progress images_per_second stall_ratio loss submitted_at started_at "
          "ended_at run_dir reason").split()
daemon = Service(devices="cpu, sim")
NET = daemon.net("net", 100000, every=5000, data="{source: synth, samples: 1000, size: 32}",
                 model="[flatten, {linear: {out: classes}}]", device="{sim: {step_ms: 20}}")


def restart():
    daemon.kill()
    time.sleep(0.3)
    daemon.start()


def listed(*words):
    return [json.loads(line) for line in daemon.command(*words, "--json").strip().split("\n")]


@story("an empty queue prints how to fill it")
def empty():
    daemon.says("nnpipe submit CONFIG", "ls", "--all")


@story("submit --json is an event with id and name, and the run runs")
def submitted():
    event = json.loads(daemon.command("submit", NET, "--name", NAME, "--device", "cpu", "--json"))
    equal((event["event"], event["id"], event["name"]), ("submitted", 1, NAME), "event, id and name")
    daemon.becomes(1, "running")


@story("ls --json is JSON with the fields that scripts rely on, null where nothing is known; top --json is the same")
def fields():
    settles(lambda: listed("ls")[0]["progress"], "it reports no progress")
    rows = listed("ls")
    equal(len(rows), 1, "runs")
    missing = [key for key in FIELDS if key not in rows[0]]
    equal(missing, [], "fields that are missing")
    expect(rows[0]["ended_at"] is None and 0 <= rows[0]["progress"] < 1, rows[0])
    top = listed("top")
    equal((top[0]["event"], top[0]["id"], [key for key in FIELDS if key not in top[0]]), ("run", 1, []), "top --json")


@story("top in a pipe is plain lines, once")
def piped():
    said = daemon.command("top")
    expect(re.search("a-name-that.*running.*cpu", said) and "\033" not in said, said)


@story("a missing run is named, and so is a wrong number")
def wrong():
    daemon.says("there is no run 77", "top", 77, code=1)
    daemon.says("as `nnpipe ls` shows it", "pause", "one", code=2)


# --- logs ---------------------------------------------------------------------------------------


def follow(run):
    """Starts `nnpipe logs -f`; returns it with the files of its output and errors."""
    got = daemon.dir + "/got"
    return daemon.popen("logs", run, "-f", stdout=open(got, "wb"), stderr=open(got + ".err", "wb")), got


@story("logs -f loses and doubles no byte over five rotations and a killed service")
def followed():
    daemon.command("pause", 1)
    daemon.becomes(1, "paused")
    output = daemon.folder(1) + "/output"
    written = open(output + "/000001", "rb").read()
    reader, got = follow(1)
    for segment in range(1, 7):  # a hundred thousand bytes now and then; the first segment has been there
        for piece in range(3):
            text = "".join("segment %d, piece %d, line %d\n" % (segment, piece + 1, i) for i in range(3000)).encode()
            written += text
            with open("%s/%06d" % (output, segment), "ab") as out:
                out.write(text)
            time.sleep(0.1)
        if segment > 4:
            os.unlink("%s/%06d" % (output, segment - 4))
        if segment == 3:
            restart()
    daemon.command("stop", 1)
    equal(reader.wait(60), 0, "the exit code of logs -f")
    expect(open(got, "rb").read() == written, "what was followed is not what was written")
    expect("the service is back" in open(got + ".err").read(), open(got + ".err").read())
    first = daemon.command("logs", 1).split("\n")[0]
    equal(first, "segment 3, piece 1, line 0", "the oldest line that is left")


@story("the same if the run itself begins a new segment")
def rotated():
    run = daemon.submit(NET, "--name", "turns", "--device", "cpu")
    output = daemon.folder(run) + "/output"
    # paused before it has said a word, a run has no output yet
    settles(lambda: os.path.exists(output + "/000001") and os.path.getsize(output + "/000001"), "it prints nothing")
    daemon.command("pause", run)
    daemon.becomes(run, "paused")
    os.truncate(output + "/000001", 16 << 20)
    reader, got = follow(run)
    daemon.command("resume", run)
    settles(lambda: os.path.exists(output + "/000002"), "it begins no segment")
    daemon.command("stop", run)
    equal(reader.wait(60), 0, "the exit code of logs -f")
    written = b"".join(open(output + "/" + name, "rb").read() for name in sorted(os.listdir(output)))
    expect(open(got, "rb").read() == written, "what was followed is not what was written")


@story("submit --wait waits over a killed service, and ends with 75 where the run is stopped")
def waited():
    out = daemon.dir + "/wait"
    waiting = daemon.popen("submit", NET, "--name", "waited", "-o", "train.steps=150", "--wait",
                           stdout=open(out, "w"), stderr=open(out + ".err", "w"))
    settles(lambda: "queued" in open(out).read(), "it is not queued")
    daemon.becomes(3, "running")
    restart()
    equal(waiting.wait(120), 0, "the exit code of submit --wait")
    expect("run 3: waited, done" in open(out).read(), open(out).read())
    expect("waiting until it is back" in open(out + ".err").read(), open(out + ".err").read())
    waiting = daemon.popen("submit", NET, "--name", "stopped", "--device", "cpu", "--wait", stdout=subprocess.DEVNULL)
    settles(lambda: len(daemon.all()) == 4, "it is not queued")
    daemon.becomes(4, "running")
    daemon.command("stop", 4)
    equal(waiting.wait(60), 75, "the exit code of submit --wait of a stopped run")


# --- top in a terminal --------------------------------------------------------------------------


def tmux(*words):
    return subprocess.run(["tmux", "-L", "nnpipe-%d" % os.getpid(), *words], capture_output=True, text=True,
                          env=dict(os.environ, NNPIPE_SOCKET=daemon.socket, LC_ALL="C.UTF-8")).stdout


def pane(*words):
    return tmux("capture-pane", "-p", "-t", "top", *words)


def sees(pattern, *words):
    settles(lambda: re.search(pattern, pane(*words), re.M), lambda: "the screen has no %r\n%s" % (pattern, pane()))


def keys(*names):
    tmux("send-keys", "-t", "top", *names)


def in_tmux():
    @story("top shows the service's runs, at 80 columns with its last column")
    def opened():
        daemon.submit(NET, "--name", "first")
        daemon.submit(NET, "--name", "second")
        daemon.becomes(5, "running")
        tmux("new-session", "-d", "-s", "top", "-x", "80", "-y", "24",
             "%s top; echo it has ended; sleep 100" % daemon.program)
        sees("nnpipe: 1 running, 1 queued")
        sees("^id .* ETA$")

    @story("p asks about the run that j chose; n leaves it, y pauses it, and the screen shows it")
    def pausing():
        keys("j", "p")
        sees("pause run 6, second[?] y: yes")
        keys("n")
        time.sleep(0.5)
        equal(daemon.status(6)["state"], "queued", "the run after n")
        keys("p", "y")
        daemon.becomes(6, "paused")
        sees("nnpipe: 1 running, 0 queued, 1 paused")

    @story("Enter shows the stages and the verdict of a run")
    def stages():
        keys("k", "Enter")
        sees("^ (LIMIT|BALANCED|INCONCLUSIVE):")

    @story("a smaller terminal is redrawn, keeps its last line and is not exceeded; a larger one shows more columns")
    def resized():
        tmux("resize-window", "-t", "top", "-x", "60", "-y", "15")
        settles(lambda: pane().rstrip("\n").split("\n")[-1].startswith("escape: all runs"), lambda: pane())
        settles(lambda: max(map(len, pane().split("\n"))) <= 60, lambda: pane())
        tmux("resize-window", "-t", "top", "-x", "120", "-y", "30")
        keys("Escape")
        sees("owner")

    @story("a service that is gone is named, and the runs stay; they move again when it is back")
    def away():
        daemon.kill()
        sees("not up to date")
        daemon.start()
        sees("j, k: choose")

    @story("states are coloured, and q ends it")
    def coloured():
        sees("\033\\[[0-9;]*36m", "-e")
        keys("q")
        sees("it has ended")

    @story("top ID begins with the stages, without colours where NO_COLOR is set")
    def plain():
        tmux("respawn-window", "-k", "-t", "top", "NO_COLOR=1 %s top 5; sleep 100" % daemon.program)
        sees("^ (LIMIT|BALANCED|INCONCLUSIVE):")
        expect(not re.search("\033\\[[0-9;]*3[0-9]m", pane("-e")), "there are colours")


if shutil.which("tmux"):
    in_tmux()
else:
    skip("top in a terminal", "no tmux here")
try:
    run_stories(daemon)
finally:
    tmux("kill-server")
