"""The service over what fails: a bad sector, a quota that is used up, a mount that hangs, a GPU that dies. Each run
comes to a state, a reason and a number of attempts that its owner can act on, and none is started without a pause."""
import contextlib
import glob
import os
import re
import subprocess
import time

from api import ROOT, equal, expect, run_stories, settles, skip, story
from cli import FOREVER, Faulty, Service

MODEL = "[{conv: {out: 4, kernel: 3, pad: 1}}, relu, global_avgpool, {linear: {out: classes}}]"
SYNTH = "{source: synth, samples: 400, size: 16}"
SMALL = dict(batch=8, every=10, model=MODEL)
RETRY = "retry: {first: 0.3, cap: 1}\n"
daemon = Service(RETRY + "runs_per_device: 2\n")
OTHER = daemon.net("other", 20, **dict(SMALL, data="{source: synth, samples: 100, size: 16}"))
table = []


def starts(run):
    """Returns how often it was started."""
    text = open(daemon.folder(run) + "/exit.json").read()
    return int(re.search('"attempt": *([0-9]+)', text).group(1))


def shown(run):
    """A line of the table: what its owner sees."""
    of = daemon.status(run)
    table.append("# run %d: %s, %d tries, %d starts, %s" % (run, of["state"], of["retries"], starts(run), of["reason"]))


def net(name, runs, data=SYNTH, steps=FOREVER, **more):
    return daemon.net(name, steps, data=data, runs=runs, **dict(SMALL, **more))


def with_faulty(disk):
    os.mkdir(disk.disk + "/data")
    os.mkdir(disk.disk + "/runs")
    shards = daemon.dir + "/shards"
    daemon.command("data", "synth", "--out", shards, "--size", 16, "--samples", 400, "--test", 10)
    for shard in glob.glob(shards + "/train-*.tar*"):
        if not shard.endswith(".npidx"):
            subprocess.run(["tar", "-xf", shard, "-C", disk.disk + "/data"], check=True)
    folder = net("folder", daemon.runs, "{source: folder, path: %s/data}" % disk.mount, cache="none")
    quota = net("quota", disk.mount + "/runs")
    pictures = [os.path.join(at, name) for at, _, names in os.walk(disk.disk + "/data") for name in names]
    bad = os.path.relpath(sorted(p for p in pictures if re.search(r"\.[jp][pn]g$", p))[-1], disk.disk)

    @story("a bad sector fails a run after its attempts, the file is named, and submit --wait ends with 74")
    def sector():  # the picture is read in each epoch of 50 steps, so no start gets past it
        waiter = daemon.popen("submit", folder, "--max-retries", 2, "--wait", stdout=subprocess.DEVNULL)
        settles(lambda: daemon.all(), "it is not queued")
        daemon.trained(1)
        disk.control("fail 5 " + bad)
        daemon.becomes(1, "failed")
        disk.control("clear")
        shown(1)
        equal(waiter.wait(60), 74, "the exit code of submit --wait")
        of = daemon.status(1)
        expect(re.search(os.path.basename(bad) + ".*Input/output error", of["reason"]), of["reason"])
        equal((of["exit_code"], of["retries"]), (74, 3), "exit code and attempts")
        expect(starts(1) <= 6, "it was started %d times" % starts(1))

    @story("a run over its quota is retried at growing intervals, and continues with space")
    def full():  # statvfs shows room, as it does where a user's quota is used up
        run = daemon.submit(quota)
        daemon.trained(run)
        disk.control("quota 0")
        daemon.says_why(run, "quota")
        time.sleep(3)
        daemon.says_why(run, "quota")
        shown(run)
        begun, tries = starts(run), daemon.status(run)["retries"]
        disk.control("clear")
        expect(begun <= 7 and tries == 0, "%d starts, %d attempts counted" % (begun, tries))
        daemon.works_on(run)
        daemon.ends(run)

    @story("the same if not even the run's folder can be made")
    def unmade():
        disk.control("fail 122 *runs/*")
        run = daemon.submit(quota, "-o", "train.steps=20")
        daemon.says_why(run, "quota is used up")
        time.sleep(1)
        tries = daemon.status(run)["retries"]
        disk.control("clear")
        equal(tries, 0, "failed attempts")
        daemon.becomes(run, "done")

    @story("a mount that hangs for a while delays only its run, which continues afterwards")
    def hung():
        run = daemon.submit(folder)
        daemon.trained(run)
        disk.control("hang data/*")
        time.sleep(1)
        at = daemon.status(run)["step"] or 0
        daemon.command("submit", OTHER, "--wait")
        state = daemon.status(run)["state"]
        shown(run)
        disk.control("clear")
        equal(state, "running", "its state while the mount hangs")
        settles(lambda: (daemon.status(run)["step"] or 0) > at + 100,
                lambda: "it stays at %d: %s" % (at, daemon.about(run)))
        equal((daemon.status(run)["retries"], starts(run)), (0, 1), "failed attempts and starts")
        daemon.ends(run)


def with_few_inodes(folder):
    @story("a run on a disk without inodes waits, with that reason")
    def no_inodes():  # bytes are left, inodes are not
        path = net("inodes", folder)
        run = daemon.submit(path)
        daemon.trained(run)
        taken, why = [], "its disk has no space for more files"

        def fill():
            with contextlib.suppress(OSError):
                while True:
                    open("%s/%d" % (folder, len(taken)), "w").close()
                    taken.append("%s/%d" % (folder, len(taken)))

        def waits():
            fill()  # again: a checkpoint that fails, or replaces another one, gives some back
            return why in (daemon.status(run)["reason"] or "")
        settles(waits, lambda: "%s\nexpected a reason with %r" % (daemon.about(run), why))
        begun, tries = starts(run), daemon.status(run)["retries"]
        shown(run)
        fill()
        refused = daemon.run("submit", path)
        for name in taken:
            os.unlink(name)
        expect(refused.code != 0 and "inodes has no space for more files" in refused.err,
               "it is not refused\n%s" % refused)
        expect(begun <= 7 and tries == 0, "%d starts, %d attempts counted" % (begun, tries))
        daemon.works_on(run)
        daemon.ends(run)


def with_gpu(emu):
    """A GPU that dies: the plugin over the emulated runtime."""
    dies = daemon.dir + "/dies"
    runs = daemon.dir + "/gpu-runs"

    def state():
        devices = daemon.ask("GET", "/v1/devices").json()["devices"]
        return next("%s: %s" % (d["state"], d["reason"]) for d in devices if d["name"] == "cuda:0")

    def die_after(steps):
        with open(dies, "w") as out:
            out.write("%d\n" % steps)

    def set_aside(run, nr):
        """Waits until the run was started that often and now waits for the device."""
        daemon.says_why(run, "waiting for cuda:0, which is suspect: 3 starts in a row died there")
        time.sleep(2)  # six times the first pause
        shown(run)
        equal((daemon.status(run)["state"], starts(run)), ("queued", nr), "its state and starts")
        expect(re.match("suspect: .", state()), "the device is " + state())
        health = daemon.ask("GET", "/healthz").body.decode()
        expect(re.search("cuda:0 is suspect, starts die there: .", health), health)
        metrics = daemon.ask("GET", "/metrics").body.decode()
        expect('nnpipe_device_suspect{device="cuda:0"} 1' in metrics
               and 'nnpipe_device_suspect{device="cpu"} 0' in metrics, metrics)

    def works_again(run):
        """After the device was repaired."""
        os.unlink(dies)
        daemon.command("undrain", "cuda:0")
        equal(state(), "ok: ", "the device")
        daemon.becomes(run, "running")
        daemon.works_on(run)

    @story("a GPU that dies in three starts in a row gets no runs, and works again once it is repaired")
    def dying():  # in the middle of its work, then so that it cannot even be opened
        daemon.stop()
        daemon.program = emu + "/nnpipe"  # the plugin is beside it
        daemon.environment = {"NNPIPE_CUDA_LIBS": emu, "NNPIPE_CUDA_LIBS_ONLY": "1", "NNPIPE_EMU_DIES": dies}
        daemon.write_settings(RETRY, "cpu, cuda:0")
        daemon.start()
        run = daemon.submit(net("gpu", runs, device="cuda:0"), "--max-retries", 9)
        daemon.trained(run)
        die_after(1500)
        set_aside(run, 3)
        daemon.command("submit", OTHER, "--wait")
        works_again(run)
        die_after(0)
        set_aside(run, 6)
        works_again(run)
        daemon.ends(run)


disk, inodes = Faulty(), daemon.dir + "/inodes"
os.mkdir(inodes)
if disk.is_there:
    with_faulty(disk)
else:
    skip("a bad sector, a full quota and a hung mount", "no FUSE can be mounted here")
if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=50m,nr_inodes=100", "none", inodes],
                  capture_output=True).returncode == 0:
    with_few_inodes(inodes)
else:
    skip("a disk without inodes", "no tmpfs can be mounted here")
emulated = os.environ.get("NNPIPE_BUILD", ROOT + "/build") + "/tests/emu"
if os.path.exists(emulated + "/libnnpipe-cuda.so"):
    with_gpu(emulated)
else:
    skip("a GPU that dies", "this build has no headers of CUDA and cuDNN")
try:
    run_stories(daemon)
finally:
    print("\n".join(table))
    subprocess.run(["umount", "-l", inodes], capture_output=True)
    disk.close()
