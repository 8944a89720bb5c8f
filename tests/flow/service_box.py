"""A box that three members of the group share. ann and bob train; eve, the third, and mallory, who is not in the
group, send 500 requests of abuse: planted folders and links, huge and many configs, folders that hang, foreign
Hosts, other people's runs, a held port. Nothing that is not theirs is read, written, stopped or delayed.

$FIGURES: a file for the times of honest requests, as
tests/bench/bench_box.sh wants them."""
import contextlib
import json
import os
import signal
import shutil
import socket
import tempfile
import threading
import time

import api
from api import Daemon, ask, ask_as, expect, test
from cli import Faulty

GROUP = 64350
ANN, BOB, EVE, MALLORY = 64351, 64352, 64353, 64354
NAMES = {ANN: "ann", BOB: "bob", EVE: "eve", MALLORY: "mallory"}
SECRET = "the-secret-of-the-box"
REFUSED = (400, 403, 404, 409, 413, 415, 422, 429, 503)


def groups_of(uid):
    return [] if uid == MALLORY else [GROUP]


def by(daemon, uid, method, target, body=None):
    return ask_as(uid, uid, groups_of(uid), daemon.socket, method, target, body)


# --- the box --------------------------------------------------------------------------------------


def open_box(folder):
    """The daemon as root for all of the group, with the four users in its eyes alone; its port is held by mallory."""
    users = "".join("%s:x:%d:%d::%s/%s:/bin/sh\n" % (name, uid, uid, folder, name) for uid, name in NAMES.items())
    files = {"passwd": users, "group": "nnpipe:x:%d:ann,bob,eve\n" % GROUP}
    mounts = []
    for name, more in files.items():
        path = "%s/etc-%s" % (folder, name)
        with open("/etc/" + name) as old, open(path, "w") as out:
            out.write(old.read() + more)
        mounts.append("mount --bind %s /etc/%s" % (path, name))
    for uid, name in NAMES.items():
        os.mkdir(folder + "/" + name)
        os.chown(folder + "/" + name, uid, uid)
        os.chmod(folder + "/" + name, 0o700)
    os.environ["BOX_SECRET"] = SECRET
    prefix = ["unshare", "-m", "sh", "-c", " && ".join(mounts) + ' && exec "$@"', "-"]
    daemon = Daemon(settings="spare_bytes: 1M\n", args=["--box"], prefix=prefix, device="sim")
    os.chmod(daemon.socket, 0o666)  # so that mallory gets as far as the service itself
    return daemon


def private_file(folder, uid, name):
    path = "%s/%s/%s" % (folder, NAMES[uid], name)
    with open(path, "w") as out:
        out.write(SECRET + " " + name + "\n")
    os.chown(path, uid, uid)
    os.chmod(path, 0o600)
    return path


def submit(daemon, uid, **more):
    return by(daemon, uid, "POST", "/v1/runs", daemon.submission(**more))


# --- abuse: each returns the answers it got --------------------------------------------------------


def planted(daemon, folder, victim_files):
    """eve makes the folders that the next runs may get, full of links to files of ann and bob."""
    newest = max(run["id"] for run in by(daemon, EVE, "GET", "/v1/runs").json()["runs"])
    for number in range(newest + 1, newest + 13):
        for name in ("honest", "a"):
            home = "%s/%s-%d" % (daemon.runs, name, number)
            with contextlib.suppress(FileExistsError):
                os.mkdir(home)
                os.mkdir(home + "/checkpoints")
                for link, target in zip(("lock", "log", "metrics.jsonl", "config.yaml.new", "exit.json.new", "report",
                                         "result.json", "output"),
                                        victim_files * 8):
                    os.symlink(target, home + "/" + link)
                with open(home + "/exit.json", "w") as out:
                    out.write('{"attempt": 1, "code": 0}\n')
                for at in (home, home + "/checkpoints", home + "/exit.json"):
                    os.chown(at, EVE, EVE)
                os.chmod(home, 0o777)
    return []


def others_runs(daemon, run):
    """Every request about a run of ann."""
    deeds = [("POST", "/stop"), ("POST", "/pause"), ("POST", "/resume"), ("POST", "/retry"), ("POST", "/hold"),
             ("POST", "/release"),
             ("DELETE", ""), ("PATCH", ""), ("GET", "/log"), ("GET", "/config"), ("GET", "/metrics")]
    answers = []
    for uid in (EVE, MALLORY):
        for method, deed in deeds * 4:
            body = {"priority": -100} if method == "PATCH" else None
            answer = by(daemon, uid, method, "/v1/runs/%d%s" % (run, deed), body)
            expect(answer.status in (403, 404, 405), "%s %s%s by %s: %s" % (method, run, deed, NAMES[uid], answer))
            answers.append(answer)
    return answers


def many_submissions(daemon, _):
    """More runs than a member may queue, each with the highest priority."""
    answers = []
    for number in range(80):
        answers.append(submit(daemon, EVE, name="flood", steps=100000, priority=100 if number % 2 else 0,
                              runs=daemon.runs + "/../eves"))
        answers.append(submit(daemon, MALLORY, name="flood"))
    expect(all(a.status in REFUSED for a in answers[1::2]), "mallory has submitted")
    return answers


def huge_configs(daemon, _):
    filler = "# " + "x" * 1000 + "\n"
    answers = []
    for kib in (200, 300, 900, 1100, 3000):
        body = daemon.submission(name="huge")
        body["config"] = filler * kib + body["config"]
        for _ in range(4):
            with contextlib.suppress(OSError):  # it may close the connection on a request longer than its limit
                answers.append(by(daemon, EVE, "POST", "/v1/runs", body))
    for text in ("[" * 20000, "a: " + "{b: " * 500, "\x00\x01", "name: &a [*a]", "🙂" * 1000):
        answers.append(by(daemon, EVE, "POST", "/v1/runs", dict(daemon.submission(), config=text)))
    expect(all(a.status in REFUSED for a in answers[4:]), [a.status for a in answers])
    return answers


def foreign_hosts(daemon, _):
    answers = []
    if not daemon.port_is_ours:
        return answers
    here = "localhost:%d" % daemon.port
    for head in ({"Host": "evil.example"}, {"Host": here, "Origin": "http://evil.example"},
                 {"Host": "127.0.0.1.evil.example"}, {"Host": ""}):
        for method, target in (("GET", "/v1/runs"), ("POST", "/v1/runs/1/stop"), ("GET", "/metrics"), ("GET", "/")) * 4:
            answer = daemon.ask_tcp(method, target, fields=head)
            expect(answer.status == 403, "%s with %s: %s" % (target, head, answer))
            answers.append(answer)
    return answers


def hosts_on_the_socket(daemon, _):
    """Requests of a browser that a name of eve leads to the socket, through a forwarded port."""
    answers = []
    for _ in range(10):
        for target in ("/v1/runs", "/v1/runs/1/log", "/metrics"):
            answer = daemon.ask("GET", target, fields={"Host": "evil.example:7411"})
            expect(answer.status == 403, "%s on the socket: %s" % (target, answer))
            answers.append(answer)
    return answers


def hung_folders(daemon, _):
    """Runs of eve in folders that hang."""
    if "HUNG" not in os.environ:
        return []
    answers = [submit(daemon, EVE, name="hung", runs=os.environ["HUNG"] + "/runs") for _ in range(20)]
    with open(os.environ["HUNG"] + "/.control", "w") as control:
        control.write("hang *")
    hung = [a.json()["id"] for a in answers if a.status == 201]
    expect(hung, [a.status for a in answers])
    for run in hung:
        for deed in ("log", "metrics"):
            answers.append(not_waited_for(daemon, "/v1/runs/%d/%s" % (run, deed)))
    return answers


def not_waited_for(daemon, target):
    """eve sends a request and disconnects before the answer."""
    one = socket.socket(socket.AF_UNIX)
    one.connect(daemon.socket)
    one.send(("GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % target).encode())
    time.sleep(0.1)
    one.close()
    return b""


def noise(daemon, _):
    """Malformed requests, and requests for missing things."""
    answers = []
    for raw in (b"\x00" * 100, b"GET " + b"/" * 9000 + b" HTTP/1.1\r\n\r\n",
                b"POST /v1/runs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\n",
                b"GET /v1/runs/../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n",
                b"GET /v1/runs/%2e%2e/x HTTP/1.1\r\nHost: localhost\r\n\r\n") * 10:
        one = socket.socket(socket.AF_UNIX)
        one.settimeout(0.5)  # some of these wait for the rest of the request
        with contextlib.suppress(OSError):
            one.connect(daemon.socket)
            one.send(raw)
            answers.append(one.recv(4096))
        one.close()
    for uid in (EVE, MALLORY):
        for target in ("/v1/runs/0", "/v1/runs/-1", "/v1/runs/99999999999999999999", "/v1/devices/cpu/drain",
                       "/v1/service/reload", "/v1/tokens/0"):
            for method in ("GET", "POST", "DELETE", "PATCH"):
                answer = by(daemon, uid, method, target, {} if method in ("POST", "PATCH") else None)
                expect(answer.status in REFUSED + (405,), "%s %s by %s: %s" % (method, target, NAMES[uid], answer))
                answers.append(answer)
    return answers


# --- honest work meanwhile ------------------------------------------------------------------------


class Honest:
    """ann, in a process of her own: everyday requests every 20 ms, each timed from connect to answer."""

    def __init__(self, daemon, run):
        self.read_end, write_end = os.pipe()
        self.child = os.fork()
        if self.child:
            os.close(write_end)
            return
        os.setgroups([GROUP])
        os.setresgid(ANN, ANN, ANN)
        os.setresuid(ANN, ANN, ANN)
        over, parent = [], os.getppid()
        signal.signal(signal.SIGTERM, lambda *_: over.append(1))
        times, wrong = [], []
        targets = ("/v1/runs", "/v1/runs/%d" % run, "/v1/service", "/v1/devices", "/v1/runs/%d/log?tail=1000" % run,
                   "/healthz")
        while not over and os.getppid() == parent:
            for target in targets:
                began = time.perf_counter()
                try:
                    status = ask(api.OverUnix(daemon.socket, 20), "GET", target).status
                except OSError as error:
                    status = str(error)
                times.append(time.perf_counter() - began)
                if status != 200 and target != "/healthz":
                    wrong.append("%s: %s" % (target, status))
                time.sleep(0.02)
        os.write(write_end, json.dumps({"times": times, "wrong": wrong}).encode())
        os._exit(0)

    def stop(self):
        os.kill(self.child, signal.SIGTERM)
        with os.fdopen(self.read_end) as output:
            said = json.load(output)
        os.waitpid(self.child, 0)
        return said


def percentile(times, share):
    return sorted(times)[min(len(times) - 1, int(len(times) * share))]


def waits_for(what, seconds=120):
    until = time.monotonic() + seconds
    while not what():
        expect(time.monotonic() < until, "it does not come")
        time.sleep(0.1)


def memory_kib(daemon):
    return int([line for line in open("/proc/%d/status" % daemon.process.pid)
                if line.startswith("VmRSS")][0].split()[1])


def abuse(daemon, folder, run, files):
    """Sends all kinds at once, in two threads; returns the number of requests and the failures of each kind."""
    def plant(daemon, _):
        return planted(daemon, folder, files)

    kinds = [plant, others_runs, many_submissions, huge_configs, foreign_hosts, hosts_on_the_socket,
             hung_folders, noise]
    counts, faults, lock = {}, [], threading.Lock()

    def work(mine):
        for kind in mine:
            name = kind.__name__
            try:
                answers = kind(daemon, run)
                with lock:
                    counts[name] = len(answers)
                    if any(SECRET.encode() in (a.body if isinstance(a, api.Answer) else a) for a in answers):
                        faults.append(name + ": a secret was revealed")
            except Exception as error:  # of any kind
                with lock:
                    faults.append("%s: %s" % (name, str(error)[:300]))

    threads = [threading.Thread(target=work, args=(kinds[i::2],)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return counts, faults


def play(daemon, folder):
    os.mkdir(daemon.dir + "/eves")
    os.chown(daemon.dir + "/eves", EVE, EVE)
    files = [private_file(folder, uid, name) for uid in (ANN, BOB) for name in (".bashrc", "notes")]
    before = {path: open(path).read() for path in files}
    mine = submit(daemon, ANN, name="honest", steps=1000000)
    expect(mine.status == 201, mine)
    run = mine.json()["id"]
    waits_for(lambda: by(daemon, ANN, "GET", "/v1/runs/%d" % run).json()["state"] == "running")
    his = submit(daemon, BOB, name="honest", steps=5)
    expect(his.status == 201, his)
    memory = memory_kib(daemon)

    honest = Honest(daemon, run)
    counts, faults = abuse(daemon, folder, run, files)
    said = honest.stop()
    if "HUNG" in os.environ:
        with open(os.environ["HUNG"] + "/.control", "w") as control:
            control.write("clear")

    with test("every kind of abuse is refused or harmless"):
        expect(not faults, faults)
    with test("at least 500 abusive requests were sent"):
        expect(sum(counts.values()) >= 500 - (60 if "HUNG" not in os.environ else 0), counts)
    with test("no file of others has changed"):
        expect({path: open(path).read() for path in files} == before, "changed")
    with test("ann's run is running as she left it, without a retry"):
        now = by(daemon, ANN, "GET", "/v1/runs/%d" % run).json()
        expect((now["state"], now["priority"], now["retries"]) == ("running", 0, 0), now)
    with test("every honest request was answered"):
        expect(not said["wrong"] and len(said["times"]) > 50, said["wrong"][:5])
    print("# %d requests of abuse %s; %d honest requests: p50 %.1f ms, p99 %.1f ms, max %.1f ms; "
          "the daemon grew by %.1f MiB" % (
        sum(counts.values()), counts, len(said["times"]), percentile(said["times"], 0.5) * 1e3,
        percentile(said["times"], 0.99) * 1e3,
        max(said["times"]) * 1e3, (memory_kib(daemon) - memory) / 1024))
    if "FIGURES" in os.environ:
        with open(os.environ["FIGURES"], "w") as out:
            json.dump({"abuse": sum(counts.values()), "times": said["times"]}, out)
    with test("no honest request waited for another's folder or config"):
        expect(percentile(said["times"], 0.99) < 2 and max(said["times"]) < 10,
               "p99 %.2f s" % percentile(said["times"], 0.99))
    with test("the daemon's memory is bounded"):
        expect(memory_kib(daemon) - memory < 200 * 1024, "%d KiB more" % (memory_kib(daemon) - memory))
    with test("no secret of the daemon's environment is in a run's"):
        children = open("/proc/%d/task/%d/children" % (daemon.process.pid, daemon.process.pid)).read().split()
        workers = [p for p in children if b"worker" in read_or_nothing("/proc/%s/cmdline" % p)]
        expect(workers and not any(SECRET.encode() in read_or_nothing("/proc/%s/environ" % p) for p in workers),
               "of %s" % workers)
    with test("when ann stops, bob's run is next, although eve has queued many"):
        expect(by(daemon, ANN, "POST", "/v1/runs/%d/stop" % run).status == 200, "stop")
        waits_for(lambda: by(daemon, BOB, "GET", "/v1/runs/%d" % his.json()["id"]).json()["state"] in ("running",
            "done"))


def read_or_nothing(path):
    with contextlib.suppress(OSError):
        return open(path, "rb").read()
    return b""


def main():
    api.as_root("nothing of others is read, written, stopped or delayed by 500 abusive requests")
    hung = Faulty()
    if hung.is_there:
        os.chown(hung.disk, EVE, EVE)
        os.environ["HUNG"] = hung.mount
    else:
        api.skip("folders that hang, among the abuse", "no FUSE here")
    folder = tempfile.mkdtemp(prefix="nnpipe-box.", dir=os.environ.get("TMPDIR", "/tmp"))
    os.chmod(folder, 0o755)
    daemon = open_box(folder)
    try:
        daemon.port_is_ours = True
        play(daemon, folder)
        with test("the box's service ends without a complaint"):
            expect(daemon.stop() == 0, "exit code")
    finally:
        daemon.close()
        hung.close()
        shutil.rmtree(folder, ignore_errors=True)


main()
api.done()
