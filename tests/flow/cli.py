"""Helpers for tests of the service from the command line: a daemon of their own, and `nnpipe` commands against it.
A failure prints the command, the expected result and the actual one."""
import glob
import json
import os
import shutil
import signal
import subprocess
import tempfile

from api import NNPIPE, ROOT, Daemon, expect, settles

FOREVER = 1000000
MODEL = "[{conv: {out: 8, kernel: 3, pad: 1}}, relu, global_avgpool, {linear: {out: classes}}]"
NET = """name: {name}
device: {device}
data: {{train: {data}}}
loader: {{batch: {batch}, cache: {cache}, readers: 1}}
model: {model}
train: {{steps: {steps}, eval_every: never, threads: 1}}
checkpoint: {{every: {every} steps, keep: {keep}}}
runs: {runs}
"""


def alive(pid):
    """Does the process run (and is not a zombie)?"""
    try:
        return open("/proc/%d/stat" % pid).read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def ended(pid, why="the process %d does not end"):
    settles(lambda: not alive(pid), why % pid if "%" in why else why)


class Done:
    """A command that has ended."""

    def __init__(self, words, code, out, err):
        self.words, self.code, self.out, self.err = words, code, out, err

    def __str__(self):
        return "ran: %s\nsaw: exit %d" % (" ".join(map(str, self.words)), self.code) + "".join(
            "\n  " + line for line in (self.out + self.err).strip().split("\n")[-8:])


class Service(Daemon):
    """A daemon with settings, state, socket and small runs in a temporary folder."""

    def __init__(self, settings="", devices="cpu", program=NNPIPE, environment=(), tcp=False, **more):
        self.program, self.environment, self.devices = program, dict(environment), devices
        super().__init__(settings=settings, tcp=tcp, **more)

    def write_settings(self, settings, devices=None):
        with open(self.config, "w") as out:
            out.write("devices: [%s]\nspare_bytes: 1M\n" % (devices or self.devices) + settings +
                      ("listen: 127.0.0.1:%d\n" % self.port if self.port else ""))

    def settings(self, settings="", devices=None):
        """Writes the settings and makes the daemon reload them."""
        self.write_settings(settings, devices)
        self.process.send_signal(signal.SIGHUP)

    def start(self):
        was = dict(os.environ)
        os.environ.update(self.environment)
        try:
            super().start()
        finally:
            os.environ.clear()
            os.environ.update(was)

    def kill(self):
        self.process.kill()
        self.process.wait()

    # --- commands -------------------------------------------------------------------------------

    def its_environment(self):
        """The environment of commands: the socket, a cache of their own, and an error for contradictory profiles."""
        return dict(os.environ, NNPIPE_SOCKET=self.socket, XDG_CACHE_HOME=self.dir + "/cache",
                    NNPIPE_PROFILE_STRICT="1",
                    **self.environment)

    def popen(self, *words, **more):
        return subprocess.Popen([self.program, *map(str, words)],
                                env=self.its_environment(), **more)

    def run(self, *words, prefix=(), **environment):
        """Runs a command to its end and returns it, whatever its exit code is."""
        command = [*prefix, self.program, *map(str, words)]
        done = subprocess.run(command, env=dict(self.its_environment(), **environment),
                              capture_output=True, text=True, timeout=300, stdin=subprocess.DEVNULL)
        return Done(command, done.returncode, done.stdout, done.stderr)

    def command(self, *words, code=0, **more):
        """Runs a command that must end with that code, and returns its standard output."""
        done = self.run(*words, **more)
        expect(done.code == code, "a command ends with %d, not %d\n%s" % (done.code, code, done))
        return done.out

    def says(self, text, *words, code=0, **more):
        """Runs a command that must end with that code and print the text, on either stream."""
        done = self.run(*words, **more)
        expect(done.code == code and text in done.out + done.err,
               "a command does not say %r and end with %d\n%s" % (text, code, done))

    # --- runs -----------------------------------------------------------------------------------

    def net(self, name, steps=FOREVER, every=20, keep=2, batch=32, data="{source: synth, samples: 256, size: 32}",
            model=MODEL, runs=None, device="cpu", cache="decoded"):
        """Writes a config and returns its path. cache: a run draws or reads each picture once; else this takes most of
        its CPU time. "none": it needs its data at each step."""
        path = os.path.join(self.dir, name + ".yaml")
        with open(path, "w") as out:
            out.write(NET.format(name=name, steps=steps, every=every, keep=keep, batch=batch, data=data, model=model,
                                 runs=runs or self.runs, device=device, cache=cache))
        return path

    def submit(self, path, *words, **more):
        """Submits a config and returns the run's number."""
        return json.loads(self.command("submit", path, "--json", *words, **more).split("\n")[0])["id"]

    def status(self, run):
        """Returns `nnpipe status ID --json`."""
        return json.loads(self.command("status", run, "--json").split("\n")[0])

    def all(self):
        return [json.loads(line) for line in self.command("ls", "--all", "--json").split("\n") if '"id"' in line]

    def about(self, run):
        of = self.status(run)
        return "run %d is %s: %s" % (run, of["state"], of["reason"])

    # What is asked again and again goes to the socket: a command for each would load the machine.

    def becomes(self, run, *states, seconds=180):
        settles(lambda: self.state_of(run) in states,
                lambda: "%s\nexpected: %s" % (self.about(run), " or ".join(states)), seconds)

    def says_why(self, run, text, seconds=180):
        settles(lambda: text in self.reason(run),
                lambda: "%s\nexpected a reason with %r" % (self.about(run), text), seconds)

    def reason(self, run):
        return self.entry(run)["reason"] or ""

    def step(self, run):
        return (self.entry(run)["progress"] or {}).get("step") or 0

    def folder(self, run):
        return self.entry(run)["dir"]

    def saved(self, run):
        """Returns the folders of its checkpoints, the oldest first."""
        return sorted(glob.glob(self.folder(run) + "/checkpoints/step-*[0-9]"))

    def trained(self, run):
        settles(lambda: self.saved(run), lambda: "it saves no checkpoint: " + self.about(run))

    def worker_of(self, run):
        """Returns the pid of its worker, from the lock file; 0 if there is none."""
        try:
            pid = int(open(self.folder(run) + "/lock").read() or 0)
            return pid if pid and b"worker" in open("/proc/%d/cmdline" % pid, "rb").read().split(b"\0") else 0
        except (OSError, ValueError):
            return 0

    def kill_worker(self, run):
        os.kill(settles(lambda: self.worker_of(run), "run %d has no worker" % run), signal.SIGKILL)

    def works_on(self, run, steps=20):
        """Waits until it has made that many more steps."""
        at = self.step(run)
        settles(lambda: self.step(run) > at + steps,
                lambda: "it stays at step %s: %s" % (at, self.about(run)))

    def ends(self, *runs):
        """Stops the runs and waits for their end."""
        self.command("stop", *runs)
        for run in runs:
            self.becomes(run, "stopped")

    def weights(self, run, step):
        return sorted(open(path, "rb").read() for path in glob.glob(
            self.folder(run) + "/checkpoints/step-*%d/weights.safetensors" % step))


class Faulty:
    """A folder mounted at another path by tests/fault/faulty_fs.c, which hangs or fails on command."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="nnpipe-faulty.", dir=os.environ.get("TMPDIR", "/tmp"))
        self.disk, self.mount = self.dir + "/disk", self.dir + "/mount"
        os.chmod(self.dir, 0o755)
        os.mkdir(self.disk)
        os.mkdir(self.mount)
        self.is_there = self.make()

    def make(self):
        flags = subprocess.run(["pkg-config", "--cflags", "--libs", "fuse3"], capture_output=True, text=True).stdout
        program = self.dir + "/faulty_fs"
        made = subprocess.run(["cc", "-O2", "-o", program, ROOT + "/tests/fault/faulty_fs.c", *flags.split()],
                              capture_output=True)
        return made.returncode == 0 and subprocess.run(
            [program, self.disk, self.mount, "-o", "allow_other,default_permissions"],
            capture_output=True).returncode == 0

    def control(self, command):
        """Writes a command of faulty_fs.c: "hang PATTERN", "fail ERRNO PATTERN", "quota BYTES", "clear"."""
        with open(self.mount + "/.control", "w") as out:
            out.write(command + "\n")

    def close(self):
        if self.is_there:
            subprocess.run(["timeout", "-s", "KILL", "10", "sh", "-c", 'echo clear >"$0/.control"', self.mount])
            subprocess.run(["umount", "-l", self.mount])
        shutil.rmtree(self.dir, ignore_errors=True)
