#!/bin/sh
# Two machines, as two network namespaces with a link between them: two ranks on each, which meet over TCP, train to the
# weights of one process, end within seconds when the link dies, and go on when it is back.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1
a=nnpipe-a-$$ b=nnpipe-b-$$
gone() { ip netns del "$a" 2>/dev/null; ip netns del "$b" 2>/dev/null; }
# Addresses that are for examples only (RFC 5737), on a link that ends in these two namespaces.
machines() {
    ip netns add "$a" && ip netns add "$b" &&
        ip link add wire netns "$a" type veth peer name wire netns "$b" || return 1
    for of in "$a 1" "$b 2"; do
        ip netns exec "${of% *}" sh -c "ip link set lo up && ip addr add 192.0.2.${of#* }/24 dev wire &&
            ip link set wire up" || return 1
    done
}
if [ "$(id -u)" -ne 0 ] || ! command -v ip >/dev/null || ! machines 2>"$TMP/machines.err"; then
    gone
    skip "two machines" "no network namespaces here: it takes root, and ip of iproute2"
    exit 0
fi
trap 'gone; rm -rf "$TMP"' EXIT
"$NNPIPE" data synth --out "$TMP/data" --samples 200 --test 40 --size 12 >/dev/null || exit 1
cat >"$TMP/net.yaml" <<Y
name: net
device: cpu
precision: f32
data:
  train: {source: tar, path: "$TMP/data/train-*.tar*"}
  test: {source: tar, path: "$TMP/data/test-*.tar*"}
loader: {batch: 32, readers: 1, augment: [flip]}
model:
  - {conv: {out: 8, kernel: 3}}
  - batchnorm
  - relu
  - global_avgpool
  - {linear: {out: classes}}
train: {epochs: 60, threads: 2, lanes: 8, eval_every: 50 steps}
checkpoint: {every: 10 steps}
Y
hash_of() { field weights_sha256 "$1"; }
# both NAME FLAG...: starts ranks 0 and 1 on one machine, 2 and 3 on the other; their processes are in $pids
both() {
    name=$1 pids=
    shift
    for rank in 0 1 2 3; do
        machine=$a
        [ $rank -lt 2 ] || machine=$b
        RANK=$rank WORLD_SIZE=4 LOCAL_RANK=$((rank % 2)) LOCAL_WORLD_SIZE=2 MASTER_ADDR=192.0.2.1 \
            NNPIPE_COMM_PORT=29500 NNPIPE_COMM_TIMEOUT=20 \
            timeout 300 ip netns exec "$machine" "$NNPIPE" train "$TMP/net.yaml" \
            -o "runs=$TMP/$name" --json "$@" >"$TMP/$name.$rank" 2>"$TMP/$name.$rank.err" &
        pids="$pids $!"
    done
}
# ended CODE: all of them, with this code
ended() {
    for pid in $pids; do exits "$1" wait "$pid" || { cat "$TMP/$name".*.err; return 1; }; done
}
one() { "$NNPIPE" train "$TMP/net.yaml" -o "runs=$TMP/one" --json >"$TMP/one.0"; }
t "one process" one
four() {
    both four && ended 0 && [ -n "$(hash_of "$TMP/one.0")" ] &&
        [ "$(hash_of "$TMP/one.0")" = "$(hash_of "$TMP/four.0")" ]
}
t "two ranks on each of two machines: the same weights" four
exec 3>&1
dies() {
    both cut -o train.epochs=100000 || return 1
    for _ in $(tries 100); do
        [ -z "$(ls "$TMP"/cut/net-*/checkpoints 2>/dev/null | grep -v '\.')" ] || break
        sleep 0.1
    done
    ip netns exec "$b" ip link set wire down
    began=$(date +%s)
    ended 1 || return 1
    took=$(($(date +%s) - began))
    echo "# all had ended $took s after the link" >&3
    grep -hq 'rank [23] (.*) has ended' "$TMP/cut.0.err" || { cat "$TMP/cut.0.err"; return 1; }
    [ $took -le 15 ]
}
t "a link that dies ends all of them, and rank 0 names the other machine's" dies
back() {
    ip netns exec "$b" ip link set wire up
    rm -rf "$TMP/four" && both four && sleep 0.7 && ip netns exec "$a" ip link set wire down && ended 1 &&
        ip netns exec "$a" ip link set wire up && both four --resume auto && ended 0 &&
        [ "$(hash_of "$TMP/one.0")" = "$(hash_of "$TMP/four.0")" ] && [ "$(ls -d "$TMP"/four/net-* | wc -l)" -le 2 ]
}
t "when the link is back the same command goes on, to the same weights" back
# The sums do not fit into these buffers: a rank that is stopped leaves its neighbour's connection full.
waits() {
    for machine in "$a" "$b"; do
        ip netns exec "$machine" sysctl -qw net.ipv4.tcp_rmem="4096 8192 16384" net.ipv4.tcp_wmem="4096 8192 16384" ||
            return 1
    done
    both slow -o train.epochs=100000 -o 'model=[flatten, {linear: {out: 500}}, {linear: {out: classes}}]' \
        -o optimizer.sgd.lr=1e-6 || return 1
    for _ in $(tries 100); do
        [ -z "$(ls "$TMP"/slow/net-*/checkpoints 2>/dev/null | grep -v '\.')" ] || break
        sleep 0.1
    done
    # shellcheck disable=SC2086 # four words
    set -- $pids
    stopped=$(pgrep -P "$3")
    kill -STOP "$stopped"
    sleep 12
    kill -CONT "$stopped"
    sleep 0.5
    kill -TERM "$stopped"
    ended 75
}
t "a rank that does not read for 12 s is waited for" waits
