#!/bin/sh
# put.sh PREFIX NAME TO: installs a file of this folder as TO, with PREFIX where it says @PREFIX@.
set -eu
mkdir -p "$(dirname "$3")"
sed "s|@PREFIX@|$1|g" "$(dirname "$0")/$2" >"$3"
chmod 644 "$3"
