#!/usr/bin/env python3
"""Runs nnpipe and PyTorch in turn and prints ratios; bench_gpu.sh describes them.

A cell is one measurement: a process with a time cap. Its result is a line of results.jsonl; a cell that
is there already with numbers is not run again.
"""
import argparse
import csv
import glob
import json
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HERE = os.path.dirname(os.path.abspath(__file__))
NNPIPE = os.environ.get("NNPIPE", os.path.join(ROOT, "nnpipe"))
PEER = [sys.executable, os.path.join(HERE, "peer.py")]
TARGET = 0.94
PROFILED = 50  # steps
RATE = "images_per_second"


def arguments():
    parser = argparse.ArgumentParser(prog="bench_gpu.sh")
    parser.add_argument("--parts", default="step,copy,feed,cifar", help="profile too: where the time goes")
    parser.add_argument("--out", default=os.path.join(ROOT, "dist", "bench_gpu"))
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seconds", type=float, help="seconds of each measurement (20; --quick: 5)")
    parser.add_argument("--rounds", type=int, help="rounds of each (3; --quick: 1); the table has medians")
    parser.add_argument("--readers", default="auto", help="nnpipe's reader threads")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--photos", help="photographs: any set that `nnpipe data pack` reads")
    parser.add_argument("--quick", action="store_true", help="batch 256, one round, 5 s each")
    parser.add_argument("--models", default="resnet50,resnet18", help="of step")
    parser.add_argument("--batches", help="of step (256,400; --quick: 256)")
    parser.add_argument("--precisions", default="bf16,f16", help="of step")
    parser.add_argument("--deterministic", default="yes,no", help="of step, on both sides")
    parser.add_argument("--tf32", action="store_true", help="of step in f32, on both sides")
    parser.add_argument("--tools", default="nnpipe,torch,compiled", help="of step; compiling takes minutes each")
    parser.add_argument("--again", action="store_true", help="measure again, without earlier results")
    parser.add_argument("--table", action="store_true", help="only print the table of earlier results")
    parser.add_argument("--cpu", action="store_true", help="dry run on the CPU, tiny")
    args = parser.parse_args()
    if args.cpu:
        args.device, args.quick = "cpu", True
    args.seconds = args.seconds or (2 if args.cpu else 5 if args.quick else 20)
    args.rounds = args.rounds or (1 if args.quick else 3)
    args.batches = args.batches or ("256" if args.quick else "256,400")
    for name, known in (("parts", "step,copy,feed,cifar,profile"), ("deterministic", "yes,no"),
                        ("models", "resnet50,resnet18"), ("precisions", "f32,bf16,f16"),
                        ("tools", "nnpipe,torch,compiled")):
        unknown = set(getattr(args, name).split(",")) - set(known.split(","))
        if unknown:
            parser.error(f"--{name}: {', '.join(sorted(unknown))} is none of {known}")
    return args


class Bench:
    def __init__(self, args):
        self.args = args
        os.makedirs(args.out, exist_ok=True)
        self.path = os.path.join(args.out, "results.jsonl")
        if args.again and os.path.exists(self.path):
            os.rename(self.path, self.path + time.strftime(".%Y%m%d-%H%M%S"))
        self.results = {}
        if os.path.exists(self.path):
            with open(self.path, encoding="utf-8") as file:
                for line in file:
                    try:
                        result = json.loads(line)
                    except ValueError:
                        continue  # truncated when the script was stopped
                    self.results[result.get("cell")] = result

    def write(self, result):
        self.results[result["cell"]] = result
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(json.dumps(result) + "\n")

    def cell(self, name, facts, run):
        """Measures unless there is a result; run() returns a dict with numbers, or raises."""
        if self.results.get(name, {}).get("ok"):
            return
        print(f"{time.strftime('%H:%M:%S')} {name} ...", end=" ", flush=True)
        result = {"cell": name, **facts}
        try:
            with Watch() as watch:
                result.update(run(), ok=True)
            result.update({**watch.facts(), **facts})  # nnpipe reports f32 in a tf32 row
            print(result["said"] if "said" in result else describe(result), flush=True)
        except (RuntimeError, OSError) as error:
            result.update(ok=False, error=str(error))
            print("FAILED:", error, flush=True)
        self.write(result)


class Watch:
    """The GPU's clocks, power and temperature while a cell runs, by nvidia-smi once a second; nothing
    where there is none."""
    fields = ("clocks.sm", "clocks.mem", "power.draw", "temperature.gpu", "utilization.gpu")
    why = "clocks_event_reasons.active"

    def __enter__(self):
        self.rows, self.process = [], None
        try:
            self.process = subprocess.Popen(
                ["nvidia-smi", "-i", "0", "--query-gpu=" + ",".join((*self.fields, self.why)),
                 "--format=csv,noheader,nounits", "-l", "1"], stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, text=True)
        except OSError:
            return self
        self.reader = threading.Thread(target=lambda: self.rows.extend(self.process.stdout))
        self.reader.start()
        return self

    def __exit__(self, *_):
        if self.process:
            self.process.terminate()
            self.process.wait()
            self.reader.join()

    def facts(self):
        """Medians, and all causes of lower clocks (NVIDIA's bits, in hex)."""
        rows = [[word.strip() for word in row.split(",")] for row in self.rows]
        rows = [row for row in rows if len(row) == len(self.fields) + 1]
        seen = {}
        for i, field in enumerate(self.fields):
            values = [value for value in (real(row[i]) for row in rows) if value is not None]
            if values:
                seen[field] = statistics.median(values)
        if rows:
            seen["samples"] = len(rows)
            seen[self.why] = sorted({row[-1] for row in rows})
        return {"gpu_seen": seen} if seen else {}


def real(text):
    try:
        return float(text)
    except ValueError:
        return None  # "[N/A]"


def describe(result):
    keys = ("images_per_second", "gigabytes_per_second", "stall_ratio", "seconds_to_target", "test_accuracy")
    return ", ".join(f"{key} {result[key]:.4g}" for key in keys if isinstance(result.get(key), (int, float)))


def run_lines(command, cap, on_line=None, env=None):
    """Runs a command for at most `cap` seconds; returns its JSON lines. on_line may return True to stop."""
    lines, tail = [], []
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env={**os.environ, **(env or {})}, start_new_session=True, cwd=ROOT)
    reader = threading.Thread(target=lambda: tail.extend(process.stderr.read().splitlines()[-4:]))
    reader.start()
    late = threading.Timer(cap, lambda: os.killpg(process.pid, signal.SIGKILL))
    late.start()
    enough = False
    try:
        for line in process.stdout:
            try:
                lines.append({**json.loads(line), "at": time.monotonic()})
            except ValueError:
                continue
            if not enough and on_line and on_line(lines):
                enough = True
                process.terminate()
        code = process.wait()
        expired = not late.is_alive()
    finally:  # Ctrl-C too: its own processes are not in our group
        late.cancel()
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        reader.join()
    if expired:
        raise RuntimeError(f"took longer than its limit of {cap:.0f} s")
    if code != 0 and not enough:
        errors = [line.get("message") for line in lines if line.get("event") == "error"]
        raise RuntimeError(f"exit {code}: " + (" ".join(errors or tail) or "no output")[-600:])
    return lines


def share_libraries():
    """PyTorch's own cuDNN and cuBLAS for nnpipe too: compares two programs, not two versions of a library."""
    found = [folder for path in sys.path for folder in glob.glob(os.path.join(path, "nvidia", "*", "lib"))]
    if found:
        os.environ.setdefault("NNPIPE_CUDA_LIBS", ":".join(found))


def last(lines):
    if not lines:
        raise RuntimeError("it printed no result")
    return {key: value for key, value in lines[-1].items() if key not in ("event", "at")}


# --- step ---------------------------------------------------------------------------------------


def sizes(args):
    if args.cpu:
        return [("resnet18", 4, "f32", 64), ("resnet18", 4, "bf16", 64)]
    return [(model, int(batch), precision, 224) for model in args.models.split(",")
            for batch in args.batches.split(",") for precision in args.precisions.split(",")]


def step_command(args, model, batch, precision, size, deterministic):
    command = [NNPIPE, "bench", "step", f"configs/{model}.yaml", "--json", "--device", args.device,
               "-o", f"loader.batch={batch}", "-o", f"precision={precision}", "-o", "data.train.path=/nonexistent",
               "-o", f"train.deterministic={'true' if deterministic == 'yes' else 'false'}",
               "-o", f"train.tf32={'true' if args.tf32 and precision == 'f32' else 'false'}"]
    if size != 224:
        command += ["-o", f"loader.augment=[{{random_resized_crop: {{size: {size}}}}}]",
                    "-o", f"loader.test_augment=[{{center_crop: {{size: {size}}}}}]"]
    return command


def nnpipe_step(args, *work):
    return last(run_lines(step_command(args, *work) + ["--seconds", str(args.seconds)], 180 + args.seconds))


def peer_command(args, what, model, batch, precision, size, deterministic):
    command = PEER + [what, "--device", args.device, "--seconds", str(args.seconds), "--model", model,
                      "--batch", str(batch), "--precision", precision, "--size", str(size)]
    return (command + (["--deterministic"] if deterministic == "yes" else []) +
            (["--tf32"] if args.tf32 and precision == "f32" else []))


def peer_step(args, compiled, *work):
    command = peer_command(args, "step", *work)
    return last(run_lines(command + (["--compile"] if compiled else []), 900 if compiled else 180))


def part_step(bench):
    args = bench.args
    for number in range(args.rounds):
        for model, batch, precision, size in sizes(args):
            for deterministic in args.deterministic.split(","):
                step_cells(bench, number, model, batch, precision, size, deterministic)


def step_cells(bench, number, model, batch, precision, size, deterministic):
    args = bench.args
    tf32 = args.tf32 and precision == "f32"
    facts = {"part": "step", "model": model, "batch": batch, "precision": "tf32" if tf32 else precision,
             "size": size, "deterministic": deterministic}
    name = f"step {model} {batch} {facts['precision']} deterministic={deterministic}"
    work = (model, batch, precision, size, deterministic)
    for tool, run in (("nnpipe", lambda: {**nnpipe_step(args, *work), **engines()}),
                      ("torch", lambda: peer_step(args, False, *work)),
                      ("torch compiled", lambda: peer_step(args, True, *work))):
        if tool.split()[-1] in args.tools.split(","):
            bench.cell(f"{name} {tool} #{number}", {**facts, "tool": tool}, run)


def engines():
    """The engines that nnpipe has chosen on this GPU so far: its cache files, line by line."""
    folder = os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "nnpipe")
    found = {}
    for path in sorted(glob.glob(os.path.join(folder, "engines*"))):
        with open(path, encoding="utf-8", errors="replace") as file:
            found[os.path.basename(path)] = file.read().splitlines()
    return {"engines": found} if found else {}


# --- profile ------------------------------------------------------------------------------------


def nsys_kernels(args, command):
    """By NVIDIA's own profiler, if installed: kernels and copies by their time."""
    report = os.path.join(args.out, "nsys-" + str(os.getpid()))
    subprocess.run(["nsys", "profile", "--trace=cuda", "--cuda-graph-trace=node", "--force-overwrite=true",
                    "-o", report] + command, cwd=ROOT, capture_output=True, timeout=600, check=True)
    out = subprocess.run(["nsys", "stats", "--report", "cuda_gpu_kern_sum", "--format", "csv", "-q",
                          "--force-export=true", report + ".nsys-rep"], capture_output=True, text=True,
                         timeout=300, check=True).stdout
    rows = list(csv.DictReader(out[out.index("Time (%)"):].splitlines()))
    return {"kernels": [{"name": row["Name"][:120], "calls": int(row["Instances"]) / PROFILED,
                         "ms": float(row["Total Time (ns)"]) / 1e6 / PROFILED} for row in rows[:25]]}


def nnpipe_profile(args, *work):
    command = step_command(args, *work) + ["--steps", str(PROFILED)]
    if not shutil.which("nsys"):
        raise RuntimeError("there is no nsys: install NVIDIA Nsight Systems, and give --parts profile again")
    try:
        return nsys_kernels(args, command)
    except (subprocess.SubprocessError, ValueError, KeyError) as error:
        raise RuntimeError(f"nsys: {error}") from error


def part_profile(bench):
    args = bench.args
    for model, batch, precision, size in sizes(args)[:1]:
        for deterministic in args.deterministic.split(","):
            facts = {"part": "profile", "model": model, "batch": batch, "precision": precision, "size": size,
                     "deterministic": deterministic}
            work = (model, batch, precision, size, deterministic)
            name = f"profile {model} {batch} {precision} deterministic={deterministic}"
            bench.cell(f"{name} nnpipe", {**facts, "tool": "nnpipe"}, lambda: nnpipe_profile(args, *work))
            bench.cell(f"{name} torch", {**facts, "tool": "torch"},
                       lambda: last(run_lines(peer_command(args, "profile", *work), 300)))


# --- copy ---------------------------------------------------------------------------------------


def copy_config(args, batch, size):
    path = os.path.join(args.out, "copy.yaml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(f"name: copy\ndata:\n  train: {{source: synth, samples: {4 * batch}, size: {size}}}\n"
                   f"loader:\n  batch: {batch}\n  cache: decoded\n  readers: {args.readers}\n"
                   "model: [global_avgpool, linear: {out: classes}]\n")
    return path


def part_copy(bench):
    args = bench.args
    batch, size = (8, 64) if args.cpu else (256, 224)
    path = copy_config(args, batch, size)
    for number in range(args.rounds):
        facts = {"part": "copy", "batch": batch, "size": size}

        def ours():
            result = last(run_lines([NNPIPE, "bench", "feed", path, "--json", "--device", args.device,
                                     "--seconds", str(args.seconds)], 120 + args.seconds))
            return {**result, "gigabytes_per_second": result["h2d_gigabytes_per_second"]}

        def theirs():
            return last(run_lines(PEER + ["copy", "--device", args.device, "--seconds", str(args.seconds),
                                          "--batch", str(batch), "--size", str(size)], 120))

        bench.cell(f"copy nnpipe #{number}", {**facts, "tool": "nnpipe"}, ours)
        bench.cell(f"copy torch #{number}", {**facts, "tool": "torch"}, theirs)


# --- feed ---------------------------------------------------------------------------------------


def photographs(args):
    if args.photos:
        return args.photos
    path = os.path.join(os.environ.get("NNPIPE_DATA", ""), "imagenet-sample-500.tar")
    if os.path.exists(path):
        return path
    drawn = os.path.join(args.out, "drawn")
    if not os.path.exists(os.path.join(drawn, "done")):
        print("no photographs found (--photos, NNPIPE_DATA): drawn pictures are used instead")
        number, size = (64, 96) if args.cpu else (2000, 448)
        run_lines([NNPIPE, "data", "synth", "--out", drawn, "--samples", str(number), "--test", "1",
                   "--size", str(size)], 600)
        open(os.path.join(drawn, "done"), "w", encoding="utf-8").close()
    return os.path.join(drawn, "train-*.tar*")


def pack(args, kind):
    """Shards of the photographs: jpeg unchanged, raw with a shorter side of 256 (for the CPU: 64)."""
    out = os.path.join(args.out, "shards-" + kind)
    if not os.path.exists(os.path.join(out, "done")):
        command = [NNPIPE, "data", "pack", photographs(args), "--out", out]
        if kind == "raw":
            command += ["--raw", "--resize", "64" if args.cpu else "256"]
        run_lines(command, 900)
        open(os.path.join(out, "done"), "w", encoding="utf-8").close()
    return out


def nnpipe_feed(args, kind, batch, precision, size):
    shards = pack(args, kind)
    model = "resnet18" if args.cpu else "resnet50"
    command = [NNPIPE, "train", f"configs/{model}.yaml", "--json", "--device", args.device]
    shards = f"{{source: tar, path: \"{shards}/*.tar\"}}"
    for override in (f"data.train={shards}", f"data.test={shards}", f"loader.batch={batch}",
                     f"precision={precision}", f"loader.readers={args.readers}", "train.epochs=0",
                     "train.steps=10000000", "train.eval_every=never", "schedule=constant",
                     "checkpoint.every=never", f"runs={args.out}/runs",
                     f"loader.augment=[{{random_resized_crop: {{size: {size}}}}}, flip]",
                     f"loader.test_augment=[{{resize: {{size: {size}}}}}, {{center_crop: {{size: {size}}}}}]"):
        command += ["-o", override]
    state = {}

    def enough(lines):
        if lines[-1].get("event") == "step":
            state.setdefault("start", lines[-1]["at"])
            return lines[-1]["at"] - state["start"] > 2 * args.seconds
        return False

    lines = run_lines(command, 180 + 3 * args.seconds, enough)
    steps = [line for line in lines if line.get("event") == "step"]
    later = [line for line in steps if line["at"] - steps[0]["at"] > 0.5 * args.seconds]
    if len(later) < 2:
        raise RuntimeError(f"only {len(steps)} steps were reported")
    span = later[-1]["at"] - later[0]["at"]
    return {"images_per_second": (later[-1]["step"] - later[0]["step"]) * batch / span, "seconds": span,
            "stall_ratio": statistics.mean(line["stall_ratio"] for line in later[1:])}


def part_feed(bench):
    args = bench.args
    batch, precision, size = (4, "f32", 64) if args.cpu else (256, "bf16", 224)
    model = "resnet18" if args.cpu else "resnet50"
    for number in range(args.rounds):
        for kind in ("jpeg", "raw"):
            facts = {"part": "feed", "batch": batch, "precision": precision, "size": size, "kind": kind,
                     "model": model}
            bench.cell(f"feed {kind} nnpipe #{number}", {**facts, "tool": "nnpipe"},
                       lambda: nnpipe_feed(args, kind, batch, precision, size))
            command = PEER + ["feed", "--device", args.device, "--seconds", str(2 * args.seconds), "--model", model,
                              "--batch", str(batch), "--precision", precision, "--size", str(size), "--shards",
                              os.path.join(args.out, "shards-" + kind), "--workers", str(args.workers)]
            for decode in ("pil", "torchvision") if kind == "jpeg" else ("pil",):
                bench.cell(f"feed {kind} torch {decode} #{number}", {**facts, "tool": "torch", "decode": decode},
                           lambda: last(run_lines(command + ["--decode", decode], 300)))


# --- CIFAR-10 -----------------------------------------------------------------------------------


def nnpipe_cifar(args, data):
    command = [NNPIPE, "train", "scripts/bench_gpu/cifar.yaml", "--json", "--device", args.device,
               "-o", f"runs={args.out}/runs", "-o", f"loader.readers={args.readers}"]
    if args.cpu:
        command += ["-o", "train.epochs=0", "-o", "train.steps=2", "-o", "loader.batch=8", "-o",
                    "data.test.match=test/airplane/000*", "-o", "data.train.match=train/*/000*"]
    else:
        command += ["-o", "precision=bf16"]
    lines = run_lines(command, 1200, env={"NNPIPE_DATA": data})
    epochs = [line for line in lines if line.get("event") == "epoch"]
    done = last(lines)
    start = next(line["at"] for line in lines if line.get("event") == "start")
    reached = [line["at"] - start for line in epochs if line["test_accuracy"] >= TARGET]
    return {"test_accuracy": done["test_accuracy"], "seconds": done["train_seconds"],
            "seconds_to_target": reached[0] if reached else None}


def part_cifar(bench):
    args = bench.args
    data = os.environ.get("NNPIPE_DATA", os.path.join(ROOT, "data"))
    archive = os.path.join(data, "cifar10-jpeg.tar.zst")
    if not os.path.exists(archive):
        print(f"cifar is left out: there is no {archive} (NNPIPE_DATA names its folder)")
        return
    raw = os.path.join(args.out, "cifar")
    if not os.path.exists(os.path.join(raw, "done")):
        for split in ("train", "test"):
            match = f"{split}/*/000*" if args.cpu else f"{split}/*"
            run_lines([NNPIPE, "data", "pack", archive, "--match", match, "--raw", "--out",
                       os.path.join(raw, split)], 300)
        open(os.path.join(raw, "done"), "w", encoding="utf-8").close()
    for number in range(args.rounds):
        facts = {"part": "cifar", "model": "resnet18 for 32x32"}
        bench.cell(f"cifar nnpipe #{number}", {**facts, "tool": "nnpipe"}, lambda: nnpipe_cifar(args, data))
        command = PEER + ["cifar", "--device", args.device, "--shards", raw, "--seed", str(number)]
        command += ["--steps", "2", "--batch", "8"] if args.cpu else ["--precision", "bf16"]
        for tool, more in (("torch", []), ("torch compiled", ["--compile"])):
            bench.cell(f"cifar {tool} #{number}", {**facts, "tool": tool},
                       lambda: last(run_lines(command + more, 1200)))


# --- the table ----------------------------------------------------------------------------------


def middle(results, key, **facts):
    values = [r[key] for r in results if r.get("ok") and r.get(key) is not None
              and all(r.get(k) == v for k, v in facts.items())]
    return statistics.median(values) if values else None


def number(value, digits=0):
    return "-" if value is None else f"{value:,.{digits}f}"


def ratio(ours, theirs):
    return "-" if not ours or not theirs else f"{ours / theirs:.2f}"


def table_step(rows):
    keys = ("model", "batch", "precision", "size", "deterministic")
    rows = [{"deterministic": "yes" if r["tool"] == "nnpipe" else "no", **r} for r in rows]  # of older results
    print("\n| resident data, images/s | deterministic | nnpipe | torch eager | torch compiled | to eager "
          "| to compiled |\n|---|---|---|---|---|---|---|")
    for work in sorted({tuple(r[key] for key in keys) for r in rows}):
        facts = dict(zip(keys, work))
        model, batch, precision, size, deterministic = work
        ours, eager, compiled = (middle(rows, RATE, tool=tool, **facts)
                                 for tool in ("nnpipe", "torch", "torch compiled"))
        print(f"| {model} at {size}, batch {batch}, {precision} | {deterministic} | {number(ours)} | {number(eager)} | "
              f"{number(compiled)} | {ratio(ours, eager)} | {ratio(ours, compiled)} |")


def table_copy(rows):
    print("\n| host to device, GB/s by the device's clock | nnpipe | torch, pinned | ratio |\n|---|---|---|---|")
    ours, theirs = (middle(rows, "gigabytes_per_second", tool=tool) for tool in ("nnpipe", "torch"))
    print(f"| batches of {rows[0]['batch']} pictures "
          f"| {number(ours, 1)} | {number(theirs, 1)} | {ratio(ours, theirs)} |")


def table_feed(rows, steps):
    print("\n| end to end, images/s | nnpipe | stall | share of resident | torch, PIL | torch, torchvision | ratio |\n"
          "|---|---|---|---|---|---|---|")
    steps = [r for r in steps if r.get("deterministic") != "no"]
    resident = middle(steps, RATE, tool="nnpipe", **{key: rows[0][key] for key in ("model", "batch", "precision")})
    for kind in ("jpeg", "raw"):
        ours, stall = (middle(rows, key, tool="nnpipe", kind=kind) for key in (RATE, "stall_ratio"))
        pil, vision = (middle(rows, RATE, tool="torch", kind=kind, decode=decode) for decode in ("pil", "torchvision"))
        best = max((value for value in (pil, vision) if value), default=None)
        print(f"| {rows[0]['model']}, {kind} shards | {number(ours)} | {number(stall and 100 * stall, 1)} % | "
              f"{ratio(ours, resident)} | {number(pil)} | {number(vision)} | {ratio(ours, best)} |")


def table_cifar(rows):
    print(f"\n| CIFAR-10 to {100 * TARGET:.0f} % | seconds to it | accuracy at the end | the whole training, s |\n"
          "|---|---|---|---|")
    for tool in ("nnpipe", "torch", "torch compiled"):
        print(f"| {tool} | {number(middle(rows, 'seconds_to_target', tool=tool), 1)} | "
              f"{number(middle(rows, 'test_accuracy', tool=tool), 4)} | "
              f"{number(middle(rows, 'seconds', tool=tool), 1)} |")


def table_profile(rows):
    for r in rows:
        if r.get("ok"):
            print(f"\n| {r['model']}, batch {r['batch']}, {r['precision']}, deterministic {r['deterministic']}: "
                  f"{r['tool']} | calls a step | ms a step |\n|---|---|---|")
            for kernel in r["kernels"]:
                name = kernel["name"].replace("|", "/")
                print(f"| {name} | {number(kernel['calls'], 1)} | {number(kernel['ms'], 3)} |")


def table(results):
    parts = {part: [r for r in results if r.get("part") == part]
             for part in ("step", "copy", "feed", "cifar", "profile")}
    if parts["step"]:
        table_step(parts["step"])
    if parts["copy"]:
        table_copy(parts["copy"])
    if parts["feed"]:
        table_feed(parts["feed"], parts["step"])
    if parts["cifar"]:
        table_cifar(parts["cifar"])
    table_profile(parts["profile"])
    failed = [r["cell"] for rows in parts.values() for r in rows if not r.get("ok")]
    if failed:
        print(f"\n{len(failed)} failed: " + "; ".join(failed))
    return not failed


def box(args):
    facts = {"cell": "box", "ok": True, "machine": platform.platform(), "cores": len(os.sched_getaffinity(0)),
             "time": time.strftime("%Y-%m-%d %H:%M:%S"), "dry_run": args.cpu}
    for key, command in (("nnpipe", [NNPIPE, "--version"]), ("devices", [NNPIPE, "devices"]),
                         ("gpu", ["nvidia-smi", "--query-gpu=name,driver_version,vbios_version,persistence_mode,"
                                  "compute_mode,clocks.max.sm,clocks.applications.graphics,power.limit",
                                  "--format=csv,noheader"])):
        try:
            facts[key] = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout.strip()
        except OSError as error:
            facts[key] = str(error)
    commit = os.path.join(ROOT, "COMMIT")
    if os.path.exists(commit):
        with open(commit, encoding="utf-8") as file:
            facts["commit"] = file.read().strip()
    facts["torch"] = last(run_lines(PEER + ["versions"], 120))
    return facts


def main():
    args = arguments()
    bench = Bench(args)
    if not args.table:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        share_libraries()
        if not os.path.exists(NNPIPE):
            sys.exit(f"bench_gpu.sh: there is no {NNPIPE}: run make, or name it in NNPIPE")
        try:
            bench.write(box(args))
        except RuntimeError as error:
            sys.exit(f"bench_gpu.sh: {sys.executable} has no working PyTorch ({error}); PYTHON names another")
        for name, part in (("step", part_step), ("copy", part_copy), ("feed", part_feed), ("cifar", part_cifar),
                           ("profile", part_profile)):
            if name in args.parts.split(","):
                part(bench)
    if args.cpu:
        print("\nA dry run on the CPU: the numbers mean nothing.")
    sys.exit(0 if table(list(bench.results.values())) else 1)


if __name__ == "__main__":
    main()
