"""Helpers for tests of the service over HTTP: a daemon of their own, requests as other users, and a check of answers
against docs/openapi.json. Prints `ok - ` and `not ok - ` lines as tests/lib.sh does. cli.py has those for commands."""
import atexit
import contextlib
import http.client
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
NNPIPE = os.environ.get("NNPIPE", os.path.join(ROOT, "nnpipe"))
API = json.load(open(os.path.join(ROOT, "docs/openapi.json")))
SLOW = "build-" in os.environ.get("NNPIPE_BUILD", "")  # a sanitizer's build
METHODS = ("get", "post", "patch", "delete", "put", "head", "options")
failed = 0


def own_folders():
    """Gives the programs of this test a cache and a folder for sockets of their own, as tests/lib.sh does."""
    folder, owner = tempfile.mkdtemp(prefix="nnpipe-own.", dir=os.environ.get("TMPDIR", "/tmp")), os.getpid()
    os.environ.update(XDG_CACHE_HOME=folder + "/cache", XDG_RUNTIME_DIR=folder)
    atexit.register(lambda: os.getpid() == owner and shutil.rmtree(folder, ignore_errors=True))


own_folders()


def ok(what):
    print("ok - " + what, flush=True)


def not_ok(what, why):
    """why: its first line is printed after the test's sentence, the others (command, expected, seen) below it."""
    global failed
    failed += 1
    first, _, rest = str(why).strip().partition("\n")
    print("not ok - %s: %s" % (what, first[:400]), flush=True)
    for line in rest.split("\n")[:20] if rest else []:
        print("#   " + line[:300], flush=True)


def skip(what, why):
    print("skip - %s: %s" % (what, why), flush=True)


@contextlib.contextmanager
def test(what):
    began = time.monotonic()
    try:
        yield
        ok("%s (%.1f s)" % (what, time.monotonic() - began) if os.environ.get("TIMES") else what)
    except Exception as error:  # any exception fails the test
        not_ok(what, "%s: %s" % (type(error).__name__, error))


def expect(is_so, why):
    if not is_so:
        raise AssertionError(why)


def equal(saw, expected, what):
    expect(saw == expected, "%s\nexpected: %r\nsaw:      %r" % (what, expected, saw))


def raises(kind, text, call):
    """call() raises an exception of this kind that says the text."""
    try:
        call()
    except kind as error:
        expect(text in str(error), "%r does not say %r" % (error, text))
    else:
        raise AssertionError("no %s was raised" % kind.__name__)


def settles(what, why, seconds=180):
    """Calls what() until it returns a true value, and returns that; why: a text, or a function that makes one."""
    end = time.monotonic() + (3 * seconds if SLOW else seconds)
    while True:
        found = what()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError("%s (waited %d s)" % (why() if callable(why) else why, seconds))
        time.sleep(0.05)


STORIES = []


def story(what):
    """Decorator: makes a function the test of that sentence. run_stories() runs them in order."""
    def keep(body):
        STORIES.append((what, body))
        return body
    return keep


def run_stories(daemon=None):
    """Runs all stories, closes the daemon, and ends the program: with 1 if one has failed."""
    try:
        for what, body in STORIES:
            with test(what):
                body()
    finally:
        if daemon:
            daemon.close()
    done()


def as_root(what):
    """Skips the whole program if it cannot become other users with an /etc of its own."""
    if os.getuid() != 0:
        skip(what, "only root can be other users")
    elif subprocess.run(["unshare", "-m", "true"], stderr=subprocess.DEVNULL).returncode:
        skip(what, "no mount namespace here, in which /etc has other users and groups")
    else:
        return
    sys.exit(0)


def done():
    sys.exit(1 if failed else 0)


# --- requests -------------------------------------------------------------------------------------


class Answer:
    def __init__(self, status, fields, body):
        self.status, self.fields, self.body = status, fields, body
        self.type = (fields.get("content-type") or "").split(";")[0]

    def json(self):
        return json.loads(self.body)

    def __str__(self):
        return "%d %s" % (self.status, self.body[:300])


class OverUnix(http.client.HTTPConnection):
    def __init__(self, path, timeout):
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def ask(connection, method, target, body=None, fields=None):
    """Sends one request and returns its Answer; body: bytes, or a value to send as JSON."""
    fields = dict(fields or {})
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
        fields.setdefault("Content-Type", "application/json")
    connection.request(method, target, body=body, headers=fields)
    answer = connection.getresponse()
    taken = Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
    connection.close()
    return taken


def ask_as(uid, gid, groups, path, method, target, body=None):
    """The same over the Unix socket as another user, from a child process."""
    if uid == os.getuid():
        return ask(OverUnix(path, 20), method, target, body)
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups(groups)
            os.setresgid(gid, gid, gid)
            os.setresuid(uid, uid, uid)
            answer = ask(OverUnix(path, 20), method, target, body)
            said = {"status": answer.status, "fields": answer.fields, "body": answer.body.decode("latin1")}
            code = 0
        except OSError as error:
            said = {"error": error.errno, "text": str(error)}
            code = 0
        finally:
            if code == 0:
                with os.fdopen(write_end, "w") as out:
                    json.dump(said, out)
            os._exit(code)
    os.close(write_end)
    with os.fdopen(read_end) as child_output:
        text = child_output.read()
    os.waitpid(child, 0)
    said = json.loads(text)
    if "error" in said:
        raise OSError(said["error"], said["text"])
    return Answer(said["status"], said["fields"], said["body"].encode("latin1"))


# --- docs/openapi.json ----------------------------------------------------------------------------


def operations():
    """Yields (method, path, operation) for every operation."""
    for path, item in API["paths"].items():
        for method, operation in item.items():
            if method in METHODS:
                yield method.upper(), path, operation


KNOWN_WORDS = {"type", "enum", "properties", "required", "additionalProperties", "items", "oneOf", "pattern",
               "minimum", "maximum", "maxItems", "maxLength", "description", "$ref"}
TYPES = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


def is_of_type(value, name):
    if name == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    if name == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, TYPES[name])


def validate(value, schema, at="$"):
    """Raises if the value does not fit the schema, or if the schema has a word that this function lacks."""
    expect(not set(schema) - KNOWN_WORDS, "%s: the schema's %s is not known" % (at, set(schema) - KNOWN_WORDS))
    if "$ref" in schema:
        return validate(value, API["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]], at)
    if "oneOf" in schema:
        fit = 0
        for one in schema["oneOf"]:
            with contextlib.suppress(AssertionError):
                validate(value, one, at)
                fit += 1
        expect(fit == 1, "%s: %d of oneOf fit %r" % (at, fit, value))
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    expect(not types or any(is_of_type(value, t) for t in types), "%s: %r is no %s" % (at, value, types))
    expect("enum" not in schema or value in schema["enum"], "%s: %r is not in enum" % (at, value))
    if isinstance(value, str):
        expect(re.search(schema.get("pattern", ""), value) is not None, "%s: %r against pattern" % (at, value))
    if isinstance(value, (int, float)):
        expect(schema.get("minimum", value) <= value <= schema.get("maximum", value),
               "%s: %r out of bounds" % (at, value))
    if isinstance(value, dict):
        known = schema.get("properties", {})
        for key in schema.get("required", []):
            expect(key in value, "%s: no %s" % (at, key))
        for key, part in value.items():
            expect(key in known or schema.get("additionalProperties", True), "%s: %s is not documented" % (at, key))
            if key in known:
                validate(part, known[key], at + "." + key)
    if isinstance(value, list) and "items" in schema:
        for i, part in enumerate(value):
            validate(part, schema["items"], "%s[%d]" % (at, i))
    return None


def hold(answer, method, path):
    """Raises if the answer differs from docs/openapi.json's description of the operation."""
    operation = API["paths"][path][method.lower()]
    said = operation["responses"].get(str(answer.status))
    expect(said is not None, "%s %s: status %d is not documented: %s" % (method, path, answer.status, answer))
    content = said.get("content")
    if not content:
        expect(answer.body == b"", "%s %s: a body where none is documented" % (method, path))
        return
    schema = content.get(answer.type, content.get("*/*", {})).get("schema")
    expect(schema is not None, "%s %s: %s is not documented" % (method, path, answer.type))
    for name, field in said.get("headers", {}).items():
        expect(name.lower() in answer.fields, "%s %s: no %s" % (method, path, name))
        validate(answer.fields[name.lower()], field["schema"], name)
    validate(answer.json() if answer.type == "application/json" else answer.body.decode(), schema)


# --- a daemon -------------------------------------------------------------------------------------


def free_port():
    """Returns a free port below the system's ephemeral ports, so that no connection takes it before the daemon."""
    for port in random.sample(range(10000, 32768), 1000):
        with socket.socket() as one, contextlib.suppress(OSError):
            one.bind(("127.0.0.1", port))
            return port
    raise RuntimeError("no port is free")


class Daemon:
    """A daemon in a temporary folder. settings: lines of service.yaml. prefix: words before its command. device: of
    the settings and of config_text(); runs on sim take no CPU time to speak of."""

    def __init__(self, settings="", args=(), prefix=(), tcp=True, owner=None, state=None, device="cpu"):
        self.dir = tempfile.mkdtemp(prefix="nnpipe-api.", dir=os.environ.get("TMPDIR", "/tmp"))
        os.chmod(self.dir, 0o755)
        self.state = state or os.path.join(self.dir, "state")
        self.socket = os.path.join(self.dir, "socket")
        self.runs = os.path.join(self.dir, "runs")
        self.port = free_port() if tcp else 0
        self.args, self.prefix, self.device = list(args), list(prefix), device
        self.config = os.path.join(self.dir, "service.yaml")
        self.write_settings(settings)
        os.mkdir(self.runs)
        os.chmod(self.runs, 0o1777)
        if owner is not None:
            os.chown(self.dir, owner, -1)
        self.process = None
        self.start()

    def write_settings(self, settings, devices=None):
        listen = "listen: 127.0.0.1:%d\n" % self.port if self.port else ""
        with open(self.config, "w") as out:
            out.write("devices: [%s]\n" % (devices or self.device) + settings + listen)

    def start(self):
        command = self.prefix + [getattr(self, "program", NNPIPE), "daemon", "--config", self.config, "--state",
                                 self.state, "--socket", self.socket] + self.args
        self.log = open(os.path.join(self.dir, "daemon.log"), "a")
        environment = dict(os.environ, HOME=self.dir, XDG_CACHE_HOME=os.path.join(self.dir, "cache"))
        self.process = subprocess.Popen(command, stderr=self.log, stdin=subprocess.DEVNULL, env=environment)
        for _ in range(1200):
            time.sleep(0.05)
            with contextlib.suppress(OSError):
                if self.ask("GET", "/healthz").status:
                    return
            if self.process.poll() is not None:
                break
        raise RuntimeError("the daemon does not start: " + open(self.log.name).read()[-500:])

    def ask(self, method, target, body=None, fields=None, timeout=30):
        return ask(OverUnix(self.socket, timeout), method, target, body, fields)

    def ask_tcp(self, method, target, body=None, token=None, fields=None, timeout=30):
        fields = dict(fields or {})
        if token:
            fields["Authorization"] = "Bearer " + token
        return ask(http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout), method, target, body, fields)

    def token(self):
        return open(os.path.join(self.state, "token")).read()

    def config_text(self, name="a", steps=5, runs=None):
        return ("name: %s\ndevice: %s\n"
                "data: {train: {source: synth, samples: 200, size: 32}}\nloader: {batch: 32, cache: none}\n"
                "model: [{conv: {out: 4, kernel: 3}}, global_avgpool, {linear: {out: classes}}]\n"
                "train: {steps: %d, eval_every: never}\ncheckpoint: {every: 20 steps}\nruns: %s\n"
                % (name, self.device, steps, runs or self.runs))

    def submission(self, name="a", steps=5, runs=None, **more):
        return dict({"config": self.config_text(name, steps, runs), "path": self.dir + "/a.yaml"}, **more)

    def submit(self, **what):
        answer = self.ask("POST", "/v1/runs", self.submission(**what))
        expect(answer.status == 201, "submit: %s" % answer)
        return answer.json()["id"]

    def entry(self, run):
        """Returns GET /v1/runs/ID."""
        return self.ask("GET", "/v1/runs/%d" % run).json()

    def state_of(self, run):
        return self.entry(run)["state"]

    def becomes(self, run, *states):
        for _ in range(1800):
            if self.state_of(run) in states:
                return
            time.sleep(0.1)
        raise AssertionError("run %d is %s, not %s" % (run, self.state_of(run), states))

    def stop(self, number=signal.SIGTERM):
        """Ends the daemon and returns its exit code; fails if a sanitizer reported an error."""
        if self.process.poll() is None:
            self.process.send_signal(number)
        code = self.process.wait(60)
        said = open(self.log.name).read()
        expect("ERROR: AddressSanitizer" not in said and "runtime error" not in said, said[-2000:])
        return code

    def close(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        for process in os.listdir("/proc"):  # workers of a daemon that was killed; each works in its run's folder
            try:
                if process.isdigit() and os.readlink("/proc/%s/cwd" % process).startswith(self.dir):
                    os.kill(int(process), signal.SIGKILL)
            except OSError:
                pass
        shutil.rmtree(self.dir, ignore_errors=True)


GROUP, OWNER, MEMBER, OTHER = 64320, 64321, 64322, 64323  # a group, two members and a stranger


def box(settings=""):
    """A box's daemon, run by root, that sees an /etc/group with the group nnpipe."""
    group = open("/etc/group").read() + "nnpipe:x:%d:\n" % GROUP
    path = "/tmp/nnpipe-group.%d" % os.getpid()
    with open(path, "w") as out:
        out.write(group)
    prefix = ["unshare", "-m", "sh", "-c", 'mount --bind %s /etc/group && exec "$@"' % path, "-"]
    atexit.register(lambda: os.path.exists(path) and os.unlink(path))  # a restarted daemon reads it again
    return Daemon(settings=settings, args=["--box"], prefix=prefix)
