#!/bin/sh
# Bottlenecks made of real things (real_cases.sh: slow file systems through FUSE, cgroups, other tenants, large
# pictures, steps on the CPU), what `nnpipe profile` says of each, and what the printed setting brings. Writes the
# section "On real things" of docs/PLANTS.md.
#   ONLY=WORDS    the cases whose name has one of these words, to the terminal alone
#   SAMPLE=1      three cases, likewise
#   REPORT=1      runs nothing: the page from the results that are there
# JUDGE=1 exit code 1 where more than one in 24 is not named, keeps no promise, or any figure contradicts another
# SECONDS_EACH=N seconds of a trial (1.5); TRIES=N: so often at most a case is begun whose verdict is inconclusive (2)
# Resumable: each case leaves a line in $STATE (build/plants/real); remove it to run the case again.
cd "$(dirname "$0")/../../.." || exit 1
here=tests/bench/plants
bin=${NNPIPE_BUILD:-$PWD/build}/tests/plants
nnpipe=${NNPIPE:-$PWD/nnpipe}
data=${PLANTS_DATA:-$PWD/build/plants/data}
state=${STATE:-$PWD/build/plants/real}
seconds=${SECONDS_EACH:-1.5}
cores=$(nproc)
work=$(mktemp -d "${TMPDIR:-/tmp}/nnpipe-real.XXXXXX")
: >"$work/mounts"
started='' groups=''
export XDG_CACHE_HOME="$work/cache"
planted=$nnpipe
. "$here/make_case.sh"
. "$here/real_cases.sh"

clean_up() {
    for pid in $started; do kill "$pid" 2>/dev/null; done
    wait
    while read -r mount; do
        echo clear >"$mount/.control"
        umount -l "$mount"
    done <"$work/mounts"
    : >"$work/mounts"
    for dir_ in $groups; do rmdir "$dir_"; done
    started='' groups=''
}
trap 'clean_up; rm -rf "$work"' EXIT
trap 'exit 130' INT TERM

# --- the config --------------------------------------------------------------------------------------

defaults() {
    batch=8 readers=2 depth=auto prefetch=auto io=auto cache=none augment='{random_resized_crop: {size: 224}}, flip'
    model='[global_avgpool, flatten, linear: {out: classes}]' device="{sim: {h2d_gbps: 25, step_ms: \$STEP}}"
    precision=auto every=never runs=$work/runs prefix='' step_ms=1 wanted='' keys=''
}
set_of() { source=$1 path=$2; }
small() { set_of tar "$data/small/train-*.tar.zst"; batch=128 augment='{random_crop: {size: 32, pad: 4}}, flip'; }
head='global_avgpool, {linear: {out: classes}}'
cnn() {
    model="[{conv: {out: 32, kernel: 3, pad: 1}}, batchnorm, relu, {conv: {out: 64, kernel: 3, pad: 1}}, relu, $head]"
}
resnet() {
    model="[{conv: {out: 64, kernel: 7, stride: 2, pad: 3}}, relu, {conv: {out: 128, kernel: 3, pad: 1}}, relu,
        {conv: {out: 128, kernel: 3, pad: 1}}, relu, $head]"
}
write_real() {
    cat >"$dir/config.yaml" <<END
name: real-$name
data: {train: {source: $source, path: "$path"}}
loader:
  {batch: $batch, readers: $readers, depth: $depth, prefetch: $prefetch, io: $io, cache: $cache, augment: [$augment]}
model: $model
optimizer: {sgd: {lr: 0.01}}
precision: $precision
device: $(echo "$device" | sed "s/\$STEP/$step_ms/")
train: {epochs: 1000000}
checkpoint: {every: $every, keep: 2}
runs: $runs
END
}

# as_case COMMAND...: where the case runs
as_case() (
    for dir_ in $groups; do echo 0 >"$dir_/cgroup.procs"; done
    exec $prefix "$@"
)

# --- one case ------------------------------------------------------------------------------------------

real_rate() { # real_rate [-o KEY=VALUE]: images a second by the clock
    as_case timeout 60 "$bin/rate" "$warmup" "$seconds" "$nnpipe" train "$dir/config.yaml" --json "$@" \
        2>"$dir/rate.err" |
        awk -v batch="$batch" '{ print $1 * batch; n = 1 } END { exit !n }'
}
apply() {
    applied=- before=-
    key=$(json setting <"$dir/said") value=$(json value <"$dir/said")
    case $key in '' | null) return ;; esac
    warmup=0.7
    before=$(real_rate) || before=-
    [ "$key" != loader.cache ] || warmup=epochs # it pays from the second on
    applied=$(real_rate -o "$key=$value") || applied=-
}
word() { [ -n "${1:-}" ] && [ "$1" != null ] && echo "$1" | tr ' ' '_' || echo -; }
one_case() {
    defaults
    "case_$name" || return
    write_real
    as_case timeout 120 "$nnpipe" profile "$dir/config.yaml" --seconds "$seconds" --out "$dir/out" --json \
        >"$dir/events" 2>"$dir/err" ||
        { echo "the profiler failed: $(tail -n 2 "$dir/err" "$dir/events" | tr '\n' ' ')"; return 1; }
    grep '"event": *"done"' "$dir/events" >"$dir/said"
    contradiction=$("$bin/profile_check" "$dir/out/profile.json" 2>&1) && contradiction=none
    case $(json reason <"$dir/out/profile.json") in *contradict*) contradiction='its own word' ;; esac
    apply
    printf 'case=%s wanted=%s keys=%s before=%s applied=%s contradiction=%s others=%s reason=%s' "$name" "$wanted" \
        "$keys" "$before" "$applied" \
        "$(word "$contradiction")" "$(json other_cores <"$dir/out/profile.json")" \
        "$(word "$(json reason <"$dir/out/profile.json")")"
    for field in verdict limiter setting value images_per_second predicted_images_per_second next_limiter \
        next_images_per_second noise seconds; do
        printf ' %s=%s' "$field" "$(word "$(json "$field" <"$dir/said")")"
    done
    echo
}
chosen() {
    [ -z "${ONLY:-}" ] || { for word in $ONLY; do case $name in *"$word"*) return 0 ;; esac; done; return 1; }
    [ -n "${SAMPLE:-}" ] || return 0
    case $name in folder_latency | half_a_core_steps | checkpoint_rate) return 0 ;; esac
    return 1
}
run_cases() {
    for name in $all_cases; do
        chosen && [ ! -s "$state/$name" ] || continue
        dir=$work/case
        mkdir -p "$dir"
        for try in $(seq "${TRIES:-2}"); do
            one_case >"$dir.line" 2>"$dir.err" </dev/null
            code=$?
            clean_up >/dev/null 2>&1
            grep -q 'verdict=inconclusive' "$dir.line" && [ "$try" -lt "${TRIES:-2}" ] || break
            rm -rf "$dir" "$work/runs" "$work/saved"
            mkdir -p "$dir"
        done
        if [ $code = 77 ]; then
            echo "$name: cannot be had here: $(tail -n 1 "$work/fuse.log" "$dir.err" 2>/dev/null | tr '\n' ' ')"
        elif grep -q ^case= "$dir.line"; then
            grep ^case= "$dir.line" >"$state/$name"
            awk -v line=1 -f "$here/real.awk" "$state/$name"
        else
            echo "$name: no result: $(tail -n 2 "$dir.line" "$dir.err" | tr '\n' ' ')"
        fi
        rm -rf "$dir" "$work/runs" "$work/saved"
    done
}
all_lines() { for name in $all_cases; do chosen && cat "$state/$name" 2>/dev/null; done; }

# The page: what stands before the section is run.sh's.
write_page() {
    page=docs/PLANTS.md
    {
        sed '/^## On real things/,$d' "$page" | sed -e :a -e '/^\n*$/{$d;N;ba' -e '}'
        echo
        cat "$here/about_real.md"
        echo
        cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
        echo "Measured $(date -u +%Y-%m-%d), commit $(git rev-parse --short HEAD), $cores cores of $cpu."
        echo
        awk -f "$here/real.awk" "$work/all"
    } >"$page.new" && mv "$page.new" "$page"
}

main() {
    mkdir -p "$state" "$data"
    [ -x "$bin/profile_check" ] || { echo "make plants first"; exit 1; }
    make_data >"$state/data.log" 2>&1 || { tail -n 3 "$state/data.log"; exit 1; }
    cc -O2 -o "$work/faulty_fs" tests/fault/faulty_fs.c $(pkg-config --cflags --libs fuse3) >"$work/fuse.log" 2>&1
    [ -n "${REPORT:-}" ] || run_cases
    all_lines >"$work/all"
    [ -n "${SAMPLE:-}${ONLY:-}" ] || write_page
    awk -v summary=1 -f "$here/real.awk" "$work/all"
    [ -z "${JUDGE:-}" ] || awk -v judge=1 -f "$here/real.awk" "$work/all"
}
main; exit # read whole before anything runs: the file may change meanwhile
