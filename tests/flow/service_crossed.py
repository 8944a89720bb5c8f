"""A daemon whose runs lie on storage that hangs on command (tests/fault/faulty_fs.c):
answers of child processes that come when the run is already in another state."""
import os
import signal
import subprocess
import sys
import time

from api import Daemon, done, expect, settles, skip, test
from cli import FOREVER, Faulty

disk = Faulty()
if not disk.is_there:
    skip("a run changes state while a child reads its folder", "no FUSE file system can be mounted here")
    sys.exit(0)
MOUNT, RUNS, NOTES = disk.mount, disk.mount + "/runs", disk.dir
daemon = Daemon(tcp=False, settings="spare_bytes: 1M\nretry: {first: 0.1, cap: 1}\nruns_per_device: 4\n")
entry = daemon.entry


def act(run, what):
    answer = daemon.ask("POST", "/v1/runs/%d/%s" % (run, what))
    expect(answer.status == 200, answer)


def children():
    """Returns the daemon's children except workers."""
    found = []
    for pid in subprocess.run(["ps", "-o", "pid=", "--ppid", str(daemon.process.pid)], capture_output=True,
                              text=True).stdout.split():
        try:
            line = open("/proc/%s/cmdline" % pid, "rb").read().split(b"\0")
        except OSError:
            continue
        if b"worker" not in line:
            found.append(int(pid))
    return found


def hung_child():
    before = set(children())
    time.sleep(0.5)
    return before & set(children())


def prunes(run):
    return any(b"prune" in line and b"--dry-run" not in line and folder_of(run).encode() in line
               for line in (open("/proc/%d/cmdline" % pid, "rb").read().split(b"\0") for pid in children()))


def saved(run):
    folder = entry(run)["dir"] + "/checkpoints"
    settles(lambda: os.path.isdir(folder) and os.listdir(folder), "nothing is saved")


def stopped_while_asked():
    daemon.ask("PATCH", "/v1/service", {"held": True})
    run = daemon.submit(steps=5, runs=RUNS)
    disk.control("hang *")
    daemon.ask("PATCH", "/v1/service", {"held": False})
    asker = settles(hung_child, "the disk is not asked")  # not one that is about to end
    act(run, "stop")
    for pid in asker:
        os.kill(pid, signal.SIGKILL)
    disk.control("clear")  # which a process must wait for even to be killed
    settles(lambda: not set(asker) & set(children()), "the process that asks does not end")
    now = entry(run)
    expect(now["state"] == "stopped" and now["reason"] == "" and now["not_before"] is None, now)


def killed_while_its_report_is_opened():
    run = daemon.submit(steps=FOREVER, runs=RUNS)
    daemon.becomes(run, "running")
    saved(run)
    daemon.process.kill()
    daemon.process.wait()
    worker = int(open(folder_of(run) + "/lock").read())
    disk.control("hang *report*")
    time.sleep(1.2)  # what the kernel knows of the file is forgotten
    daemon.start()
    settles(hung_child, "its report is not looked for")
    os.kill(worker, signal.SIGKILL)
    disk.control("clear")
    daemon.becomes(run, "queued", "running")
    act(run, "stop")
    daemon.becomes(run, "stopped")
    folder = "/proc/%d/fd/" % daemon.process.pid
    held = [os.readlink(folder + fd) for fd in os.listdir(folder) if os.path.islink(folder + fd)]
    expect(not [one for one in held if one.endswith("/report")], held)


def folder_of(run):
    return RUNS + "/a-%d" % run


def tried_again_while_told():
    daemon.write_settings("spare_bytes: 1M\non_end: \"echo told >>%s/told; "
                          "until test -e %s/go; do sleep 0.02; done\"\n" % (NOTES, NOTES))
    daemon.ask("POST", "/v1/service/reload")
    told = lambda: os.path.exists(NOTES + "/told") and open(NOTES + "/told").read().count("told")
    daemon.ask("PATCH", "/v1/service", {"held": True})
    run = daemon.submit(steps=5, runs=RUNS)
    act(run, "stop")
    settles(told, "on_end does not run")
    act(run, "retry")
    act(run, "stop")
    open(NOTES + "/go", "w").close()
    settles(lambda: told() == 2, "on_end does not run for its second end")
    daemon.write_settings("spare_bytes: 1M\n")
    daemon.ask("POST", "/v1/service/reload")
    daemon.ask("PATCH", "/v1/service", {"held": False})


def tried_again_while_pruned():
    run = daemon.submit(steps=FOREVER, runs=RUNS)
    folder = folder_of(run) + "/checkpoints"
    settles(lambda: os.path.isdir(folder) and len(os.listdir(folder)) > 2, "too little is saved")
    act(run, "pause")
    daemon.becomes(run, "paused")
    daemon.write_settings("spare_bytes: 1M\nkeep: {bytes: 1}\n")
    daemon.ask("POST", "/v1/service/reload")
    disk.control("hang *a-%d/lock*" % run)
    act(run, "stop")
    settles(lambda: prunes(run), "its checkpoints are not pruned")
    act(run, "retry")
    time.sleep(0.5)  # in which it must not be started beside what prunes it
    attempts, pruned = entry(run)["attempts"], prunes(run)
    disk.control("clear")
    expect(attempts == 1 or not pruned, "it is started while it is being pruned")
    daemon.becomes(run, "running")
    settles(lambda: (entry(run)["progress"] or {}).get("step"), "it does not train")
    expect(entry(run)["retries"] == 0 and entry(run)["attempts"] == 2, entry(run))
    act(run, "stop")


os.mkdir(RUNS)
with test("a run stopped while a child checks its disk keeps its own reason"):
    stopped_while_asked()
with test("a run killed while its report is opened leaves no descriptor open"):
    killed_while_its_report_is_opened()
with test("a run retried while its on_end runs has on_end run again at its next end"):
    tried_again_while_told()
with test("a run retried while its checkpoints are pruned starts after the pruning"):
    tried_again_while_pruned()
daemon.close()
disk.close()
done()
