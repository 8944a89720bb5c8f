"""Runs of several processes in the service: all of their devices or none; killed, paused, stopped and hung as one run,
with the weights of an undisturbed one, while small runs are queued and pass where they may."""
import os
import signal
import urllib.request

from api import equal, expect, run_stories, story
from cli import alive
from gangs import Gangs

MODEL = "[{conv: {out: 8, kernel: 3, pad: 1}}, batchnorm, relu, global_avgpool, {linear: {out: classes}}]"
STEPS = 400
RETRY, SLOTS, HANG = "retry: {first: 0.1, cap: 0.5}\n", "runs_per_device: 4\n", "hang_minutes: 0.1\n"
PATIENT = "retry: {first: 5, cap: 5}\n"  # a reason stands until the run starts again
daemon = Gangs(RETRY + SLOTS + HANG, "cpu, sim", tcp=True)
GANG = ("--processes", "4", "-o", "train.lanes=8")
WIDE = daemon.net("wide", STEPS, every=10, model=MODEL, data="{source: synth, samples: 640, size: 12}")
LONG = daemon.net("long", model=MODEL, data="{source: synth, samples: 640, size: 12}")
SHORT = daemon.net("short", 20)
TRIO = daemon.net("trio", 20, batch=36, model=MODEL, data="{source: synth, samples: 640, size: 12}")
counted = []


def wide(*words):
    run = daemon.submit(WIDE, *GANG, *words)
    counted.append(run)
    daemon.trained(run)
    return run


def goes_on(run, pids):
    """The old processes are gone, and the run is done."""
    daemon.all_gone(pids)
    daemon.becomes(run, "done")


@story("more processes than the machine has room for, or that cannot divide lanes or batch, are refused with words")
def refused():
    daemon.says("for 'cpu' this service has 4", "submit", LONG, "--processes", "8", "-o", "train.lanes=8", code=2)
    daemon.says("need as many each: take 4, 8, 16", "submit", LONG, "--processes", "4", "-o", "train.lanes=2", code=2)
    daemon.says("32 rows cannot be divided among 3 processes, but 30 and 33 can", "submit", LONG, "--processes", "3",
                code=2)
    daemon.says("no device 'cuda'", "submit", LONG, "--gpus", "2", "-o", "train.lanes=8", code=2)
    daemon.says("is no GPU", "submit", LONG, "--gpus", "2", "--device", "cpu", code=2)
    daemon.says("give one of them", "submit", LONG, "--gpus", "2", "--processes", "2", code=2)
    daemon.says("expected", "submit", LONG, "--processes", "many", code=2)
    daemon.says("1 to 64", "submit", LONG, "--processes", "65", code=1)


@story("four processes are one run with one log, and take four slots; a small run waits for one")
def one_entry():
    run = daemon.submit(LONG, *GANG)
    daemon.trained(run)
    pids = daemon.all_ranks(run)
    equal(sorted(pids), [-1, 0, 1, 2, 3], "ranks")
    of = daemon.status(run)
    equal((of["device"], of["processes"], of["devices"]), ("cpu", 4, ["cpu"]), "what the run has")
    daemon.says("cpu x4", "ls")
    daemon.says("4 of 4 slots in use", "status")
    equal((daemon.slots("cpu")["busy"], daemon.slots("cpu")["runs"]), (4, [run]), "the device")
    metrics = urllib.request.urlopen("http://127.0.0.1:%d/metrics" % daemon.port).read().decode()
    expect('nnpipe_device_busy_slots{device="cpu"} 4' in metrics, "the metrics know no slots:\n" + metrics)
    equal(daemon.command("logs", run).count("training "), 1, "headers in the log")
    small = daemon.submit(SHORT)
    passing = daemon.submit(SHORT, "--device", "sim", "--wait")
    equal(daemon.status(passing)["state"], "done", "the run on another device")
    equal(daemon.status(small)["state"], "queued", "the run for a taken device")
    daemon.command("pause", run)
    daemon.becomes(run, "paused")
    expect(not any(map(alive, pids.values())), "a paused run has processes")
    daemon.becomes(small, "done")
    daemon.command("resume", run)
    daemon.becomes(run, "running")
    daemon.ends(run)
    expect(not daemon.ranks(run), "a stopped run has processes")


@story("a waiting run keeps slots as they free, small runs after it wait, and one on another device passes")
def keeps():
    holder, other = daemon.submit(LONG), daemon.submit(LONG)
    daemon.becomes(holder, "running")
    daemon.becomes(other, "running")
    first = daemon.submit(LONG, *GANG)
    daemon.says_why(first, "it waits for 4 slots, and 2 are kept free for it: cpu")
    later = daemon.submit(SHORT)
    daemon.command("submit", SHORT, "--device", "sim", "--wait")
    equal(daemon.status(later)["state"], "queued", "a small run after it")
    daemon.ends(holder)
    daemon.says_why(first, "3 are kept")
    daemon.says("3 kept free for run %d" % first, "status")
    equal(daemon.slots("cpu")["reserved_for"], first, "the run that waits")
    daemon.kill()  # the reservation is in the queue's file
    daemon.start()
    daemon.says_why(first, "3 are kept")
    equal(daemon.status(later)["state"], "queued", "a small run after a restart")
    high = daemon.submit(SHORT, "--priority", "5", "--wait")
    equal(daemon.status(high)["state"], "done", "a run of higher priority")
    daemon.ends(other)
    daemon.becomes(first, "running")
    equal((daemon.status(later)["state"], daemon.status(first)["reserved"]), ("queued", 0), "the small run")
    preempting = daemon.submit(SHORT, "--priority", "9", "--wait")
    equal(daemon.status(preempting)["state"], "done", "a run that lets four processes yield")
    daemon.becomes(first, "running")
    daemon.becomes(later, "done", "queued")
    daemon.ends(first)
    daemon.becomes(later, "done")


def kill_rank(run, rank, reason):
    pids = daemon.all_ranks(run)
    os.kill(pids[rank], signal.SIGKILL)
    daemon.says_why(run, reason)
    daemon.all_gone(pids)


@story("kill -9 of a rank, then of rank 0: all end, the reason names it, and the run resumes")
def killed_ranks():
    daemon.settings(PATIENT + SLOTS + HANG)
    run = wide()
    kill_rank(run, 2, "rank 2, on cpu, was killed by SIGKILL")
    kill_rank(run, 0, "rank 0, on cpu, was killed by SIGKILL")
    daemon.settings(RETRY + SLOTS + HANG)
    daemon.becomes(run, "done")
    expect(daemon.status(run)["attempts"] >= 3, "it was not started again")


@story("kill -9 of their parent ends the ranks, too")
def killed_parent():
    run = wide()
    pids = daemon.all_ranks(run)
    os.kill(pids[-1], signal.SIGKILL)
    goes_on(run, pids)


@story("a killed daemon finds the run again, a pause by the next one ends all of its processes, "
       "and so does its own stop")
def without_daemon():
    run = wide()
    pids = daemon.all_ranks(run)
    daemon.kill()
    daemon.start()
    daemon.command("pause", run)
    daemon.becomes(run, "paused")
    expect(not any(map(alive, pids.values())), "a paused run has processes")
    daemon.command("resume", run)
    pids = daemon.all_ranks(run)
    equal(daemon.stop(signal.SIGTERM), 0, "the daemon's exit code")
    expect(not any(map(alive, pids.values())), "processes are left")
    daemon.start()
    daemon.becomes(run, "done")


@story("a rank that hangs is noticed: all are killed, and the run goes on")
def hung():
    daemon.settings(PATIENT + SLOTS + HANG)
    run = wide()
    pids = daemon.all_ranks(run)
    os.kill(pids[3], signal.SIGSTOP)
    daemon.says_why(run, "it made no progress and was killed")
    daemon.settings(RETRY + SLOTS + HANG)
    goes_on(run, pids)


@story("a run of four that reaches its time limit is stopped as one, and goes on after a retry")
def limited():
    run = daemon.submit(WIDE, *GANG, "--time-limit", "2s", "-o", "train.steps=%d" % (STEPS * 20))
    daemon.becomes(run, "timeout")
    expect(not daemon.ranks(run), "it has processes: %s" % daemon.ranks(run))
    expect(daemon.saved(run), "it has no checkpoint: " + daemon.about(run))
    daemon.command("retry", run, "--time-limit", "1h")
    daemon.becomes(run, "running")
    daemon.ends(run)


@story("a run of three processes has the weights of one process")
def three():
    run = daemon.submit(TRIO, "--processes", "3")
    daemon.becomes(run, "done")
    daemon.same_weights([run], TRIO, 20, "-o", "train.lanes=12")


@story("all of them have the weights of an undisturbed run in one process")
def same():
    starts = [daemon.status(run)["attempts"] for run in counted]
    expect(sum(starts) <= 10, "a process ended by itself: starts %s" % starts)
    daemon.same_weights(counted, WIDE, STEPS, "-o", "train.lanes=8")


run_stories(daemon)
