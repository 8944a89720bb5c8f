# Common words of the scripts that boot.sh runs: as root in a system of their own, with nnpipe installed in it.
. "$ROOT/tests/lib.sh"
NNPIPE=/usr/bin/nnpipe
export PATH="/usr/sbin:/usr/bin:/sbin:/bin"
[ ! -d /host/made ] || cp -a /host/made/. / # what make install has put below DESTDIR

user_of() { id -u "$1"; }
as() { # as USER command...: with what a session has
    who=$1
    shift
    uid=$(user_of "$who")
    setpriv --reuid="$uid" --regid="$(id -g "$who")" --init-groups env -i PATH="$PATH" HOME="/home/$who" USER="$who" \
        XDG_RUNTIME_DIR="/run/user/$uid" "$@"
}
manager() { # manager USER [LINE]: their systemd, as user@UID.service would have it, without PAM and logind
    uid=$(user_of "$1")
    mkdir -p /run/user /run/systemd/unit-root # the latter: what the first sandboxed service of a boot leaves
    install -d -o "$1" -m 700 "/run/user/$uid"
    cat >"/run/systemd/system/manager-$1.service" <<U
[Service]
Type=notify
NotifyAccess=all
User=$1
WorkingDirectory=/home/$1
Environment=XDG_RUNTIME_DIR=/run/user/$uid
ExecStart=/lib/systemd/systemd --user
Delegate=pids memory cpu
KillMode=mixed
LimitMEMLOCK=infinity
${2:-}
U
    systemctl daemon-reload && systemctl start "manager-$1"
}
# net FILE NAME STEPS RUNS [DEVICE]: the simulated device and a cache leave the cores to other tests
sim='{sim: {step_ms: 10}}'
net() {
    cat >"$1" <<Y
name: $2
device: ${5:-cpu}
data: {train: {source: synth, samples: 500, size: 32}}
loader: {batch: 32, cache: decoded}
model: [{conv: {out: 8, kernel: 3, pad: 1}}, relu, global_avgpool, {linear: {out: classes}}]
train: {steps: $3, eval_every: never}
checkpoint: {every: 200 steps}
runs: $4
Y
}
field() { # field USER ID NAME
    as "$1" nnpipe status "$2" --json | grep -o "\"$3\": *\"\{0,1\}[^\",}]*" | head -n 1 | sed 's/.*: *"\{0,1\}//'
}
becomes() { # becomes USER ID STATE: within half a minute
    for _ in $(seq 1800); do [ "$(field "$1" "$2" state)" = "$3" ] && return; sleep 0.1; done
    echo "run $2 is $(field "$1" "$2" state), not $3: $(field "$1" "$2" reason)"
    return 1
}
soon() { # soon command...: succeeds within ten seconds
    for _ in $(seq 600); do "$@" && return; sleep 0.1; done
    echo "not within ten seconds: $*"
    return 1
}
trap 'journalctl --no-pager -o short-monotonic >/host/journal 2>&1; rm -rf "$TMP"' EXIT
