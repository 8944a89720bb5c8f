"""Compares with docs/openapi.json: every operation with every documented status, every route of the server, and the
output of commands with --json."""
import glob
import json
import os
import re
import subprocess
import threading
import time

import api
from api import NNPIPE, ROOT, Daemon, ask, expect, hold, operations, test, validate

MISSING = 999999
# Not provoked here: where it is.
ELSEWHERE = {
    429: "tests/flow/service_limits.py has a queue of a box",
    403: "tests/flow/service_access.py asks as everybody",
    503: "tests/flow/service_health.py fills a disk; tests/flow/service_load.py asks too much at a time",
    507: "tests/flow/service_health.py fills a disk",
    500: "a run's folder on a disk that hangs",
}
daemon = Daemon(settings="spare_bytes: 1M\nretry: {first: 0.1, cap: 1}\n")
seen = set()


def case(method, path, status, target=None, body=None, fields=None):
    """Sends a request that must get that status, with a documented answer, and returns the answer."""
    answer = daemon.ask(method, target or path, body, fields)
    expect(answer.status == status, "%s %s: %s, not %d" % (method, target or path, answer, status))
    hold(answer, method, path)
    seen.add((method, path, status))
    return answer


def key(n):
    return "%032x" % n


def submitting():
    submission = daemon.submission
    run = case("POST", "/v1/runs", 201, body=submission(key=key(1), name="x", priority=3)).json()
    expect(run["name"] == "x" and run["priority"] == 3 and run["max_retries"] == 3, run)
    expect(daemon.submit() != daemon.submit(), "two without a key are one")
    again = case("POST", "/v1/runs", 200, body=submission(key=key(1), name="x")).json()
    expect(again["id"] == run["id"], again)
    case("POST", "/v1/runs", 409, body=submission(key=key(1), steps=6))
    case("POST", "/v1/runs", 409, body=dict(submission(key=key(1)), path=daemon.dir + "/b.yaml"))
    for wrong in ({"priority": 101}, {"priority": 1.5}, {"priority": "1"}, {"priority": True}, {"after": [0]},
                  {"after": ["1"]}, {"after": list(range(1, 18))}, {"name": "../a"}, {"name": ""}, {"key": "x"},
                  {"device": "tpu"},
                  {"max_retries": -1}, {"overrides": ["x"]}, {"overrides": "a=b"}, {"path": "a.yaml"},
                  {"path": "/a\x1b[m"},
                  {"path": "/" + "a" * 4000}, {"config": None}, {"nonsense": 1},
                  {"priority": 3.0}, {"max_retries": 1e2}, {"after": [1.0]}, {"memory": 1e9}, {"umask": 18.0}):
        case("POST", "/v1/runs", 400, body=dict(submission(), **wrong))
    for wrong in ("1e1", "1E+1", "100e-1", "10.0"):
        body = json.dumps(submission(priority=10)).replace('"priority": 10', '"priority": ' + wrong)
        case("POST", "/v1/runs", 400, body=body.encode(), fields={"Content-Type": "application/json"})
    for wrong in (b"", b"{", b"[]", b"1", b'{"config": "a", "config": "b", "path": "/a"}',
                  b'{"config": "\\u0000", "path": "/a"}',
                  b'{"config": "\xff", "path": "/a"}', b"[" * 100000, b'{"priority": 1e999}',
                  b'{"a": [' + b"1," * 400000 + b"1]}"):
        case("POST", "/v1/runs", 400, body=wrong, fields={"Content-Type": "application/json"})
    case("POST", "/v1/runs", 404, body=submission(after=[MISSING]))
    lacking = case("POST", "/v1/runs", 422, body=submission(device="gpu"))
    expect(b"no device 'cuda'" in lacking.body, lacking.body)
    case("POST", "/v1/runs", 413, body=b" " * ((1 << 20) + 1), fields={"Content-Type": "application/json"})
    began = time.monotonic()
    case("POST", "/v1/runs", 400, body=b" " * (1 << 20), fields={"Content-Type": "application/json"})
    expect(time.monotonic() - began < 20, "a large body takes %.1f s" % (time.monotonic() - began))
    case("POST", "/v1/runs", 415, body=b"{}", fields={"Content-Type": "text/plain"})
    wrong = case("POST", "/v1/runs", 422, body=dict(submission(), config="name: a\nlodaer: 1\n")).json()["error"]
    at = [problem["line"] for problem in wrong["problems"] if "lodaer" in problem["text"]]
    expect(at == [2] and wrong["problems"][0]["file"] == daemon.dir + "/a.yaml", wrong)
    expect(case("POST", "/v1/runs", 422, body=submission(device="cuda:7")).json()["error"]["problems"], "no problems")
    case("POST", "/v1/runs", 422, body=dict(submission(), path="/nowhere/at/all/a.yaml"))


def one_run():
    """A run from submission to its end, with everything that can be read of it."""
    run = daemon.submit(steps=10, max_retries=0)
    at = "/v1/runs/%d" % run
    daemon.becomes(run, "done")
    case("GET", "/v1/runs/{id}", 200, at)
    expect(case("GET", "/v1/runs/{id}", 200, at + "?wait=5&state=queued,running").json()["state"] == "done", "state")
    case("GET", "/v1/runs/{id}", 400, at + "?wait=x&state=done")
    case("GET", "/v1/runs/{id}", 400, at + "?wait=1&state=dead")
    expect(b"model:" in case("GET", "/v1/runs/{id}/config", 200, at + "/config").body, "config")
    keys = case("GET", "/v1/runs/{id}/config", 200, at + "/config?flat=1").json()["keys"]
    expect((keys["loader.batch"], keys["model.0.conv.out"]) == ("32", "4"), keys)
    case("GET", "/v1/runs/{id}/config", 400, at + "/config?flat=2")
    log = case("GET", "/v1/runs/{id}/log", 200, at + "/log")
    expect(b"done" in log.body, log)
    rest = case("GET", "/v1/runs/{id}/log", 200, at + "/log?wait=5&from=" + log.fields["x-next"])
    expect(rest.body == b"" and rest.fields["x-next"] == log.fields["x-next"], rest)
    expect(len(case("GET", "/v1/runs/{id}/log", 200, at + "/log?tail=7").body) == 7, "tail")
    for wrong in ("from=1", "from=1:", "from=:1", "from=-1:0", "from=1:99999999999999999999", "tail=-1", "tail=x",
                  "wait=nan", "wait=1e9"):
        case("GET", "/v1/runs/{id}/log", 400, at + "/log?" + wrong)
    metrics = case("GET", "/v1/runs/{id}/metrics", 200, at + "/metrics").json()
    expect(metrics["points"] and metrics["next"] > 0, metrics)
    expect(case("GET", "/v1/runs/{id}/metrics", 200, at + "/metrics?from=%d" % metrics["next"]).json()["points"] == [],
           "from")
    expect(len(case("GET", "/v1/runs/{id}/metrics", 200, at + "/metrics?most=1").json()["points"]) == 1, "most")
    for wrong in ("from=-1", "from=x", "from=", "most=0", "from=99999999999999999999"):
        case("GET", "/v1/runs/{id}/metrics", 400, at + "/metrics?" + wrong)
    for what in ("stop", "pause", "resume"):
        case("POST", "/v1/runs/{id}/" + what, 409, at + "/" + what)
    case("DELETE", "/v1/runs/{id}", 204, at)
    for method, path, operation in operations():
        if "{id}" in path:
            body = {"priority": 1} if method == "PATCH" else None
            for missing in (at, "/v1/runs/%d" % MISSING, "/v1/runs/999999999999999999"):
                case(method, path, 404, path.replace("/v1/runs/{id}", missing), body)


def changes():
    """Requests for runs that are running, queued and finished."""
    busy, waits = daemon.submit(steps=100000), daemon.submit()
    at = "/v1/runs/%d" % waits
    daemon.becomes(busy, "running")
    expect(case("PATCH", "/v1/runs/{id}", 200, at, {"priority": -100}).json()["priority"] == -100, "priority")
    for wrong in ({}, {"priority": 101}, {"priority": "1"}, {"priority": None}, {"priority": 1, "name": "b"}, [],
                  {"priority": [1]}):
        case("PATCH", "/v1/runs/{id}", 400, at, wrong)
    case("PATCH", "/v1/runs/{id}", 415, at, b'{"priority": 1}', {"Content-Type": "application/x-www-form-urlencoded"})
    case("DELETE", "/v1/runs/{id}", 409, at)
    expect(case("POST", "/v1/runs/{id}/pause", 200, at + "/pause").json()["state"] == "paused", "pause")
    expect(case("POST", "/v1/runs/{id}/resume", 200, at + "/resume").json()["state"] == "queued", "resume")
    expect(case("POST", "/v1/runs/{id}/hold", 200, at + "/hold").json()["state"] == "paused", "hold")
    expect(case("POST", "/v1/runs/{id}/retry", 409, at + "/retry"), "a run that is paused is no failed one")
    expect(case("POST", "/v1/runs/{id}/stop", 200, at + "/stop").json()["state"] == "stopped", "stop")
    case("POST", "/v1/runs/{id}/hold", 409, at + "/hold")
    for wrong in ({"time_limit": 0}, {"time_limit": -1}, {"time_limit": "1h"}, {"time_limit": 1e12}, {"priority": 1},
                  [1]):
        case("POST", "/v1/runs/{id}/retry", 400, at + "/retry", wrong)
    case("POST", "/v1/runs/{id}/retry", 415, at + "/retry", b"{}", {"Content-Type": "text/plain"})
    daemon.write_settings("", devices="sim")
    expect(daemon.ask("POST", "/v1/service/reload").status == 204, "reload")
    case("POST", "/v1/runs/{id}/retry", 422, at + "/retry")
    daemon.write_settings("")
    expect(daemon.ask("POST", "/v1/service/reload").status == 204, "reload")
    expect(case("POST", "/v1/runs/{id}/retry", 200, at + "/retry", {"time_limit": 60}).json()["time_limit"] == 60,
           "retry")
    expect(case("PATCH", "/v1/runs/{id}", 200, at, {"time_limit": None}).json()["time_limit"] is None, "no limit")
    daemon.ask("POST", at + "/stop")
    large, kind = b" " * ((1 << 20) + 1), {"Content-Type": "application/json"}
    for method, path, target in (("PATCH", "/v1/runs/{id}", at), ("POST", "/v1/runs/{id}/retry", at + "/retry"),
                                 ("PATCH", "/v1/devices", None), ("PATCH", "/v1/service", None)):
        case(method, path, 413, target, large, kind)
    devices = case("GET", "/v1/devices", 200).json()["devices"]
    expect(devices == [{"name": "cpu", "slots": 1, "state": "ok", "reason": "", "runs": [busy], "busy": 1,
                        "reserved": 0, "reserved_for": None}], devices)
    daemon.ask("POST", "/v1/runs/%d/stop" % busy)
    daemon.becomes(busy, "stopped")


def holding_back():
    """A device, and the whole queue."""
    for path, good, wrongs in (("/v1/devices", {"device": "cpu", "drained": True},
                                ({"device": "cpu"}, {"drained": True}, {"device": 1, "drained": True},
                                 {"device": "cpu", "drained": "true"}, {"device": "cpu", "drained": True, "x": 1})),
                               ("/v1/service", {"held": True},
                                ({}, {"held": 1}, {"held": None}, {"held": True, "x": 1}))):
        for wrong in wrongs + ([],):
            case("PATCH", path, 400, body=wrong)
        case("PATCH", path, 415, body=b"{}", fields={"Content-Type": "text/plain"})
        case("PATCH", path, 200, body=good)
    case("PATCH", "/v1/devices", 404, body={"device": "cuda:9", "drained": True})
    expect(case("GET", "/v1/devices", 200).json()["devices"][0]["state"] == "drained", "drained")
    expect(case("GET", "/v1/service", 200).json()["held"], "held")
    case("PATCH", "/v1/devices", 200, body={"device": "cpu", "drained": False})
    expect(not case("PATCH", "/v1/service", 200, body={"held": False}).json()["held"], "released")


def the_service():
    case("POST", "/v1/tokens", 201)
    case("DELETE", "/v1/tokens", 204)
    case("DELETE", "/v1/tokens", 400, "/v1/tokens?uid=ann")
    service = case("GET", "/v1/service", 200).json()
    expect(service["pid"] == daemon.process.pid and service["mode"] == "user", service)
    case("GET", "/healthz", 200)
    case("GET", "/metrics", 200)
    case("GET", "/openapi.json", 200)
    page = case("GET", "/", 200).body.decode()
    for asset in set(re.findall(r'"(/assets/[^"]+)"', page)):
        case("GET", "/assets/{name}", 200, asset)
    for wrong in ("/assets/", "/assets/../../../etc/passwd", "/assets/%2e%2e/%2e%2e/etc/passwd", "/assets//etc/passwd",
                  "/assets/x"):
        case("GET", "/assets/{name}", 404, wrong)
    case("POST", "/v1/service/reload", 204)
    daemon.write_settings("nonsense: 1\n")
    case("POST", "/v1/service/reload", 422)
    daemon.write_settings("")
    expect(len(case("GET", "/v1/runs", 200, "/v1/runs?state=done,stopped,failed").json()["runs"]) > 0, "list")
    mine = case("GET", "/v1/runs", 200).json()["runs"]
    for owner in (mine[0]["owner"], str(os.getuid())):
        expect(case("GET", "/v1/runs", 200, "/v1/runs?owner=" + owner).json()["runs"] == mine, "owner " + owner)
    expect(case("GET", "/v1/runs", 200, "/v1/runs?owner=nobody-of-this-name").json()["runs"] == [], "owner")
    expect(case("GET", "/v1/runs", 200, "/v1/runs?owner=4294967296").json()["runs"] == [], "owner beyond")
    for wrong in ("state=done,deaf", "limit=0", "limit=x", "tail=-1", "after=-1", "name=" + "a" * 101):
        case("GET", "/v1/runs", 400, "/v1/runs?" + wrong)
    ids = [run["id"] for run in mine]
    pages = lambda query: [run["id"] for run in case("GET", "/v1/runs", 200, "/v1/runs?" + query).json()["runs"]]
    expect(pages("after=%d&limit=1" % ids[0]) == ids[1:2] and pages("tail=2") == ids[-2:]
           and pages("limit=999&tail=999") == ids, "pages")
    tag = case("GET", "/v1/runs", 200).fields["etag"]
    case("GET", "/v1/runs", 304, fields={"If-None-Match": '"x", ' + tag})


def every_status():
    documented = {(m, p, int(s)) for m, p, operation in operations() for s in operation["responses"]}
    left = {one for one in documented - seen if one[2] not in ELSEWHERE}
    expect(not left, "never provoked: %s" % sorted(left))


def every_route():
    """The table of routes in the server's source is the documented one."""
    source = open(os.path.join(ROOT, "daemon/service/http/routes.c")).read()
    routes = {(m, p.replace("#", "{id}").replace("*", "{name}")) for m,
              p in re.findall(r'\{"([A-Z]+)", "([^"]+)", NP_ACTION', source)}
    documented = {(m, p) for m, p, _ in operations()}
    expect(routes and routes == documented, "only here or there: %s" % sorted(routes ^ documented))


def every_error():
    """The codes of errors and their statuses in the sources are those of docs/SERVICE.md and of docs/openapi.json."""
    sources = "".join(open(path).read() for path in glob.glob(os.path.join(ROOT, "daemon/service/http/*.c")))
    pairs = set(re.findall(r'(?:np_answer_error\(\s*&?|\{-?)\w+,\s*(\d+),\s*"(\w+)"', sources)) | {("405", "method"),
        ("413", "invalid")}
    text = open(os.path.join(ROOT, "docs/SERVICE.md")).read()
    text = text.split("`code` is one of")[1].split("To bytes that are not HTTP")[0]
    documented = {(status, code) for code, statuses in re.findall(r"`(\w+)` \(([^)]*)\)", text)
            for status in re.findall(r"\b\d{3}\b", statuses)}
    expect(len(pairs) > 8 and pairs == documented,
           "only in sources or docs/SERVICE.md: %s" % sorted(pairs ^ documented))
    codes = api.API["components"]["schemas"]["Error"]["properties"]["error"]["properties"]["code"]["enum"]
    expect(set(codes) == {code for _, code in documented}, "docs/openapi.json: %s" % codes)


def security():
    """A token gives the rights of docs/SERVICE.md's table, and openapi.json marks them."""
    with_token = {"read", "control"}
    for method, path, operation in operations():
        expect(operation["security"] == ([{}, {"token": []}] if operation["x-deed"] in with_token else [{}]),
               (method, path))
        expect("500" in operation["responses"] or not path.startswith("/v1"), "%s %s: no 500" % (method, path))
        expect(method == "GET" or {"503", "507"} <= set(operation["responses"]),
               "%s %s: no 503 or 507" % (method, path))


def other_methods():
    for path, item in api.API["paths"].items():
        target = path.replace("{id}", "1").replace("{name}", "page.js")
        allowed = {m.upper() for m in item if m in api.METHODS}
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "get", "BREW"):
            if method in allowed:
                continue
            answer = daemon.ask(method, target)
            expect(answer.status == 405, "%s %s: %s" % (method, path, answer))
            validate(answer.json(), {"$ref": "#/components/schemas/Error"})
            expect(set(answer.fields["allow"].split(", ")) == allowed | ({"HEAD"} if "GET" in allowed else set()),
                   answer.fields)
    for target in ("/v1", "/v1/", "/v1/runs/", "/v1/runs/x", "/v1/runs/0", "/v1/runs/01", "/v1/runs/-1", "/v1/runs/1/",
                   "/v1/runs/1/x",
                   "/v1/runs/9999999999999999999999", "/healthz/", "//healthz", "/v2/runs", "/%2e%2e/v1/runs", "*"):
        answer = daemon.ask("GET", target)
        expect(answer.status == 404 and answer.json()["error"]["code"] == "not_found", "%s: %s" % (target, answer))
        validate(answer.json(), {"$ref": "#/components/schemas/Error"})


def heads():
    """As GET, without the body."""
    for target in ("/healthz", "/v1/devices", "/openapi.json", "/v1/runs/999999", "/assets/page.js"):
        answer, head = daemon.ask("GET", target), daemon.ask("HEAD", target)
        expect(head.status == answer.status and head.body in ("", b"") and head.type == answer.type,
               "%s: %s" % (target, head))


def long_polls():
    """Long polls end with the run, with its removal, with their timeout, and with the daemon."""
    paused = daemon.submit()
    at = "/v1/runs/%d" % paused
    answers = {}

    def wait(name, target):
        answers[name] = daemon.ask("GET", target)

    def begin(name, target):
        thread = threading.Thread(target=wait, args=(name, target))
        thread.start()
        return thread

    daemon.becomes(paused, "done")
    threads = [begin("time", at + "?wait=1&state=done"), begin("gone", at + "?wait=30&state=done")]
    threads[0].join()
    expect(answers["time"].status == 200, answers["time"])
    daemon.ask("DELETE", at)
    threads[1].join(5)
    expect(answers["gone"].status == 404, answers.get("gone"))
    busy = daemon.submit(steps=100000)
    waits = daemon.submit()
    threads = [begin("log", "/v1/runs/%d/log?wait=60" % waits),
               begin("state", "/v1/runs/%d?wait=60&state=queued" % waits)]
    while daemon.ask("GET", "/v1/runs/%d/log?wait=0.1" % waits).status != 200:
        pass
    daemon.ask("POST", "/v1/runs/%d/stop" % waits)
    for thread in threads:
        thread.join(5)
    expect(answers["log"].status == 200 and answers["state"].json()["state"] == "stopped", answers)
    threads = [begin("end", "/v1/runs/%d?wait=60&state=running,stopping,queued" % busy),
               begin("end log", "/v1/runs/%d/log?wait=60&from=1:99999999" % busy)]
    daemon.becomes(busy, "running")
    expect(daemon.stop() == 0, "the daemon's exit code")
    for thread in threads:
        thread.join(5)
    for name in ("end", "end log"):
        expect(answers[name].status in (200, 503), answers[name])
    daemon.start()
    daemon.ask("POST", "/v1/runs/%d/stop" % busy)
    daemon.becomes(busy, "stopped")


def lines_of(*command):
    environment = dict(os.environ, NNPIPE_SOCKET=daemon.socket)
    done = subprocess.run([NNPIPE] + list(command), capture_output=True, env=environment, timeout=60)
    expect(done.returncode == 0, "%s: %s" % (command, done))
    return [api.json.loads(line) for line in done.stdout.decode().splitlines()]


def line_fields():
    """The fields of a run's line, as the table of docs/SERVICE.md has them."""
    with open(os.path.join(ROOT, "docs", "SERVICE.md")) as text:
        table = text.read().split("Every other line is a run, ")[1].split("\n## ")[0]
    cells = [row.split("|")[1] for row in table.splitlines() if row.startswith("| `")]
    return set(name.strip() for cell in cells for part in cell.split("`")[1::2] for name in part.split(","))


def are(lines, least=1):
    expect(len(lines) >= least, "no line")
    for line in lines:
        expect(line.pop("event") == "run" and set(line) == line_fields(), set(line) ^ line_fields())
        expect(isinstance(line["id"], int) and isinstance(line["name"], str), line)
        validate(line["state"], api.API["components"]["schemas"]["Run"]["properties"]["state"])
        expect(line["submitted_at"] > 1.7e9 and os.path.isabs(line["run_dir"]), line)


def commands():
    with open(daemon.dir + "/a.yaml", "w") as out:
        out.write(daemon.config_text(steps=100000))
    submitted = lines_of("submit", daemon.dir + "/a.yaml", "--json", "-o", "name=b")
    number = str(submitted[0]["id"])
    expect(submitted == [{"event": "submitted", "id": int(number), "name": "b"}], submitted)
    daemon.becomes(int(number), "running")
    are(lines_of("ls", "--json"))
    are(lines_of("ls", "--all", "--mine", "--json"), 2)
    about, = lines_of("status", "--json")
    expect(about.pop("event") == "service", about)
    validate(about, {"$ref": "#/components/schemas/Service"})
    are(lines_of("status", number, "--json"))
    are(lines_of("pause", number, "--json"))
    daemon.becomes(int(number), "paused")
    are(lines_of("resume", number, "--json"))
    are(lines_of("priority", number, "-3", "--json"))
    are(lines_of("stop", number, "--json"))
    daemon.becomes(int(number), "stopped")
    are(lines_of("retry", number, "--json"))
    daemon.becomes(int(number), "running")
    are(lines_of("stop", number, "--json"))
    daemon.becomes(int(number), "stopped")
    removed = lines_of("rm", number, "--json")
    expect(removed[0]["event"] == "removed" and removed[0]["id"] == int(number), removed)


try:
    for what, work in (
            ("submissions are taken or refused as documented", submitting),
            ("a run's folder is read as documented", one_run),
            ("runs are changed as documented", changes),
            ("a device and the queue are held back as documented", holding_back),
            ("the service's own paths answer as documented", the_service),
            ("long polls end with what they wait for, with their run and with the daemon", long_polls),
            ("every documented status was provoked", every_status),
            ("the server's routes are the documented ones", every_route),
            ("every code of an error is documented, with its statuses", every_error),
            ("every operation says which errors and which token it has", security),
            ("HEAD answers as GET does, without a body", heads),
            ("other methods and paths are 405 and 404 with an error object", other_methods),
            ("every command's --json is of the documented kinds", commands)):
        with test(what):
            work()
    with test("the daemon ends without a complaint"):
        expect(daemon.stop() == 0, "exit code")
finally:
    daemon.close()
api.done()
