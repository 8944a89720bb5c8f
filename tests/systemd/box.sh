# The service of a box under a real systemd: each run has only its submitter's rights, whoever the caller is.
. "$ROOT/tests/systemd/inside.sh"
systemd-sysusers && systemd-tmpfiles --create nnpipe.conf || exit 1
useradd -m ann && useradd -m bob && useradd -m eve && usermod -aG nnpipe ann && usermod -aG nnpipe bob || exit 1
# Without a session they have no runtime folder: they find the box's socket.
as() {
    who=$1
    shift
    setpriv --reuid="$(id -u "$who")" --regid="$(id -g "$who")" --init-groups env -i PATH="$PATH" HOME="/home/$who" \
        USER="$who" "$@"
}
cat >/etc/nnpipe/service.yaml <<Y
devices: [cpu]
runs_per_device: 2
retry: {first: 0.1, cap: 1}
spare_bytes: 1M
on_end: cat >/var/lib/nnpipe/ended.json
Y
net /home/ann/short.yaml short 40 /home/ann/runs
net /home/ann/counted.yaml counted 1500 /home/ann/runs
net /home/bob/long.yaml long 1000000 /home/bob/runs
chmod 700 /home/ann /home/bob
lock() { cat "$1/lock"; }
status_of() { sed -n "s/^$2:[[:space:]]*//p" "/proc/$1/status" | tr '\t' ' ' | sed 's/ *$//'; }

starts() {
    systemctl daemon-reload && systemctl enable --now nnpipe-box.socket && as ann nnpipe ls &&
        [ "$(systemctl is-active nnpipe-box)" = active ]
}
t "the socket starts the service" starts
few_rights() {
    pid=$(systemctl show -p MainPID --value nnpipe-box)
    [ "$(status_of "$pid" Uid)" = "$(id -u nnpipe) $(id -u nnpipe) $(id -u nnpipe) $(id -u nnpipe)" ] &&
        [ "$(status_of "$pid" CapEff)" = 00000000000000e0 ] && [ "$(status_of "$pid" CapBnd)" = 00000000000000e0 ] &&
        [ "$(status_of "$pid" NoNewPrivs)" = 1 ]
}
t "it runs as nnpipe, with the rights to become a user and signal their processes" few_rights
t "a user outside its group is refused" exits 1 as eve nnpipe ls
t "a run in a home that is closed to others is done" exits 0 as ann nnpipe submit /home/ann/short.yaml --wait
t "the service's on_end runs as the daemon's user" soon grep -q '"state": *"done"' /var/lib/nnpipe/ended.json
theirs() {
    as bob nnpipe submit /home/bob/long.yaml && becomes bob 2 running && soon test -s /home/bob/runs/long-2/lock ||
        return 1
    pid=$(lock /home/bob/runs/long-2) uid=$(id -u bob) gid=$(id -g bob)
    for want in "Uid:$uid $uid $uid $uid" "Gid:$gid $gid $gid $gid" \
        "Groups:$(id -G bob | tr ' ' '\n' | sort -n | tr '\n' ' ' | sed 's/ *$//')" CapEff:0000000000000000 \
        CapPrm:0000000000000000 CapInh:0000000000000000 CapAmb:0000000000000000 NoNewPrivs:1; do
        [ "$(status_of "$pid" "${want%%:*}")" = "${want#*:}" ] || {
            echo "$want: $(status_of "$pid" "${want%%:*}")"
            return 1
        }
    done
    tr '\0' '\n' <"/proc/$pid/environ" | grep -qx HOME=/home/bob && ! find /home/bob/runs/long-2 ! -user bob | grep .
}
t "a run has its submitter's rights, groups, home, and none of the daemon's" theirs
own() { # the daemon's own user may submit too, and gets no more than other users
    install -d -o nnpipe /srv/nn && net /srv/nn/own.yaml own 1000000 /srv/nn/runs && chown nnpipe /srv/nn/own.yaml &&
        id=$(setpriv --reuid=nnpipe --regid=nnpipe --init-groups nnpipe submit /srv/nn/own.yaml --json |
            grep -o '"id": *[0-9]*' | grep -o '[0-9]*$') && soon test -s "/srv/nn/runs/own-$id/lock" &&
        [ "$(status_of "$(lock "/srv/nn/runs/own-$id")" CapPrm)" = 0000000000000000 ] && nnpipe stop "$id"
}
t "a run of the daemon's own user has no more" own
others() { exits 1 as ann nnpipe stop 2 && [ "$(field bob 2 state)" = running ]; }
t "no member stops another member's run" others
daemon_dies() {
    pid=$(lock /home/bob/runs/long-2) && kill -9 "$(systemctl show -p MainPID --value nnpipe-box)" &&
        soon as bob nnpipe status 2 && becomes bob 2 running &&
        [ "$(lock /home/bob/runs/long-2)" = "$pid" ] && kill -0 "$pid" && as bob nnpipe stop 2 && becomes bob 2 stopped
}
t "a killed daemon finds the run again, and may stop it" daemon_dies
stops() {
    as ann nnpipe submit /home/ann/counted.yaml && becomes ann 4 running && sleep 0.5 &&
        pid=$(lock /home/ann/runs/counted-4) && systemctl stop nnpipe-box.service &&
        ! kill -0 "$pid" 2>/dev/null && ls /home/ann/runs/counted-4/checkpoints/step-* >/dev/null && as ann nnpipe ls &&
        becomes ann 4 done
}
t "stop lets runs write their checkpoints; they resume when it is started again" stops
[ "$failed" -eq 0 ]
