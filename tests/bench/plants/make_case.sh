# One case after the other: data, configs and plants: sourced by run.sh. $planted: the program with the plants in it;
# $data, $work: folders; $cores. A case is identified by $class $net $kind $severity, and its files lie in $dir:
# config.yaml, and for both sides (planted, clean) what the plants read.

json() { # json NAME: the first number or text behind "NAME" on standard input
    grep -o "\"$1\": *\(\"[^\"]*\"\|[^,}]*\)" | head -n 1 | sed 's/^[^:]*: *//; s/^"//; s/"$//'
}
calc() { awk "BEGIN { printf \"%.9g\", $1 }"; }

make_data() {
    [ -e "$data/made" ] && return
    mkdir -p "$data/photos"
    if [ -n "${NNPIPE_DATA:-}" ] && [ -e "$NNPIPE_DATA/imagenet-sample-500.tar" ]; then
        tar xf "$NNPIPE_DATA/imagenet-sample-500.tar" -C "$data/photos"
        printf '%s\n' "name: s" \
            "data: {train: {source: tar, path: $NNPIPE_DATA/cifar10-jpeg.tar.zst, match: 'train/*'}}" \
            "loader: {augment: [{random_crop: {size: 32}}]}" \
            "model: [global_avgpool, flatten, linear: {out: classes}]" "optimizer: {sgd: {lr: 1}}" >"$data/small.yaml"
        "$planted" data pack "$data/small.yaml" --out "$data/small" --zstd 3
    else
        "$planted" data synth --out "$data/drawn" --samples 300 --test 0 --size 480
        cat "$data"/drawn/train-*.tar.zst | zstd -dc | tar xf - -C "$data/photos" --ignore-zeros --wildcards '*.jpg'
        "$planted" data synth --out "$data/small" --samples 40000 --test 0 --size 32
    fi
    "$planted" data pack "$data/photos" --out "$data/photos_plain"
    "$planted" data pack "$data/photos" --out "$data/photos_zstd" --zstd 3
    : >"$data/made"
}

# hard_set PERCENT: so many of the photographs as harder files; prints the folder.
hard_set() {
    [ -e "$data/hard_$1/made" ] || {
        rm -rf "$data/hard_files" "$data/hard_$1"
        "$bin/hard_jpegs" "$data/photos" "$data/hard_files" "$1"
        "$planted" data pack "$data/hard_files" --out "$data/hard_$1" && : >"$data/hard_$1/made"
        rm -rf "$data/hard_files"
    } >&2
    echo "$data/hard_$1"
}

# Writes the case's config from the variables below, which the classes change.
write_config() {
    cat >"$dir/config.yaml" <<END
name: plants-$net
data:
  train: {source: tar, path: "\${PLANTED_SET:-$set}/train-*.tar*"}
loader:
  {batch: $batch, readers: $readers, depth: $depth, prefetch: $prefetch, io: $io, cache: none,
   augment: [$augment, flip]}
model: $model
optimizer: {sgd: {lr: 0.1, momentum: 0.9}}
device: {sim: {h2d_gbps: $h2d_gbps, step_ms: $step_ms}}
train: {epochs: 1000000}
checkpoint: {every: $every, keep: 2}
runs: $runs
END
}

# as_planted COMMAND..., as_clean COMMAND...: with the plants that the side reads.
as_planted() { NNPIPE_PLANT=$dir/planted.calls NNPIPE_SIM_PLANT=$dir/planted.sim PLANTED_SET=$planted_set "$@"; }
as_clean() { NNPIPE_PLANT='' NNPIPE_SIM_PLANT=$dir/clean.sim PLANTED_SET=$set "$@"; }

# run_rate SIDE [-o KEY=VALUE]: images a second of a real run, and other processes' cores.
run_rate() {
    side=$1
    shift
    "as_$side" timeout 60 "$bin/rate" "${warmup:-0.7}" "$seconds" "$planted" train "$dir/config.yaml" --json "$@" \
        2>"$dir/rate.err" |
        awk -v batch="$batch" '{ print $1 * batch, $2; n = 1 } END { exit !n }'
}

# loader_rate SIDE: images a second of the loader alone.
loader_rate() {
    "as_$1" timeout 60 "$planted" bench loader "$dir/config.yaml" --seconds 1.5 --json 2>"$dir/bench.err" \
        >"$dir/loader.json" &&
        json images_per_second <"$dir/loader.json"
}
bytes_a_read() {
    as_clean "$planted" bench io "$dir/config.yaml" -o loader.io=auto --seconds 0.5 --json 2>"$dir/bench.err" \
        >"$dir/io.json"
    calc "$(json bytes <"$dir/io.json") / $(json reads <"$dir/io.json")"
}

# --- the classes: each sets the config, clean.sim, planted.sim and planted.calls --------------------

step_at() { step_ms=$(calc "1000 * $batch / ($1)"); }       # a step that does so many images a second
copy_at() { h2d_gbps=$(calc "($1) * $bytes / 1e9"); }       # copies likewise
disk_at() { calc "($1) * $read_bytes / 1e6"; }              # MB/s of a disk likewise

# repeat_call NAME HEADROOM: by how much a call must be repeated for the loader to be as slow as it should,
# from what the call takes alone; tried and corrected, as repeated it finds its data in the cache.
repeat_call() {
    x=$(calc "$loader / $2")
    step_at "$x"
    write_config
    lacks=$(calc "$severity / $x - 1 / $loader") # seconds an image, of all readers
    times=$(calc "1 + 1e6 * $lacks * $readers / $(json "$1_us" <"$dir/loader.json")")
    for round in 1 2 3; do
        echo "$1 $times" >"$dir/planted.calls"
        [ $round = 3 ] || times=$(awk "BEGIN {
            f = $lacks / (1 / $(loader_rate planted) - 1 / $loader)
            print 1 + ($times - 1) * ((f < 0 || f > 3) ? 3 : f < 0.3 ? 0.3 : f)
        }")
    done
}

plant_files() { # of photographs, so many percent hard, that the loader is as slow as it should be
    x=$(calc "$loader / 1.3")
    step_at "$x"
    write_config
    planted_set=$(hard_set 100)
    got=$(loader_rate planted)
    percent=$(awk "BEGIN {
        p = 100 * ($severity / $x - 1 / $loader) / (1 / $got - 1 / $loader)
        print int((p > 100 || p < 0) ? 100 : p + 0.5)
    }")
    planted_set=$(hard_set "$percent")
}

plant_read() {
    io=uring
    x=$(calc "$loader / 1.6")
    step_at "$x"
    if [ "$kind" = bandwidth ]; then
        echo "disk_mbps=$(disk_at "2 * $x")" >"$dir/clean.sim"
        echo "disk_mbps=$(disk_at "$x / $severity")" >"$dir/planted.sim"
        return
    fi
    depth=2
    write_config
    echo "disk_mbps=$(disk_at "4 * $x")" >"$dir/clean.sim"
    # a read and a picture's making in turn, two of them
    us=$(calc "1e6 * $readers * (2 * $severity / $x - 1 / $loader)")
    for round in 1 2 3; do
        us=$(awk "BEGIN { printf \"%d\", $us < 1 ? 1 : $us }")
        printf 'disk_mbps=%s\ndisk_latency_us=%d\n' "$(disk_at "4 * $x")" "$us" >"$dir/planted.sim"
        [ $round = 3 ] || us=$(calc "$us + 2e6 * $readers * ($severity / $x - 1 / $(loader_rate planted))")
    done
}

plant_batch() { # all readers stand still together; a long ring would bridge it, two slots do not
    prefetch=2
    x=$(calc "$loader / 3")
    step_at "$x"
    every_ms=$(calc "50 * $step_ms")
    printf 'pause_every_ms %s\npause_ms %s\n' "$every_ms" \
        "$(calc "$every_ms * (1 - 1 / $severity) + 4.5 * $step_ms")" >"$dir/planted.calls"
}

plant_copy() {
    x=$(calc "$loader / 1.5")
    step_at "$x"
    copy_at "2 * $x"
    echo "h2d_gbps=$(calc "$h2d_gbps / (2 * $severity)")" >"$dir/planted.sim"
}

plant_step() { # small: copies limit without it; photos: the loader
    if [ "$net" = small ]; then
        x=$(calc "$loader / 1.6")
        copy_at "$x"
    else
        x=$loader
    fi
    step_at "1.5 * $x"
    echo "step_ms=$(calc "$step_ms * 1.5 * $severity")" >"$dir/planted.sim"
}

plant_checkpoint() {
    model="[flatten, linear: {out: $hidden}, relu, linear: {out: classes}]"
    x=$(calc "$loader / 1.5")
    step_at "$x"
    every_steps=$(awk "BEGIN { print int(300 / $step_ms + 1) }")
    every="$every_steps steps"
    write_config
    parameters=$("$planted" show "$dir/config.yaml" --json 2>/dev/null | grep '"total"' | json parameters)
    # weights and momentum, of 4 bytes each
    printf 'write_mbps %s\n' "$(calc "8e-6 * $parameters / (1e-3 * $every_steps * $step_ms * ($severity - 1))")" \
        >"$dir/planted.calls"
}

plant_control() { # the step and one or two others of one rate; the rest could do 1.6 times as much
    x=$(calc "$loader / 1.6")
    case $kind in
    loader) x=$loader ;;
    copy | all) copy_at "$x" ;;
    esac
    step_at "$x"
    case $kind in
    read | all)
        io=uring
        echo "disk_mbps=$(disk_at "$x")" | tee "$dir/clean.sim" >"$dir/planted.sim"
        ;;
    esac
    # The other side has no step to speak of: should that gain much, the control is none.
    echo "step_ms=$(calc "$step_ms / 2")" >>"$dir/clean.sim"
}

make_case() {
    mkdir -p "$dir"
    : | tee "$dir/clean.sim" "$dir/planted.sim" >"$dir/planted.calls"
    io=auto depth=8 prefetch=4 every=never h2d_gbps=25 step_ms=1
    model='[global_avgpool, flatten, linear: {out: classes}]'
    if [ "$net" = small ]; then
        set=$data/small batch=128 readers=1 bytes=3076 hidden=64
        augment='{random_crop: {size: 32, pad: 4}}'
    else
        set=$data/photos_plain batch=8 readers=$cores bytes=150532 hidden=8
        augment='{random_resized_crop: {size: 224}}'
        [ "$class" = decompress ] && set=$data/photos_zstd
    fi
    # Stages of one rate wait for each other's hand-over, some tenths of a millisecond a batch.
    [ "$class" = control ] && batch=$((batch == 8 ? 24 : 1024))
    planted_set=$set
    write_config
    loader=$(loader_rate clean)
    read_bytes=$(bytes_a_read)
    case $class-$kind in
    decompress-* | augment-*) repeat_call "$class" 2 ;;
    decode-repeat) repeat_call decode 1.4 ;;
    decode-files) plant_files ;;
    *) "plant_$class" ;;
    esac
    [ -s "$dir/planted.sim" ] || [ "$class" = control ] || cp "$dir/clean.sim" "$dir/planted.sim"
    write_config
}
