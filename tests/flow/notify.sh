# The daemon's notifications, and the sockets that it inherits: without systemd, from a listener
# and passed descriptors of our own.
. "$(dirname "$0")/../lib.sh"
command -v python3 >/dev/null || { skip "notifications to systemd" "there is no python3"; exit 0; }
export XDG_STATE_HOME="$TMP/state" XDG_CONFIG_HOME="$TMP/config" XDG_RUNTIME_DIR="$TMP/run"
mkdir -p "$TMP/config/nnpipe" "$TMP/run"
unset NNPIPE_SOCKET DBUS_SESSION_BUS_ADDRESS
echo "devices: [cpu]" >"$TMP/config/nnpipe/service.yaml"
cat >"$TMP/play.py" <<'P'
# play.py PROGRAM FOLDER PART: plays systemd for `PROGRAM daemon`; exit 1 with what was not as it should be.
import fcntl, os, signal, socket, subprocess, sys, time, urllib.request

program, folder, part = sys.argv[1:]
listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
listener.bind(folder + "/notify-" + part)
heard = []


def listen(seconds, until=None):
    end = time.time() + seconds
    while time.time() < end:
        listener.settimeout(max(end - time.time(), 0.01))
        try:
            text = listener.recv(4096).decode()
        except TimeoutError:
            break
        heard.extend((time.time(), line) for line in text.split("\n"))
        if until and any(line.startswith(until) for _, line in heard):
            return True
    return until is None


def must(what, truth):
    if not truth:
        print("%s; heard: %s" % (what, [line for _, line in heard][-12:]))
        daemon.kill()
        sys.exit(1)


def start(sockets=(), args=(), **environment):
    def child():
        high = [fcntl.fcntl(one.fileno(), fcntl.F_DUPFD, 20) for one in sockets]
        for i, one in enumerate(high): # what lies at 3 may be one of them
            os.dup2(one, 3 + i)
        if sockets:
            os.environ["LISTEN_PID"] = str(os.getpid())
        os.execve(program, [program, "daemon", *args], dict(os.environ))

    for key, value in environment.items():
        os.environ[key] = value
    os.environ["NOTIFY_SOCKET"] = folder + "/notify-" + part
    if sockets:
        os.environ["LISTEN_FDS"] = str(len(sockets))
    return Forked(child)


class Forked:
    def __init__(self, child):
        self.pid = os.fork()
        if self.pid == 0:
            try:
                log = os.open(folder + "/log-" + part, os.O_WRONLY | os.O_CREAT, 0o600)
                os.dup2(log, 2)
                child()
            finally:
                os._exit(127)

    def send(self, number):
        os.kill(self.pid, number)

    def kill(self):
        try:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        except (ProcessLookupError, ChildProcessError):
            pass

    def wait(self):
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


if part == "life":
    daemon = start(WATCHDOG_USEC="2000000")
    must("it never says READY=1", listen(10, "READY=1"))
    del heard[:]
    listen(5)
    signs = [when for when, line in heard if line == "WATCHDOG=1"]
    gaps = [b - a for a, b in zip(signs, signs[1:])]
    must("%d signs of life in 5 s" % len(signs), len(signs) >= 4)
    must("%.2f s without a sign of life, of 2" % max(gaps), max(gaps) < 1.6)
    must("%d signs of life in 5 s: more than is asked for" % len(signs), len(signs) <= 11)
    del heard[:]
    daemon.send(signal.SIGHUP)
    must("no RELOADING=1", listen(5, "RELOADING=1"))
    must("no READY=1 after it", listen(5, "READY=1"))
    del heard[:]
    daemon.send(signal.SIGTERM)
    must("no STOPPING=1", listen(5, "STOPPING=1"))
    must("systemd does not get the time limit", any(line == "EXTEND_TIMEOUT_USEC=100000000" for _, line in heard))
    must("it did not end well", daemon.wait() == 0)
elif part == "status":
    daemon = start()
    must("there is no status line", listen(10, "STATUS=0 running, 0 queued"))
    daemon.send(signal.SIGTERM)
    must("it did not end well", daemon.wait() == 0)
elif part in ("sockets", "foreign"):
    if os.path.exists(folder + "/run/nnpipe/socket"):  # of the tests before
        os.unlink(folder + "/run/nnpipe/socket")
    unix = socket.socket(socket.AF_UNIX)
    unix.bind(folder + "/passed-" + part)
    unix.listen()
    tcp = socket.socket()
    tcp.bind(("127.0.0.1" if part == "sockets" else "0.0.0.0", 0))
    tcp.listen()
    daemon = start((unix, tcp))
    if part == "sockets":
        must("it never says READY=1", listen(10, "READY=1"))
        with urllib.request.urlopen("http://127.0.0.1:%d/healthz" % tcp.getsockname()[1], timeout=5) as answer:
            must("no answer by TCP", b"true" in answer.read())
        out = subprocess.run([program, "ls", "--socket", folder + "/passed-" + part], env={"HOME": folder},
                             capture_output=True)
        must("no answer by the Unix socket: %s" % out.stderr, out.returncode == 0)
        must("it made a socket of its own", not os.path.exists(folder + "/run/nnpipe/socket"))
        daemon.send(signal.SIGTERM)
        must("it did not end well", daemon.wait() == 0)
    else:
        must("it serves other machines", daemon.wait() == 2)
        must("it does not say why", b"only allowed on loopback" in open(folder + "/log-" + part, "rb").read())
P
play() { python3 "$TMP/play.py" "$NNPIPE" "$TMP" "$1"; }
t "READY, the watchdog's signal in time, RELOADING, STOPPING" play life
t "the status line" play status
t "a Unix and a TCP socket are inherited" play sockets
t "a socket that other machines could reach is refused" play foreign
t "--units without systemd names what is missing" says "cannot be reached" exits 1 "$NNPIPE" daemon --units
t "--units is not for a box" exits 2 "$NNPIPE" daemon --units --box
[ "$failed" -eq 0 ]
