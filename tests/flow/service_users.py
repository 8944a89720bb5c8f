"""Users of a box: a user deleted while a run waits, and the rights of the service's children, which are its user's
and no more."""
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time

from api import NNPIPE, as_root, equal, expect, run_stories, settles, skip, story
from cli import Service

as_root("rights of what the service starts")
ANN, GROUP = 64361, 64360
AS_ANN = ["setpriv", "--reuid", str(ANN), "--regid", str(ANN), "--clear-groups"]
CAPABLE = AS_ANN + ["--inh-caps=+setuid,+setgid,+kill", "--ambient-caps=+setuid,+setgid,+kill"]
TINY = dict(data="{source: synth, samples: 64, size: 8}", batch=8, model="[flatten, {linear: {out: classes}}]")


def users(daemon_dir, *names):
    """Writes the users into the /etc/passwd that the daemon sees; in place, because the file is mounted."""
    with open(daemon_dir + "/passwd", "w") as out:
        out.write(open("/etc/passwd").read() + "".join(
            "%s:x:%d:%d::%s/ann:/bin/sh\n" % (name, ANN, ANN, daemon_dir) for name in names))


class Box(Service):
    """A box's daemon, run by root, that sees the user ann as a member of the group nnpipe."""

    def start(self):
        users(self.dir, "ann")
        with open(self.dir + "/group", "w") as out:
            out.write(open("/etc/group").read() + "nnpipe:x:%d:ann\n" % GROUP)
        mounts = 'mount --bind "$0/passwd" /etc/passwd && mount --bind "$0/group" /etc/group && exec "$@"'
        self.prefix, self.args = ["unshare", "-m", "sh", "-c", mounts, self.dir], ["--box"]
        super().start()


@story("a run whose user was deleted waits, with that reason; it is done when the user is back")
def gone():
    daemon = Box("retry: {first: 0.2, cap: 1}\n")
    try:
        os.mkdir(daemon.dir + "/ann")
        os.chown(daemon.dir + "/ann", ANN, ANN)
        short = daemon.net("short", 5, runs=daemon.dir + "/ann/runs", **TINY)
        daemon.command("hold", "--all")
        run = daemon.submit(short, prefix=["setpriv", "--reuid", str(ANN), "--regid", str(ANN), "--groups", str(GROUP)])
        equal(daemon.status(run)["owner"], "ann", "the run's owner")
        users(daemon.dir)
        daemon.command("release", "--all")
        daemon.says_why(run, "its submitter, user ann (%d), no longer exists" % ANN)
        users(daemon.dir, "bob")  # another user has the number
        time.sleep(1.5)
        daemon.says_why(run, "user ann (%d)" % ANN)
        expect(not os.path.exists("%s/ann/runs/short-%d" % (daemon.dir, run)), "it was started")
        users(daemon.dir, "ann")
        daemon.becomes(run, "done")
    finally:
        daemon.close()


class OfAnn(Service):
    """A daemon of ann with the right to become any user."""

    def __init__(self, settings="", **more):
        super().__init__(settings, prefix=CAPABLE + ["env", "HOME=/tmp"], owner=ANN, **more)


@story("a run that root submits to a user's service belongs to that user")
def roots():
    daemon = OfAnn()
    try:
        os.chown(daemon.runs, ANN, ANN)
        run = daemon.submit(daemon.net("short", 40), "--wait")
        equal((os.stat(daemon.folder(run)).st_uid, daemon.status(run)["uid"]), (ANN, ANN), "owners of folder and run")
    finally:
        daemon.close()


def hook():
    daemon = OfAnn('on_end: "cat /proc/self/status >$HOOK.new && mv $HOOK.new $HOOK"\n', args=["--box"],
                   environment={"HOOK": "/tmp/nnpipe-hook.%d" % os.getpid()})
    path = daemon.environment["HOOK"]
    try:
        expect(re.search("CapEff:\t0*e0\n", open("/proc/%d/status" % daemon.process.pid).read()),
               "the box's service may not become others: the test shows nothing")
        daemon.command("submit", daemon.net("short", 40), "--name", "hooked", "--wait", prefix=AS_ANN)
        settles(lambda: os.path.exists(path), "the hook was not run")
        status = dict(line.split(":\t", 1) for line in open(path).read().split("\n") if ":\t" in line)
        equal((status["Uid"].split()[0], int(status["CapEff"], 16), int(status["CapPrm"], 16)), (str(ANN), 0, 0),
              "user and capabilities of the hook")
    finally:
        daemon.close()
        if os.path.exists(path):
            os.unlink(path)


def room():
    daemon = OfAnn(args=["--box"])
    closed = daemon.dir + "/closed"
    try:
        os.mkdir(closed, 0o700)
        os.mkdir(closed + "/private")
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=6m", "none", closed + "/private"]).returncode:
            return
        with open(closed + "/private/filler", "wb") as out:
            out.write(bytes(5200 << 10))
        run = daemon.submit(daemon.net("private", 40, runs=closed + "/private/runs"))
        settles(lambda: re.search("disk of .* is full", daemon.status(run)["reason"] or ""), lambda: daemon.about(run))
    finally:
        subprocess.run(["umount", "-l", closed + "/private"], capture_output=True)
        daemon.close()


if subprocess.run(CAPABLE + ["true"], stderr=subprocess.DEVNULL).returncode == 0:
    story("a command that is notified of a run's end may not become other users, as the service may")(hook)
    story("whether there is room for a run is asked with its owner's rights")(room)
else:
    skip("a command that is notified of a run's end may not become other users", "setpriv cannot pass rights on here")


@story("a run cannot reach the terminal of the service")
def terminal():
    class InTerminal(Service):
        """A daemon in the foreground of a terminal."""

        def start(self):
            own = "import os, sys; os.setsid(); os.open(sys.argv[1], os.O_RDWR); os.execv(sys.argv[2], sys.argv[2:])"
            self.prefix = [sys.executable, "-c", own, os.ttyname(slave)]
            super().start()

    _, slave = pty.openpty()
    daemon = InTerminal()
    try:
        run = daemon.submit(daemon.net("tty"))
        pid = settles(lambda: daemon.worker_of(run), "it has no worker")
        equal(open("/proc/%d/stat" % pid).read().rsplit(")", 1)[1].split()[4], "0", "the worker's terminal")
    finally:
        daemon.close()


run_stories()
