"""Limits of one member of a box: runs in the queue, bytes of a config, priority; and a queue of thousands of runs is
opened quickly."""
import os
import signal
import socket
import sqlite3
import subprocess
import time

import api
from api import GROUP, MEMBER, OWNER, ask_as, box, expect, test

api.as_root("one member of a box takes no more of it than service.yaml allows")

BASE = "spare_bytes: 900T\n"  # no disk has so much to spare: nothing ever starts


def ask(daemon, uid, method, target, body=None):
    return ask_as(uid, uid, [GROUP] if uid else [], daemon.socket, method, target, body)


def submit(daemon, uid, **more):
    return ask(daemon, uid, "POST", "/v1/runs", daemon.submission(**more))


def is_limit(answer, status, word):
    error = answer.json()["error"]
    expect(answer.status == status and error["code"] == "limit" and word in error["text"], answer)


def settings(daemon, limits):
    daemon.write_settings(BASE + "limits: {%s}\n" % limits)
    answer = daemon.ask("POST", "/v1/service/reload")
    expect(answer.status == 204, answer)


def queue_ends(daemon):
    settings(daemon, "queued_per_user: 3")
    ids = [submit(daemon, OWNER, key="%032x" % n).json()["id"] for n in range(3)]
    is_limit(submit(daemon, OWNER), 429, "limits.queued_per_user")
    expect(submit(daemon, OWNER, key="%032x" % 2).status == 200, "a run submitted before is not a new one")
    expect(submit(daemon, MEMBER).status == 201, "another member has a queue of their own")
    for _ in range(4):
        expect(submit(daemon, 0).status == 201, "root has no limit")
    expect(ask(daemon, OWNER, "POST", "/v1/runs/%d/pause" % ids[0]).status == 200, "pause")
    is_limit(submit(daemon, OWNER), 429, "queued_per_user")
    expect(ask(daemon, OWNER, "POST", "/v1/runs/%d/stop" % ids[0]).status == 200, "stop")
    expect(submit(daemon, OWNER).status == 201, "one less, one more")
    is_limit(ask(daemon, OWNER, "POST", "/v1/runs/%d/retry" % ids[0]), 429, "queued_per_user")


def sweep_meets_limit(daemon):
    """A sweep larger than the rest of the queue: what fits is queued, and the same command goes on later."""
    settings(daemon, "queued_per_user: 100")
    answer = submit(daemon, MEMBER)
    unfinished = daemon.ask("GET", "/v1/runs?state=queued,paused").json()["runs"]
    own = [run["id"] for run in unfinished if run["uid"] == MEMBER]
    expect(answer.status == 201 and own, answer)
    settings(daemon, "queued_per_user: %d" % (len(own) + 3))
    command = ["setpriv", "--reuid", str(MEMBER), "--regid", str(MEMBER), "--groups", str(GROUP), api.NNPIPE, "submit",
               "-", "--socket", daemon.socket, "--sweep", "seed=1..5"]

    def again(code):
        done = subprocess.run(command, input=daemon.config_text("wide", 5, None), cwd=daemon.dir, text=True,
                              capture_output=True, timeout=120)
        expect(done.returncode == code, done)
        return done

    names = lambda: sorted(run["name"] for run in daemon.ask("GET", "/v1/runs?sweep=wide").json()["runs"])
    for _ in range(2):
        said = again(1).stderr
        expect("limits.queued_per_user" in said, said)
        expect("wide-seed4 of the sweep wide was not submitted; 3 of its 5 runs are; the same command adds the others"
               in said, said)
        expect(names() == ["wide-seed1", "wide-seed2", "wide-seed3"], names())
    for run in daemon.ask("GET", "/v1/runs?sweep=wide").json()["runs"][:2]:
        expect(ask(daemon, MEMBER, "POST", "/v1/runs/%d/stop" % run["id"]).status == 200, "stop")
    expect("sweep wide: 5 runs, 3 of them submitted before" in again(0).stdout, "the rest")
    expect(names() == ["wide-seed%d" % seed for seed in range(1, 6)], names())


def configs_end(daemon):
    settings(daemon, "config_bytes: 1K")
    body = daemon.submission()
    body["config"] += "#" * 1024
    is_limit(ask(daemon, MEMBER, "POST", "/v1/runs", body), 413, "config_bytes")
    body = daemon.submission()
    body["config"] = body["config"].replace("global_avgpool", "{conv: {out: 4, kernel: 3}}, " * 10 + "global_avgpool")
    expect(len(body["config"]) < 1024, "the config is to fit")
    is_limit(ask(daemon, MEMBER, "POST", "/v1/runs", body), 413, "resolved config")


def priorities_end(daemon):
    settings(daemon, "queued_per_user: 100")
    is_limit(submit(daemon, MEMBER, priority=1), 403, "limits.priority_max")
    run = submit(daemon, MEMBER, priority=-5).json()["id"]
    patch = lambda uid, priority: ask(daemon, uid, "PATCH", "/v1/runs/%d" % run, {"priority": priority})
    is_limit(patch(MEMBER, 1), 403, "limits.priority_max")
    expect(patch(MEMBER, 0).status == 200, "as high as others")
    expect(patch(0, 50).json()["priority"] == 50, "root gives any")
    is_limit(patch(MEMBER, 51), 403, "limits.priority_max")
    expect(patch(MEMBER, 40).status == 200, "down from what root gave")
    expect(submit(daemon, 0, priority=100).status == 201, "root submits with any")
    settings(daemon, "priority_max: 10")
    expect(submit(daemon, MEMBER, priority=10).status == 201, "as the administrator allows")
    is_limit(submit(daemon, MEMBER, priority=11), 403, "up to 10")


def one_at_a_time():
    """Of two runs of one member one waits, with the reason."""
    one = box("spare_bytes: 1M\nruns_per_device: 4\nlimits: {running_per_user: 1}\n")
    try:
        os.chmod(one.socket, 0o666)
        os.chmod(one.dir, 0o777)
        first, second = (submit(one, MEMBER, steps=1000000).json()["id"] for _ in range(2))
        one.becomes(first, "running")
        reason = lambda: one.ask("GET", "/v1/runs/%d" % second).json()["reason"]
        for _ in range(600):
            if "limits.running_per_user" in reason():
                break
            time.sleep(0.02)
        expect("limits.running_per_user" in reason(), reason())
        one.ask("POST", "/v1/runs/%d/stop" % first)
        one.becomes(second, "running")
        expect(not reason(), reason())
        one.ask("POST", "/v1/runs/%d/stop" % second)
        one.becomes(second, "stopped")
    finally:
        one.close()


def memory_of(pid):
    with open("/proc/%d/status" % pid) as lines:
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) << 10


def large_queue(daemon):
    """4,000 runs of 32 KiB each: 128 MiB, which the daemon does not read at its start."""
    expect(daemon.stop() == 0, "exit code")
    queue = sqlite3.connect(daemon.state + "/queue.db")
    queue.execute("PRAGMA synchronous=OFF")
    last = queue.execute("SELECT max(id) FROM runs").fetchone()[0]
    for run in range(last + 1, last + 4001):
        queue.execute("INSERT INTO runs "
                      "(id, name, uid, gid, path, device, priority, max_retries, submitted, dir, state) "
                      "VALUES (?, 'a', ?, ?, '/a.yaml', 'cpu', 0, 3, 1, ?, 'paused')",
                      (run, MEMBER, MEMBER, "/nowhere/a-%d" % run))
        queue.execute("INSERT INTO configs (id, config) VALUES (?, ?)", (run, "name: a\n#" + "x" * 32768))
    queue.commit()
    queue.close()
    began = time.monotonic()
    daemon.start()
    took = time.monotonic() - began
    expect(took < 60, "the start took %.1f s" % took)
    expect(memory_of(daemon.process.pid) < 64 << 20, "%d bytes" % memory_of(daemon.process.pid))
    expect(len(daemon.ask("GET", "/v1/runs/%d/config" % (last + 7)).body) > 32768,
           "its config is there when it is asked for")
    is_limit(submit(daemon, MEMBER), 429, "queued_per_user")


def taken_port():
    """The port is taken; when it is free again, a reload is enough."""
    port = api.free_port()
    taken = socket.socket()
    taken.bind(("127.0.0.1", port))
    taken.listen()
    one = api.Daemon("listen: 127.0.0.1:%d\n" % port, tcp=False, device="sim")
    try:
        one.port = port
        health = one.ask("GET", "/healthz")
        expect(health.status == 200 and str(port) in health.json()["problems"][0], health)
        expect(one.ask("GET", "/v1/runs").status == 200, "the queue")
        taken.close()
        os.kill(one.process.pid, signal.SIGHUP)
        for _ in range(600):
            if not one.ask("GET", "/healthz").json()["problems"]:
                break
            time.sleep(0.05)
        expect(one.ask_tcp("GET", "/healthz").json()["problems"] == [], "TCP")
        expect(one.stop() == 0, "exit code")
        one.write_settings("listen: 127.0.0.1:99999\n")
        one.port = 0
        try:
            one.start()
            raise AssertionError("a wrong address is taken")
        except RuntimeError:
            expect(one.process.wait() == 2, "exit code")
    finally:
        taken.close()
        one.close()


def hooks():
    """Of many ends at once: a few hooks at a time, each at least once, over the death of the service."""
    one = api.Daemon(BASE, tcp=False, device="sim")
    place = one.dir + "/hooks"
    os.makedirs(place + "/now")
    try:
        one.write_settings(BASE + 'on_end: "f=$(mktemp %s/now/XXXXXX); ls %s/now | wc -l >>%s/nr; cat >>%s/told; '
                           'sleep 0.2; rm $f"\n'
                           % (place, place, place, place))
        expect(one.ask("POST", "/v1/service/reload").status == 204, "reload")
        first = one.submit()
        runs = [first] + [one.submit(after=[first]) for _ in range(11)]
        one.ask("POST", "/v1/runs/%d/stop" % first)
        told = lambda: open(place + "/told").read() if os.path.exists(place + "/told") else ""
        for _ in range(600):
            if told().count("\n") >= 5:
                break
            time.sleep(0.02)
        one.process.kill()
        one.process.wait()
        one.start()
        missing = lambda: [run for run in runs if '{"id": %d,' % run not in told()]
        for _ in range(1200):
            if not missing():
                break
            time.sleep(0.05)
        expect(not missing(), "on_end did not run for %s" % missing())
        counts = [int(line) for line in open(place + "/nr")]
        expect(max(counts) <= 8, counts)  # 4 of each daemon
        before = told()
        one.ask("POST", "/v1/service/reload")
        expect(one.stop() == 0 and told() == before, "on_end ran again without a reason")
    finally:
        one.close()


with test("for many ends at once a few hooks run at a time, and each at least once"):
    hooks()
with test("a run that waits for its owner's other runs gives that as its reason"):
    one_at_a_time()
with test("a taken port does not stop the service, and a wrong port ends it with 2"):
    taken_port()
daemon = box(BASE)
try:
    os.chmod(daemon.socket, 0o666)
    for what, work in (("a member's queue has a limit, which does not touch other members", queue_ends),
                       ("a sweep that meets the limit says what is queued, and goes on when asked again",
                        sweep_meets_limit),
                       ("the size of a config is limited, resolved too", configs_end),
                       ("a member's priority goes down, and up as far as the settings allow", priorities_end),
                       ("a queue of thousands opens at once, without its configs in memory", large_queue)):
        with test(what):
            work(daemon)
finally:
    daemon.close()
api.done()
