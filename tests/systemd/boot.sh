#!/bin/sh
# boot.sh FOLDER SCRIPT [args]: a systemd of our own, as process 1 of a container whose root is an overlay over this
# machine's: what the script installs, adds and removes is gone with it, and nothing of this machine is written but
# FOLDER, which is /host there. Runs SCRIPT, one of this folder's, as root once that is up; its output is FOLDER/out,
# its exit code ours. What a script needs of the tree is in FOLDER/tree: the tree itself may lie below /tmp.
# 125: this machine cannot do that; why is the last line said. As root.
#   boot.sh --inside ...    the part within
set -u
# Only those of the machine's units that a script may need: no udevd, no login, no timers, nothing that touches devices.
masked="systemd-udevd.service systemd-udev-trigger.service systemd-udevd-control.socket systemd-udevd-kernel.socket
    systemd-logind.service systemd-journal-flush.service systemd-tmpfiles-clean.timer systemd-networkd.service
    systemd-resolved.service systemd-timesyncd.service timers.target getty.target remote-fs.target cron.service
    postgresql.service prometheus.service prometheus-node-exporter.service sys-kernel-debug.mount
    sys-kernel-tracing.mount dev-hugepages.mount dev-mqueue.mount sys-fs-fuse-connections.mount
    proc-sys-fs-binfmt_misc.automount systemd-sysctl.service systemd-modules-load.service systemd-binfmt.service"

no() {
    echo "$*"
    exit 125
}

inside() { # ROOT FOLDER SCRIPT: in namespaces of its own; failures before systemd runs are printed
    r=$1 folder=$2 script=$3
    mount --make-rprivate / || no "mounts cannot be made private"
    mount -t tmpfs tmpfs "$r" && mkdir "$r/upper" "$r/work" "$r/root" || no "no tmpfs can be mounted"
    n=$r/root
    mount -t overlay overlay -o "lowerdir=/,upperdir=$r/upper,workdir=$r/work" "$n" 2>/dev/null ||
        no "no overlay can be mounted over /"
    mount -t proc proc "$n/proc" && mount -t sysfs -o ro sysfs "$n/sys" || no "proc or sysfs cannot be mounted"
    mount -t cgroup2 cgroup2 "$n/sys/fs/cgroup" 2>/dev/null || no "cgroup2 cannot be mounted"
    mount -t tmpfs -o mode=755 tmpfs "$n/dev"
    for device in null zero full random urandom tty; do
        : >"$n/dev/$device" && mount --bind "/dev/$device" "$n/dev/$device" || no "/dev/$device cannot be lent"
    done
    mkdir "$n/dev/shm" "$n/dev/pts"
    mount -t tmpfs -o mode=1777 tmpfs "$n/dev/shm"
    mount -t devpts -o newinstance,ptmxmode=0666 devpts "$n/dev/pts"
    ln -s pts/ptmx "$n/dev/ptmx" && ln -s /proc/self/fd "$n/dev/fd"
    mount -t tmpfs tmpfs "$n/run"
    mount -t tmpfs -o mode=700 tmpfs "$n/root" # others on this machine may write below its own meanwhile
    mount -t tmpfs -o mode=1777 tmpfs "$n/tmp" && mount -t tmpfs -o mode=1777 tmpfs "$n/var/tmp"
    mkdir -p "$n/host" "$n/before" && mount --bind "$folder" "$n/host" || no "$folder cannot be lent"
    for unit in $masked; do ln -sf /dev/null "$n/etc/systemd/system/$unit"; done
    cat >"$n/etc/systemd/system/test.service" <<U
[Unit]
After=basic.target
SuccessAction=exit
FailureAction=exit
[Service]
Type=oneshot
Environment=ROOT=/host/tree
StandardOutput=append:/host/out
StandardError=inherit
ExecStart=/bin/sh -c 'sh "$script"; echo \$? >/host/code'
U
    cd "$n" && pivot_root . before && umount -l /before || no "this root cannot be left"
    echo up >/host/up
    export container=other
    exec /lib/systemd/systemd --unit=test.service --log-target=journal --show-status=0 </dev/null
}

if [ "$1" = --inside ]; then
    shift
    inside "$@"
fi
folder=$1 script=/host/tree/tests/systemd/$(basename "$2")
[ "$(id -u)" -eq 0 ] || no "not root"
[ -x /lib/systemd/systemd ] || no "no systemd is installed"
mkdir -p "$folder/root" "$folder/tree/tests" "$folder/tree/docs"
cp -r "$ROOT/tests/lib.sh" "$ROOT/tests/systemd" "$folder/tree/tests/" &&
    cp "$ROOT/docs/SYSTEMD.md" "$folder/tree/docs/" || no "the scripts cannot be copied"
: >"$folder/out"
# --kill-child: with unshare all of it goes.
timeout -k 5 "${BOOT_TIMEOUT:-150}" unshare --pid --fork --kill-child=SIGKILL --mount --cgroup --ipc --uts --net \
    sh "$0" --inside "$folder/root" "$folder" "$script" >"$folder/console" 2>&1
[ -e "$folder/up" ] || no "$(tail -n 1 "$folder/console")"
[ -e "$folder/code" ] || { echo "systemd came up, and the script did not end"; exit 1; }
exit "$(cat "$folder/code")"
