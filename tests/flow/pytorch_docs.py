"""docs/PYTORCH.md: each script is run as it stands, and with the lines of its diff, on small data; both print the
same losses to the last digit; nnpipe.Loader's is run and resumed. Started by pytorch_docs.sh."""
import os
import pickle
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.environ.get("NNPIPE_BUILD", os.path.join(ROOT, "build"))

# torchvision checks CIFAR-10's files by their MD5: the made ones have others.
PREFACE = """
import torchvision
torchvision.datasets.CIFAR10.base_folder = "made"
torchvision.datasets.CIFAR10.train_list = [["data_batch_1", None]]
torchvision.datasets.CIFAR10.test_list = []
torchvision.datasets.CIFAR10.meta = {"filename": "batches.meta", "key": "label_names", "md5": None}
"""


def examples(text):
    """(name, before, after) of each script: its block, and the diff block that follows it."""
    blocks = re.findall(r"```(python|diff)\n(.*?)```", text, re.S)
    for (kind, before), (next_kind, diff) in zip(blocks, blocks[1:]):
        name = re.match(r"# example: (\w+) before\n", before)
        if kind == "python" and name:
            assert next_kind == "diff", f"{name[1]}: no diff follows the script"
            yield name[1], before, patched(before, diff)


def patched(script, diff):
    """The script with a diff whose hunks are found by their context."""
    lines, at = script.splitlines(), 0
    for line in diff.splitlines():
        if line.startswith("@@"):
            continue
        if line.startswith("+"):
            lines.insert(at, line[1:])
            at += 1
            continue
        at = lines.index(line[1:], at)
        if line.startswith("-"):
            del lines[at]
        else:
            at += 1
    return "\n".join(lines) + "\n"


def make_data(folder):
    import numpy
    from PIL import Image
    numbers = numpy.random.default_rng(1)
    os.makedirs(f"{folder}/data/made")
    with open(f"{folder}/data/made/data_batch_1", "wb") as out:
        pixels = numbers.integers(0, 256, (600, 3072), numpy.uint8)
        pickle.dump({"data": pixels, "labels": [i % 10 for i in range(600)]}, out)
    with open(f"{folder}/data/made/batches.meta", "wb") as out:
        pickle.dump({"label_names": [str(i) for i in range(10)]}, out)
    for part, n in (("train", 40), ("val", 16)):
        for i in range(n):
            to = f"{folder}/imagenet/{part}/class{i % 4}"
            os.makedirs(to, exist_ok=True)
            small = Image.fromarray(numbers.integers(0, 256, (9, 11, 3), numpy.uint8))
            small.resize((180 + 13 * i % 170, 150 + 29 * i % 190), Image.BICUBIC).save(f"{to}/{i}.jpg", quality=90)


def run(script, folder):
    env = dict(os.environ, PYTHONPATH=os.path.join(BUILD, "python"), PYTHONWARNINGS="ignore", OMP_NUM_THREADS="1",
               XDG_CACHE_HOME=os.path.join(folder, "cache"))
    done = subprocess.run([sys.executable, "-c", PREFACE + script], cwd=folder, env=env, capture_output=True, text=True,
                          timeout=300)
    assert done.returncode == 0, f"exit {done.returncode}: {done.stderr[-1500:]}"
    return done.stdout


def check(name, before, after, folder):
    missing = "lightning" in before and subprocess.run([sys.executable, "-c", "import lightning"],
                                                       capture_output=True).returncode
    if missing:
        print(f"skip - PYTORCH.md: {name}: no lightning for {sys.executable}")
        return 0
    try:
        one, other = run(before, folder), run(after, folder)
        assert one.count("loss") >= 2, f"it printed no losses: {one}"
        assert one == other, f"before:\n{one}after:\n{other}"
        print(f"ok - PYTORCH.md: {name}: the same losses before and after")
        return 0
    except (AssertionError, subprocess.TimeoutExpired) as error:
        print(f"not ok - PYTORCH.md: {name}: {error}")
        return 1


def resumed(text):
    """The script of nnpipe.Loader in one process: whole; then its first epoch, and again, from the checkpoint."""
    script, epochs = re.search(r"```python\n(# example: config\n.*?)```", text, re.S)[1], "range(train.epoch, 3)"
    assert epochs in script
    return (f"import os\nfor end in 3, 1, 3:\n"
            f"    if end == 1: os.remove('checkpoint.pt')\n"
            f"    exec({script!r}.replace({epochs!r}, f'range(train.epoch, {{end}})'), {{}})\n")


def check_resumed(text, folder):
    lines = run(resumed(text), folder).splitlines()
    if len(lines) == 6 and lines[:3] == lines[3:] and len(set(lines)) == 3:
        print("ok - PYTORCH.md: config: the same losses in one run, and continued from a checkpoint")
        return 0
    print("not ok - PYTORCH.md: config: it printed %r" % lines)
    return 1


def main():
    folder = tempfile.mkdtemp(prefix="nnpipe-pytorch.")
    try:
        make_data(folder)
        with open(os.path.join(ROOT, "docs", "PYTORCH.md"), encoding="utf-8") as file:
            text = file.read()
        return max(check_resumed(text, folder), *(check(*example, folder) for example in examples(text)))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
