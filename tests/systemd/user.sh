# The service of one user under a real systemd: units, sandbox, watchdog, reload, crash, stop, on_end.
. "$ROOT/tests/systemd/inside.sh"
useradd -m ann && manager ann || exit 1
uid=$(user_of ann) home=/home/ann run=/run/user/$(user_of ann)
ctl() { as ann systemctl --user "$@"; }
as ann mkdir -p $home/.config/nnpipe $home/data
settings() { as ann sh -c 'cat >"$HOME/.config/nnpipe/service.yaml"'; }
settings <<Y
devices: [sim]
retry: {first: 0.1, cap: 1}
spare_bytes: 1M
on_end: cat >$home/ended.json
Y
net $home/short.yaml short 40 $home/runs "$sim"
net $home/long.yaml long 1000000 $home/runs "$sim"
net $home/counted.yaml counted 1500 $home/runs
net $home/tmp.yaml intmp 40 /tmp/ann/runs "$sim"
main() { ctl show -p MainPID --value "$1"; }
lock() { cat "$home/runs/$1/lock"; }
status_of() { sed -n "s/^$2:[[:space:]]*//p" "/proc/$1/status"; }

starts() { ctl enable --now nnpipe.socket && as ann nnpipe ls && [ "$(ctl is-active nnpipe.service)" = active ]; }
t "the socket starts the service" starts
says_status() { [ "$(ctl show -p StatusText --value nnpipe)" = "$1" ]; }
t "systemd gets the status line" soon says_status "0 running, 0 queued"
t "a run is done" exits 0 as ann nnpipe submit $home/short.yaml --wait
t "its on_end gets the run's end" soon grep -q '"state": *"done"' $home/ended.json
tidy() { [ -z "$(ls -A "$run/nnpipe/jobs")" ] && ! ls -d "$run"/systemd/user/nnpipe-worker@* 2>/dev/null; }
t "nothing of its unit is left" soon tidy
t "a run below /tmp is done, though units have a private /tmp" exits 0 as ann nnpipe submit $home/tmp.yaml --wait

sandboxed() {
    as ann nnpipe submit $home/long.yaml && becomes ann 3 running && soon test -s $home/runs/long-3/lock || return 1
    pid=$(main nnpipe-worker@3.service)
    [ "$pid" -gt 1 ] && soon [ "$(lock long-3)" = "$pid" ] || { echo "pid $pid, lock $(lock long-3)"; return 1; }
    for want in "NoNewPrivs 1" "Seccomp 2" "CapEff 0000000000000000" "CapBnd 0000000000000000" "Groups $(id -g ann)"; do
        [ "$(status_of "$pid" "${want% *}" | tr -d ' ')" = "${want#* }" ] || {
            echo "$want: $(status_of "$pid" "${want% *}")"
            return 1
        }
    done
    grep -q 'nnpipe-worker@3.service' "/proc/$pid/cgroup" || { cat "/proc/$pid/cgroup"; return 1; }
    [ "$(tail -n +3 "/proc/$pid/net/dev" | wc -l)" -eq 1 ] || { echo "it has a network"; return 1; }
    inside="nsenter -t $pid -m"
    ! $inside touch $home/x 2>/dev/null && ! $inside touch /usr/x 2>/dev/null && $inside touch $home/runs/long-3/x &&
        rm $home/runs/long-3/x &&
        $inside ls $home/data && [ "$($inside stat -c %a $run/systemd)" = 0 ] && ! $inside ls /tmp/ann 2>/dev/null
}
t "a run has its sandbox: rights, network, files" sandboxed
daemon_dies() {
    pid=$(lock long-3) && kill -9 "$(main nnpipe)" && soon as ann nnpipe status 3 && becomes ann 3 running &&
        [ "$(lock long-3)" = "$pid" ] && kill -0 "$pid" && [ "$(field ann 3 retries)" = 0 ]
}
t "a killed daemon is started again by systemd and finds its run" daemon_dies
hangs() {
    before=$(main nnpipe)
    mkdir -p "$run/systemd/user/nnpipe.service.d" && printf '[Service]\nWatchdogSec=2\n' \
        >"$run/systemd/user/nnpipe.service.d/quick.conf" &&
        ctl daemon-reload && kill -9 "$before" && soon sh -c '[ "$1" != "$2" ]' - "$before" "$(sleep 3; main nnpipe)" &&
            as ann nnpipe ls || return 1
    before=$(main nnpipe) && sleep 4 && [ "$(main nnpipe)" = "$before" ] || {
        echo "a daemon that is well was ended"
        return 1
    }
    kill -STOP "$before" && sleep 6 && as ann nnpipe status 3 && [ "$(main nnpipe)" != "$before" ] &&
        kill -0 "$(lock long-3)"
}
t "a hanging daemon is replaced, a healthy one is not; its run continues" hangs
reloads() {
    settings <<Y
devices: [cpu, sim]
retry: {first: 0.1, cap: 1}
spare_bytes: 1M
Y
    ctl reload nnpipe && soon sh -c '"$@" | grep -q cpu' - setpriv --reuid="$uid" --clear-groups curl -s --unix-socket \
        "$run/nnpipe/socket" http://localhost/v1/devices || return 1
    echo "devcies: [cpu]" | settings
    ctl reload nnpipe && sleep 1 && as ann curl -s --unix-socket "$run/nnpipe/socket" http://localhost/v1/devices |
        grep -q cpu &&
        journalctl _UID="$uid" --no-pager | grep -q 'settings are unchanged: .*service.yaml:1:'
    printf 'devices: [cpu, sim]\nretry: {first: 0.1, cap: 1}\nspare_bytes: 1M\n' | settings
    ctl reload nnpipe && [ "$(ctl is-active nnpipe)" = active ]
}
t "reload takes all of a new file, and nothing of a wrong one" reloads
# begun UNIT: it has a process; a run is `running` from when systemd is asked for one
begun() {
    [ "$(main "$1")" -gt 1 ]
}
trains() { [ "$(field ann "$1" step)" -gt 0 ]; }
remembered() { # systemd keeps a unit that another wants, and with it what its last process was
    as ann mkdir -p "$home/.config/systemd/user" &&
        printf '[Unit]\nWants=nnpipe-worker@3.service\n[Service]\nExecStart=sleep 1000\n' \
        >"$home/.config/systemd/user/keeps.service" &&
        ctl daemon-reload && ctl start --job-mode=ignore-dependencies keeps.service || return 1
    for _ in $(seq 8); do
        as ann nnpipe pause 3 && becomes ann 3 paused && as ann nnpipe resume 3 && becomes ann 3 running &&
            [ "$(field ann 3 retries)" = 0 ] || return 1
        soon begun nnpipe-worker@3.service || return 1
    done
    ctl stop keeps.service
}
t "a resumed run is not mistaken for its previous process, which systemd remembers" remembered
stops() {
    as ann nnpipe stop 3 && becomes ann 3 stopped && as ann nnpipe submit $home/counted.yaml && becomes ann 4 running &&
        soon begun nnpipe-worker@4.service && soon trains 4 || return 1
    pid=$(main nnpipe-worker@4.service)
    ctl stop nnpipe.service && ! kill -0 "$pid" 2>/dev/null && ls $home/runs/counted-4/checkpoints/step-* >/dev/null &&
        as ann nnpipe ls && becomes ann 4 done
}
t "stop lets runs write their checkpoints; they resume when it is started again" stops
same() {
    sed "s|^runs:.*|runs: $home/alone|" $home/counted.yaml >$home/alone.yaml &&
        as ann sh -c 'cd && nnpipe train alone.yaml' &&
        [ "$(cat $home/alone/*/checkpoints/step-*1500/weights.safetensors | sha256sum)" = \
        "$(cat $home/runs/counted-4/checkpoints/step-*1500/weights.safetensors | sha256sum)" ]
}
t "with the weights of an undisturbed run" same
tcp() {
    mkdir -p "$run/systemd/user/nnpipe.socket.d" && printf '[Socket]\nListenStream=127.0.0.1:7411\n' \
        >"$run/systemd/user/nnpipe.socket.d/tcp.conf" &&
        ctl daemon-reload && ctl stop nnpipe.service nnpipe.socket && ctl start nnpipe.socket &&
        curl -sf http://127.0.0.1:7411/healthz | grep -q ok && as ann nnpipe ls &&
        [ "$(tail -n +3 "/proc/$(main nnpipe)/net/dev" | wc -l)" -eq 1 ]
}
t "the page's port comes from the socket unit; the daemon has no network" tcp
broken() {
    mkdir -p "$run/systemd/user/nnpipe-worker@.service.d" &&
        printf '[Service]\nRootDirectory=/no/where\n' >"$run/systemd/user/nnpipe-worker@.service.d/broken.conf" &&
        ctl daemon-reload
    as ann nnpipe submit $home/short.yaml --max-retries 1 --wait
    [ $? -eq 1 ] && as ann nnpipe status 5 && as ann nnpipe status 5 | grep 'systemd could not start it'
}
t "a sandbox that cannot be made is named" broken
# Where users may not have namespaces: all that bob's systemd starts is forbidden them.
useradd -m bob && manager bob RestrictNamespaces=~user || exit 1
as bob mkdir -p /home/bob/.config/nnpipe && printf 'devices: [cpu]\nspare_bytes: 1M\n' \
    >/home/bob/.config/nnpipe/service.yaml
net /home/bob/short.yaml short 40 /home/bob/runs
fails() {
    as bob systemctl --user start nnpipe.service
    as bob systemctl --user show -p ExecMainStatus --value nnpipe.service | grep -xE '217|226'
}
t "without namespaces the service reports it" fails
plain() { # the drop-in of docs/SYSTEMD.md
    mkdir -p /home/bob/.config/systemd/user/nnpipe.service.d && {
        echo '[Service]'
        sed -n '/^Where users may not/,/^`ProtectHostname/p' "$ROOT/docs/SYSTEMD.md" | tr '\n' ' ' |
            sed 's/.*`\[Service\]`//' | grep -oE '`[A-Za-z]+=[^`]*`' | tr -d '`'
    } >/home/bob/.config/systemd/user/nnpipe.service.d/plain.conf
    cat /home/bob/.config/systemd/user/nnpipe.service.d/plain.conf
    as bob systemctl --user daemon-reload && as bob systemctl --user reset-failed &&
        as bob systemctl --user start nnpipe.socket nnpipe.service &&
        exits 0 as bob nnpipe submit /home/bob/short.yaml --wait
}
t "with the drop-in of the manual it works, and runs are children" plain
[ "$failed" -eq 0 ]
