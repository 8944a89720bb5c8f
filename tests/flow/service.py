"""The service from the command line: runs are queued, done, paused, stopped and refused; daemon and workers are
killed."""
import os
import re
import signal
import subprocess

from api import equal, expect, run_stories, story
from cli import Service

daemon = Service("retry: {first: 0.1, cap: 1}\n")
SHORT, LONG, COUNTED = daemon.net("short", 40), daemon.net("long"), daemon.net("counted", 1500)
counted = []


def changed(path, name, *changes):
    """A copy of a config, in which patterns are replaced."""
    text = open(path).read()
    for pattern, text_new in changes:
        text = re.sub(pattern, text_new, text, flags=re.M)
    with open(os.path.join(daemon.dir, name), "w") as out:
        out.write(text)
    return os.path.join(daemon.dir, name)


@story("a command without a service prints how to start one")
def alone():
    daemon.says("nnpipe daemon", "ls", "--socket", daemon.dir + "/none", code=1)


@story("a file at the socket's path is not unlinked")
def not_a_socket():
    path = daemon.dir + "/file"
    with open(path, "w") as out:
        out.write("precious")
    daemon.says("not a sock", "daemon", "--state", daemon.dir + "/elsewhere", "--socket", path, code=1)
    equal(open(path).read(), "precious", "the file has changed")


@story("a second daemon on the same queue is refused")
def second():
    daemon.says("another nnpipe daemon", "daemon", "--state", daemon.state, "--socket", daemon.dir + "/other", code=1)


@story("a run is done, and --wait prints it; its folder has its result, and its log can be read")
def is_done():
    daemon.command("submit", SHORT, "--wait")
    expect(os.path.getsize(daemon.folder(1) + "/result.json") > 0, "there is no result")
    daemon.says("done in", "logs", 1)


@story("a config with a mistake is refused with its line, and so are missing data and a missing device")
def refused():
    bad = changed(SHORT, "bad.yaml", ("^device: .*", "device: cpu\nlodaer: 1"))
    daemon.says("bad.yaml:3:", "submit", bad, code=2)
    lost = changed(SHORT, "lost.yaml", ("{source: synth.*?}", "{source: folder, path: /no/where}"))
    daemon.says("lost.yaml:3", "submit", lost, code=2)
    daemon.says("no device 'cuda:7'", "submit", SHORT, "--device", "cuda:7", code=2)


@story("a run is paused with a checkpoint, resumed, stopped and forgotten")
def paused():
    run = daemon.submit(LONG, "--name", "pausing")
    daemon.trained(run)
    daemon.command("pause", run)
    daemon.becomes(run, "paused")
    expect(daemon.saved(run), "a paused run has no checkpoint")
    daemon.command("resume", run)
    daemon.becomes(run, "running")
    daemon.ends(run)
    daemon.command("rm", run)
    daemon.command("status", run, code=1)


@story("a run of higher priority takes the device and gives it back; one after a stopped run fails")
def order():
    low = daemon.submit(LONG, "--name", "low", "--priority", "-5")
    daemon.trained(low)
    daemon.command("submit", SHORT, "--name", "high", "--priority", "5", "--wait")
    expect(daemon.saved(low), "the run that yielded has no checkpoint")
    daemon.becomes(low, "running")
    later = daemon.submit(SHORT, "--name", "later", "--after", low)
    daemon.becomes(later, "queued")
    daemon.ends(low)
    daemon.becomes(later, "failed")


@story("a killed worker is started again and finishes its run")
def killed_worker():
    run = daemon.submit(COUNTED)
    counted.append(run)
    daemon.trained(run)
    daemon.kill_worker(run)
    daemon.becomes(run, "done")


@story("a killed daemon finds its worker again")
def killed_daemon():
    run = daemon.submit(COUNTED)
    counted.append(run)
    daemon.trained(run)
    daemon.kill()
    daemon.start()
    daemon.becomes(run, "done")
    of = daemon.status(run)
    equal((of["step"], of["accuracy"]), (1500, None), "step and accuracy of the run")


@story("a stopped daemon leaves no worker, and continues its run when it is started again")
def stopped_daemon():
    run = daemon.submit(COUNTED)
    counted.append(run)
    daemon.trained(run)
    folder = daemon.folder(run)
    equal(daemon.stop(signal.SIGTERM), 0, "the daemon's exit code")
    left = subprocess.run(["pgrep", "-f", "nnpipe worker.*" + os.path.basename(folder)], capture_output=True, text=True)
    equal(left.stdout, "", "workers that are left")
    daemon.start()
    daemon.becomes(run, "done")


@story("all of them have the weights of an undisturbed run")
def same():
    daemon.command("train", changed(COUNTED, "alone.yaml", ("^name: .*", "name: alone"),
                                    ("^runs: .*", "runs: %s/alone" % daemon.dir)))
    path = next(os.path.join(at, name) for at, _, names in os.walk(daemon.dir + "/alone")
                for name in names if at.endswith("1500") and name == "weights.safetensors")
    want = open(path, "rb").read()
    for run in counted:
        expect(daemon.weights(run, 1500) == [want], "run %d has other weights" % run)


run_stories(daemon)
