"""Runs whose folders hang: every request is answered meanwhile, a daemon that is started then is up at once, and
when the storage answers all runs are found and end. For one user, and for a box, where the runs are other users'.
HUNG_RUNS of them (6, and 3 of the box; service_hung_campaign.py: 20 and 8); HUNG_MODE: user or box alone."""
import os
import shutil
import signal
import subprocess
import time

from api import equal, expect, run_stories, settles, skip, story
from cli import Faulty, Service

ANN = 64341
AS_BOX = ["setpriv", "--reuid", str(ANN), "--regid", str(ANN), "--clear-groups", "--inh-caps=+setuid,+setgid,+kill",
          "--ambient-caps=+setuid,+setgid,+kill", "env", "HOME=/tmp"]
# The home of root, who submits the box's runs, is a folder of the test in the daemon's eyes.
AT_HOME = ["unshare", "-m", "sh", "-c", 'sed "s|^\\(root:.*:\\)[^:]*:|\\1$0:|" /etc/passwd >"$0/passwd" && '
           'mount --bind "$0/passwd" /etc/passwd && exec "$@"']
TINY = dict(batch=8, every=100000, data="{source: synth, samples: 64, size: 8}",
            model="[flatten, {linear: {out: classes}}]")
SETTINGS = "runs_per_device: 64\nretry: {first: 0.1, cap: 1}\n"
PATHS = ["/v1/runs", "/healthz", "/v1/devices", "/v1/service", "/metrics", "/v1/runs/1", "/v1/runs/1/config"]


def requests(daemon, seconds):
    """Sends requests of all kinds in turn; returns their times, sorted."""
    took, end = [], time.monotonic() + seconds
    while time.monotonic() < end:
        began = time.monotonic()
        answer = daemon.ask("GET", PATHS[len(took) % len(PATHS)])
        took.append(time.monotonic() - began)
        expect(answer.status < 500, answer)
        time.sleep(0.003)
    return sorted(took)


def hang(mode, nr, prefix=(), **more):
    disk = Faulty()
    if not disk.is_there:
        skip("%s: runs whose folders hang" % mode, "no FUSE file system can be mounted here")
        return
    os.mkdir(disk.disk + "/runs")
    os.chmod(disk.disk + "/runs", 0o1777)
    daemon = Service(SETTINGS, devices="cpu, sim", prefix=AT_HOME + [disk.dir, *prefix] if prefix else (), **more)
    path = daemon.net("hung", 100000000, runs=disk.mount + "/runs", device="sim", **TINY)
    late = []

    def count(state):
        return sum(run["state"] == state for run in daemon.all())

    def counts(state, number):
        settles(lambda: count(state) == number, lambda: "%d runs are %s, not %d" % (count(state), state, number))

    @story("%s: %d runs begin" % (mode, nr))
    def begin():
        for i in range(nr):
            daemon.submit(path, "--name", "hung%d" % i)
        late.append(daemon.submit(path, "--name", "late"))
        counts("running", nr + 1)
        settles(lambda: all(os.path.exists("%s/runs/%s/report" % (disk.disk, name))
                            for name in os.listdir(disk.disk + "/runs")),
                "not all workers have their folder")
        daemon.command("pause", late[0])
        counts("running", nr)
        time.sleep(0.5)
        disk.control("hang *")

    @story("%s: while their folders hang every request is answered, before and after a restart" % mode)
    def answered():
        took = requests(daemon, 2)
        daemon.kill()
        began = time.monotonic()
        daemon.start()
        expect(time.monotonic() - began < 60, "the daemon took %.1f s to start" % (time.monotonic() - began))
        took = sorted(took + requests(daemon, 2))
        p99 = took[len(took) * 99 // 100]
        print("# %s: %d requests, p50 %.1f ms, p99 %.1f ms, longest %.1f ms"
              % (mode, len(took), 1e3 * took[len(took) // 2], 1e3 * p99, 1e3 * took[-1]))
        expect(p99 < 5, "one in a hundred requests takes %.1f s" % p99)
        equal(count("running"), nr, "running runs after the restart")

    @story("%s: another run is done, and a run for a hung folder waits with that reason" % mode)
    def others():
        run = daemon.submit(daemon.net("healthy", 20, **TINY))
        daemon.command("resume", late[0])
        daemon.becomes(run, "done")
        daemon.says_why(late[0], "hangs")

    @story("%s: a submission into the hung folder is refused, with the folder's name" % mode)
    def refused():  # its check has a minute; a folder that hangs has its answer long before
        daemon.says(disk.mount + "/runs: its storage does not answer", "submit", path, "--name", "new", code=2)

    @story("%s: when the folders answer all runs are found, report their progress, and stop on request" % mode)
    def found_again():
        disk.control("clear")
        counts("running", nr + 1)
        settles(lambda: sum((run["step"] or 0) > 0 for run in daemon.all() if run["state"] == "running") == nr + 1,
                "not all report progress")
        daemon.command("stop", *[run["id"] for run in daemon.all() if run["state"] == "running"])
        counts("stopped", nr + 1)
        equal({run["retries"] for run in daemon.all() if run["state"] == "stopped"}, {0}, "failed attempts")

    @story("%s: the daemon ends" % mode)
    def end():
        try:
            daemon.stop(signal.SIGTERM)
        finally:
            disk.close()
            daemon.close()


modes = os.environ.get("HUNG_MODE", "user box").split()
if "user" in modes:
    hang("user", int(os.environ.get("HUNG_RUNS", 6)))
if "box" in modes and os.getuid() == 0 and shutil.which("setpriv") and \
        subprocess.run(["unshare", "-m", *AS_BOX, "true"], stderr=subprocess.DEVNULL).returncode == 0:
    hang("box", int(os.environ.get("HUNG_RUNS", 3)), prefix=AS_BOX, args=["--box"], owner=ANN)
elif "box" in modes:
    skip("box: runs whose folders hang", "setpriv cannot pass rights on here")
run_stories()
