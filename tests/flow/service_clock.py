"""The machine's clock is set while runs are running: no run ends because of it, and no limit is lost. And the program
is replaced while its daemon is running: the daemon starts no run with parts of both."""
import os
import shutil
import signal
import subprocess
import time

from api import NNPIPE, equal, expect, run_stories, settles, skip, story
from cli import Service

AHEAD = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *now)
{
    static int (*real)(clockid_t, struct timespec *);
    FILE *file = id == CLOCK_REALTIME ? fopen(getenv("CLOCK_AHEAD"), "re") : NULL;
    long ahead = 0;

    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const int code = real(id, now);
    if (file && fscanf(file, "%ld", &ahead) == 1)
        now->tv_sec += ahead;
    if (file)
        fclose(file);
    return code;
}
"""


class Ahead(Service):
    """A daemon with its clock so many seconds ahead of all other processes."""

    def start(self):
        self.ahead(0)
        subprocess.run(["cc", "-shared", "-fPIC", "-o", self.dir + "/clock.so", "-x", "c", "-", "-ldl"],
                       input=AHEAD, text=True, check=True)
        linked = subprocess.run(["ldd", NNPIPE], capture_output=True, text=True).stdout.split("\n")
        # a sanitizer's runtime wants to come before all others
        first = [line.split()[2] for line in linked if "libasan" in line or "libtsan" in line]
        self.environment = {"CLOCK_AHEAD": self.dir + "/ahead",
                            "LD_PRELOAD": ":".join(first + [self.dir + "/clock.so"])}
        super().start()
        self.environment = {}

    def ahead(self, seconds):
        with open(self.dir + "/ahead.new", "w") as out:
            out.write("%d\n" % seconds)
        os.rename(self.dir + "/ahead.new", self.dir + "/ahead")


def clock():
    daemon = Ahead("retry: {first: 4, cap: 4}\nstop_seconds: 1\n")
    run = daemon.submit(daemon.net("long"))

    @story("a clock that is set forward by a day ends no run")
    def forward():
        daemon.trained(run)
        pid = daemon.worker_of(run)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(1)
        daemon.ahead(86400)
        time.sleep(2.5)
        os.kill(pid, signal.SIGCONT)
        equal((daemon.worker_of(run), daemon.status(run)["state"]), (pid, "running"), "worker and state")

    @story("a run that waits for its next attempt does not wait for a clock that was set back")
    def again():
        daemon.kill_worker(run)
        daemon.becomes(run, "queued")
        daemon.ahead(0)
        daemon.becomes(run, "running")

    @story("a run that ignores its stop is ended in time, though the clock is set back")
    def limit():
        os.kill(settles(lambda: daemon.worker_of(run), "it has no worker"), signal.SIGSTOP)
        daemon.command("stop", run)
        daemon.ahead(-86400)
        daemon.becomes(run, "stopped")
        daemon.close()


def replaced():
    bin_dir = os.path.join(os.environ.get("TMPDIR", "/tmp"), "nnpipe-bin.%d" % os.getpid())
    os.mkdir(bin_dir)
    shutil.copy(NNPIPE, bin_dir + "/nnpipe")
    daemon = Service(program=bin_dir + "/nnpipe")
    short = daemon.net("short", 5)

    @story("a daemon whose program was replaced starts no run; its commands and /healthz say that it must be restarted")
    def no_start():
        shutil.copy(NNPIPE, bin_dir + "/new")
        os.rename(bin_dir + "/new", bin_dir + "/nnpipe")
        run = daemon.submit(short)
        daemon.says_why(run, "restart the daemon")
        health = daemon.ask("GET", "/healthz").json()
        expect(health["ok"] is False and "restart the daemon" in str(health), health)
        expect(not os.path.exists("%s/short-%d" % (daemon.runs, run)), "the run was started")

    @story("after a restart it starts the run")
    def start():
        daemon.stop()
        daemon.start()
        daemon.becomes(1, "done")
        daemon.close()
        shutil.rmtree(bin_dir)


if shutil.which("cc"):
    clock()
else:
    skip("a clock that is set", "there is no compiler here")
replaced()
run_stories()
