"""Helpers for runs of several processes in the service: service_gang.py, service_gpus.py."""
import json
import os
import urllib.request

from api import expect, settles
from cli import Service, alive


class Gangs(Service):
    """A service, and the processes of its runs."""

    def ranks(self, run):
        """The processes of a run by their rank; -1: their parent."""
        folder = os.path.realpath(self.folder(run))  # each works in it; other services have runs of the same name
        found, name = {}, os.path.basename(folder)
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                words = open("/proc/%s/cmdline" % pid, "rb").read().split(b"\0")
                environment = open("/proc/%s/environ" % pid, "rb").read().split(b"\0")
                own = os.readlink("/proc/%s/cwd" % pid) == folder
            except OSError:
                continue
            if own and words[1:3] == [b"worker", name.encode()]:
                rank = [int(word[12:]) for word in environment if word.startswith(b"NNPIPE_RANK=")]
                found[rank[0] if rank else -1] = int(pid)
        return found

    def all_ranks(self, run, nr=4):
        return settles(lambda: len(self.ranks(run)) == nr + 1 and self.ranks(run),
                       lambda: "no %d processes: %s" % (nr + 1, self.about(run)))

    def all_gone(self, pids):
        settles(lambda: not any(map(alive, pids.values())), "processes are left: %s" % pids)

    def slots(self, name):
        with urllib.request.urlopen("http://127.0.0.1:%d/v1/devices" % self.port) as answer:
            return next(one for one in json.load(answer)["devices"] if one["name"] == name)

    def same_weights(self, runs, config, steps, *words):
        """Runs the config alone, in one process, and expects its weights of all runs."""
        alone = config + ".alone"
        self.command("train", config, "-o", "runs=" + alone, *words)
        path = next(os.path.join(at, name) for at, _, names in os.walk(alone)
                    for name in names if at.endswith("step-%d" % steps) and name == "weights.safetensors")
        want = open(path, "rb").read()
        for run in runs:
            expect(self.weights(run, steps) == [want], "run %d has other weights" % run)
