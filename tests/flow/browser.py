"""Drives a real Chromium over a pipe with the DevTools protocol: opens pages, evaluates scripts, types."""
import base64
import json
import os
import select
import subprocess
import time


class Browser:
    """One page. Its requests, console lines and errors are recorded."""

    def __init__(self, program, folder, width=1280, height=1000):
        to_read, self.to_write = os.pipe()
        self.to_hear, to_speak = os.pipe()
        for fd in (to_read, to_speak):
            os.set_inheritable(fd, True)
        # Its protocol is on 3 and 4.
        self.process = subprocess.Popen(
            ["sh", "-c", f'exec "$0" "$@" 3<&{to_read} 4>&{to_speak}', program, "--headless=new", "--no-sandbox",
             "--disable-gpu", "--disable-dev-shm-usage", "--remote-debugging-pipe", f"--user-data-dir={folder}/browser",
             f"--window-size={width},{height}", "about:blank"],
            pass_fds=(to_read, to_speak), stdout=subprocess.DEVNULL, stderr=open(f"{folder}/browser.log", "ab"))
        os.close(to_read)
        os.close(to_speak)
        self.last, self.heard, self.session = 0, b"", None
        self.asked, self.complaints = [], []
        targets = self.call("Target.getTargets")["targetInfos"]
        page = next(t for t in targets if t["type"] == "page")
        self.session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")

    def close(self):
        self.process.kill()
        self.process.wait()

    def _hear(self, until):
        while b"\0" not in self.heard:
            if not select.select([self.to_hear], [], [], max(0, until - time.monotonic()))[0]:
                return None
            got = os.read(self.to_hear, 1 << 16)
            if not got:
                raise RuntimeError("the browser has ended")
            self.heard += got
        text, self.heard = self.heard.split(b"\0", 1)
        return json.loads(text)

    def _note(self, message):
        what, params = message.get("method"), message.get("params", {})
        if what == "Network.requestWillBeSent":
            self.asked.append(params["request"]["url"])
        elif what == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.complaints.append(details.get("exception", {}).get("description", details["text"]))
        elif what == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
            self.complaints.append(" ".join(str(a.get("value", a.get("description"))) for a in params["args"]))
        elif what == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
            self.complaints.append(params["entry"]["text"] + " " + params["entry"].get("url", ""))

    def call(self, method, **params):
        self.last += 1
        message = {"id": self.last, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.to_write, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + 60
        while True:
            answer = self._hear(until)
            if answer is None:
                raise RuntimeError(f"no answer to {method}")
            if answer.get("id") == self.last:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self._note(answer)

    def open(self, url):
        self.call("Page.navigate", url=url)

    def size(self, width, height, mobile=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

    def scheme(self, name):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def see(self, expression):
        """Returns the value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, expression, seconds=20):
        """Evaluates it until it is true; returns the last value. An error, as before the page is loaded, is false."""
        until = time.monotonic() + seconds
        while True:
            value = self.see(f"(() => {{ try {{ return {expression} }} catch {{ return null }} }})()")
            if value or time.monotonic() > until:
                return value
            time.sleep(0.1)

    def key(self, name, code=None, text=None):
        more = {"windowsVirtualKeyCode": code} if code else {}
        if text:
            more["text"] = text
        self.call("Input.dispatchKeyEvent", type="keyDown", key=name, code=name, **more)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=name, code=name,
                  **({"windowsVirtualKeyCode": code} if code else {}))

    def type(self, text):
        self.call("Input.insertText", text=text)

    def shot(self, path, whole=True):
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
