"""The service when things go wrong: hung workers, full disks, wrong settings, runs that die each time, folders of
other users; and retention of finished runs."""
import glob
import http.server
import json
import os
import re
import shutil
import signal
import subprocess
import threading
import time

from api import equal, expect, run_stories, settles, skip, story
from cli import Service, ended

RETRY = "retry: {first: 0.05, cap: 0.2}\n"
daemon = Service(RETRY)
SHORT, LONG = daemon.net("short", 40), daemon.net("long", 100000)


def settings(*lines, retry=RETRY, devices=None):
    daemon.settings(retry + "".join(line + "\n" for line in lines), devices)


def output(run):
    return "".join(open(path).read() for path in sorted(glob.glob(daemon.folder(run) + "/output/*")))


# --- workers ------------------------------------------------------------------------------------


@story("a worker that makes no progress is killed, and its run resumes from its checkpoint")
def hung():
    settings("hang_minutes: 0.1")
    run = daemon.submit(LONG, "--name", "hung")
    daemon.trained(run)
    pid = daemon.worker_of(run)
    os.kill(pid, signal.SIGSTOP)
    settles(lambda: daemon.worker_of(run) not in (0, pid), "no other worker is started")
    settles(lambda: "from the checkpoint" in output(run), "it does not resume from its checkpoint")
    daemon.ends(run)
    settings()


@story("a run that dies each time, without a checkpoint, fails after its attempts, with the signal as the reason")
def dying():
    run = daemon.submit(LONG, "--name", "dying", "--max-retries", 2)

    def failed():
        pid = daemon.worker_of(run)
        if pid:
            os.kill(pid, signal.SIGKILL)
        return daemon.status(run)["state"] == "failed"
    settles(failed, lambda: daemon.about(run))
    equal(daemon.status(run)["retries"], 3, "its attempts")
    daemon.says_why(run, "SIGKILL")


@story("a run that is paused between two attempts forgets why it waited, and is resumed at once")
def waiting():
    settings(retry="retry: {first: 60, cap: 60}\n")
    run = daemon.submit(LONG, "--name", "waiting")
    daemon.trained(run)
    daemon.kill_worker(run)
    daemon.says_why(run, "try 1")
    daemon.command("pause", run)
    of = daemon.status(run)
    expect(of["state"] == "paused" and "try 1" not in (of["reason"] or ""), daemon.about(run))
    settings()
    daemon.command("resume", run)
    daemon.becomes(run, "running")
    daemon.ends(run)


@story("a worker that ignores SIGTERM does not delay the daemon's end, and its run continues later")
def deaf():
    settings("stop_seconds: 1")
    run = daemon.submit(LONG, "--name", "deaf")
    daemon.trained(run)
    pid = daemon.worker_of(run)
    os.kill(pid, signal.SIGSTOP)
    daemon.stop()
    ended(pid, "the worker is left")
    daemon.write_settings(RETRY)
    daemon.start()
    daemon.becomes(run, "running")
    daemon.ends(run)


# --- settings -----------------------------------------------------------------------------------


@story("wrong settings change nothing, and good ones hold at once; runs continue meanwhile")
def wrong_settings():
    run = daemon.submit(LONG, "--name", "kept")
    daemon.trained(run)
    pid = daemon.worker_of(run)
    settings("devcies: [sim]")
    settles(lambda: re.search("settings are unchanged.*service.yaml:4", open(daemon.log.name).read()),
            "the log does not name line 4 of service.yaml")
    with open(daemon.dir + "/twice.yaml", "w") as out:
        out.write("devices: [cpu]\nspare_bytes: 1M\n\ndevices: auto\n")
    daemon.says("twice.yaml:4", "daemon", "--config", daemon.dir + "/twice.yaml", "--state", daemon.dir + "/other",
                "--socket", daemon.dir + "/other.socket", code=2)
    settings("runs_per_device: 2")
    other = daemon.submit(SHORT)
    daemon.becomes(other, "done")
    equal(daemon.worker_of(run), pid, "the worker of the run that was there")
    settings()
    daemon.ends(run)


@story("a run on a device that is taken out of the settings continues, and one that waits for it gives the reason")
def removed_device():
    settings(devices="cpu, sim")
    settles(lambda: '"sim"' in daemon.ask("GET", "/v1/devices").body.decode(), "there is no device sim")
    run = daemon.submit(LONG, "--name", "simulated", "--device", "sim")
    daemon.becomes(run, "running")
    other = daemon.submit(SHORT, "--name", "placeless", "--device", "sim")
    pid = settles(lambda: daemon.worker_of(run), "it has no worker")
    settings()
    daemon.says_why(other, "no device 'sim'")
    equal(daemon.worker_of(run), pid, "the worker of the run on it")
    daemon.command("stop", run, other)
    daemon.becomes(run, "stopped")


# --- disks --------------------------------------------------------------------------------------

small = daemon.dir + "/small"
filler = small + "/filler"


def free():
    at = os.statvfs(small)
    return at.f_bavail * at.f_frsize


def fill(left=0):
    """Fills the small disk up to so many bytes."""
    clear()
    with open(filler, "wb") as out:
        try:
            while free() > left:
                out.write(bytes(min(65536, free() - left)))
                out.flush()
        except OSError:
            expect(left == 0, "the small disk is full too early")


def clear():
    if os.path.exists(filler):
        os.unlink(filler)


def full_before():
    full = daemon.net("full", 40, runs=small + "/runs")
    daemon.command("submit", full, "--wait")
    fill(700 << 10)
    run = daemon.submit(full)
    daemon.says_why(run, "disk")
    equal(daemon.status(run)["state"], "queued", "its state")
    clear()
    daemon.becomes(run, "done")


def full_between():
    run = daemon.submit(daemon.net("filling", 1500, runs=small + "/runs"))
    daemon.becomes(run, "running")
    fill()
    settles(lambda: re.search("No space|full", daemon.status(run)["reason"] or ""), lambda: daemon.about(run))
    clear()
    daemon.becomes(run, "done", seconds=150)
    equal(daemon.status(run)["retries"], 0, "its failed attempts")


def no_room():
    fill(700 << 10)
    run = daemon.submit(LONG, "--name", "low")
    daemon.trained(run)
    pid = daemon.worker_of(run)
    other = daemon.submit(daemon.dir + "/full.yaml", "--priority", 9)
    daemon.says_why(other, "disk")
    time.sleep(2)
    equal((daemon.status(run)["state"], daemon.worker_of(run)), ("running", pid),
          "state and worker of the run that was there")
    clear()
    daemon.becomes(other, "done")
    daemon.ends(run)


def deaf_queue():
    far = Service(RETRY, state=small + "/state")
    try:
        run = far.submit(far.net("far", 100000))
        far.becomes(run, "running")
        fill()
        far.process.send_signal(signal.SIGTERM)
        ended(far.process.pid, "the daemon does not end")
        clear()
        far.start()
        far.becomes(run, "running")
        far.ends(run)
    finally:
        far.close()


def refused_full():
    fill(150 << 10)
    large = daemon.net("large", 40, runs=small + "/runs",
                       model="[global_avgpool, {linear: {out: 400000}}, relu, {linear: {out: classes}}]")
    done = daemon.run("submit", large)
    expect(done.code != 0 and re.search("large.yaml:[0-9]+", done.err + done.out),
           "it is not refused with a line\n%s" % done)


def with_small_disk():
    os.mkdir(small)
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "none", small], capture_output=True).returncode:
        skip("full disks", "no file system can be mounted here")
        return
    story("a run whose disk is full is not started, gives the reason, and is started when there is space")(full_before)
    story("a run whose disk becomes full waits, gives the reason, and continues when there is space")(full_between)
    story("a run of higher priority whose disk is full makes no other yield")(no_room)
    story("a service whose queue cannot be written ends on request, and its runs continue later")(deaf_queue)
    story("a run without space for its checkpoints is refused with its line")(refused_full)
    story("the small disk is given back")(lambda: subprocess.run(["umount", "-l", small], check=True))


with_small_disk()

# --- finished runs ------------------------------------------------------------------------------


@story("a hook and a webhook are notified of a finished run, once")
def notified():
    posted = []

    class Taker(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            posted.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *words):
            pass
    server = http.server.HTTPServer(("127.0.0.1", 0), Taker)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    hooked = daemon.dir + "/hooked"
    settings('on_end: "cat >>%s"' % hooked, 'webhook: "http://127.0.0.1:%d/ended"' % server.server_port)
    daemon.command("submit", SHORT, "--name", "noted", "--wait")
    run = daemon.all()[-1]["id"]
    settles(lambda: os.path.exists(hooked) and os.path.getsize(hooked) and posted, "hook or webhook was not called")
    time.sleep(0.3)
    server.shutdown()
    for texts in (open(hooked).read().strip().split("\n"), posted):
        equal(len(texts), 1, "notifications of one run")
        of = json.loads(texts[0])
        equal((of["id"], of["state"], of["exit_code"]), (run, "done", 0), "id, state and exit code in the notification")


@story("a hook that hangs and an address without a listener delay no run, and the hook is killed in time")
def bad_hook():
    mark = "300.%d" % os.getpid()
    settings('on_end: "sleep %s"' % mark, 'webhook: "http://127.0.0.1:1/none"')
    run = daemon.submit(SHORT)
    other = daemon.submit(SHORT, "--after", run)
    daemon.becomes(other, "done")

    def hooks():
        return [int(pid) for pid in subprocess.run(["pgrep", "-fx", "sleep " + mark], capture_output=True,
                                                   text=True).stdout.split()]
    for pid in settles(hooks, "the hook was not run"):
        session = int(open("/proc/%d/stat" % pid).read().rsplit(")", 1)[1].split()[3])
        os.kill(session, signal.SIGALRM)  # as after some minutes
        ended(pid, "the hook is not killed")
    settings()


@story("finished runs beyond the retention are forgotten, and their folders stay")
def forgotten():
    settings("keep: {runs: 2}")
    for _ in range(3):
        last = daemon.submit(SHORT)
        daemon.becomes(last, "done")
    settles(lambda: len(daemon.all()) == 2, lambda: "there are %d runs, not 2" % len(daemon.all()))
    equal(daemon.status(last)["state"], "done", "the last one's state")
    expect(os.path.isdir("%s/short-%d" % (daemon.runs, last - 2)), "the folder of a run that was forgotten is gone")


@story("checkpoints of finished runs beyond the retention are pruned; one of each run stays and can be evaluated")
def pruned():
    settings("keep: {bytes: 1K}")
    run = daemon.submit(SHORT)
    daemon.becomes(run, "done")
    settles(lambda: len(daemon.saved(run)) == 1, lambda: "there are %s" % daemon.saved(run))
    expect(daemon.saved(run)[0].endswith("40"), "the wrong one stays: %s" % daemon.saved(run))
    daemon.command("eval", SHORT, "--weights", daemon.folder(run), "-o",
                   "data.test={source: synth, samples: 50, size: 32}")


@story("the prune command does the same, and --dry-run prints it first")
def by_hand():
    daemon.command("train", SHORT, "-o", "name=hand", "-o", "checkpoint.keep=100", "-o", "checkpoint.every=10 steps")
    run = glob.glob(daemon.runs + "/hand-*")[0]

    def kept():
        return len(glob.glob(run + "/checkpoints/step-*"))
    equal(kept(), 4, "checkpoints before")
    daemon.says("would be freed", "prune", run, "--dry-run")
    equal(kept(), 4, "checkpoints after --dry-run")
    daemon.command("prune", run, "--keep", 2)
    equal(kept(), 2, "checkpoints after --keep 2")
    expect(json.loads(daemon.command("prune", run, "--json").split("\n")[0])["freed_bytes"] > 0, "nothing was freed")
    equal(kept(), 1, "checkpoints at the end")
    daemon.says("is not a run's folder", "prune", daemon.dir, code=1)


# --- folders that are another's -----------------------------------------------------------------


@story("a folder in which another process works is left alone, and the run gives the reason")
def rival():
    settings()
    run = daemon.submit(LONG, "--name", "rival", "--max-retries", 0)
    daemon.trained(run)
    daemon.command("pause", run)
    daemon.becomes(run, "paused")
    other = daemon.popen("train", LONG, "-o", "name=rival", "--resume", daemon.folder(run),
                         stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        saved = daemon.saved(run)
        settles(lambda: daemon.saved(run) != saved or other.poll() is not None, "it does not train")
        daemon.command("resume", run)
        daemon.says_why(run, "another process uses the folder")
        expect(other.poll() is None, "the process that was there has ended")
    finally:
        other.kill()
        other.wait()


def listing(folder):
    return sorted((os.path.join(at, name), os.lstat(os.path.join(at, name)).st_mtime_ns)
                  for at, _, names in os.walk(folder) for name in names)


@story("a folder of another run is left alone, and the run is not retried")
def other_config():
    def queue_anew():
        daemon.stop()
        shutil.rmtree(daemon.state)
        daemon.write_settings(RETRY)
        daemon.start()
    queue_anew()  # which gives numbers, and folders, again
    run = daemon.submit(LONG, "--name", "again")
    daemon.trained(run)
    daemon.ends(run)
    folder = daemon.folder(run)
    queue_anew()
    before = listing(folder)
    text = open(LONG).read().replace("out: 8", "out: 9")
    with open(daemon.dir + "/other.yaml", "w") as out:
        out.write(text)
    run = daemon.submit(daemon.dir + "/other.yaml", "--name", "again")
    daemon.becomes(run, "failed")
    daemon.says_why(run, "exists already and is not this run's")
    equal(daemon.status(run)["retries"], 0, "failed attempts")
    equal(listing(folder), before, "the other run's folder")


@story("a folder made before the run is refused, and no link in it is followed")
def planted():
    with open(daemon.dir + "/mine", "w") as out:
        out.write("mine")
    last = daemon.submit(SHORT, "--name", "earlier")
    daemon.becomes(last, "done")
    folder = "%s/planted-%d" % (daemon.runs, last + 1)
    os.mkdir(folder, 0o777)
    os.symlink(daemon.dir + "/mine", folder + "/lock")
    run = daemon.submit(SHORT, "--name", "planted")
    equal(run, last + 1, "the run's number")
    daemon.becomes(run, "failed")
    daemon.says_why(run, "planted-%d exists already" % run)
    equal(open(daemon.dir + "/mine").read(), "mine", "the file behind the link")
    equal(os.listdir(folder), ["lock"], "the folder that was there")


@story("and so is a link that replaces it later")
def swapped():
    run = daemon.submit(LONG, "--name", "swapped")
    daemon.trained(run)
    daemon.command("pause", run)
    daemon.becomes(run, "paused")
    folder = daemon.folder(run)
    os.rename(folder, daemon.dir + "/elsewhere")
    os.symlink(daemon.dir + "/elsewhere", folder)
    daemon.command("resume", run)
    daemon.becomes(run, "failed")
    daemon.says_why(run, "is a link")


try:
    run_stories(daemon)
finally:
    subprocess.run(["umount", "-l", small], capture_output=True)
