# The package's life under a real systemd: installed, upgraded beneath a run, removed, installed again, purged.
. "$ROOT/tests/systemd/inside.sh"
as() {
    who=$1
    shift
    setpriv --reuid="$(id -u "$who")" --regid="$(id -g "$who")" --init-groups env -i PATH="$PATH" HOME="/home/$who" \
        USER="$who" "$@"
}
useradd -m ann && net /home/ann/long.yaml long 1000000 /home/ann/runs "$sim" &&
    net /home/ann/short.yaml short 40 /home/ann/runs || exit 1
first=$(ls /host/nnpipe_*+1_*.deb) second=$(ls /host/nnpipe_*+2_*.deb)
list() { # all files, but what dpkg, systemd and the tests write for themselves
    find /etc /usr /var /srv /root /opt/nnpipe /*.* -xdev \( -path /var/lib/dpkg -o -path /var/log -o -path /var/cache \
        -o -path /var/tmp \) -prune -o -print 2>/dev/null | LC_ALL=C sort
}
main() { systemctl show -p MainPID --value nnpipe-box; }
rm -f /var/lib/man-db/auto-update # dpkg would have mandb read every page of this machine at each install
rm -f /usr/sbin/policy-rc.d # of containers, where no package may start or stop a thing
list >"$TMP/before"

installs() {
    dpkg -i "$first" && dpkg -V nnpipe && id nnpipe && [ "$(stat -c '%U %a' /var/lib/nnpipe)" = "nnpipe 700" ] &&
        man -w nnpipe && man -w nnpipe-daemon
}
t "it is installed, with its user and its folders" installs
nothing_enabled() (
    ! systemctl is-enabled nnpipe-box.service && ! systemctl is-active nnpipe-box.service nnpipe-box.socket &&
        ! systemctl --global is-enabled nnpipe.service
)
t "and nothing is enabled" nothing_enabled
t "the program trains" as ann sh -c 'cd && nnpipe train short.yaml -o runs=/home/ann/by-hand'
upgrade() {
    usermod -aG nnpipe ann && printf 'devices: [sim]\nspare_bytes: 1M\n' >/etc/nnpipe/service.yaml &&
        systemctl enable --now nnpipe-box && as ann nnpipe submit /home/ann/long.yaml && becomes ann 1 running &&
        soon test -s /home/ann/runs/long-1/lock || return 1
    run=$(cat /home/ann/runs/long-1/lock) daemon=$(main)
    dpkg -i "$second" && dpkg -V nnpipe | grep -v service.yaml
    grep -q 1M /etc/nnpipe/service.yaml || {
        echo "the settings were replaced"
        return 1
    }
    soon as ann nnpipe status 1 && [ "$(field ann 1 state)" = running ] &&
        [ "$(cat /home/ann/runs/long-1/lock)" = "$run" ] && kill -0 "$run" &&
        soon sh -c 'systemctl is-active --quiet nnpipe-box' && [ "$(main)" != "$daemon" ] &&
        cmp "/proc/$(main)/exe" /usr/bin/nnpipe
}
t "an upgrade replaces the daemon during a run, which continues; the settings stay" upgrade
removes() {
    run=$(cat /home/ann/runs/long-1/lock) && dpkg -r nnpipe && ! kill -0 "$run" 2>/dev/null &&
        ls /home/ann/runs/long-1/checkpoints/step-* && [ -z "$(pgrep -x nnpipe)" ] &&
        [ ! -e /usr/bin/nnpipe ] && [ -e /etc/nnpipe/service.yaml ] && [ -e /var/lib/nnpipe/queue.db ] &&
        ! find /etc/systemd /usr/lib/systemd | grep nnpipe
}
t "removed, it lets runs write their checkpoints, and leaves settings and queue" removes
again() {
    dpkg -i "$second" && systemctl start nnpipe-box && becomes ann 1 running && as ann nnpipe stop 1 &&
        becomes ann 1 stopped
}
t "installed again, it continues with them" again
purges() { # the administrator's own files and the user stay
    mkdir -p /etc/systemd/system/nnpipe-box.service.d &&
        echo '[Service]' >/etc/systemd/system/nnpipe-box.service.d/own.conf || return 1
    dpkg -P nnpipe && ! dpkg -s nnpipe 2>/dev/null && id nnpipe && rm -r /etc/systemd/system/nnpipe-box.service.d ||
        return 1
    list >"$TMP/after" && diff "$TMP/before" "$TMP/after" &&
        ! ls -d /run/nnpipe /var/lib/nnpipe /etc/nnpipe 2>/dev/null && ls /home/ann/runs/long-1/checkpoints/step-*
}
t "purged, it leaves nothing but runs, its user and drop-ins" purges
[ "$failed" -eq 0 ]
