#!/bin/sh
# How long the service takes to answer while a thousand connections are idle, in turn with none: `nnpipe status` from
# exec to exit, and its request alone on a connection of its own. The goal is 50 ms at p99.
set -eu
cd "$(dirname "$0")/../.."
NNPIPE=${NNPIPE:-$PWD/nnpipe} exec python3 - <<'P'
import os, resource, socket, subprocess, sys, time
sys.path.insert(0, "tests/flow")
import api

resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
daemon = api.Daemon(settings="spare_bytes: 900T\n")
for _ in range(20):
    daemon.submit()

def dial():
    one = socket.socket(socket.AF_UNIX)
    one.connect(daemon.socket)
    return one

def request():
    if daemon.ask("GET", "/v1/service").status != 200:
        raise SystemExit("no answer")

def command():
    child = subprocess.Popen([api.NNPIPE, "status", "--socket", daemon.socket], stdout=subprocess.DEVNULL)
    _, code, used = os.wait4(child.pid, 0)
    if code != 0:
        raise SystemExit("no answer")
    cpu.append(used.ru_utime + used.ru_stime)

cpu, times = [], {}
for block in range(6):
    idle = [dial() for _ in range(1000)] if block % 2 else []
    for one in idle[::2]:
        one.send(b"GET /v1/ser")
    time.sleep(0.2)
    for what, work, often in (("`nnpipe status`", command, 100), ("its request", request, 1000)):
        for _ in range(often):
            began = time.perf_counter()
            work()
            times.setdefault((what, len(idle)), []).append(time.perf_counter() - began)
    for one in idle:
        one.close()
print("| | idle connections | times | median ms | p99 ms | max ms |")
print("|---|---|---|---|---|---|")
for (what, nr), all in sorted(times.items()):
    all.sort()
    print("| %s | %d | %d | %.2f | %.2f | %.2f |" % (
        what, nr, len(all), 1e3 * all[len(all) // 2], 1e3 * all[len(all) * 99 // 100], 1e3 * all[-1]))
cpu.sort()
print("\nThe command itself takes %.1f ms of CPU time (median); load average %.1f on %d cores." % (
    1e3 * cpu[len(cpu) // 2], os.getloadavg()[0], os.cpu_count()))
daemon.close()
P
