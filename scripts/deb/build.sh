#!/bin/sh
# make deb: builds dist/nnpipe_VERSION_ARCH.deb, with the files of `make install`, for this machine's Debian.
#   build.sh [--version V] [--folder DIR] [--level N]    the version, such as 0.1+2; the folder for the package; xz's
#   level (6)
# DEBFULLNAME and DEBEMAIL name the maintainer. Needs only dpkg-dev. The same tree gives the same bytes: all times
# in the package are that of the last commit.
set -eu
cd "$(dirname "$0")/../.."
version=$(./nnpipe --version | cut -d' ' -f2) out=dist level=6
while [ $# -gt 0 ]; do
    case $1 in
    --version) version=$2 ;;
    --folder) out=$2 ;;
    --level) level=$2 ;;
    *) echo "build.sh: unknown argument $1" >&2; exit 2 ;;
    esac
    shift 2
done
maintainer="${DEBFULLNAME:-nnpipe} <${DEBEMAIL:-nnpipe@localhost}>"
arch=$(dpkg --print-architecture)
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)}
export SOURCE_DATE_EPOCH
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/nnpipe
deb=$out/nnpipe_${version}_$arch.deb
umask 022

make -s install DESTDIR="$tree" PREFIX=/usr >/dev/null
strip --remove-section=.comment --remove-section=.note "$tree/usr/bin/nnpipe"
strip --strip-unneeded --remove-section=.comment --remove-section=.note "$tree/usr/lib/libnnpipe.so.1"
for plugin in "$tree"/usr/lib/nnpipe/*.so; do
    [ -e "$plugin" ] || continue
    chmod 644 "$plugin"
    strip --strip-unneeded --remove-section=.comment --remove-section=.note "$plugin"
done
gzip -9n "$tree"/usr/share/man/man*/*
cp scripts/deb/copyright "$tree/usr/share/doc/nnpipe/"
install -Dm644 scripts/deb/overrides "$tree/usr/share/lintian/overrides/nnpipe"
{
    echo "nnpipe ($version) stable; urgency=medium"
    echo
    echo "  * Built from commit $(git log -1 --format='%h of %cs' 2>/dev/null || echo 'of no git tree')."
    echo
    echo " -- $maintainer  $(date -uRd "@$SOURCE_DATE_EPOCH")"
} | gzip -9n >"$tree/usr/share/doc/nnpipe/changelog.gz"

# What it is linked with; dpkg-shlibdeps looks for a source package around it.
mkdir -p "$work/debian" "$tree/DEBIAN"
printf 'Source: nnpipe\nPackage: nnpipe\nArchitecture: any\n' >"$work/debian/control"
objects=$(find "$tree/usr" -name nnpipe -type f -path '*/bin/*' -o -name '*.so*' -type f)
# shellcheck disable=SC2086 # words are files
depends=$(cd "$work" && dpkg-shlibdeps -O $(for o in $objects; do printf -- '-e%s ' "$o"; done) 2>"$work/shlibdeps" |
    sed -n 's/^shlibs:Depends=//p')
[ -n "$depends" ] || { cat "$work/shlibdeps" >&2; exit 1; }

for script in postinst prerm postrm; do install -m 755 "scripts/deb/$script" "$tree/DEBIAN/"; done
echo /etc/nnpipe/service.yaml >"$tree/DEBIAN/conffiles"
echo "libnnpipe 1 nnpipe (>= $version)" >"$tree/DEBIAN/shlibs"
echo activate-noawait ldconfig >"$tree/DEBIAN/triggers"
(cd "$tree" && find usr -type f | LC_ALL=C sort | xargs -d '\n' md5sum) >"$tree/DEBIAN/md5sums"
size=$(du -sk --exclude=DEBIAN "$tree" | cut -f1)
sed -e "s/@MAINTAINER@/$maintainer/; s/@VERSION@/$version/; s/@ARCH@/$arch/; s/@DEPENDS@/$depends/" \
    -e "s/@SIZE@/$size/" scripts/deb/control >"$tree/DEBIAN/control"
find "$work/nnpipe" -newermt "@$SOURCE_DATE_EPOCH" -exec touch --no-dereference --date="@$SOURCE_DATE_EPOCH" {} +
mkdir -p "$out"
dpkg-deb --root-owner-group -Zxz "-z$level" --build "$tree" "$deb" >/dev/null
echo "$deb"
