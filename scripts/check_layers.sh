#!/bin/sh
# Checks the floors from the #include lines: loader/base < loader < trainer < daemon, and one
# library in one file. Prints each include that breaks a rule; exit 1 if there is one.
cd "$(dirname "$0")/.." || exit 1
broken=$(mktemp)
trap 'rm -f "$broken"' EXIT

# forbid "files" 'regex of includes' "why"
forbid() {
    # shellcheck disable=SC2086 # words are files
    grep -nE "^#include [\"<]($2)" $1 /dev/null 2>/dev/null | while read -r line; do
        echo "$line    <- $3"
    done >>"$broken"
}
# only "file" 'regex of includes': nobody else under the three rooms takes it
only() {
    grep -rnE "^#include [\"<]($2)" --include='*.c' --include='*.h' loader trainer daemon |
        grep -vE "^($1):" | while read -r line; do
        echo "$line    <- only in $1"
    done >>"$broken"
}

forbid "loader/base/*.[ch]" '(daemon|trainer)/|loader/[a-z0-9_]+\.h' "base knows nothing above it"
forbid "loader/*.[ch]" '(daemon|trainer)/' "the loader knows neither trainer nor daemon"
forbid "trainer/*.[ch] trainer/cuda/*.[ch]" 'daemon/' "the trainer does not know the daemon"
forbid "trainer/*.[ch] trainer/cuda/*.[ch]" 'loader/(augment|codec|index|loader|pack|reader|sampler|seekable|source|synth|tar|unpack)\.h' \
    "of the loader the trainer takes what a batch is (batch.h, ring.h, base/), and for rows that a device makes cache.h, axis.h, resize.h"
forbid "loader/source*.[ch]" 'loader/(codec|augment|resize|reader)\.h' "sources do not know codecs or augmentations"
forbid "loader/codec*.[ch]" 'loader/(source|augment|reader)\.h' "codecs do not know sources or augmentations"
forbid "loader/augment*.[ch]" 'loader/(source|codec|reader)\.h' "augmentations do not know sources or codecs"
forbid "daemon/service/*.[ch]" '(loader/[a-z0-9_]+\.h|trainer/)' "the service knows no loader and no trainer"
only 'daemon/service/queue\.c' 'sqlite3\.h'
only 'daemon/service/http\.c' 'microhttpd\.h'
only 'daemon/service/client\.c|daemon/service/ending\.c' 'curl/'
only 'daemon/cmd_daemon\.c' 'systemd/sd-daemon'
only 'daemon/service/systemd\.c' 'systemd/sd-bus'
only 'loader/base/io_uring\.c' 'liburing\.h'
only 'daemon/config_yaml\.c|daemon/config\.c' 'yaml\.h'
only 'loader/codec_jpeg[a-z_]*\.[ch]' 'jpeglib\.h'
only 'loader/codec_png\.c' 'spng\.h'
only 'loader/codec_zstd\.c|loader/seekable\.c|loader/unpack\.c' 'zstd\.h'
only 'trainer/kernels_onednn[a-z_]*\.[ch]' '(oneapi/dnnl/)?dnnl\.h'

[ ! -s "$broken" ] && exit 0
cat "$broken"
exit 1
