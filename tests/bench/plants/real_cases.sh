# Bottlenecks made of real things: sourced by real.sh. $nnpipe, $bin, $work, $data, $cores: programs and folders.
# A case is a function case_NAME: it sets the config's variables, `wanted` (the stages that may be named, a | between
# them) and `keys` (the settings that may be advised; "none" is one), and mounts or starts what makes the stage slow.

# --- data ------------------------------------------------------------------------------------------

# few N: a folder of N photographs
few() {
    [ -d "$data/few_$1" ] && return
    mkdir -p "$data/few_$1.new"
    find "$data/photos" -type f | sort | head -n "$1" | while read -r file; do
        class=$data/few_$1.new/$(basename "$(dirname "$file")" | cut -c 1-6)
        mkdir -p "$class" && cp "$file" "$class"
    done
    mv "$data/few_$1.new" "$data/few_$1"
}
tar_of() {
    [ -d "$data/$2" ] || {
        "$nnpipe" data pack "$data/$1" --out "$data/$2.new" >/dev/null && mv "$data/$2.new" "$data/$2"
    }
}
big_pictures() { # 12 megapixels, as a camera writes them
    few 24
    [ -d "$data/megapixels" ] || {
        "$bin/hard_jpegs" "$data/few_24" "$data/megapixels.new" 100 8 && mv "$data/megapixels.new" "$data/megapixels"
    }
}
three_times() { # the photographs three times, about 160 MB
    [ -d "$data/three" ] && return
    mkdir -p "$data/three.new"
    find "$data/photos" -type f | while read -r file; do
        class=$data/three.new/$(basename "$(dirname "$file")")
        mkdir -p "$class"
        for n in 1 2 3; do ln "$file" "$class/$n-$(basename "$file")"; done
    done
    mv "$data/three.new" "$data/three"
}
# drawn KIND COUNT SIZE: pictures of this tree's own text, as PNG or PPM, in a folder
drawn() {
    [ -d "$data/$1_$3" ] && return
    python3 - "$data/$1_$3.new" "$@" <<'PY' && mv "$data/$1_$3.new" "$data/$1_$3"
import glob, os, struct, sys, zlib
folder, kind, count, size = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
files = glob.glob("daemon/**/*.c", recursive=True) + glob.glob("loader/**/*.c", recursive=True)
text = b"".join(open(f, "rb").read() for f in sorted(files))
row = 3 * size
def chunk(name, body):
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
for i in range(count):
    at = i * 7919 % len(text)
    pixels = (text[at:] + text * (row * size // len(text) + 1))[:row * size]
    path = "%s/c%d" % (folder, i % 4)
    os.makedirs(path, exist_ok=True)
    if kind == "png":
        rows = b"".join(b"\0" + pixels[y * row:(y + 1) * row] for y in range(size))
        body = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)) + \
            chunk(b"IDAT", zlib.compress(rows, 6)) + chunk(b"IEND", b"")
    else:
        body = b"P6 %d %d 255\n" % (size, size) + pixels
    open("%s/%d.%s" % (path, i, kind), "wb").write(body)
PY
}
zstd_of() { # zstd_of FOLDER NAME LEVEL
    [ -d "$data/$2" ] || {
        "$nnpipe" data pack "$data/$1" --zstd "$3" --out "$data/$2.new" >/dev/null && mv "$data/$2.new" "$data/$2"
    }
}

# --- what makes a run slow ----------------------------------------------------------------------

# slow_fs FOLDER [OPTION] LINE...: FOLDER at $mounted with these faults; 77: no FUSE here
slow_fs() {
    mounted=$work/mount$(wc -l <"$work/mounts")
    mkdir -p "$mounted"
    more=
    case $2 in kernel_cache) more=,kernel_cache ;; esac
    "$work/faulty_fs" "$1" "$mounted" -o "allow_other,default_permissions$more" >>"$work/fuse.log" 2>&1 || return 77
    echo "$mounted" >>"$work/mounts"
    shift
    [ -z "$more" ] || shift
    for line; do echo "$line" >"$mounted/.control" || return 77; done
}
# group CONTROLLER V1_FILE V1_VALUE V2_FILE V2_VALUE: the case runs in a cgroup so limited; 77: none can be made
group() {
    if [ -w "/sys/fs/cgroup/$1/cgroup.procs" ]; then
        dir_=/sys/fs/cgroup/$1/nnpipe-plants-$$ file=$2 value=$3
    elif grep -qw "$1" /sys/fs/cgroup/cgroup.controllers 2>/dev/null; then
        dir_=/sys/fs/cgroup/nnpipe-plants-$$ file=$4 value=$5
        echo "+$1" >/sys/fs/cgroup/cgroup.subtree_control 2>/dev/null
    else
        return 77
    fi
    mkdir -p "$dir_" 2>/dev/null && echo "$value" 2>/dev/null >"$dir_/$file" || return 77
    groups="$groups $dir_"
}
half_core() { group cpu cpu.cfs_quota_us 50000 cpu.max '50000 100000'; }
memory_of() { group memory memory.limit_in_bytes "$1" memory.max "$1"; } # bytes
tenants() { for share; do "$bin/tenant" "$share" & started="$started $!"; done; }

# --- storage -------------------------------------------------------------------------------------

photos() { set_of "folder" "$data/few_160"; }
slow_folder() {
    few 160
    slow_fs "$data/few_160" "$@" || return
    set_of folder "$mounted"
    wanted=read keys='loader.cache|none'
}
slow_tar() {
    few 160
    tar_of few_160 few_tar
    slow_fs "$data/few_tar" "$@" || return
    set_of tar "$mounted/train-*.tar"
    wanted=read keys='loader.cache|loader.depth'
}

case_folder_latency() { slow_folder 'direct 1' 'latency 15'; }
case_folder_rate() { slow_folder 'direct 1' 'rate 4000000'; }
case_folder_latency_rate() { slow_folder 'direct 1' 'latency 15' 'rate 4000000'; }
case_folder_latency_pread() { slow_folder 'direct 1' 'latency 10'; io=pread; }
case_folder_latency_one_reader() { slow_folder 'direct 1' 'latency 8'; readers=1; }
case_folder_latency_four_readers() { slow_folder 'direct 1' 'latency 30'; readers=4; }
case_tar_latency() { slow_tar 'direct 1' 'latency 20'; depth=1; }
case_tar_network() { slow_tar 'direct 1' 'latency 60'; depth=4; }
case_tar_rate() { slow_tar 'direct 1' 'rate 6000000'; }
case_tar_rate_cached() { # the cache is there, and still fills
    slow_tar 'direct 1' 'rate 3000000' || return
    cache=encoded keys=none
}
case_zstd_rate() {
    few 160
    zstd_of few_160 few_zstd 3
    slow_fs "$data/few_zstd" 'direct 1' 'rate 5000000' || return
    set_of tar "$mounted/train-*.tar.zst"
    wanted=read keys='loader.cache'
}
case_page_cache_too_small() { # 64 MB beside what the run takes itself, for a set of about 150
    three_times
    tar_of three three_tar
    slow_fs "$data/three_tar" kernel_cache && memory_of 134217728 || return
    set_of tar "$mounted/train-*.tar"
    as_case sh -c 'cat "$0"/train-* >/dev/null' "$mounted"
    echo 'rate 8000000' >"$mounted/.control"
    wanted=read keys='loader.cache|none'
}
case_page_cache_large_enough() { # after the first epoch nothing is read of the slow file system
    few 60
    tar_of few_60 few_60_tar
    slow_fs "$data/few_60_tar" kernel_cache 'rate 30000000' || return
    set_of tar "$mounted/train-*.tar"
    cat "$mounted"/* >/dev/null
    io=pread wanted=decode keys='loader.cache|none'
}

# --- cores -------------------------------------------------------------------------------------------

case_half_a_core() { few 160; photos; half_core || return; wanted=decode keys='loader.cache|none'; }
case_half_a_core_steps() { small; cnn; half_core || return; device=cpu wanted=step keys=none; }
case_one_core() { few 160; photos; prefix='taskset -c 0' readers=1 wanted=decode keys='loader.cache|none'; }
case_one_reader() {
    few 160
    photos
    readers=1 wanted=decode keys='loader.readers|loader.cache'
    [ "$cores" -gt 1 ] || keys='loader.cache|none'
}
case_tenant() { few 160; photos; tenants 0.5; wanted=decode keys='loader.cache|none'; }
case_tenant_beside_steps() { small; cnn; tenants 0.5; device=cpu wanted=step keys=none; }

# --- stages ------------------------------------------------------------------------------------------

case_steps_small() { small; cnn; device=cpu wanted=step keys=none; }
case_steps_photos() {
    few 160
    photos
    resnet
    augment='{random_resized_crop: {size: 96}}, flip' device=cpu wanted=step keys=none
}
case_steps_f32() { small; cnn; device=cpu precision=f32 wanted=step keys=none; }
case_decode_12_megapixels() {
    big_pictures
    set_of folder "$data/megapixels"
    batch=2 wanted=decode keys='loader.cache|none'
}
case_decode_png() {
    drawn png 64 512 || return 77
    set_of folder "$data/png_512"
    augment='{random_crop: {size: 64}}' wanted=decode keys='loader.cache|none'
}
case_decompress() {
    drawn ppm 128 512 || return 77
    zstd_of ppm_512 ppm_zstd 1
    set_of tar "$data/ppm_zstd/train-*.tar.zst"
    augment='{random_crop: {size: 32}}' wanted=decompress keys='loader.cache|none'
}
case_augment() {
    small
    augment='{random_resized_crop: {size: 320}}' batch=16 wanted=augment keys='loader.readers|loader.cache|none'
}
case_small_files() {
    drawn ppm 8000 16 || return 77
    slow_fs "$data/ppm_16" 'direct 1' 'latency 0.5' || return
    set_of folder "$mounted"
    augment='{random_crop: {size: 16}}' batch=128 wanted=read keys='loader.cache|none'
}

# --- checkpoints -------------------------------------------------------------------------------------

slow_saves() { # a save after each half second of steps, of about 8 MB
    few 160
    photos
    mkdir -p "$work/saved"
    slow_fs "$work/saved" "$@" || return
    runs=$mounted every='20 steps' augment='{resize: {size: 32}}, {center_crop: {size: 32}}' step_ms=30
    model='[flatten, linear: {out: 320}, relu, linear: {out: classes}]' wanted=checkpoint keys=checkpoint.every
}
case_checkpoint_rate() { slow_saves 'rate 20000000'; }
case_checkpoint_latency() { slow_saves 'latency 8'; }
case_checkpoint_busy_disk() { # another process writes to the same disk during the whole case
    slow_saves 'rate 60000000' || return
    sh -c 'while dd if=/dev/zero of="$0" bs=128k count=400 2>/dev/null; do :; done' "$mounted/others" &
    started="$started $!"
}

all_cases='folder_latency folder_rate folder_latency_rate
folder_latency_pread folder_latency_one_reader folder_latency_four_readers
tar_latency tar_network tar_rate tar_rate_cached zstd_rate page_cache_too_small page_cache_large_enough
half_a_core half_a_core_steps one_core one_reader tenant tenant_beside_steps
steps_small steps_photos steps_f32 decode_12_megapixels decode_png decompress augment small_files
checkpoint_rate checkpoint_latency checkpoint_busy_disk'
