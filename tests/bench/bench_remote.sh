#!/bin/sh
# The loader on photographs behind nginx, 5 ms away (tests/bench/delay_proxy.c), beside the same archive on local
# disk (past the page cache, and in it), in turns; batches of 64, 8 of them ahead. nnpipe has one half of the cores, the
# servers the other; the start (the first START epochs) is taken out. Then the stall of a device that needs FEED images
# a second, while 1 % of the requests are refused, 1 % end with a reset, and 1 % take 2 s.
#   NNPIPE_DATA  the folder of imagenet-sample-500.tar
#   ROUNDS (5), START (4), EPOCHS (12), FEED (120), STALL_EPOCHS (4), DEPTH (auto)
set -eu
: "${NNPIPE_DATA:?}"
cd "$(dirname "$0")/../.."
. tests/bench/field.sh
command -v nginx >/dev/null || PATH=$PATH:/usr/sbin
out=$(mktemp -d)
trap 'kill $(cat "$out/pids") 2>/dev/null; rm -rf "$out"' EXIT
export XDG_CACHE_HOME="$out/cache" NNPIPE_PHOTOS="$NNPIPE_DATA/imagenet-sample-500.tar" no_proxy=127.0.0.1
: >"$out/pids"
cc -O2 -o "$out/delay_proxy" tests/bench/delay_proxy.c
chmod 755 "$out"
cat >"$out/nginx.conf" <<C
daemon off; worker_processes 1; pid $out/nginx.pid; error_log $out/nginx.log; user root;
events { worker_connections 2048; }
http { access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000000;
  client_body_temp_path $out/b; proxy_temp_path $out/p;
  fastcgi_temp_path $out/f; uwsgi_temp_path $out/u; scgi_temp_path $out/s;
  server { listen 127.0.0.1:0; listen unix:$out/unused; root $NNPIPE_DATA; } }
C
port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
sed -i "s/127.0.0.1:0/127.0.0.1:$port/" "$out/nginx.conf"
half=$((($(nproc) + 1) / 2))
ours="taskset -c 0-$((half - 1))" theirs="taskset -c $half-$((2 * half - 1))"
[ "$(nproc)" -ge 2 ] || ours='' theirs=''
$theirs nginx -c "$out/nginx.conf" 2>"$out/nginx.err" &
echo $! >>"$out/pids"
# proxy NAME ERRORS RESETS TAILS: its port
proxy() {
    name=$1
    shift
    $theirs "$out/delay_proxy" "$out/$name.port" "$port" 5 "$@" &
    echo $! >>"$out/pids"
    until [ -s "$out/$name.port" ]; do sleep 0.05; done
}
proxy good 0 0 0
proxy bad 0.01 0.01 0.01
# loader EPOCHS FLAGS...: its seconds, CPU seconds and images
loader() {
    epochs=$1
    shift
    $ours ./nnpipe bench loader tests/bench/photos.yaml --epochs "$epochs" --json -o data.train.source=tar -o \
        loader.cache=none -o loader.prefetch=8 -o "loader.depth=${DEPTH:-auto}" "$@" >"$out/json"
    echo "$(field seconds <"$out/json") $(field cpu_seconds <"$out/json") $(field images <"$out/json")"
}
bench() { # FILE PATH FLAGS...
    file=$1 path=$2
    shift 2
    begin=$(loader "${START:-4}" -o "data.train.path=$path" "$@")
    whole=$(loader $((${START:-4} + ${EPOCHS:-12})) -o "data.train.path=$path" "$@")
    echo "$begin $whole" | awk '{ n = $6 - $3; print n / ($4 - $1), n / ($5 - $2) }' >>"$out/$file"
}
far=http://127.0.0.1:$(cat "$out/good.port")/imagenet-sample-500.tar
for _ in $(seq "${ROUNDS:-5}"); do
    bench local "$NNPIPE_PHOTOS" -o loader.page_cache=0
    bench pages "$NNPIPE_PHOTOS"
    bench remote "$far" -o loader.disk_cache=none
    bench disk "$far" -o loader.disk_cache=8G
done
column() { cut -d ' ' -f "$2" "$out/$1" | median; }
ratio() { paste -d ' ' "$out/$1" "$out/local" | awk -v n="$2" -v of="$(($2 + 2))" '{ print $n / $of }' | median; }
echo "| photographs, batch 64, 8 ahead | img/s | of the local disk | img per CPU second | of the local disk |"
echo "|---|---|---|---|---|"
row() { printf '| %s | %.0f | %.2f | %.0f | %.2f |\n' "$1" "$(column "$2" 1)" "$(ratio "$2" 1)" "$(column "$2" 2)" \
    "$(ratio "$2" 2)"; }
row "local disk, past the page cache" local
row "local disk, in the page cache" pages
row "5 ms away" remote
row "5 ms away, \`disk_cache\`" disk

ms=$(awk -v f="${FEED:-120}" 'BEGIN { print 64000 / f }')
for where in "$NNPIPE_PHOTOS" "$far" "http://127.0.0.1:$(cat "$out/bad.port")/imagenet-sample-500.tar"; do
    ./nnpipe train tests/bench/photos.yaml --json -o "runs=$out/runs" -o "device={sim: {step_ms: $ms}}" -o \
        data.train.source=tar \
        -o "data.train.path=$where" -o loader.cache=none -o loader.disk_cache=none -o loader.prefetch=8 -o \
            "train.epochs=${STALL_EPOCHS:-4}" \
        >"$out/json" 2>"$out/err" || tail -n 3 "$out/err"
    printf 'stall at %s img/s, %s: %.2f %%\n' "${FEED:-120}" "${where##*[0-9]/}" \
        "$(awk -v s="$(field stall_ratio <"$out/json")" 'BEGIN { print 100 * s }')"
done
