"""/healthz while the service serves, while its disk is full, and while it stops; /metrics by promtool, by Prometheus,
and against what `nnpipe ls` says."""
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request

import api
from api import NNPIPE, Daemon, ask_as, expect, hold, test


def health(daemon, status, state):
    answer = daemon.ask("GET", "/healthz")
    hold(answer, "GET", "/healthz")
    said = answer.json()
    expect(answer.status == status and said["ok"] == (status == 200) and said["state"] == state, answer)
    return said


def passes(what, seconds=60):
    """Calls what() until it raises nothing, and returns its value."""
    until = time.monotonic() + seconds
    while True:
        try:
            return what()
        except (AssertionError, OSError, TypeError):
            if time.monotonic() > until:
                raise
            time.sleep(0.2)


def trains(daemon, run):
    """Waits for its first loss: before it, a worker may not have installed its handlers yet."""
    daemon.becomes(run, "running")
    passes(lambda: expect(daemon.ask("GET", "/v1/runs/%d" % run).json()["progress"]["loss"] is not None,
                           "no loss yet"))


def value_of(daemon, name):
    found = re.search("^%s ([^ ]+)$" % re.escape(name), daemon.ask("GET", "/metrics").body.decode(), re.M)
    return float(found.group(1)) if found else None


# --- a full disk ----------------------------------------------------------------------------------


def fill(path):
    with open(path, "wb", buffering=0) as out:
        try:
            while True:
                out.write(bytes(4096))
        except OSError:
            pass


def full_disk():
    disk = "/tmp/nnpipe-disk.%d" % os.getpid()
    os.mkdir(disk)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "none", disk], check=True)
    daemon = Daemon(settings="spare_bytes: 900T\n", state=disk + "/state")
    try:
        run = daemon.submit()
        health(daemon, 200, "serving")
        expect(value_of(daemon, "nnpipe_healthy") == 1, "nnpipe_healthy")
        fill(disk + "/full")
        problems = passes(lambda: health(daemon, 503, "serving"))["problems"]
        expect(len(problems) == 1 and disk in problems[0] and "No space left" in problems[0], problems)
        expect(value_of(daemon, "nnpipe_healthy") == 0, "nnpipe_healthy")
        large = daemon.submission()
        large["config"] += "# " + "x" * 500000 + "\n"
        large["overrides"] = ["name=a"]
        statuses = set()
        for _ in range(200):  # what the queue's file has room for is taken, and is there afterwards
            answer = daemon.ask("POST", "/v1/runs", daemon.submission())
            hold(answer, "POST", "/v1/runs")
            statuses.add(answer.status)
            if answer.status == 507:
                break
        expect(507 in statuses and answer.json()["error"]["code"] == "disk", statuses)
        taken = [r["id"] for r in daemon.ask("GET", "/v1/runs").json()["runs"]]
        change = daemon.ask("POST", "/v1/runs/%d/stop" % run)
        expect(change.status in (200, 507), change)
        os.unlink(disk + "/full")
        passes(lambda: health(daemon, 200, "serving"))
        more = daemon.submit()
        expect(daemon.stop() == 0, "exit code")
        daemon.start()
        there = [r["id"] for r in daemon.ask("GET", "/v1/runs").json()["runs"]]
        expect(there == taken + [more], "%s, not %s" % (there, taken + [more]))
        expect(daemon.stop() == 0, "exit code")
    finally:
        daemon.close()
        subprocess.run(["umount", disk], check=False)
        os.rmdir(disk)


# --- a daemon that stops ----------------------------------------------------------------------------


def worker_of(daemon):
    for child in open("/proc/%d/task/%d/children" % (daemon.process.pid, daemon.process.pid)).read().split():
        with contextlib.suppress(OSError):
            if b"worker" in open("/proc/%s/cmdline" % child, "rb").read():
                return int(child)
    raise AssertionError("no worker")


def stopping():
    daemon = Daemon(settings="spare_bytes: 1M\n")
    try:
        run = daemon.submit(steps=1000000)
        trains(daemon, run)  # SIGTERM ends a stopped process that has no handler for it
        health(daemon, 200, "serving")
        worker = worker_of(daemon)
        os.kill(worker, signal.SIGSTOP)
        daemon.process.send_signal(signal.SIGTERM)
        passes(lambda: health(daemon, 503, "stopping"))
        os.kill(worker, signal.SIGCONT)
        expect(daemon.stop() == 0, "exit code")
    finally:
        daemon.close()


# --- Prometheus -----------------------------------------------------------------------------------


def promtool(text):
    done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True)
    expect(done.returncode == 0 and not done.stdout and not done.stderr, done)


def metrics_are_well_made(daemon, run):
    text = daemon.ask("GET", "/metrics").body.decode()
    names = set(re.findall(r"^# TYPE (\S+)", text, re.M))
    series = set(re.findall(r"^([a-z_]+)(?:\{| )", text, re.M))
    expect(series <= names and all(n.startswith("nnpipe_") for n in names), series - names)
    documented = open(os.path.join(api.ROOT, "docs/SERVICE.md")).read().split("## Metrics")[1]
    expect(names == set(re.findall("`(nnpipe_[a-z_]+)`", documented)), "documented otherwise: %s" % names)
    expect(sorted(re.findall(r"^# HELP (\S+)", text, re.M)) == sorted(names), "HELP and TYPE")
    expect(text.count('nnpipe_run_step{id="%d",name="a",device="cpu"} ' % run) == 1, text)
    promtool(text.encode())


class Prometheus:
    """A real Prometheus that scrapes the daemon each second."""

    def __init__(self, daemon):
        self.dir = daemon.dir + "/prometheus"
        os.mkdir(self.dir)
        self.port = api.free_port()
        with open(self.dir + "/prometheus.yml", "w") as out:
            out.write("global: {scrape_interval: 1s}\nscrape_configs:\n- job_name: nnpipe\n  static_configs:\n"
                      "  - targets: ['127.0.0.1:%d']\n" % daemon.port)
        subprocess.run(["promtool", "check", "config", self.dir + "/prometheus.yml"], check=True, capture_output=True)
        self.process = subprocess.Popen(
            ["prometheus", "--config.file=" + self.dir + "/prometheus.yml", "--storage.tsdb.path=" + self.dir + "/data",
             "--web.listen-address=127.0.0.1:%d" % self.port], stdout=subprocess.DEVNULL,
             stderr=open(self.dir + "/log", "w"))

    def query(self, what):
        """[(labels, value)]"""
        url = "http://127.0.0.1:%d/api/v1/query?query=%s" % (self.port, urllib.parse.quote(what))
        with urllib.request.urlopen(url, timeout=5) as answer:
            result = json.load(answer)["data"]["result"]
        return [(one["metric"], float(one["value"][1])) for one in result]

    def value(self, what):
        found = self.query(what)
        expect(len(found) == 1, "%s: %s" % (what, found))
        return found[0][1]

    def close(self):
        self.process.kill()
        self.process.wait()


def ls(daemon):
    out = subprocess.run([NNPIPE, "ls", "--all", "--json", "--socket", daemon.socket], capture_output=True,
                         check=True).stdout
    return [json.loads(line) for line in out.splitlines()]


def is_scraped(daemon, prometheus, run):
    passes(lambda: expect(prometheus.value("up") == 1, "up"))
    step = lambda: prometheus.value('nnpipe_run_step{id="%d"}' % run)
    first = passes(step)
    passes(lambda: expect(step() > first, "the step does not grow"))
    listed = {r["id"]: r for r in ls(daemon)}
    labels, loss = passes(lambda: prometheus.query("nnpipe_run_loss")[0])
    expect(labels["id"] == str(run) and labels["name"] == listed[run]["name"]
           and labels["device"] == listed[run]["device"], labels)
    expect(abs(step() - listed[run]["step"]) < 100000 and loss > 0, "step, loss")
    for state in ("queued", "running", "done"):
        nr = sum(r["state"] == state for r in listed.values())
        passes(lambda: expect(prometheus.value('nnpipe_runs{state="%s"}' % state) == nr, state))
    expect(prometheus.value("nnpipe_device_runs") == 1 and prometheus.value("nnpipe_device_slots") == 1, "devices")
    expect(abs(prometheus.value("nnpipe_start_time_seconds") - time.time()) < 600,
           prometheus.query("nnpipe_start_time_seconds"))


def is_forgotten(daemon, prometheus, run):
    """A finished run leaves no series, and is counted in its state."""
    daemon.ask("POST", "/v1/runs/%d/stop" % run)
    daemon.becomes(run, "stopped")
    passes(lambda: expect(prometheus.value('nnpipe_runs{state="stopped"}') == 1, "stopped"))
    passes(lambda: expect(not [s for s in prometheus.query('{__name__=~"nnpipe_run_.*",id="%d"}' % run)],
                           "its series"))


def by_prometheus():
    if not shutil.which("promtool") or not shutil.which("prometheus"):
        print("skip - a real Prometheus scrapes the service: Debian's package prometheus is not here")
        return
    daemon = Daemon(settings="spare_bytes: 1M\n")
    prometheus = Prometheus(daemon)
    try:
        first = daemon.submit()
        daemon.becomes(first, "done")
        run, waits = daemon.submit(steps=1000000), daemon.submit()
        trains(daemon, run)
        with test("/metrics passes promtool and follows Prometheus' conventions"):
            metrics_are_well_made(daemon, run)
        with test("a real Prometheus scrapes it, and knows what `nnpipe ls` knows"):
            is_scraped(daemon, prometheus, run)
        with test("a finished run leaves the metrics"):
            daemon.ask("POST", "/v1/runs/%d/stop" % waits)
            daemon.ask("DELETE", "/v1/runs/%d" % waits)
            is_forgotten(daemon, prometheus, run)
    finally:
        prometheus.close()
        daemon.close()


# A disk of its own is mounted in a mount namespace of this program's own.
if "FULL_DISK" not in os.environ and os.getuid() == 0 and not subprocess.run(["unshare", "-m", "true"]).returncode:
    os.execvp("unshare", ["unshare", "-m", "env", "FULL_DISK=1", sys.executable, __file__])
if os.environ.get("FULL_DISK"):
    with test("/healthz reports a full disk; the service refuses what it cannot store, and loses nothing"):
        full_disk()
else:
    api.skip("/healthz reports a full disk", "only root can mount one of their own here")
with test("a stopping daemon reports it until it ends"):
    stopping()
by_prometheus()
api.done()
