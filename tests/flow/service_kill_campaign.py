"""Daemon, worker, or both, killed with SIGKILL at random moments, while runs are submitted, paused and resumed by
others who know nothing of it. Then: each run whose submission was acknowledged is there, once, and done; no run is
there that was not submitted; no two workers were ever in one folder; and every run has the weights of an
undisturbed run. KILLS of them (1000), in rounds of up to 25; STATE keeps which rounds have passed. SEED names the
moments."""
import collections
import glob
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import threading
import time

from api import NNPIPE, done, equal, expect, ok, settles, test
from cli import NET, Service, alive

KILLS = int(os.environ.get("KILLS", 1000))
SEED = int(os.environ.get("SEED", time.time()))
STEPS = (300, 600, 900, 1200)  # four kinds of runs, of one to four seconds
SETTINGS = "runs_per_device: 2\nretry: {first: 0.05, cap: 0.2}\n"


def weights(folder, steps):
    path, = glob.glob("%s/checkpoints/step-*%d/weights.safetensors" % (folder, steps))
    return open(path, "rb").read()


def config(folder, steps):
    path = "%s/n%d.yaml" % (folder, steps)
    with open(path, "w") as out:
        out.write(NET.format(name="n%d" % steps, device="cpu", batch=16, every=40, keep=2, steps=steps,
                             runs=folder + "/alone", cache="decoded",
                             data="{source: synth, samples: 1000, size: 16}",
                             model="[{conv: {out: 8, kernel: 3, pad: 1}}, batchnorm, relu, global_avgpool, "
                                   "{linear: {out: classes}}]"))
    return path


class Submitter(threading.Thread):
    """Submits, pauses and resumes until it is stopped; acknowledged: name -> (number, steps)."""

    def __init__(self, daemon, folder):
        super().__init__()
        self.daemon_, self.folder, self.acknowledged, self.stops = daemon, folder, {}, threading.Event()

    def pending(self):
        return sum('"id"' in line for line in self.daemon_.run("ls", "--json").out.split("\n"))

    def run(self):
        nr, last = 0, 1
        while not self.stops.is_set():
            nr += 1
            steps = STEPS[nr % 4]
            name = "s%d-%d" % (nr, steps)
            answer = self.daemon_.run("submit", "%s/n%d.yaml" % (self.folder, steps), "-o", "runs=" + self.daemon_.runs,
                                      "--name",
                                      name, "--priority", nr % 3, "--max-retries", 1000, "--json")
            if answer.code == 0:
                last = json.loads(answer.out.split("\n")[0])["id"]
                self.acknowledged[name] = (last, steps)
            if nr % 3 == 0:
                self.daemon_.run("pause", last)
                time.sleep(0.2)
                self.daemon_.run("resume", last)
            while self.pending() > 4 and not self.stops.is_set():
                time.sleep(0.1)


def workers(daemon):
    found = []
    for lock in glob.glob(daemon.runs + "/*/lock"):
        text = open(lock).read().strip()
        if text and alive(int(text)):
            found.append(int(text))
    return found


def kill_some(daemon, kind, draw, counted):
    """0: the daemon, 1: a worker, 2: both."""
    victims = workers(daemon)
    if kind and victims:
        try:
            os.kill(draw.choice(victims), signal.SIGKILL)
            counted["workers"] += kind == 1
        except ProcessLookupError:
            pass
    if kind != 1:
        daemon.kill()
        daemon.start()


def is_settled(daemon):
    """Is nothing left to do? A submitter that paused a run may have been cut off before it resumed it."""
    left = [json.loads(line) for line in daemon.run("ls", "--json").out.split("\n") if '"id"' in line]
    for run in left:
        if run["state"].startswith("paus"):
            daemon.run("resume", run["id"])
    return not left and daemon.run("status").code == 0


def check(daemon, acknowledged, want):
    runs = daemon.all()
    expect(acknowledged, "nothing was acknowledged")
    names = collections.Counter(run["name"] for run in runs)
    for name in acknowledged:
        equal(names[name], 1, "how often %s is in the queue" % name)
    for run in runs:
        equal(run["state"], "done", "run %d, %s, %s" % (run["id"], run["name"], run["reason"]))
        folders = glob.glob("%s/%s-[0-9]*" % (daemon.runs, run["name"]))
        equal(len(folders), 1, "folders of %s" % run["name"])
        steps = int(run["name"].split("-")[1])
        expect(weights(folders[0], steps) == want[steps], folders[0] + " has other weights")
        for path in glob.glob(folders[0] + "/output/*"):
            expect("this run is running" not in open(path).read(), "a second worker came to " + folders[0])
    return len(runs)


def one_round(number, nr, folder, want, counted):
    draw = random.Random(SEED * 1000 + number)
    daemon = Service(SETTINGS)
    submitter = Submitter(daemon, folder)
    try:
        submitter.start()
        for _ in range(nr):
            time.sleep(1.2 * draw.random())
            kill_some(daemon, draw.randrange(3), draw, counted)
        submitter.stops.set()
        submitter.join()
        settles(lambda: is_settled(daemon), lambda: "not all is finished: %s" % daemon.all(), 240)
        counted["runs"] += check(daemon, submitter.acknowledged, want)
    except Exception as error:
        log = open(daemon.log.name).read()[-1500:]
        raise AssertionError("round %d of seed %d: %s\n%s\n%s" % (number, SEED, error, submitter.acknowledged, log))
    finally:
        submitter.stops.set()
        submitter.join()
        daemon.close()


def main():
    folder = tempfile.mkdtemp(prefix="nnpipe-kill.", dir=os.environ.get("TMPDIR", "/tmp"))
    state = "%s/service-kill-%d" % (os.environ.get("STATE", folder), KILLS)
    os.makedirs(state, exist_ok=True)
    want, counted = {}, collections.Counter()

    for steps in STEPS:
        subprocess.run([NNPIPE, "train", config(folder, steps)], check=True, capture_output=True)
        want[steps] = weights(glob.glob("%s/alone/n%d-*" % (folder, steps))[0], steps)
    for number in range(1, (KILLS + 24) // 25 + 1):
        nr = min(25, KILLS - 25 * (number - 1))
        if os.path.exists("%s/%d" % (state, number)):
            ok("round %d has passed already" % number)
            continue
        what = "%d kills of daemon and workers: no run is lost, none is done twice, all have their weights (round %d)"
        with test(what % (nr, number)):
            one_round(number, nr, folder, want, counted)
            open("%s/%d" % (state, number), "w").close()
    print("# %d kills, %d of a worker alone, %d runs" % (KILLS, counted["workers"], counted["runs"]))
    shutil.rmtree(folder, ignore_errors=True)
    done()


main()
