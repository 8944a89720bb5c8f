"""`nnpipe submit --sweep` against a daemon: names, groups, repetition, refusals, and what shows a sweep."""
import json
import subprocess

from api import expect, equal, run_stories, settles, story
from cli import Service

daemon = Service("runs_per_device: 2\nretry: {first: 0.1, cap: 1}\n", tcp=True)
command, says = daemon.command, daemon.says
NET = daemon.net("net", steps=6, every=3)
RATES = "optimizer.sgd.lr=0.1,0.05,0.01"


def lines(*words, **more):
    return [json.loads(line) for line in command(*words, "--json", **more).splitlines()]


@story("a sweep queues one run for each value, with the value in name and config")
def queues_each():
    found = lines("submit", NET, "--sweep", RATES)
    equal([one["name"] for one in found], ["net-lr0.1", "net-lr0.05", "net-lr0.01"], "names")
    equal({(one["event"], one["sweep"], one["known"]) for one in found}, {("submitted", "net", False)}, "lines")
    command("wait", *[one["id"] for one in found])
    for one, rate in zip(found, (0.1, 0.05, 0.01)):
        result = json.load(open(daemon.folder(one["id"]) + "/result.json"))
        equal(result["lr"], rate, "result.json")
        equal(daemon.folder(one["id"]), "%s/%s-%d" % (daemon.runs, one["name"], one["id"]), "folder")


@story("the same command again adds nothing, and a longer one only the missing runs")
def again_adds_nothing():
    before = [run["id"] for run in daemon.all()]
    found = lines("submit", NET, "--sweep", RATES)
    equal([(one["id"], one["known"]) for one in found], [(id, True) for id in before], "the same runs")
    says("sweep net: 3 runs, 3 of them submitted before", "submit", NET, "--sweep", RATES)
    equal([run["id"] for run in daemon.all()], before, "runs")
    found = lines("submit", NET, "--sweep", RATES + ",0.2")
    equal([one["known"] for one in found], [True, True, True, False], "known")
    other = lines("submit", NET, "--sweep", RATES, "--name", "other")
    equal({(one["sweep"], one["known"]) for one in other}, {("other", False)}, "another sweep")
    command("wait", found[-1]["id"], *[one["id"] for one in other])


@story("several --sweep give every combination, with the exit code of the worst run")
def combinations():
    found = lines("submit", NET, "--name", "grid", "--sweep", "seed=1..2", "--sweep", "optimizer.sgd.momentum=0.9,0",
                  "--wait")
    names = ["grid-seed1-momentum0.9", "grid-seed1-momentum0", "grid-seed2-momentum0.9", "grid-seed2-momentum0"]
    equal([one["name"] for one in found if one["event"] == "submitted"], names, "names")
    equal([one["state"] for one in found if one["event"] == "run"], ["done"] * 4, "states")
    waits = daemon.popen("submit", daemon.net("long"), "--sweep", "seed=1,2", "--wait", stdout=subprocess.DEVNULL)
    settles(lambda: len(lines("ls", "--sweep", "long")) == 2, "it queues no two runs")
    daemon.ends(*[run["id"] for run in lines("ls", "--sweep", "long")])
    equal(waits.wait(60), 75, "its exit code")


@story("a sweep with one wrong config submits nothing, and names that run and key")
def one_is_wrong():
    before = len(daemon.all())
    done = daemon.run("submit", NET, "--name", "bad", "--sweep", "seed=1..3", "--sweep",
                      "optimizer.sgd.lr=0.1,0.2,-1")
    equal(done.code, 2, str(done))
    expect("-o optimizer.sgd.lr: " in done.err, done.err)
    expect("nothing was submitted; the run of the sweep with seed=1, optimizer.sgd.lr=-1 is refused" in done.err,
           done.err)
    equal(len(daemon.all()), before, "runs")
    says("no device 'cuda:7'", "submit", NET, "--sweep", "seed=1,2", "--device", "cuda:7", code=2)
    says("no run 999", "submit", NET, "--sweep", "seed=1,2", "--after", "999", code=1)
    says("letters, digits", "submit", NET, "--sweep", "seed=1,2", "--name", "a b", code=1)
    equal(len(daemon.all()), before, "runs")


@story("mistakes of --sweep exit with 2")
def mistakes():
    says("400 runs; at most 256", "submit", NET, "--sweep", "seed=1..20", "--sweep", "loader.batch=1..20", code=2)
    says("the value 1 is there twice", "submit", NET, "--sweep", "seed=1,2,1", code=2)
    says("names its runs itself", "submit", NET, "--sweep", "name=a,b", code=2)
    says("--sweep needs a value", "submit", NET, "--sweep", code=2)
    says("at most 16 --sweep", "submit", NET, *[word for i in range(17) for word in ("--sweep", "seed=%d" % i)],
         code=2)


@story("ls, top, status and the API show the sweep of a run, and filter by it")
def shows():
    names = {"grid-seed1-momentum0.9", "grid-seed1-momentum0", "grid-seed2-momentum0.9", "grid-seed2-momentum0"}
    found = lines("ls", "--all", "--sweep", "grid")
    equal({run["name"] for run in found}, names, "ls --sweep")
    equal({run["sweep"] for run in found}, {"grid"}, "ls --json")
    expect(" sweep " in command("ls", "--all").split("\n")[0], "no column")
    alone = daemon.submit(NET, "--name", "alone")
    equal(daemon.status(alone)["sweep"], None, "a run without a sweep")
    command("wait", alone)
    expect("sweep       grid" in command("status", found[0]["id"]), "status")
    runs = daemon.ask("GET", "/v1/runs?sweep=grid").json()["runs"]
    equal({run["name"] for run in runs}, names, "?sweep=")
    equal(daemon.ask("GET", "/v1/runs?sweep=none").json()["runs"], [], "?sweep=none")
    equal(daemon.ask_tcp("GET", "/v1/runs?sweep=grid").json()["runs"][0]["sweep"], "grid", "over TCP")
    slow = lines("submit", daemon.net("slow"), "--sweep", "seed=1,2")
    other = daemon.submit(daemon.net("beside"))
    equal({run["name"] for run in lines("top", "--sweep", "slow")}, {"slow-seed1", "slow-seed2"}, "top --sweep")
    daemon.ends(other, *[one["id"] for one in slow])
    says("--runs for folders", "top", "--sweep", "slow", "--runs", "runs", code=2)


@story("a sweep is remembered by the next daemon, and a checked submission queues nothing")
def remembered():
    daemon.kill()
    daemon.start()
    equal(len(lines("ls", "--all", "--sweep", "grid")), 4, "runs of the sweep")
    before = len(daemon.all())
    answer = daemon.ask("POST", "/v1/runs", daemon.submission(check=True, name="tested"))
    equal((answer.status, answer.json()), (200, {"ok": True, "name": "tested", "device": "cpu", "reason": ""}),
          "a check")
    for body in ({"check": 1}, {"check": "true"}, {"sweep": "a/b"}, {"sweep": 3}):
        equal(daemon.ask("POST", "/v1/runs", daemon.submission(**body)).status, 400, str(body))
    equal(len(daemon.all()), before, "runs")


run_stories(daemon)
