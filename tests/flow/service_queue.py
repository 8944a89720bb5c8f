"""The commands of a queue against a daemon: retry, hold, release, drain, time limits, priority, wait, lists and
logs; and what the next daemon remembers of it after a kill."""
import json
import os
import signal
import subprocess
import time

import api
from api import expect, settles, test
from cli import FOREVER, Service

daemon = Service("retry: {first: 0.1, cap: 1}\nruns_per_device: 2\n", tcp=True)
command, says, entry, saved = daemon.command, daemon.says, daemon.entry, daemon.saved


def submit(name, steps=FOREVER, *words):
    path = os.path.join(daemon.dir, name + ".yaml")
    with open(path, "w") as out:
        out.write(daemon.config_text(name, steps))
    return json.loads(command("submit", path, "--json", *words))["id"]


def retrying():
    run = submit("again")
    daemon.trained(run)
    says("run %d is running" % run, "retry", run, code=1)
    command("stop", run)
    daemon.becomes(run, "stopped")
    at = max(int(path.rsplit("-", 1)[1]) for path in saved(run))
    says("run %d: queued" % run, "retry", run)
    daemon.becomes(run, "running")
    settles(lambda: ((entry(run)["progress"] or {}).get("step") or 0) >= at, "it does not resume")
    expect(entry(run)["attempts"] == 2 and entry(run)["ended"] is None, entry(run))
    command("stop", run)
    daemon.becomes(run, "stopped")
    expect("step %d" % at in command("logs", run), "it began from step 0: " + command("logs", run)[-500:])
    done = submit("done", 5)
    command("wait", done)
    says("is done", "retry", done, code=1)
    says("no run", "retry", 999, code=1)


def holding():
    command("hold", "--all")
    run, other = submit("held", 5), submit("other", 5)
    says("run %d: paused" % run, "hold", run)
    expect("held" in entry(run)["reason"], entry(run))
    says("held", "status")
    expect(entry(other)["state"] == "queued" and "whole queue is held" in entry(other)["reason"], entry(other))
    daemon.stop(signal.SIGKILL)
    daemon.start()
    expect(daemon.ask("GET", "/v1/service").json()["held"], "the next daemon starts runs")
    time.sleep(0.3)
    expect(entry(other)["state"] == "queued" and entry(other)["attempts"] == 0, entry(other))
    command("release", "--all")
    command("wait", other)
    expect(entry(other)["reason"] == "", entry(other))
    expect(entry(run)["state"] == "paused", entry(run))
    says("run %d: queued" % run, "release", run)
    command("wait", run)
    says("has finished", "hold", run, code=1)
    busy = submit("busy")
    daemon.becomes(busy, "running")
    says("pause", "hold", busy, code=1)
    command("stop", busy)
    daemon.becomes(busy, "stopped")


def draining():
    busy = submit("on")
    daemon.becomes(busy, "running")
    says("cpu: drained", "drain", "cpu")
    waits = submit("off", 5)
    expect("cpu is drained" in entry(waits)["reason"] and entry(busy)["reason"] == "", (entry(waits), entry(busy)))
    says("cpu is drained", "ls", "--state", "queued")
    says("no device 'cuda:9'", "drain", "cuda:9", code=1)
    says("cpu  drained", "status")
    expect(daemon.ask("GET", "/v1/devices").json()["devices"][0]["state"] == "drained", "state")
    daemon.stop(signal.SIGKILL)
    daemon.start()
    expect(entry(busy)["state"] == "running" and entry(waits)["attempts"] == 0, (entry(busy), entry(waits)))
    expect(daemon.ask("POST", "/v1/service/reload").status == 204, "reload")
    expect(daemon.ask("GET", "/v1/devices").json()["devices"][0]["state"] == "drained", "reloaded: not drained")
    command("undrain", "cpu")
    command("wait", waits)
    command("stop", busy)
    daemon.becomes(busy, "stopped")


def time_limits():
    run = submit("limited", FOREVER, "--time-limit", "2s")
    expect(entry(run)["time_limit"] == 2, entry(run))
    command("wait", run, code=75)
    over = entry(run)
    expect(over["state"] == "timeout" and "time limit of 2s" in over["reason"] and over["ran"] >= 2, over)
    expect(saved(run), "it wrote no checkpoint")
    says("time limit of 2s", "ls", "--state", "timeout")
    command("retry", run, "--time-limit", "1h")
    daemon.becomes(run, "running")
    expect(entry(run)["time_limit"] == 3600 and entry(run)["ran"] < 1800, entry(run))
    expect(daemon.ask("PATCH", "/v1/runs/%d" % run, {"time_limit": 1}).status == 200, "PATCH")
    command("wait", run, code=75)
    killed = submit("killed", FOREVER, "--time-limit", "3s")
    daemon.trained(killed)
    daemon.stop(signal.SIGKILL)
    daemon.start()
    command("wait", killed, code=75)
    expect(entry(killed)["state"] == "timeout" and entry(killed)["attempts"] == 1, entry(killed))
    says("expected a time", "submit", daemon.dir + "/limited.yaml", "--time-limit", "8", code=2)


def waiting():
    good, bad = submit("good", 5), submit("bad", FOREVER)
    says("not finished yet", "wait", bad, "--timeout", "1s", code=124)
    command("stop", bad)
    out = command("wait", good, bad, "--json", code=75)
    expect([json.loads(line)["state"] for line in out.splitlines()] == ["done", "stopped"], out)
    says("no run 999", "wait", 999, code=1)
    child = submit("late", 40)
    waiter = daemon.popen("wait", child, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    daemon.stop(signal.SIGTERM)
    daemon.start()
    expect(waiter.wait(120) == 0, waiter.stdout.read())


def priorities():
    command("hold", "--all")
    run = submit("first", 5)
    says("run %d: queued" % run, "priority", run, -7)
    expect(entry(run)["priority"] == -7, entry(run))
    command("priority", run, 3)
    expect(entry(run)["priority"] == 3, entry(run))
    says("expected run numbers", "priority", run, "high", code=2)
    command("stop", run)
    command("release", "--all")


def lists():
    names = [submit("cat-%d" % i, 5) for i in range(3)] + [submit("dog", 5, "-o", "train.steps=6", "-o", "seed=2")]
    command("wait", *names)
    listed = lambda *words: [json.loads(line)["id"] for line in command("ls", "--json", *words).splitlines()]
    expect(listed("--name", "cat-*", "--all") == names[:3], listed("--name", "cat-*", "--all"))
    expect(listed("--state", "done", "-n", "2") == names[2:], listed("--state", "done", "-n", "2"))
    expect(listed("--state", "done", "--name", "dog") == names[3:], "by state and name")
    expect(listed("--owner", "nobody-at-all", "--all") == [], "by owner")
    says("is not a state", "ls", "--state", "dead", code=1)
    given = ["train.steps=6", "seed=2"]
    expect(entry(names[3])["overrides"] == given, entry(names[3]))
    result = json.load(open(entry(names[3])["dir"] + "/result.json"))
    expect(result["overrides"] == given and result["steps"] == 6, result)
    expect(not json.load(open(entry(names[0])["dir"] + "/result.json")).get("overrides"), "has overrides")
    says("train.steps=6", "status", names[3])
    get = lambda query: [run["id"] for run in daemon.ask("GET", "/v1/runs?" + query).json()["runs"]]
    expect(get("after=%d&limit=2" % names[0]) == names[1:3], "a page")
    expect(get("tail=2&state=done") == names[2:], "the last")


def unchanged():
    for run in daemon.ask("GET", "/v1/runs?state=queued,running,paused").json()["runs"]:
        daemon.ask("POST", "/v1/runs/%d/stop" % run["id"])
        daemon.becomes(run["id"], "stopped")
    first = daemon.ask("GET", "/v1/runs")
    tag = first.fields["etag"]
    same = daemon.ask("GET", "/v1/runs", fields={"If-None-Match": tag})
    expect(same.status == 304 and same.body == b"" and same.fields["etag"] == tag, same)
    command("hold", "--all")
    submit("new", 5)
    other = daemon.ask("GET", "/v1/runs", fields={"If-None-Match": tag})
    expect(other.status == 200 and other.fields["etag"] != tag, other)
    expect(daemon.ask_tcp("GET", "/v1/runs", fields={"If-None-Match": other.fields["etag"]}).status == 200,
           "another caller")
    command("release", "--all")


def limits():
    """A folder stands for the cgroup; then a service without one."""
    path = daemon.dir + "/limited.yaml"
    says("cannot limit memory or CPUs", "submit", path, "--memory", "16G", code=2)
    for flag, value, code in (("--memory", "lots", 2), ("--memory", "1M", 1), ("--cpus", "0", 2), ("--cpus", "x", 2)):
        command("submit", path, flag, value, code=code)
    settings = open(daemon.config).read()
    with open(daemon.config, "a") as out:
        out.write("limits: {memory_per_run: 16G, cpus_per_run: 4}\n")
    expect(daemon.ask("POST", "/v1/service/reload").status == 204, "reload")
    run = submit("unlimited", 5)
    expect(entry(run)["memory"] is None and entry(run)["cpus"] is None, entry(run))
    command("wait", run)
    says("cannot limit memory or CPUs", "submit", path, "--memory", "16G", code=2)
    health = daemon.ask("GET", "/healthz").json()
    expect(health["ok"] and "limits.memory_per_run and limits.cpus_per_run: " in str(health["problems"]), health)
    expect("nnpipe daemon: " + health["problems"][0] in open(daemon.log.name).read(), "the log does not say it")
    with open(daemon.config, "w") as out:
        out.write(settings)
    group = daemon.dir + "/cgroup"
    os.mkdir(group)
    os.environ["NNPIPE_CGROUP"] = group
    daemon.stop()
    daemon.start()
    del os.environ["NNPIPE_CGROUP"]
    expect(daemon.ask("GET", "/healthz").json()["problems"] == [], "no default is left")
    run = submit("small", FOREVER, "--memory", "512M", "--cpus", "1.5", "--max-retries", "0")
    expect(entry(run)["memory"] == 512 << 20 and entry(run)["cpus"] == 1.5, entry(run))
    daemon.trained(run)
    at = "%s/run-%d/" % (group, run)
    text = lambda name: open(at + name).read()
    expect(text("memory.max") == str(512 << 20) and text("cpu.max") == "150000 100000" and text("cgroup.procs") == "0",
           os.listdir(at))
    with open(at + "memory.events", "w") as out:
        out.write("oom 1\noom_kill 1\n")
    os.kill(int(open(entry(run)["dir"] + "/lock").read()), signal.SIGKILL)
    settles(lambda: "memory limit of 0.5 GiB" in entry(run)["reason"], "the reason is another")
    daemon.ask("POST", "/v1/runs/%d/stop" % run)


def status_of(path):
    """Returns the /proc/self/status that a hook has copied to path."""
    settles(lambda: os.path.exists(path), path + " is not there")
    return dict(line.split(":", 1) for line in open(path).read().splitlines() if ":" in line)


def own_hooks():
    daemon.write_settings("runs_per_device: 2\non_end: \"cat >>%s/all\"\n" % daemon.dir)
    expect(daemon.ask("POST", "/v1/service/reload").status == 204, "reload")
    run = submit("hooked", 5, "--on-end", "cat >was; pwd -P; touch again; exit 3")
    command("wait", run)
    folder = entry(run)["dir"]
    settles(lambda: "on_end: ended with exit code 3" in command("logs", run), command("logs", run))
    expect(os.path.realpath(folder) in command("logs", run), command("logs", run))
    was = json.load(open(folder + "/was"))
    expect(was["id"] == run and was["state"] == "done", was)
    settles(lambda: '"id": %d,' % run in open(daemon.dir + "/all").read(), "the service's own on_end did not run")
    says("exit 3", "status", run)
    seen = daemon.ask_tcp("GET", "/v1/runs/%d" % run).json()
    expect(entry(run)["on_end"].startswith("cat") and seen["on_end"] is None, entry(run))
    os.unlink(folder + "/again")
    daemon.stop()
    daemon.start()
    command("hold", "--all")
    never = submit("never", 5, "--on-end", "pwd >%s/where" % daemon.dir)
    command("stop", never)
    command("release", "--all")
    settles(lambda: os.path.exists(daemon.dir + "/where") and open(daemon.dir + "/where").read() == "/\n",
            "not of one without a folder")
    expect(not os.path.exists(folder + "/again"), "it was run twice")
    for wrong in ("x" * 4097, "a\nb", 7):
        expect(daemon.ask("POST", "/v1/runs", daemon.submission(on_end=wrong)).status == 400, wrong)
    killed = submit("later", 5, "--on-end", "[ -e seen ] && exec touch second; touch seen; sleep 1000")
    command("wait", killed)
    settles(lambda: os.path.exists(entry(killed)["dir"] + "/seen"), "it has not begun")
    daemon.stop(signal.SIGKILL)
    daemon.start()
    settles(lambda: os.path.exists(entry(killed)["dir"] + "/second"), "the next daemon does not run it")


def hook_of_a_box():
    one = api.box("spare_bytes: 1M\n")
    try:
        os.chmod(one.socket, 0o666)
        ask = lambda uid, method, target, body=None: api.ask_as(uid, uid, [api.GROUP], one.socket, method, target, body)
        body = one.submission(on_end="cat /proc/self/status >status.new; env >env; mv status.new status", umask=0o27)
        run = ask(api.OWNER, "POST", "/v1/runs", body).json()
        expect("on_end" in run and run["on_end"], run)
        status = status_of(run["dir"] + "/status")
        expect(status["Uid"].split() == [str(api.OWNER)] * 4 and status["Gid"].split() == [str(api.OWNER)] * 4, status)
        expect(status["CapEff"].strip("\t0") == status["CapPrm"].strip("\t0") == status["CapInh"].strip("\t0") == "",
               status)
        expect(status["NoNewPrivs"].strip() == "1" and os.stat(run["dir"] + "/status").st_mode & 0o777 == 0o640, status)
        expect("NP_SECRET" not in open(run["dir"] + "/env").read(), "a variable of the service")
        for path in "/v1/runs/%d" % run["id"], "/v1/runs":
            seen = ask(api.MEMBER, "GET", path).json()
            expect((seen if "id" in seen else seen["runs"][0])["on_end"] is None, seen)
    finally:
        one.close()


def lines():
    run = submit("logged", 5)
    command("wait", run)
    whole = command("logs", run).splitlines()
    expect(len(whole) > 1, whole)
    for n in 1, 2, len(whole), len(whole) + 10:
        expect(command("logs", run, "-n", n).splitlines() == whole[-n:], n)
    says("LINES", "logs", run, "-n", "x", code=2)


try:
    with test("retry resumes a stopped run from its checkpoint, and refuses a run that is done"):
        retrying()
    with test("a held run and a held queue start nothing until they are released, over a kill of the service"):
        holding()
    with test("a drained device keeps its runs and gets no new ones, over a kill and a reload"):
        draining()
    with test("at its time limit a run saves, is timeout, and may be retried with more; over a kill of the service"):
        time_limits()
    with test("wait ends with the worst of the runs' codes, after its timeout, and over a restart"):
        waiting()
    with test("a priority is changed, below 0 too"):
        priorities()
    with test("lists by state, owner, name and number, with the overrides"):
        lists()
    with test("an unchanged list is not sent again"):
        unchanged()
    with test("a run's memory and CPUs are limited by its cgroup; without a cgroup limits are refused"):
        limits()
    with test("a run's own on_end runs in its folder, once; again if the service was killed meanwhile"):
        own_hooks()
    if os.getuid() == 0:
        with test("in a box on_end has only its submitter's rights, and only the submitter sees it"):
            os.environ["NP_SECRET"] = "hunter2"
            hook_of_a_box()
    with test("the last lines of a log"):
        lines()
finally:
    daemon.close()
api.done()
