#!/bin/sh
# How long the service takes to answer honest requests while others abuse it (tests/flow/service_box.py), and while the
# folders of runs hang (tests/flow/service_hung.py). The goal is 50 ms at p99. As root, with FUSE.
set -eu
cd "$(dirname "$0")/../.."
TMP=$(mktemp -d)
trap 'rm -rf "$TMP"' EXIT
FIGURES="$TMP/figures" python3 tests/flow/service_box.py >"$TMP/box" || { cat "$TMP/box"; exit 1; }
[ -s "$TMP/figures" ] || { cat "$TMP/box"; exit 1; } # skipped
python3 tests/flow/service_hung.py >"$TMP/hung" || { cat "$TMP/hung"; exit 1; }
python3 - "$TMP/figures" <<'P'
import json, sys
result = json.load(open(sys.argv[1]))
times = sorted(1e3 * t for t in result["times"])
at = lambda share: times[min(len(times) - 1, int(len(times) * share))]
print("%d abusive requests: %d honest ones, p50 %.1f ms, p99 %.1f ms, max %.1f ms" % (
    result["abuse"], len(times), at(0.5), at(0.99), times[-1]))
P
sed -n 's/^# \(.*requests, p50\)/folders hang, \1/p' "$TMP/hung"
echo "load: $(cut -d ' ' -f 1-3 /proc/loadavg) on $(nproc) cores"
