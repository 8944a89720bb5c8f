# A user who goes while their run waits: it is not started as a number that may be another's by then.
. "$(dirname "$0")/../lib.sh"
what="a run whose user does not exist any more waits, and says so; it ends when the user is back"
[ "$(id -u)" -eq 0 ] || { skip "$what" "only root can be other users"; exit 0; }
unshare -m true 2>/dev/null || { skip "$what" "no mount namespace here, in which the box has its users"; exit 0; }
ANN=64361 GROUP=64360
export NNPIPE_SOCKET="$TMP/socket"
daemon=
trap 'kill -9 $daemon $(cat "$TMP"/ann/runs/*/lock 2>/dev/null) 2>/dev/null; rm -rf "$TMP"' EXIT
chmod 755 "$TMP"
mkdir "$TMP/ann" && chown $ANN "$TMP/ann"
# in place, for it is mounted
users() {
    {
        cat /etc/passwd
        [ -z "$1" ] || echo "$1:x:$ANN:$ANN::$TMP/ann:/bin/sh"
    } >"$TMP/passwd"
}
users ann
{ cat /etc/group; echo "nnpipe:x:$GROUP:ann"; } >"$TMP/group"
cat >"$TMP/short.yaml" <<Y
name: short
device: cpu
data: {train: {source: synth, samples: 64, size: 8}}
loader: {batch: 8, cache: none, readers: 1}
model: [flatten, {linear: {out: classes}}]
train: {steps: 5, eval_every: never, threads: 1}
runs: $TMP/ann/runs
Y
printf 'devices: [cpu]\nspare_bytes: 1M\nretry: {first: 0.2, cap: 1}\n' >"$TMP/service.yaml"
# shellcheck disable=SC2016 # for the inner shell
unshare -m sh -c 'mount --bind "$1/passwd" /etc/passwd && mount --bind "$1/group" /etc/group && shift && exec "$@"' - \
    "$TMP" \
    "$NNPIPE" daemon --box --config "$TMP/service.yaml" --state "$TMP/state" 2>"$TMP/daemon.log" &
daemon=$!
for _ in $(tries 300); do "$NNPIPE" status >/dev/null 2>&1 && break; sleep 0.1; done
says() {
    for _ in $(tries 300); do
        "$NNPIPE" status 1 --json | grep -q "$1" && return
        sleep 0.1
    done
    "$NNPIPE" status 1 --json
    return 1
}
gone() {
    "$NNPIPE" hold --all && setpriv --reuid $ANN --regid $ANN --groups $GROUP "$NNPIPE" submit "$TMP/short.yaml" &&
        says '"owner": *"ann"' || return 1
    users "" && "$NNPIPE" release --all && says "user ann ($ANN), who submitted it, does not exist any more" || return 1
    [ ! -e "$TMP/ann/runs/short-1" ] && users bob && sleep 1.5 && says "user ann ($ANN)" &&
        [ ! -e "$TMP/ann/runs/short-1" ] && users ann && says '"state": *"done"'
}
t "$what" gone
kill $daemon
wait $daemon
[ "$failed" -eq 0 ]
