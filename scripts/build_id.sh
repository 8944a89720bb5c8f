#!/bin/sh
# build_id.sh FILE: writes the C header FILE where it would change: NP_COMMIT, the commit that is built, and
# NP_CONTRACT, a hash of the headers that program and plugin share, by which a plugin from another
# build is recognised.
cd "$(dirname "$0")/.." || exit 1
commit=$(git rev-parse --short=12 HEAD 2>/dev/null) || commit=unknown
contract=$(cat trainer/*.h trainer/graph/*.h loader/batch.h loader/rows_gpu.h loader/pixels/axis.h loader/base/*.h |
    sha256sum | cut -c1-16)
mkdir -p "$(dirname "$1")"
printf '#define NP_COMMIT "%s"\n#define NP_CONTRACT "%s"\n' "$commit" "$contract" >"$1.new"
if cmp -s "$1.new" "$1"; then rm "$1.new"; else mv "$1.new" "$1"; fi
