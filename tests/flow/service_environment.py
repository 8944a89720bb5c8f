"""The environment of a run: from the service only listed variables, from its submitter those that the config names,
and their umask. For a box, and for one user's service through commands."""
import os
import subprocess
import time

import api
from api import GROUP, NNPIPE, OWNER, Daemon, ask_as, box, expect, test

api.as_root("what a run has of an environment")

SECRET = "hunter2"
os.environ["NP_SECRET"] = SECRET
os.environ["https_proxy"] = "http://user:%s@proxy" % SECRET


def environment_of(folder):
    pid = int(open(folder + "/lock").read())
    return open("/proc/%d/environ" % pid, "rb").read().split(b"\0")


def with_data(text, path):
    return text.replace("source: synth, samples: 200, size: 32", 'source: folder, path: "%s"' % path)


def of_a_box(daemon):
    os.chmod(daemon.socket, 0o666)
    ask = lambda method, target, body=None: ask_as(OWNER, OWNER, [GROUP], daemon.socket, method, target, body)
    answer = ask("POST", "/v1/runs", daemon.submission(steps=100000, umask=0o27))
    expect(answer.status == 201, answer)
    run = answer.json()
    daemon.becomes(run["id"], "running")
    for _ in range(1200):
        if os.path.exists(run["dir"] + "/config.yaml"):
            break
        time.sleep(0.05)
    names = environment_of(run["dir"])
    expect(names and not [one for one in names if SECRET.encode() in one], names)
    expect(b"PATH=" + os.environ["PATH"].encode() in names, names)
    mode = os.stat(run["dir"] + "/config.yaml").st_mode & 0o777
    expect(mode == 0o640, "config.yaml has mode %o" % mode)
    body = daemon.submission()
    body["config"] = with_data(body["config"], "/nowhere/${NP_SECRET}")
    answer = ask("POST", "/v1/runs", body)
    expect(answer.status == 422 and "NP_SECRET is not set" in str(answer.json()) and SECRET not in str(answer.json()),
           answer)
    answer = ask("POST", "/v1/runs", dict(body, environment={"NP_SECRET": "mine"}))
    expect(answer.status == 422 and "/nowhere/mine" in str(answer.json()), answer)
    for wrong in ({"NP_OTHER": "1"}, {"NP_SECRET": 1}, {"NP_SECRET": "a\nb"}, {"NP_SECRET": "x" * 20000}, []):
        answer = ask("POST", "/v1/runs", dict(body, environment=wrong))
        expect(answer.status == 400, "%r: %s" % (wrong, answer))
    expect(ask("POST", "/v1/runs", dict(body, umask=512)).status == 400, "umask")
    ask("POST", "/v1/runs/%d/stop" % run["id"])
    daemon.becomes(run["id"], "stopped")


def of_a_user(daemon):
    for name in ("a", "b"):
        os.makedirs("%s/data/%s" % (daemon.dir, name))
        with open("%s/data/%s/1.ppm" % (daemon.dir, name), "wb") as out:
            out.write(b"P6 16 16 255\n" + bytes(768))
    config = daemon.dir + "/mine.yaml"
    with open(config, "w") as out:
        out.write(with_data(daemon.config_text(steps=3), "${NP_DATA}").replace("batch: 32", "batch: 2")
                  .replace("model:", "  # of ${NP_UNSET}\nmodel:"))
    environment = dict(os.environ, NP_DATA=daemon.dir + "/data", NNPIPE_SOCKET=daemon.socket)
    command = "umask 007 && exec %s submit %s --wait --json" % (NNPIPE, config)
    done = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True, timeout=100)
    expect(done.returncode == 0, done.stdout + done.stderr)
    mode = os.stat(daemon.runs + "/a-1/config.yaml").st_mode & 0o777
    expect(mode == 0o660, "config.yaml has mode %o" % mode)


for what, make, work in (("a box's run has its submitter's variables and umask, and none of the service's secrets", box,
                          of_a_box),
                         ("a run has the variables of its config and the umask as they were where it was submitted",
                          Daemon, of_a_user)):
    daemon = make("spare_bytes: 1M\n")
    try:
        with test(what):
            work(daemon)
    finally:
        daemon.close()
api.done()
