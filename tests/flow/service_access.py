"""The table of docs/SERVICE.md, cell by cell: every operation of docs/openapi.json by root, the run's owner, another of
the group, a stranger, over TCP without and with the token, for a box's service and for one user's. And the service
looks at a user's files with that user's rights only."""
import errno
import os
import re
import socket
import subprocess

import api
from api import GROUP, MEMBER, OTHER, OWNER, ROOT, Daemon, ask_as, box, expect, operations, test

api.as_root("who may do what over the socket and TCP")

SECRET = "nobody may read this"


def table():
    """Returns the documented {action: [root, owner, group, others, TCP, TCP with the token]}."""
    text = open(os.path.join(ROOT, "docs/SERVICE.md")).read()
    rows = re.findall(r"^\| ([a-z]+)(?::[^|]*)? ((?:\| (?:yes|no) ){6})\|$", text, re.M)
    return {deed: [cell == "yes" for cell in re.findall("yes|no", cells)] for deed, cells in rows}


CALLERS = ("root", "owner", "group", "other", "tcp", "token")
IDS = {"root": (0, 0, []), "owner": (OWNER, OWNER, [GROUP]), "group": (MEMBER, MEMBER, [GROUP]),
       "other": (OTHER, OTHER, [])}


def ask(daemon, caller, method, target, body=None):
    if caller == "tcp":
        return daemon.ask_tcp(method, target, body)
    if caller == "token":
        return daemon.ask_tcp(method, target, body, token=daemon.token())
    uid, gid, groups = IDS[caller]
    return ask_as(uid, gid, groups, daemon.socket, method, target, body)


def submission(daemon, **more):
    return daemon.submission(runs=daemon.dir + "/owners", **more)


def new_run(daemon):
    """Submits a run of the owner; it never starts, because no disk has that much space."""
    answer = ask(daemon, "owner", "POST", "/v1/runs", submission(daemon))
    expect(answer.status == 201, answer)
    return answer.json()["id"]


def request_of(daemon, method, path, run):
    bodies = {"/v1/runs/{id}": {"priority": -7}, "/v1/devices": {"device": "cpu", "drained": False},
              "/v1/service": {"held": False}}
    body = bodies.get(path) if method == "PATCH" else submission(daemon) if (method, path) == ("POST",
        "/v1/runs") else None
    if (method, path) == ("POST", "/v1/runs"):
        body = daemon.submission(runs="/tmp/nnpipe-nobody" if run is None else daemon.dir + "/shared")
    return path.replace("{id}", str(run)).replace("{name}", "page.js"), body


def whole_table(daemon, columns, expected_of):
    """Tests each cell; a refused request changes nothing."""
    kept = new_run(daemon) if "owner" in columns else None
    there = lambda: [(r["id"], r["state"], r["priority"]) for r in daemon.ask("GET", "/v1/runs").json()["runs"]]
    before = there()
    allowed, cells = {}, 0
    for method, path, operation in operations():
        for caller in columns:
            may = expected_of(operation["x-deed"], caller)
            if may:
                allowed.setdefault((method, path), []).append(caller)
                continue
            target, body = request_of(daemon, method, path, kept or 1)
            answer = ask(daemon, caller, method, target, body)
            expect(answer.status == 403 and answer.json()["error"]["code"] == "forbidden",
                   "%s %s by %s: %s" % (method, target, caller, answer))
            cells += 1
    expect(there() == before, "a refused request has changed something")
    for (method, path), callers in allowed.items():
        for caller in callers:
            run = new_run(daemon) if kept and method != "GET" and "{id}" in path else kept or 1
            if kept and (method == "DELETE" or path.endswith("/retry")):
                daemon.ask("POST", "/v1/runs/%d/stop" % run)
            target, body = request_of(daemon, method, path, run)
            answer = ask(daemon, caller, method, target, body)
            good = (200, 201, 204) if kept or "{id}" not in path else (404,)
            expect(answer.status in good, "%s %s by %s: %s" % (method, target, caller, answer))
            cells += 1
    return cells


def foreign_pages(daemon):
    """For any path, token and order of the request's parts."""
    here = "localhost:%d" % daemon.port
    heads = [{"Host": "evil.example"}, {"Host": "localhost.evil.example"}, {"Host": "127.0.0.1.evil.example"},
             {"Host": "0.0.0.0"}, {"Host": ""},
             {"Host": here, "Origin": "http://evil.example"}, {"Host": here, "Origin": "null"},
             {"Host": here, "Origin": "https://" + here},
             {"Host": here, "Origin": "http://localhost:1"}]
    for method, path, _ in operations():
        target, body = request_of(daemon, method, path, 1)
        for head in heads:
            answer = daemon.ask_tcp(method, target, body, token=daemon.token(), fields=head)
            expect(answer.status == 403, "%s %s with %s: %s" % (method, target, head, answer))
            expect("access-control-allow-origin" not in answer.fields, "CORS")
            expect(answer.fields.get("cross-origin-resource-policy") == "same-origin", answer.fields)
            answer = daemon.ask(method, target, body, fields=head)  # by ssh -L a browser comes to the socket, too
            expect(answer.status == 403, "%s %s on the socket with %s: %s" % (method, target, head, answer))
    expect(daemon.ask_tcp("GET", "/v1/runs", fields={"Host": here, "Origin": "http://" + here}).status == 200,
           "our own page")


def wrong_tokens(daemon):
    token = daemon.token()
    for wrong in (token[:-1], token + "0", token.upper(), "", " ", token[:-1] + "g", "0" * 64):
        answer = daemon.ask_tcp("POST", "/v1/runs/1/stop", token=wrong)
        expect(answer.status == 403 or wrong == token, "%r: %s" % (wrong, answer))
    expect(os.stat(daemon.state + "/token").st_mode & 0o777 == 0o600, "the token's mode")
    expect(os.stat(daemon.state).st_mode & 0o077 == 0, "the state folder's mode")


def nameless(daemon):
    """Over TCP without a token no response names users or files."""
    run = new_run(daemon)
    for target in ("/v1/runs/%d" % run, "/v1/runs"):
        answer = daemon.ask_tcp("GET", target)
        expect(answer.status == 200 and daemon.dir not in answer.body.decode()
               and str(OWNER) not in answer.body.decode(), answer)
        api.hold(answer, "GET", target.replace(str(run), "{id}"))
        tag = answer.fields.get("etag")
        answer = daemon.ask_tcp("GET", target, token=daemon.token(), fields={"If-None-Match": tag} if tag else None)
        expect(answer.status == 200 and daemon.dir + "/owners" in answer.body.decode()
               and str(OWNER) in answer.body.decode(), answer)
    expect(daemon.ask_tcp("GET", "/v1/runs?owner=%d" % OWNER).json()["runs"] == [], "by owner")
    expect(daemon.ask_tcp("GET", "/v1/service").json()["state_dir"] == "", "the state's folder")


def users_tokens(daemon):
    """A user's own token has their rights over TCP, until it is replaced or revoked."""
    run = new_run(daemon)
    token = lambda who: ask(daemon, who, "POST", "/v1/tokens").json()["token"]
    of_owner, of_member = token("owner"), token("group")
    by = lambda token, method, target, body=None: daemon.ask_tcp(method, target, body, token=token).status
    at = "/v1/runs/%d" % run
    expect(by(of_owner, "GET", at + "/config") == 200 and by(of_member, "GET", at + "/config") == 403, "config")
    expect(by(of_member, "POST", at + "/stop") == 403 and by(of_owner, "POST", at + "/pause") == 200, "control")
    expect(by(of_owner, "PATCH", at, {"priority": 1}) == 403, "more than on the socket")
    expect(by(of_owner, "POST", "/v1/runs", submission(daemon)) == 403, "submit")
    for method, target in (("POST", "/v1/tokens"), ("DELETE", "/v1/tokens"), ("POST", "/v1/service/reload")):
        expect(by(of_owner, method, target) == 403, target)
    caller = daemon.ask_tcp("GET", "/v1/service", token=of_owner).json()["caller"]
    expect(caller == {"uid": OWNER, "token": True, "all_runs": False}, caller)
    again = token("owner")
    expect(by(of_owner, "GET", at + "/config") == 403 and by(again, "GET", at + "/config") == 200, "the old one")
    expect(daemon.token() not in (again, of_member)
           and again.encode() not in open(daemon.state + "/queue.db", "rb").read(), "kept")
    expect(ask(daemon, "group", "DELETE", "/v1/tokens?uid=%d" % OWNER).status == 403, "another's")
    expect(ask(daemon, "owner", "DELETE", "/v1/tokens").status == 204 and by(again, "GET", at + "/config") == 403,
           "back")
    expect(ask(daemon, "root", "DELETE", "/v1/tokens?uid=%d" % MEMBER).status == 204
           and by(of_member, "PATCH", at, {"priority": 0}) == 403, "by root")
    old = daemon.token()
    expect(token("root") == daemon.token() != old and by(old, "GET", at + "/config") == 403
           and by(daemon.token(), "GET", at + "/config") == 200, "root's")


def token_command(daemon):
    """`nnpipe token` as a member: made once, remembered, replaced, revoked; root gets the service's token."""
    run = new_run(daemon)
    home = daemon.dir + "/home"
    os.makedirs(home, exist_ok=True)
    os.chown(home, OWNER, OWNER)

    def says(*words, who="owner"):
        uid, gid, groups = IDS[who]
        done = subprocess.run([api.NNPIPE, "token", *words],
                              env={"HOME": home if uid else daemon.dir + "/none", "NNPIPE_SOCKET": daemon.socket},
                              user=uid, group=gid, extra_groups=groups, cwd="/", capture_output=True, text=True,
                              timeout=60)
        expect(done.returncode == 0, done)
        return done.stdout.strip()

    may = lambda token: daemon.ask_tcp("GET", "/v1/runs/%d/config" % run, token=token).status == 200
    first = says()
    path = home + "/.local/state/nnpipe/page-token"
    expect(may(first) and says() == first and os.stat(path).st_mode & 0o777 == 0o600, "it is remembered")
    second = says("--new")
    expect(second != first and may(second) and not may(first) and says() == second, "another one")
    expect("token" in says("--revoke") and not may(second) and not os.path.exists(path), "taken back")
    os.symlink(home + "/elsewhere", path)
    expect(may(says()) and not os.path.exists(home + "/elsewhere"), "a link is not written through")
    expect(says(who="root") == daemon.token(), "root's is the service's own")


def unseen_runs(daemon):
    """For a caller who may not list runs, an existing run looks like a missing one."""
    for target in ("/v1/runs/1", "/v1/runs/999999"):
        expect(ask(daemon, "other", "GET", target).status == 403, target)
    expect(ask(daemon, "group", "GET", "/v1/runs/999999/log").status == 404, "of a member")


def put(path, text, uid=OWNER):
    with open(path, "w") as out:
        out.write(text)
    os.chown(path, uid, uid)


def own_rights(daemon):
    """A run's folder is read with its owner's rights, whoever the caller is."""
    os.chmod(daemon.dir + "/secret", 0o700)
    run = new_run(daemon)
    home = "%s/owners/a-%d" % (daemon.dir, run)
    os.makedirs(home + "/output", exist_ok=True)
    for one in (home, home + "/output"):
        os.chown(one, OWNER, OWNER)
    read = lambda what: ask(daemon, "root", "GET", "/v1/runs/%d/%s" % (run, what))
    put(home + "/output/000001", "said\n")
    put(home + "/metrics.jsonl", '{"step": 1}\n')
    expect(read("log").body == b"said\n" and len(read("metrics").json()["points"]) == 1, "files of the owner")
    os.unlink(home + "/output/000001")
    os.unlink(home + "/metrics.jsonl")
    os.symlink(daemon.dir + "/secret/000001", home + "/output/000001")
    os.symlink(daemon.dir + "/secret/metrics.jsonl", home + "/metrics.jsonl")
    expect(read("log").body == b"" and read("metrics").json()["points"] == [], "through links to files")
    os.unlink(home + "/output/000001")
    os.unlink(home + "/metrics.jsonl")
    os.mkfifo(home + "/metrics.jsonl")
    os.chown(home + "/metrics.jsonl", OWNER, OWNER)
    os.rmdir(home + "/output")
    os.symlink(daemon.dir + "/secret", home + "/output")
    expect(read("log").body == b"" and read("metrics").json()["points"] == [], "through a link to a folder, of a pipe")
    os.rename(home, home + ".away")
    os.symlink(daemon.dir + "/secret", home)
    expect(read("log").body == b"" and read("metrics").json()["points"] == [], "through a link for the whole folder")
    os.unlink(home)
    os.link(daemon.dir + "/secret/metrics.jsonl", home + ".away/hard")
    os.rename(home + ".away/hard", home + ".away/000001")
    os.rename(home + ".away", home)
    os.unlink(home + "/metrics.jsonl")
    os.rename(home + "/000001", home + "/metrics.jsonl")
    expect(SECRET.encode() not in read("metrics").body and read("metrics").json()["points"] == [],
           "through a hard link")


def own_places(daemon):
    """A submission cannot name folders that its submitter may not enter or write."""
    for path, runs in ((daemon.dir + "/secret/a.yaml", None), (None, daemon.dir + "/secret/runs"),
                       (None, daemon.dir + "/private/runs")):
        body = daemon.submission(runs=runs or daemon.dir + "/owners")
        body["path"] = path or body["path"]
        answer = ask(daemon, "owner", "POST", "/v1/runs", body)
        expect(answer.status == 422 and answer.json()["error"]["problems"], "%s %s: %s" % (path, runs, answer))
    data = daemon.submission(runs=daemon.dir + "/owners")
    data["config"] = data["config"].replace("source: synth, samples: 200, size: 32",
                                            "source: folder, path: %s/secret" % daemon.dir)
    answer = ask(daemon, "owner", "POST", "/v1/runs", data)
    expect(answer.status == 422 and SECRET not in answer.body.decode(), answer)


def same_key(daemon):
    """A key belongs to its caller: the same key of another caller makes another run."""
    key = "%032x" % 77
    first = ask(daemon, "owner", "POST", "/v1/runs", submission(daemon, key=key))
    expect(first.status == 201, first)
    other = ask(daemon, "group", "POST", "/v1/runs", daemon.submission(runs=daemon.dir + "/shared", key=key))
    expect(other.status == 201 and other.json()["uid"] == MEMBER, other)
    again = ask(daemon, "owner", "POST", "/v1/runs", submission(daemon, key=key))
    expect(again.status == 200 and again.json()["id"] == first.json()["id"], again)


def closed_socket(daemon):
    os.chmod(daemon.socket, 0o660)
    try:
        ask(daemon, "other", "GET", "/healthz")
        raise AssertionError("a stranger has opened the socket")
    except OSError as error:
        expect(error.errno == errno.EACCES, error)
    expect(ask(daemon, "group", "GET", "/healthz").status == 200, "a member")


def of_a_box():
    daemon = box("spare_bytes: 900T\n")
    try:
        mode = os.stat(daemon.socket)
        rows = table()
        for name, uid, bits in (("owners", OWNER, 0o700), ("private", MEMBER, 0o700), ("shared", 0, 0o1777),
                                ("secret", 0, 0o700)):
            os.mkdir(daemon.dir + "/" + name)
            os.chmod(daemon.dir + "/" + name, bits)
            os.chown(daemon.dir + "/" + name, uid, uid)
        put(daemon.dir + "/secret/000001", SECRET, 0)
        put(daemon.dir + "/secret/metrics.jsonl", '{"step": "%s"}\n' % SECRET, 0)
        os.chmod(daemon.dir + "/secret/metrics.jsonl", 0o600)
        with test("the documented table has a row for every action and an action for every path"):
            expect({o.get("x-deed") for _, _, o in operations()} == set(rows) and len(rows) == 7, rows)
        with test("the box's socket belongs to its group, 0660"):
            expect(mode.st_gid == GROUP and mode.st_mode & 0o777 == 0o660, oct(mode.st_mode))
        os.chmod(daemon.socket, 0o666)  # so that others get as far as the service itself
        with test("every path by every caller, for a box's service"):
            cells = whole_table(daemon, CALLERS, lambda deed, caller: rows[deed][CALLERS.index(caller)])
            expect(cells == len(list(operations())) * len(CALLERS), cells)
        for what, work in (("a foreign Host or Origin is refused for every path, whatever the token", foreign_pages),
                           ("a wrong token is none, and the right one is its user's alone", wrong_tokens),
                           ("over TCP without a token there are no names of users and files", nameless),
                           ("a user's own token has that user's rights, and no other's", users_tokens),
                           ("the command token prints, replaces and revokes a user's own", token_command),
                           ("a caller who may not list runs does not learn which exist", unseen_runs),
                           ("a run's folder is read with its owner's rights alone", own_rights),
                           ("a submission names no place that its submitter may not", own_places),
                           ("a key is its caller's", same_key),
                           ("a stranger to the group cannot open the socket", closed_socket)):
            with test(what):
                work(daemon)
        with test("the box's service ends without a complaint"):
            expect(daemon.stop() == 0, "exit code")
    finally:
        daemon.close()


def of_one_user():
    rows = table()
    daemon = Daemon(prefix=["setpriv", "--reuid", str(OWNER), "--regid", str(OWNER), "--clear-groups"], owner=OWNER)
    try:
        with test("a user's socket is private, 0600"):
            expect(os.stat(daemon.socket).st_mode & 0o777 == 0o600, "mode")
        os.chmod(daemon.socket, 0o666)
        expected = {"root": 0, "owner": 0, "group": 3, "other": 3, "tcp": 4, "token": 5}  # the column that each is in
        with test("every path by every caller, for one user's service"):
            for method, path, operation in operations():
                for caller, column in expected.items():
                    target, body = request_of(daemon, method, path, 999999)
                    answer = ask(daemon, caller, method, target, body)
                    may = rows[operation["x-deed"]][column]
                    missing = "{id}" in path and rows["list"][column] and operation["x-deed"] != "list"
                    expect((answer.status != 403) == (may or missing),
                           "%s %s by %s: %s" % (method, target, caller, answer))
        with test("the user's service ends without a complaint"):
            expect(daemon.stop() == 0, "exit code")
    finally:
        daemon.close()


of_a_box()
of_one_user()
api.done()
