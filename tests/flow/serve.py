"""Asks `nnpipe serve`: serve.py NNPIPE RUN PICTURES NR_BAD DEVICE, called by serve.sh."""
import atexit
import concurrent.futures
import glob
import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys

sys.path.insert(0, os.path.dirname(__file__))
from browser import Browser  # noqa: E402

nnpipe, run, pictures, nr_bad, device = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]), sys.argv[5]
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
    def __init__(self, *flags):
        self.process = subprocess.Popen([nnpipe, "serve", run, "--listen", "127.0.0.1:0", "--device", device, *flags],
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
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


def raw(server, data):
    with socket.create_connection(("127.0.0.1", server.port), 60) as peer:
        peer.sendall(data)
        peer.shutdown(socket.SHUT_WR)


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
    for data in (b"\0" * 100, b"POST /predict HTTP/1.1\r\n", b"GET / HTTP/9.9\r\n\r\n",
                 b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
                 b"POST /predict HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nshort",
                 b"POST /predict HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"):
        raw(server, data)
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


def stop_with_waiting():
    """With a delay of 10 s, only the stop can start the batch."""
    server = Server("--max-delay", "10000")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        answers = [pool.submit(server.predict, path) for path in files[:4]]
        while int(re.search(r"nnpipe_serve_held (\d+)", server.ask("/metrics")[1].decode())[1]) < 4:
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
        stop_with_waiting()
    return failed > 0


sys.exit(main())
