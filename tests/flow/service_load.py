"""A thousand idle connections, too few descriptors, more long polls and submissions than the limits allow."""
import contextlib
import os
import resource
import socket
import threading
import time

import api
from api import Daemon, ask_as, expect, settles, test

STRANGER = 64330
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)


def dial(daemon, tcp=False):
    one = socket.socket() if tcp else socket.socket(socket.AF_UNIX)
    one.connect(("127.0.0.1", daemon.port) if tcp else daemon.socket)
    one.settimeout(10)
    return one


def files_of(daemon):
    return len(os.listdir("/proc/%d/fd" % daemon.process.pid))


def seconds_of(daemon):
    """Returns its CPU time so far."""
    fields = open("/proc/%d/stat" % daemon.process.pid).read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def idle_thousand(daemon):
    before = files_of(daemon)
    idle = [dial(daemon) for _ in range(1000)]
    for one in idle[::2]:
        one.send(b"GET /v1/ser")  # half of a head
    settles(lambda: files_of(daemon) >= before + 990, "it does not accept a thousand connections")
    expect(daemon.ask("GET", "/v1/service", timeout=30).status == 200, "while they are there")
    began = seconds_of(daemon)
    time.sleep(1)
    expect(seconds_of(daemon) - began < 0.3, "%.2f s of CPU time a second for nothing" % (seconds_of(daemon) - began))
    for one in idle:
        one.close()
    settles(lambda: files_of(daemon) <= before + 5, "it keeps closed connections")


def tcp_flood(daemon):
    """All TCP callers share one limit; the newest gets in, and the socket has limits of its own."""
    before = files_of(daemon)
    idle = [dial(daemon, tcp=True) for _ in range(1000)]
    expect(daemon.ask_tcp("GET", "/v1/service", timeout=30).status == 200, "the newest on TCP")
    expect(daemon.ask("GET", "/v1/service", timeout=30).status == 200, "on the socket")
    expect(files_of(daemon) - before < 600, "%d descriptors for TCP" % (files_of(daemon) - before))
    for one in idle:
        one.close()
    settles(lambda: files_of(daemon) <= before + 5, "it keeps closed connections")


def stranger_flood(daemon):
    """Another user opens as many connections as possible; the service's own user is not slowed."""
    os.chmod(daemon.socket, 0o666)
    ready, go = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.setgroups([])
        os.setresgid(STRANGER, STRANGER, STRANGER)
        os.setresuid(STRANGER, STRANGER, STRANGER)
        mine = []
        with contextlib.suppress(OSError):
            for _ in range(3000):
                mine.append(dial(daemon))
        os.write(ready[1], b"x")
        os.read(go[0], 1)
        os._exit(0)
    before = files_of(daemon)
    os.read(ready[0], 1)
    time.sleep(0.2)
    taken = files_of(daemon) - before
    answer = daemon.ask("GET", "/v1/service", timeout=30)
    os.write(go[1], b"x")
    os.waitpid(child, 0)
    expect(answer.status == 200 and taken < 500, "%d connections of one stranger" % taken)  # of 3000
    settles(lambda: files_of(daemon) <= before + 5, "it keeps closed connections")


def long_polls(daemon):
    run = daemon.submit(steps=100000)
    daemon.becomes(run, "running")
    answers = []

    def poll(ask):
        answers.append(ask("GET", "/v1/runs/%d?wait=60&state=running,stopping" % run).status)

    threads = [threading.Thread(target=poll, args=(daemon.ask_tcp,)) for _ in range(50)]
    for thread in threads:
        thread.start()
    settles(lambda: len(answers) >= 50 - 32, lambda: "%d answers" % len(answers))
    expect(answers == [503] * 18, answers)
    busy = daemon.ask_tcp("GET", "/v1/runs/%d?wait=60&state=running" % run)
    api.hold(busy, "GET", "/v1/runs/{id}")
    expect(busy.status == 503 and busy.json()["error"]["code"] == "busy", busy)
    own = threading.Thread(target=poll, args=(daemon.ask,))
    own.start()
    expect(daemon.ask("POST", "/v1/runs", daemon.submission()).status == 201, "a submission meanwhile")
    expect(daemon.ask("POST", "/v1/runs/%d/stop" % run).status == 200, "a stop meanwhile")
    for thread in threads + [own]:
        thread.join(30)
    expect(answers[18:] == [200] * 33, answers[18:])


def children_of(daemon):
    return open("/proc/%d/task/%d/children" % (daemon.process.pid, daemon.process.pid)).read().split()


def submissions(daemon):
    """All submissions are accepted, and only a few are checked at a time."""
    statuses, most = [], 0
    threads = [threading.Thread(target=lambda: statuses.append(daemon.ask("POST", "/v1/runs",
        daemon.submission()).status)) for _ in range(30)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        checks = 0
        for child in children_of(daemon):
            with contextlib.suppress(OSError):
                checks += b"worker" not in open("/proc/%s/cmdline" % child, "rb").read()
        most = max(most, checks)
        time.sleep(0.005)
    expect(statuses == [201] * 30, statuses)
    expect(0 < most <= 8, "%d checks at a time" % most)


def few_files():
    """A process that may open 150 files has fewer connections, and continues."""
    daemon = Daemon(prefix=["sh", "-c", 'ulimit -n 150 && exec "$@"', "-"], settings="spare_bytes: 1M\n", device="sim")
    try:
        idle = [dial(daemon) for _ in range(300)]
        began = seconds_of(daemon)
        expect(daemon.ask("GET", "/v1/service", timeout=30).status == 200, "an answer")
        run = daemon.submit()
        time.sleep(1)
        expect(seconds_of(daemon) - began < 0.6, "it turns round and round: %.2f s" % (seconds_of(daemon) - began))
        daemon.becomes(run, "done")
        for one in idle:
            one.close()
        expect(daemon.stop() == 0, "exit code")
    finally:
        daemon.close()


one = Daemon(settings="spare_bytes: 1M\n", device="sim")
try:
    for what, work in (("a thousand idle connections leave room and cost nothing", idle_thousand),
                       ("TCP's connections are a share of their own", tcp_flood),
                       ("long polls beyond a caller's share are answered with a retry", long_polls),
                       ("many submissions are checked a few at a time", submissions)):
        with test(what):
            work(one)
    if os.getuid() == 0:
        with test("one stranger's connections are a share of the whole"):
            stranger_flood(one)
    else:
        print("skip - one stranger's connections are a share of the whole: only root can be another user")
    with test("the service ends without a complaint"):
        expect(one.stop() == 0, "exit code")
finally:
    one.close()
with test("a service that may open few files takes fewer connections"):
    few_files()
api.done()
