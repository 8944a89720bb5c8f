#!/usr/bin/env python3
"""Runs the parts of check_gpu.sh in order. Needs only Python's own modules."""
import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HERE = os.path.dirname(os.path.abspath(__file__))
NNPIPE = os.environ.get("NNPIPE", os.path.join(ROOT, "nnpipe"))
# Networks that use our own kernels of every kind in little time: under a sanitizer a launch takes a hundred times as
# long.
SANITIZED = ("conv, relu, conv", "batchnorm, add, relu", "maxpool 3x3 stride 2", "avgpool 3x3", "dropout",
             "concat of three", "cross-entropy, both", "linear, relu, linear", "global_avgpool")
# Kernels of NVIDIA's libraries: they read memory past their data, and their asynchronous copies look like races.
FOREIGN = ("cudnn", "cutlass", "xmma", "nvjet", "cublas", "gemm", "gemv", "winograd", "implicit_con", "splitK")


SELFTEST_CAP = 3600  # s: the first run builds some hundred plans, and engines compiled at run time take a second each


class NotRun(Exception):
    pass


class Check:
    def __init__(self, args):
        self.args, self.failed, self.skipped = args, [], []
        os.makedirs(args.out, exist_ok=True)
        self.summary = open(os.path.join(args.out, "summary.txt"), "w", encoding="utf-8")

    def say(self, text):
        print(text, flush=True)
        self.summary.write(text + "\n")
        self.summary.flush()

    def run(self, log, command, cap, env=None):
        """Runs a command; returns its exit code and the lines of its output, which goes into DIR/log."""
        path = os.path.join(self.args.out, log)
        with open(path, "w", encoding="utf-8") as file:
            process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, cwd=ROOT,
                                       env={**os.environ, **(env or {})}, start_new_session=True)
            try:
                code = process.wait(cap)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise RuntimeError(f"took longer than its limit of {cap} s; {path}") from None
            except BaseException:
                os.killpg(process.pid, signal.SIGKILL)
                raise
        with open(path, encoding="utf-8", errors="replace") as file:
            return code, file.read().splitlines()

    def part(self, name, function):
        start = time.monotonic()
        try:
            verdict, text = "ok", function(self)
        except NotRun as why:
            verdict, text = "not run", str(why)
            self.skipped.append(name)
        except (RuntimeError, OSError) as error:
            verdict, text = "FAILED", str(error)
            self.failed.append(name)
        self.say(f"{name:<12} {verdict:<8} {time.monotonic() - start:6.1f} s  {text}")


def objects(lines):
    found = []
    for line in lines:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return [line for line in found if isinstance(line, dict)]


def devices(check):
    _, lines = check.run("devices.log", [NNPIPE, "devices", "--json"], 60)
    for device in objects(lines):
        if device.get("name") == check.args.device:
            if not device.get("usable"):
                raise RuntimeError(device.get("reason"))
            return ", ".join(f"{k} {v}" for k, v in device.get("versions", {}).items()) or "usable"
    raise RuntimeError(f"there is no {check.args.device}")


def doctor(check):
    code, lines = check.run("doctor.log", [NNPIPE, "doctor", "--device", check.args.device], 180)
    if not lines or code not in (0, 1):
        raise RuntimeError("it did not run: see doctor.log")
    return lines[-1] + " (doctor.log)"


def selftest(check):
    texts = []
    for seed in range(1 if check.args.quick else 3):
        code, lines = check.run(f"selftest{seed}.log", [NNPIPE, "selftest", "--device", check.args.device],
                                SELFTEST_CAP)
        if code != 0:
            bad = [" ".join(line.split()) for line in lines if "FAILED" in line]
            raise RuntimeError("; ".join(bad[:4]) or (lines[-1] if lines else f"exit {code}"))
        texts.append(lines[-1].split(": ", 1)[-1])
    return "; ".join(texts)


def filters(program, tool):
    """Options that exclude NVIDIA's own kernels, if the sanitizer supports them."""
    if tool not in ("memcheck", "racecheck", "initcheck"):
        return []
    usage = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=60, check=False).stdout
    if "--kernel-regex-exclude" not in usage:
        return []
    return [word for name in FOREIGN for word in ("--kernel-regex-exclude", f"kns={name}")]


def sanitizer(tool):
    def run(check):
        program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
        if not os.path.exists(program):
            raise NotRun("compute-sanitizer is not installed")
        if check.args.device == "cpu":
            raise NotRun("no GPU")
        left_out = filters(program, tool)
        for i, only in enumerate(SANITIZED):
            command = [NNPIPE, "selftest", "--device", check.args.device, "--only", only, "--precision",
                       "f32" if i % 2 else "bf16", "--seed", "1"]
            sanitize = [program, "--tool", tool, "--error-exitcode", "9"]
            code, lines = check.run(f"{tool}{i}.log", sanitize + left_out + command, 600)
            if code not in (0, 9) and left_out and not any(line.startswith("=========") for line in lines):
                left_out = []  # it does not accept the filters
                code, lines = check.run(f"{tool}{i}.log", sanitize + command, 600)
            text = next((line for line in lines if "not supported" in line), None)
            if text:
                raise NotRun(text.strip("= "))
            if code != 0:
                raise RuntimeError(f"'{only}': exit {code}, {tool}{i}.log: "
                                   + next((line for line in reversed(lines) if "ERROR" in line or "FAILED" in line),
                                          ""))
        return f"{len(SANITIZED)} networks"

    return run


def train(check, log, config, device, more, cap):
    command = [NNPIPE, "train", config, "--device", device, "--json", "-o", f"runs={check.args.out}/runs",
               "-o", "checkpoint.every=never", *more]
    code, lines = check.run(log, command, cap)
    found = objects(lines)
    if code != 0 or not found or found[-1].get("event") != "done":
        errors = [line.get("message", "") for line in found if line.get("event") == "error"]
        raise RuntimeError(f"{log}: exit {code} {' '.join(errors) or (lines[-1] if lines else '')}")
    return found


def sample_set(check):
    shards = os.path.join(ROOT, "data", "shapes")
    if not os.path.exists(shards):
        check.run("synth.log", [NNPIPE, "data", "synth", "--out", shards], 120)
    return "configs/cnn.yaml"


def twice(check):
    config, texts = sample_set(check), []
    for precision in ("f32", "bf16") + (() if check.args.device == "cpu" else ("f16",)):
        ends = [train(check, f"twice-{precision}-{i}.log", config, check.args.device,
                      ["-o", f"precision={precision}", "-o", "train.epochs=2"], 300)[-1] for i in range(2)]
        if ends[0]["weights_sha256"] != ends[1]["weights_sha256"]:
            raise RuntimeError(f"{precision}: {ends[0]['weights_sha256'][:16]}, then {ends[1]['weights_sha256'][:16]}")
        texts.append(f"{precision} {ends[0]['weights_sha256'][:16]}, accuracy {100 * ends[0]['test_accuracy']:.2f} %")
    return "; ".join(texts)


def curve(check):
    data = os.environ.get("NNPIPE_DATA", os.path.join(ROOT, "data"))
    if not os.path.exists(os.path.join(data, "cifar10-jpeg.tar.zst")):
        raise NotRun("NNPIPE_DATA is not a folder with cifar10-jpeg.tar.zst")
    epochs = 1 if check.args.quick else 2
    more = ["-o", "precision=f32", "-o", f"train.epochs={epochs}"]
    if check.args.device == "cpu":
        more = ["-o", "precision=f32", "-o", "train.epochs=0", "-o", "train.steps=20", "-o", "train.eval_every=never",
                "-o", "data.test.match=test/airplane/000*"]
    losses = []
    for device in (check.args.device, "cpu"):
        found = train(check, f"curve-{device.replace(':', '')}.log", "configs/cifar10.yaml", device, more, 900)
        losses.append([line["loss"] for line in found if line.get("event") == "step"])
    if len(losses[0]) != len(losses[1]):
        raise RuntimeError(f"{len(losses[0])} steps against {len(losses[1])}")
    early = max(abs(a - b) / b for a, b in zip(losses[0][:10], losses[1][:10]))
    late = [sum(side[-50:]) / len(side[-50:]) for side in losses]
    text = (f"first 10 steps within {100 * early:.3f} %, the last 50 at {late[0]:.4f} and {late[1]:.4f} "
            f"({len(losses[0])} steps)")
    if early > 0.01 or abs(late[0] - late[1]) / late[1] > 0.03:
        raise RuntimeError(text)
    return text


def properties(check):
    code, lines = check.run("properties.log", [sys.executable, os.path.join(HERE, "cudnn_props.py"),
                                               "--ordinal", check.args.device.rpartition(":")[2].replace("cpu", "0")],
                                               120)
    if code == 3:
        raise NotRun(lines[-1])
    if code != 0:
        raise RuntimeError(lines[-1] if lines else f"exit {code}")
    return lines[-1]


def all_parts():
    return (("devices", devices), ("doctor", doctor), ("selftest", selftest),
            *((tool, sanitizer(tool)) for tool in ("memcheck", "racecheck", "synccheck", "initcheck")),
            ("twice", twice), ("curve", curve), ("properties", properties))


def main():
    parser = argparse.ArgumentParser(prog="check_gpu.sh")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--out", default=os.path.join(ROOT, "dist", "check_gpu"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--parts", help="parts to run, separated by commas")
    args, parts = parser.parse_args(), all_parts()
    wanted = args.parts.split(",") if args.parts else [name for name, _ in parts]
    unknown = set(wanted) - {name for name, _ in parts}
    if unknown:
        parser.error("there is no part " + ", ".join(sorted(unknown)))
    check = Check(args)
    check.say(time.strftime("%Y-%m-%d %H:%M:%S ") + subprocess.run([NNPIPE, "--version"], capture_output=True,
        text=True,
                                                                   check=False).stdout.strip())
    for name, function in parts:
        if name in wanted:
            check.part(name, function)
        if name == "devices" and check.failed:
            break  # nothing else can run
    check.say(f"{len(check.failed)} failed, {len(check.skipped)} not run; logs in {check.args.out}")
    sys.exit(1 if check.failed else 0)


if __name__ == "__main__":
    main()
