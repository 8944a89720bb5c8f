"""`nnpipe submit --sweep` against a daemon: names, groups, repetition, refusals, and what shows a sweep."""
import json
import os
import shutil
import subprocess
import xml.etree.ElementTree

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


# --- compare --------------------------------------------------------------------------------------

EVALUATED = os.path.join(daemon.dir, "eval.yaml")
with open(EVALUATED, "w") as config:
    config.write(open(NET).read().replace("name: net", "name: eval").replace("eval_every: never", "eval_every: 3 steps")
                 .replace("data: {", "data: {test: {source: synth, samples: 64, size: 32}, "))
compared = {}  # the runs of the sweep `eval`, by name


@story("compare shows a sweep's runs, the best first, with only the keys that differ")
def compares_a_sweep():
    ids = [one["id"] for one in lines("submit", EVALUATED, "--sweep", "optimizer.sgd.lr=0.2,0.001", "--sweep",
                                      "seed=1,2")]
    command("wait", *ids)
    found = lines("compare", "--sweep", "eval")
    compared.update({run["run"]: run for run in found})
    equal(sorted(run["id"] for run in found), ids, "runs")
    best = [run["best_accuracy"] for run in found]
    equal(best, sorted(best, reverse=True), "order")
    for run in found:
        equal(set(run["values"]), {"seed", "optimizer.sgd.lr"}, "keys")
        result = json.load(open(run["run_dir"] + "/result.json"))
        equal((run["state"], run["best_accuracy"], run["loss"], run["images_per_second"], run["seconds"]),
              ("done", result["best_accuracy"], result["test_loss"], result["images_per_second"],
               result["train_seconds"]), "numbers")
        equal(run["values"], {"seed": run["run"].split("-seed")[1][0],
                              "optimizer.sgd.lr": run["run"].split("-lr")[1].split("-")[0]}, "values")
        expect(abs(run["epoch_seconds"] * run["images_per_second"] - 256) < 1e-6 * 256, "an epoch has 256 images")
    table = command("compare", "--sweep", "eval").splitlines()
    equal(len(table), 5, "lines")
    equal(table[0].split(), "id run state best last loss epoch s/epoch img/s time lr seed".split(), "head")


@story("runs are named by number, name, folder and the beginning of its name, each once")
def names():
    one, other = sorted(compared.values(), key=lambda run: run["id"])[:2]
    by_number = lines("compare", one["id"], other["id"])
    equal([run["run"] for run in lines("compare", one["run_dir"], other["run_dir"] + "/")],
          [run["run"] for run in by_number], "by folder")
    equal(len(lines("compare", one["id"], one["run_dir"], other["id"], "eval-lr0.2-seed1")), 2, "the same runs")
    equal([run["run"] for run in lines("compare", one["run"], other["run"][:-2], "--runs", daemon.runs)],
          [run["run"] for run in by_number], "below --runs")
    many = daemon.runs + "-many"
    for i in range(17):
        shutil.copytree(one["run_dir"], "%s/run-%d" % (many, i), ignore=shutil.ignore_patterns("report", "checkpoints"))
    says("17 runs; at most 16 can be compared", "compare", many, code=1)


@story("runs that wait or go on are compared with what they have")
def unfinished():
    command("hold", "--all")
    waiting = daemon.submit(EVALUATED, "-o", "seed=9")
    run = next(run for run in lines("compare", "--sweep", "eval", waiting) if run["id"] == waiting)
    equal((run["state"], run["step"], run["best_accuracy"]), ("queued", None, None), "a queued run")
    equal(run["values"]["seed"], "9", "its config")
    equal(set(run["values"]), {"seed", "optimizer.sgd.lr"}, "its keys")
    os.mkdir(run["run_dir"])  # as it is for a moment when the run starts
    run = next(run for run in lines("compare", "--sweep", "eval", waiting) if run["id"] == waiting)
    equal((run["state"], run["values"]["seed"]), ("queued", "9"), "a run whose folder is empty")
    os.rmdir(run["run_dir"])
    command("release", "--all")
    command("wait", waiting)
    going = daemon.submit(daemon.net("going"))

    def its_line():
        run = next(run for run in lines("compare", going, waiting) if run["id"] == going)
        return run if run["state"] == "running" and (run["step"] or 0) > 20 and run["train_loss"] else None

    run = settles(its_line, "compare does not show the steps of a running run")
    expect(run["values"]["train.eval_every"] == "never", run)
    daemon.ends(going)


@story("errors of compare name the run or the sweep")
def errors():
    first = min(run["id"] for run in compared.values())
    says("run 999: there is no run 999", "compare", first, 999, code=1)
    says("there is no run 'nothing'", "compare", first, "nothing", code=1)
    says("there is no sweep 'nothing'", "compare", "--sweep", "nothing", code=1)
    says("only one run", "compare", first, first, code=1)
    says("expected runs, or --sweep NAME", "compare", code=2)
    says(daemon.dir + "/none/c.svg", "compare", "--sweep", "eval", "--svg", daemon.dir + "/none/c.svg", code=1)
    says("run 1: ", "compare", 1, 2, "--socket", daemon.dir + "/none", code=1)


@story("the curves are written as a picture and as a page, with a line for each run")
def pictures():
    svg, page = daemon.dir + "/c.svg", daemon.dir + "/c.html"
    command("compare", "--sweep", "eval", "--svg", svg, "--html", page)
    root = xml.etree.ElementTree.parse(svg).getroot()
    text = "".join(root.itertext())
    for name in compared:
        expect(name in text, "%s is not in the picture" % name)
    drawn = [one.get("class") for one in root.iter("{http://www.w3.org/2000/svg}polyline")]
    equal(drawn, ["line r%d" % i for i in range(4)] * 2, "lines")
    data = json.loads(open(page).read().split('<script type="application/json" id="data">')[1].split("</script>")[0])
    equal({run["run"] for run in data["runs"]}, set(compared), "runs of the page")
    for run in data["runs"]:
        points = [json.loads(line) for line in open(run["run_dir"] + "/metrics.jsonl")]
        steps = [one["loss"] for one in points if one["event"] == "step"]
        equal([round(value, 9) for _, value in run["loss_curve"]], [round(loss, 9) for loss in steps], "losses")
        evals = [one["test_accuracy"] for one in points if one["event"] == "eval"]
        equal([value for _, value in run["accuracy_curve"]], evals, "accuracies")


@story("compare shows what is left of a sweep whose runs were removed, and keeps a run whose folder is gone")
def deleted():
    first, second, *rest = sorted(compared.values(), key=lambda run: run["id"])
    shutil.rmtree(first["run_dir"])
    found = {run["id"]: run for run in lines("compare", "--sweep", "eval")}
    equal(set(found), {run["id"] for run in compared.values()}, "runs, one without its folder")
    equal((found[first["id"]]["state"], found[first["id"]]["train_loss"]), ("done", None), "the run without a folder")
    equal(found[second["id"]], second, "another run")
    command("rm", first["id"], second["id"])
    equal({run["id"] for run in lines("compare", "--sweep", "eval")}, {run["id"] for run in rest}, "runs that are left")
    again = lines("submit", EVALUATED, "--sweep", "optimizer.sgd.lr=0.2,0.001", "--sweep", "seed=1,2")
    equal(sorted(one["known"] for one in again), [False, False, True, True], "the same sweep submits what was removed")
    command("wait", *[one["id"] for one in again])


run_stories(daemon)
