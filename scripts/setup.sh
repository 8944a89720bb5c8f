#!/bin/sh
# Installs the missing packages for the build and the tests with apt, and prints their names;
# does nothing if none is missing. Debian 12 and later, as root or with sudo.
set -eu

packages="build-essential pkg-config liburing-dev libzstd-dev zlib1g-dev libyaml-dev
    libjpeg62-turbo-dev libspng-dev libdnnl-dev libjansson-dev libxxhash-dev libssl-dev
    libsqlite3-dev libmicrohttpd-dev libcurl4-openssl-dev libsystemd-dev libjs-dygraphs"
# For the tests and `make check` alone.
[ "${1:-}" = test ] && packages="$packages libcriterion-dev clang-format cppcheck zstd
    python3 python3-dev python3-venv python3-numpy python3-pil protobuf-compiler prometheus systemd lintian tmux
    curl fuse3 libfuse3-dev"

missing=
for package in $packages; do
    dpkg-query -W -f '${Status}' "$package" 2>/dev/null | grep -q 'ok installed' ||
        missing="$missing $package"
done
[ -n "$missing" ] || exit 0

command -v apt-get >/dev/null || {
    echo "setup: no apt-get here; install the equivalents of:$missing" >&2
    exit 1
}
if [ "$(id -u)" -eq 0 ]; then
    sudo=
elif command -v sudo >/dev/null; then
    sudo=sudo
else
    echo "setup: neither root nor sudo; let root run: apt-get update && apt-get install$missing" >&2
    exit 1
fi
echo "setup: installing$missing"
# shellcheck disable=SC2086 # words are packages
# No service of these packages is started or enabled (a test starts its own prometheus).
$sudo env DEBIAN_FRONTEND=noninteractive DEBCONF_NOWARNINGS=yes sh -ec "
    policy=/usr/sbin/policy-rc.d
    if [ ! -e \$policy ]; then
        trap 'rm -f \$policy' EXIT
        printf '#!/bin/sh\nexit 101\n' >\$policy
        chmod 755 \$policy
    fi
    apt-get update -qq
    apt-get install -y -qq --no-install-recommends $(echo $missing) >/dev/null
    case '$missing' in
    *prometheus*) [ ! -d /run/systemd/system ] || systemctl disable prometheus ;;
    esac"
