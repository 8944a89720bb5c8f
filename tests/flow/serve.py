"""Asks `nnpipe serve`: serve.py NNPIPE RUN SLOW_RUN PICTURES NR_BAD DEVICE, called by serve.sh."""
import atexit
import collections
import concurrent.futures
import glob
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
import time

sys.path.insert(0, os.path.dirname(__file__))
from browser import Browser  # noqa: E402

nnpipe, run, slow_run, pictures, nr_bad, device = *sys.argv[1:5], int(sys.argv[5]), sys.argv[6]
files = sorted(glob.glob(pictures + "/**/*.*", recursive=True))
files = [f for f in files if os.path.isfile(f)]
failed = 0


def check(sentence, fine, why=""):
    global failed
    sentence += "" if device == "cpu" else f" ({device}, emulated)"
    if fine:
        print("ok -", sentence)
    else:
        print("not ok -", f"{sentence}: {str(why)[:300]}")
        failed += 1


class Server:
    def __init__(self, *flags, operands=(run,), **environment):
        words = [nnpipe, "serve", *operands, "--listen", "127.0.0.1:0", "--device", device, *flags]
        self.process = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                        env={**os.environ, **environment})
        atexit.register(self.process.kill)
        self.lines = []
        for line in self.process.stderr:
            self.lines.append(line)
            if found := re.search(r"http://127\.0\.0\.1:(\d+)/ answers", line):
                self.port = int(found[1])
                return
        raise SystemExit("not ok - the server starts: " + "".join(self.lines))

    def ask(self, path="/predict", body=None, method=None, **fields):
        """(status, text, fields)"""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method or ("POST" if body is not None else "GET"), path, body, fields)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, text, answer.headers

    def predict(self, path):
        with open(path, "rb") as file:
            return self.ask("/predict?top=3", file.read())

    def memory(self):
        with open(f"/proc/{self.process.pid}/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    def held(self):
        return int(re.search(r"nnpipe_serve_held (\d+)", self.ask("/metrics")[1].decode())[1])

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.stderr.read()
        return self.process.wait(60)


def predicted():
    """What `nnpipe predict` says: path -> (class, probability)."""
    lines = subprocess.run([nnpipe, "predict", "--weights", run, "--device", device, "--json", *files], check=True,
                           stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.splitlines()
    lines = [json.loads(line) for line in lines]
    return {line["path"]: line for line in lines if line["event"] == "prediction"}


def same(one, other):
    return one["class"] == other["class"] and abs(one["probability"] - other["probability"]) < 1e-5


def equals_predict(server):
    alone = {path: server.predict(path) for path in files}
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        together = dict(zip(files, pool.map(server.predict, files)))
    want = predicted()
    wrong = [p for p in files if alone[p][0] != 200 or not same(json.loads(alone[p][1]), want[p])]
    check("answers equal predict's", len(files) >= 40 and not wrong, [(alone[p][1], want[p]) for p in wrong[:1]])
    differ = [p for p in files if alone[p][1] != together[p][1]]
    check("an answer has the same bytes alone and in company", not differ,
          [(alone[p][1], together[p][1]) for p in differ[:1]])
    answer = json.loads(alone[files[0]][1])
    check("an answer has as many classes as asked for, the likeliest first",
          len(answer["top"]) == 3 and answer["top"][0]["class"] == answer["class"] and
          answer["top"][0]["probability"] >= answer["top"][1]["probability"] >= answer["top"][2]["probability"], answer)


def small_routes(server):
    model = json.loads(server.ask("/model")[1])
    check("/model has classes, size and device",
          model["height"] == 16 and len(model["classes"]) == 8 and model["device"] == device, model)
    text = server.ask("/metrics")[1].decode()
    count = int(re.search(r"nnpipe_serve_seconds_count (\d+)", text)[1])
    check("/metrics counts the pictures", count == 2 * len(files) and f'le="+Inf"}} {count}\n' in text, text)
    check("/healthz answers", server.ask("/healthz")[0] == 200)


def connect(server):
    return socket.create_connection(("127.0.0.1", server.port), 60)


def raw(server, data, answered):
    """What the server sends until it closes, if it answers."""
    with connect(server) as peer:
        try:
            peer.sendall(data)
            return b"".join(iter(lambda: peer.recv(65536), b"")) if answered else b""
        except OSError:  # it has closed already; a reset takes an answer with it
            return b""


def bad_requests(server):
    with open(files[0], "rb") as file:
        picture = file.read()
    host = "127.0.0.1:%d" % server.port
    bad = [
        (400, dict(body=b"")), (400, dict(body=b"no picture")), (400, dict(body=picture[:len(picture) // 2])),
        (400, dict(body=picture[:20])), (400, dict(body=b"\xff\xd8\xff" + bytes(500))),
        (400, dict(body=b"\x89PNG\r\n\x1a\n" + b"\xff" * 300)), (400, dict(path="/predict?top=0", body=picture)),
        (400, dict(path="/predict?top=many", body=picture)), (404, dict(path="/nowhere")),
        (404, dict(path="/assets/page.js")), (405, dict(path="/predict")), (405, dict(path="/model", body=b"x")),
        (405, dict(method="DELETE")), (413, dict(body=bytes((1 << 20) + 1))), (403, dict(Host="evil.example")),
        (403, dict(Host=host, Origin="http://evil.example")), (400, dict(path="/%zz")),
        (415, {"body": b"x", "Content-Type": "multipart/form-data; boundary=x"}),
    ]
    wrong = []
    before = None
    for i in range(nr_bad):
        status, request = bad[i % len(bad)]
        got, text, _ = server.ask(**request)
        if got != status or (status not in (403,) and not json.loads(text)["error"]["text"]):
            wrong.append((status, got, str(request)[:80], text))
        if i == nr_bad // 10:
            before = server.memory()
    check(f"each of {nr_bad} bad requests has its status and says why", not wrong, wrong[:2])
    post = b"POST /predict HTTP/1.1\r\nHost: localhost\r\n"
    answered = [b"GET / HTTP/9.9\r\n\r\n", post + b"Content-Length: -5\r\n\r\n",
                post + b"Content-Length: 99999999999999999999\r\n\r\n",
                post + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n", post + b"X: " + b"y" * 100000 + b"\r\n\r\n",
                b"GET /" + b"a" * 100000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n"]
    broken = [b"\0" * 100, post, post + b"Content-Length: 1000\r\n\r\nshort",
              post + b"Content-Length: 2\r\n\r\nlonger than that", post + b"Content-Length: 9\r\n" * 2 + b"\r\n"]
    draws = random.Random(18)
    broken += [draws.randbytes(draws.randrange(1, 3000)) for _ in range(10)]
    every = [(data, True) for data in answered] + [(data, False) for data in broken]
    answers = [raw(server, *every[i % len(every)]) for i in range(nr_bad // 2)]
    statuses = {a[9:12] for a in answers if a.startswith(b"HTTP/1.1 ")}
    check(f"{len(answers)} requests that are not HTTP, have wrong lengths or huge headers get no prediction",
          {b"400", b"413", b"505"} <= statuses <= {b"400", b"413", b"414", b"431", b"505"}, statuses)
    slow = [connect(server) for _ in range(200)]
    for i, peer in enumerate(slow):
        peer.sendall((post + b"Content-Length: 5000\r\n\r\nx", post, b"P")[i % 3])
    check("200 slow senders keep nobody from an answer", server.predict(files[0])[0] == 200)
    for peer in slow:
        peer.close()
    check("after them it answers as before", server.predict(files[0])[0] == 200)
    check("and has not grown by 32 MiB", server.memory() - before < 32 << 20, (before, server.memory()))


def in_a_browser(server, program):
    browser = Browser(program, os.environ.get("TMP") or os.getcwd())
    try:
        browser.open(f"http://127.0.0.1:{server.port}/")
        browser.wait("document.getElementById('model').textContent.includes('8 classes')")
        root = browser.call("DOM.getDocument")["root"]["nodeId"]
        node = browser.call("DOM.querySelector", nodeId=root, selector="#files")["nodeId"]
        browser.call("DOM.setFileInputFiles", nodeId=node, files=[os.path.abspath(files[0]), os.path.abspath(__file__)])
        browser.wait("document.querySelectorAll('#answers table, #answers .failed').length === 2")
        shown = browser.see("document.querySelector('#answers table th').textContent")
        refused = browser.see("document.querySelector('#answers .failed').textContent")
        want = json.loads(server.predict(files[0])[1])["class"]
        check("the page shows a picture's class and another file's mistake", shown == want and "JPEG" in refused,
              (shown, want, refused))
        complaints = [c for c in browser.complaints if "400" not in c]
        check("the browser complains of nothing", not complaints, complaints)
    finally:
        browser.close()


def too_many():
    server = Server("--max-batch", "1", "--max-waiting", "1")
    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        answers = list(pool.map(server.predict, files * 4))
    good = [a for a in answers if a[0] == 200]
    refused = [a for a in answers if a[0] == 503]
    check("pictures above --max-waiting are refused with 503 and Retry-After, the others answered",
          good and len(good) + len(refused) == len(answers) and all(a[2]["Retry-After"] == "1" for a in refused),
          [a[0] for a in answers])
    check("SIGTERM ends it with 0", server.stop() == 0)


def too_large():
    """--max-waiting 1 and --max-batch 1: three bodies of 1 MiB at most."""
    server = Server("--max-batch", "1", "--max-waiting", "1", "--max-size", "1")
    before, size = server.memory(), 1 << 20
    peers = [connect(server) for _ in range(40)]
    for peer in peers:
        peer.sendall(b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % size)
        peer.sendall(b"x" * (size - 1))
    kept = server.memory() - before
    for peer in peers:
        peer.sendall(b"x")
    statuses = collections.Counter(peer.recv(65536)[:12].decode() for peer in peers)
    check("large bodies above the limit of memory are refused with 503, and leave it free for the next one",
          kept < 16 << 20 and statuses["HTTP/1.1 503"] >= 37 and set(statuses) <= {"HTTP/1.1 503", "HTTP/1.1 400"} and
          server.predict(files[0])[0] == 200, (kept, statuses))
    status, text, _ = server.ask("/predict", b"x" * (size + 1))
    check("a body above --max-size gets 413 and its limit",
          status == 413 and "larger than 1 MiB" in json.loads(text)["error"]["text"], text)
    server.stop()


def in_a_queue(server, then):
    """then() while a queue is full: the statuses of 24 clients that ask until they are refused."""
    def ask_on(path):
        statuses = []
        while not statuses or statuses[-1] == 200:
            try:
                statuses.append(server.predict(path)[0])
            except OSError:  # the server is gone
                statuses.append(0)
        return statuses

    with concurrent.futures.ThreadPoolExecutor(24) as pool:
        clients = [pool.submit(ask_on, path) for path in files[:24]]
        until = time.monotonic() + 60
        while server.held() < 12 and time.monotonic() < until:
            pass
        code = then()
        return code, collections.Counter(status for client in clients for status in client.result())


def stop_behind_a_full_batch():
    server = Server("--max-batch", "1", operands=("--weights", slow_run))
    code, statuses = in_a_queue(server, server.stop)
    check("what waits behind a full batch when it is stopped is answered", code == 0 and statuses[200] >= 12 and
          set(statuses) <= {200, 503, 0}, (code, statuses))


def device_dies():
    dies = os.path.abspath("dies")
    server = Server("--max-batch", "1", NNPIPE_EMU_DIES=dies)

    def die():
        with open(dies + ".new", "w") as file:
            file.write("0")
        os.rename(dies + ".new", dies)
        said = server.process.stderr.read()
        return server.process.wait(60), said

    (code, said), statuses = in_a_queue(server, die)
    os.unlink(dies)
    check("when the device dies, all that wait get 500, and it ends with 1", code == 1 and statuses[500] >= 8 and
          set(statuses) <= {200, 500, 503, 0} and len(said.splitlines()) == 1 and "cuda:0" in said,
          (code, said, statuses))


def stop_with_waiting():
    """With a delay of 10 s, only the stop can start the batch."""
    server = Server("--max-delay", "10000")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(server.predict, path) for path in files[:4]]
        while server.held() < 4:
            pass
        code = server.stop()
        answers = [answer.result()[0] for answer in answers]
    check("pictures that wait when it is stopped are answered", code == 0 and answers == [200] * 4, (code, answers))


def main():
    server = Server("--max-size", "1")
    equals_predict(server)
    small_routes(server)
    if nr_bad:
        bad_requests(server)
        program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
        if program:
            in_a_browser(server, program)
        else:
            print("skip - the page of serve in a browser: no chromium here")
    check("it stops with 0", server.stop() == 0)
    if nr_bad:
        too_many()
        too_large()
        stop_with_waiting()
        stop_behind_a_full_batch()
    else:
        device_dies()
    return failed > 0


sys.exit(main())
