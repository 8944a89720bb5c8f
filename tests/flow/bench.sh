#!/bin/sh
# nnpipe bench: the digest depends on seed and data alone, the numbers are there and add up, and
# impossible settings are reported.
. "$(dirname "$0")/../lib.sh"

# 60 pictures of 12 x 12 in three classes, as PPM.
mkdir -p "$TMP/set"
i=0
while [ $i -lt 60 ]; do
    mkdir -p "$TMP/set/c$((i % 3))"
    { printf 'P6\n12 12\n255\n'; head -c 432 /dev/urandom; } >"$TMP/set/c$((i % 3))/$i.ppm"
    i=$((i + 1))
done
cat >"$TMP/bench.yaml" <<YAML
name: bench
data:
  train: {source: folder, path: $TMP/set}
loader:
  batch: 8
  augment: [{random_crop: {size: 12, pad: 2}}, flip]
model: [flatten, linear: {out: classes}]
YAML

field() { # field NAME: its value in the last line of $TMP/out.json
    tail -n 1 "$TMP/out.json" | tr ',{}' '\n\n\n' | sed -n "s/^ *\"$1\": *//p" | tr -d '"'
}
bench() { # bench PART [args]: into $TMP/out.json
    part=$1
    shift
    "$NNPIPE" bench "$part" "$TMP/bench.yaml" --json "$@" >"$TMP/out.json"
}
digest() { bench loader "$@" && field digest; }

same_digest() {
    want=$(digest --epochs 3 -o loader.readers=1 -o loader.io=pread) || return 1
    [ -n "$want" ] || return 1
    for args in "-o loader.readers=4" "-o loader.io=uring" "-o loader.depth=1" \
        "-o loader.cache=encoded" "-o loader.cache=decoded -o loader.prefetch=3"; do
        # shellcheck disable=SC2086 # several words
        got=$(digest --epochs 3 $args) || return 1
        [ "$got" = "$want" ] || { echo "$args: $got, not $want"; return 1; }
    done
}
t "the loader's digest is equal for any readers, I/O, depth and cache" same_digest

other_digest() {
    [ "$(digest --epochs 1)" != "$(digest --epochs 1 -o seed=2)" ]
}
t "another seed gives another digest" other_digest

seconds_digest() {
    [ "$(digest --seconds 0.05)" = "$(digest --seconds 0.3)" ]
}
t "with --seconds the digest covers the same batches for any number of batches" seconds_digest

timed() { # 60 pictures in batches of 8: a fraction of a second is many epochs
    bench loader --seconds 0.2 && [ "$(field warm_up_batches)" -ge 2 ] &&
        awk "BEGIN { exit !($(field seconds) >= 0.2 && $(field epochs) > 2) }"
}
t "a timed run starts its clock once each slot has been used, and goes over many epochs" timed
by_default() { bench loader && awk "BEGIN { exit !($(field seconds) >= 5) }"; }
t "without flags the loader is measured for five seconds" by_default
exact() { bench loader --epochs 1 && [ "$(field warm_up_batches)" = 0 ] && [ "$(field images)" = 64 ]; }
t "with --epochs nothing is warm-up" exact

counts() {
    bench loader --epochs 2 && [ "$(field images)" = 120 ] && [ "$(field readers)" -ge 1 ] &&
        [ "$(field bad_samples)" = 0 ] && [ "$(field digest_batches)" = 15 ] &&
        [ -n "$(field images_per_second)" ] && [ -n "$(field cpu_seconds)" ] &&
        [ -n "$(field bytes_per_second)" ] && [ -n "$(field io)" ]
}
t "the loader's fields are there and count two epochs" counts

io_fields() {
    bench io --seconds 0.2 && [ "$(field reads)" -gt 0 ] &&
        [ "$(field bytes)" = $(($(field reads) * 445)) ]
}
t "bench io reads whole records" io_fields
io_epoch() { bench io --epochs 1.5 && [ "$(field reads)" = 90 ] && [ -n "$(field cached_ratio)" ]; }
t "bench io with --epochs ends after so many reads" io_epoch

feed_fields() {
    bench feed --steps 20 -o 'device={sim: {h2d_gbps: 10, step_ms: 2}}' &&
        [ "$(field device)" = sim ] && [ "$(field steps)" = 17 ] && [ -n "$(field stall_ratio)" ] &&
        [ -n "$(field h2d_gigabytes_per_second)" ] && [ -n "$(field images_per_second)" ]
}
t "bench feed steps a simulated device" feed_fields

step_fields() { # step_fields PRECISION
    bench step --steps 3 -o precision="$1" -o train.threads=2 && [ "$(field steps)" = 3 ] &&
        [ "$(field batch)" = 8 ] && [ "$(field precision)" = "$1" ] &&
        [ "$(field device)" = cpu ] && [ "$(field threads)" = 2 ] &&
        [ "$(field parameters)" = 1299 ] && [ -n "$(field images_per_second)" ] &&
        [ -n "$(field step_ms_p50)" ] && [ -n "$(field step_ms_p99)" ]
}
t "bench step times the training step in f32" step_fields f32
t "bench step times the training step in bf16" step_fields bf16
# A step of the simulated device takes 100 ms: half of them 100 ms apart to the microsecond, which takes a step that
# is queued before the one under way is waited for. On a busy machine: best of three tries.
queued_ahead() {
    for try in 1 2 3; do
        bench step --steps 10 -o 'device={sim: {step_ms: 100}}' &&
            field step_ms_p50 | grep -qE '^(100(\.000|$)|99\.9999)' && return
    done
    field step_ms_p50
    return 1
}
t "bench step queues a step before it waits for the current one" queued_ahead

no_data() {
    says "10 classes are assumed" "$NNPIPE" bench step "$TMP/bench.yaml" --steps 1 \
        -o data.train.path="$TMP/absent"
}
t "bench step without data guesses what it needs and prints it" no_data

printf 'GIF89a' >"$TMP/set/c0/bad.ppm"
t "a bad sample is named and counted" says "c0/bad.ppm" "$NNPIPE" bench loader "$TMP/bench.yaml" \
    -o 'loader.bad_samples={budget: 5%}'
t "policy fail makes the benchmark fail" exits 1 "$NNPIPE" bench loader "$TMP/bench.yaml" \
    -o loader.bad_samples.policy=fail
t "an unknown benchmark is a usage error" exits 2 "$NNPIPE" bench lodaer "$TMP/bench.yaml"
t "no config is a usage error" exits 2 "$NNPIPE" bench loader
t "a wrong number is a usage error" exits 2 "$NNPIPE" bench loader "$TMP/bench.yaml" \
    --seconds soon
t "a missing config is reported" says "absent.yaml" "$NNPIPE" bench loader "$TMP/absent.yaml"

photographs() { # the same bytes of real files, with any readers
    cat >"$TMP/bench.yaml" <<YAML
name: photographs
data:
  train: {source: tar, path: $NNPIPE_DATA/imagenet-sample-500.tar}
loader:
  batch: 50
  augment: [{random_resized_crop: {size: 224}}, flip]
model: [flatten, linear: {out: classes}]
YAML
    want=$(digest --epochs 1 -o loader.readers=1 -o loader.io=pread) && [ "$(field images)" = 500 ] &&
        [ "$(field bad_samples)" = 0 ] &&
        [ "$(digest --epochs 1 -o loader.readers=4 -o loader.depth=3)" = "$want" ] &&
        [ "$(digest --epochs 1 -o loader.readers=2 -o loader.cache=encoded)" = "$want" ]
}
if [ -n "${NNPIPE_DATA:-}" ]; then
    t "photographs give one digest for any readers" photographs
else
    skip "photographs give one digest for any readers" "NNPIPE_DATA is not set"
fi

[ "$failed" -eq 0 ]
