"""Runs on several GPUs in the service, on emulated ones with an emulated NCCL: a GPU for each process, or none; GPUs
are kept for the first run that waits as they become free; killed, paused, stopped, cancelled and found again with
small runs queued, and with the weights of an undisturbed run on one GPU."""
import os
import signal
import sys

from api import ROOT, equal, expect, run_stories, settles, skip, story
from gangs import Gangs

EMU = os.environ.get("NNPIPE_BUILD", ROOT + "/build") + "/tests/emu"
if not os.path.exists(EMU + "/libnnpipe-cuda.so"):
    skip("runs on several emulated GPUs", "this build has no headers of CUDA and cuDNN")
    sys.exit(0)
ENVIRONMENT = {"NNPIPE_CUDA_LIBS": EMU, "NNPIPE_CUDA_LIBS_ONLY": "1", "NNPIPE_EMU_DEVICES": "4"}
MODEL = "[{conv: {out: 4, kernel: 3, pad: 1}}, batchnorm, relu, global_avgpool, {linear: {out: classes}}]"
STEPS = 120
daemon = Gangs("retry: {first: 1, cap: 1}\n", "cuda:0, cuda:1, cuda:2, cuda:3", tcp=True, program=EMU + "/nnpipe",
               environment=ENVIRONMENT)


def net(name, *steps, every=5):
    return daemon.net(name, *steps, every=every, batch=8, model=MODEL, data="{source: synth, samples: 64, size: 8}",
                      device="cuda")


WIDE, LONG, SHORT = net("wide", STEPS), net("long"), net("short", 2)
FOUR = ("-o", "train.lanes=4")
counted = []


def states(*runs):
    return [daemon.status(run)["state"] for run in runs]


def hold():
    """A run on one GPU, whose process rests: it takes no time from the others."""
    run = daemon.submit(LONG)
    daemon.becomes(run, "running")
    os.kill(settles(lambda: daemon.worker_of(run), "run %d has no worker" % run), signal.SIGSTOP)
    return run


def let_go(*runs):
    for run in runs:
        os.kill(daemon.worker_of(run), signal.SIGCONT)
    daemon.ends(*runs)


def wide(gpus):
    run = daemon.submit(WIDE, "--gpus", gpus, *FOUR)
    counted.append(run)
    return run


@story("each process has a GPU of its own: the rest of them run other runs, and none is passed on before all are free")
def apart():
    one, pair, four = hold(), wide(2), wide(4)
    short = daemon.submit(SHORT)
    daemon.trained(pair)
    pids = daemon.all_ranks(pair, 2)
    devices = daemon.status(pair)["devices"]
    other = daemon.status(one)["device"]
    expect(len(devices) == 2 and other not in devices, "%s, and %s: %s" % (devices, other, daemon.about(pair)))
    for name in [*devices, other]:
        equal((daemon.slots(name)["busy"], daemon.slots(name)["runs"]), (1, [one if name == other else pair]), name)
    daemon.says_why(four, "1 is kept free for it: ")
    os.kill(pids[1], signal.SIGKILL)
    daemon.says_why(pair, "rank 1, on %s, was killed by SIGKILL" % devices[1])
    daemon.all_gone(pids)
    daemon.says_why(four, "3 are kept free for it: ")  # the run of two waits behind it, since GPUs are kept already
    equal(states(four, pair, short), ["queued"] * 3, "who waits for the last GPU")
    let_go(one)
    for run in (four, pair, short):
        daemon.becomes(run, "done")


@story("killed ranks, a pause and a resume with small runs queued: these run meanwhile, and then the GPUs are kept")
def disturbed():
    four = wide(4)
    short = [daemon.submit(SHORT) for _ in range(3)]
    daemon.trained(four)
    pids = daemon.all_ranks(four)
    equal(sorted(daemon.status(four)["devices"]), ["cuda:%d" % i for i in range(4)], "GPUs")
    os.kill(pids[0], signal.SIGKILL)
    daemon.says_why(four, "rank 0, on cuda:0, was killed by SIGKILL")
    daemon.all_gone(pids)
    pids = daemon.all_ranks(four)
    daemon.command("pause", four)
    daemon.becomes(four, "paused")
    daemon.all_gone(pids)
    for run in short:
        daemon.becomes(run, "done")
    holders = [hold(), hold()]
    daemon.command("resume", four)
    daemon.says_why(four, "it waits for 4 slots, and 2 are kept free for it: ")
    small = daemon.submit(SHORT)
    let_go(holders[0])
    daemon.says_why(four, "3 are kept free")
    equal(states(four, small), ["queued", "queued"], "who waits")
    let_go(holders[1])
    daemon.becomes(four, "running", "done")
    daemon.becomes(four, "done")
    daemon.becomes(small, "done")


@story("a run that is stopped, or paused, while GPUs are kept for it lets them go")
def cancelled():
    holders = [hold(), hold(), hold()]
    for word, state in (("stop", "stopped"), ("pause", "paused")):
        four, short = daemon.submit(LONG, "--gpus", "4", *FOUR), daemon.submit(SHORT)
        daemon.says_why(four, "1 is kept free for it: ")
        equal(states(short), ["queued"], "a small run after it")
        daemon.command(word, four)
        daemon.becomes(four, state)
        daemon.becomes(short, "done")
        equal(daemon.status(four)["attempts"], 0, "starts of the run that waited")
    daemon.command("stop", four)  # the paused one
    daemon.becomes(four, "stopped")
    daemon.command("rm", four)
    let_go(*holders)


@story("a killed service finds the processes again; its own stop saves them, and the next one goes on; "
       "what waited keeps its turn")
def restarted():
    four = wide(4)
    daemon.trained(four)
    pids = daemon.all_ranks(four)
    daemon.kill()
    daemon.start()
    equal(daemon.status(four)["state"], "running", "the run that is found again")
    equal(daemon.all_ranks(four), pids, "its processes")
    waits = wide(2)
    small = daemon.submit(SHORT)
    equal(daemon.stop(), 0, "the daemon's exit code")
    daemon.all_gone(pids)
    daemon.start()
    daemon.becomes(four, "done")
    daemon.becomes(waits, "done")
    daemon.becomes(small, "done")


@story("all of them have the weights of an undisturbed run on one GPU")
def same():
    starts = [daemon.status(run)["attempts"] for run in counted]
    expect(sum(starts) <= 9, "a process ended by itself: starts %s" % starts)
    equal(len(counted), 5, "runs")
    daemon.same_weights(counted, WIDE, STEPS, *FOUR)


run_stories(daemon)
