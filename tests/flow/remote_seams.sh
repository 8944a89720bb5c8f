#!/bin/sh
# Where sets on servers meet other parts: the edge of an epoch, jobs that share batches, the caches in memory, damaged
# pictures, the commands of data, and shards that are missing.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1
unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY all_proxy AWS_PROFILE AWS_SESSION_TOKEN \
    AWS_WEB_IDENTITY_TOKEN_FILE
export no_proxy=127.0.0.1 HOME=$TMP/home AWS_EC2_METADATA_DISABLED=true AWS_ACCESS_KEY_ID=id \
    AWS_SECRET_ACCESS_KEY=secret
mkdir -p "$HOME" served members/0 members/1
"$NNPIPE" data synth --out made --samples 240 --test 48 --size 12 >/dev/null || exit 1
"$NNPIPE" data pack 'made/train-*.tar.zst' --out served --shard-size 100K >/dev/null || exit 1
"$NNPIPE" data pack 'made/test-*.tar.zst' --out served --split test >/dev/null || exit 1
rm -f served/*.npidx
last=$(ls served/train-*.tar | tail -n 1 | sed 's/.*-0*\([0-9][0-9]*\).tar/\1/')
shards="train-{00000..$(printf %05d "$last")}.tar"
trap 'kill $server 2>/dev/null; rm -rf "$TMP"' EXIT
serve
BASE=http://127.0.0.1:$PORT LOCAL=$TMP/served S3=s3://bucket
export AWS_ENDPOINT_URL_S3=$BASE
cat >net.yaml <<Y
name: net
device: cpu
precision: f32
data:
  train: {source: tar, path: "\${SET}/$shards"}
  test: {source: tar, path: "\${SET}/test-00000.tar"}
loader: {batch: 16, readers: 1, disk_cache: none, cache: none, share: off}
model: [{conv: {out: 4, kernel: 3}}, batchnorm, relu, global_avgpool, {linear: {out: classes}}]
optimizer: {sgd: {lr: 0.05, momentum: 0.9}}
train: {epochs: 3, threads: 1}
checkpoint: {every: 4 steps, keep: 50}
Y
# run SET NAME ARGS...: a training run; its folder is runs-NAME
run() {
    run_set=$1 run_name=$2
    shift 2
    SET=$run_set "$NNPIPE" train net.yaml --json -o "runs=runs-$run_name" "$@" >"$run_name.json" 2>"$run_name.err"
}
same_run() { run "$@" && same_weights local "$2" || { tail -n 3 "$2.err"; return 1; }; }
# digest SET ARGS...: of two epochs of batches
digest() {
    SET=$1 && shift
    SET=$SET "$NNPIPE" bench loader net.yaml --epochs 2 --json "$@" >bench.json 2>bench.err || { cat bench.err; \
        return 1; }
    field digest bench.json
}
same_digest() { a=$(digest "$LOCAL" "$@") && b=$(digest "$S3" "$@") && [ -n "$a" ] && [ "$a" = "$b" ]; }
run "$LOCAL" local || { cat local.err; exit 1; }

# in order: as soon as the first member of the last shard is read, the first shard changes
# readers that are far less than an epoch ahead
in_order="-o loader.shuffle=none -o loader.depth=16 -o loader.prefetch=2"
run "$LOCAL" in_order $in_order || { cat in_order.err; exit 1; }
same_digest $in_order >/dev/null # makes the index
epoch_edge() {
    printf 'only=train-00000.tar\nafter=train-%05d.tar bytes=512-\nstatus=412\n' "$last" >faults
    exits 74 run "$S3" edge $in_order &&
        grep -q "s3://bucket/train-00000.tar has changed since it was listed.*HTTP 412" edge.err &&
        grep -q "the checkpoint of step 1[0-9]* is kept" edge.err || { tail -n 3 edge.err; return 1; }
}
t "an object that changes at the end of an epoch ends the run with 74" epoch_edge
uploaded_again() {
    rm -f faults
    touch served/train-00000.tar # the same bytes with another ETag: the set is listed again
    SET=$S3 "$NNPIPE" train net.yaml --json -o runs=runs-edge $in_order --resume >edge.2.json 2>edge.err &&
        same_weights in_order edge.2 || { tail -n 3 edge.err; return 1; }
}
t "with the same bytes uploaded again, it is listed again and goes on to the same weights" uploaded_again

# a slow step keeps the jobs together
shared() {
    for i in 1 2; do
        SET=$S3 "$NNPIPE" train net.yaml --json -o "runs=runs-share-$i" -o 'loader.share={wait: 10s}' \
            -o 'device={sim: {h2d_gbps: 25, step_ms: 30}}' >"share-$i.json" 2>"share-$i.err" &
        eval "share_$i=$!"
    done
    wait $share_1 && wait $share_2 || { cat share-*.err; return 1; }
    made=$(($(field made_batches share-1.json) + $(field made_batches share-2.json)))
    taken=$(($(field taken_batches share-1.json) + $(field taken_batches share-2.json)))
    echo "made $made, taken $taken"
    same_weights sim share-1 && same_weights sim share-2 && [ $taken -gt 0 ]
}
some_are_taken() { for _ in 1 2 3 4 5; do shared && return; done; return 1; } # on a busy machine they may miss it
run "$LOCAL" sim -o 'device={sim: {h2d_gbps: 25, step_ms: 1}}' || cat sim.err
t "two jobs share the batches of a remote set, and have the weights of a lone one" some_are_taken

# asks EPOCHS ARGS...: how many requests the bytes of so many epochs are
asks() {
    epochs=$1 && shift
    : >log
    SET=$S3 "$NNPIPE" bench loader net.yaml --epochs "$epochs" "$@" >/dev/null 2>&1 || return 1
    grep 'train-.*bytes=' log | grep -cv 'bytes=0-0$'
}
in_memory() {
    one=$(asks 1 "$@") && three=$(asks 3 "$@") && without=$(asks 3 -o loader.cache=none) &&
        echo "$one requests for an epoch, $three for three, $without without a cache" && [ "$one" -gt 0 ] &&
        [ $((without - three)) -gt "$one" ]
}
for cache in encoded decoded; do
    t "with cache: $cache later epochs ask the server for nothing" in_memory -o loader.cache=$cache \
        -o loader.shuffle=none
    t "and the weights are those of local files" same_run "$S3" "memory-$cache" -o loader.cache=$cache
done

# whole and truncated JPEGs: at the end, in the middle, in the header, empty
base64 -d >whole.jpg <<'J'
/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDABsSFBcUERsXFhceHBsgKEIrKCUlKFE6PTBCYFVlZF9VXVtqeJmBanGQc1tdhbWGkJ6jq62rZ4C8ybqm
x5moq6T/2wBDARweHigjKE4rK06kbl1upKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKSkpKT/wAARCAAYABgD
ASIAAhEBAxEB/8QAFwABAQEBAAAAAAAAAAAAAAAAAAQDBf/EABsQAAIDAQEBAAAAAAAAAAAAAAADAQJhESES/8QAGQEAAgMBAAAAAAAAAAAAAAAA
AQUAAgMG/8QAGxEAAgMAAwAAAAAAAAAAAAAAAQIAAxESEzL/2gAMAwEAAhEDEQA/AOHROFFEYbrThUtGFEHKSq6TURgOjVcV852QE9SnCYzS45M1
Jwqqv5iOR7IBirFaiRObqY7NlIAAPIGCM0Y5P//Z
J
size=$(stat -c %s whole.jpg)
number=0
for bytes in $((size - 2)) $((size - 40)) $((size / 2 + 100)) 200 20 0; do
    number=$((number + 1))
    cp whole.jpg members/0/whole-$number.jpg
    cp whole.jpg members/1/whole-$number.jpg
    head -c "$bytes" whole.jpg >members/1/short-$number.jpg
done
tar -C members -cf served/jpegs.tar 0 1
head -c $(($(stat -c %s served/jpegs.tar) / 2 + 300)) served/jpegs.tar >served/half.tar
# bad NAME SET: the samples that were bad, in order, and the digest
bad() {
    SET=$2 "$NNPIPE" bench loader net.yaml --epochs 2 --json -o "data.train.path=$2/jpegs.tar" -o loader.batch=2 \
        -o 'loader.bad_samples={policy: replace, budget: 90%}' -o "data.test.path=$2/jpegs.tar" \
        >"$1.bad" 2>"$1.bad.err" ||
        { cat "$1.bad.err"; return 1; }
    echo "$(field bad_samples "$1.bad") $(field digest "$1.bad")"
}
bad_alike() {
    a=$(bad here "$LOCAL") && b=$(bad there "$S3") && echo "$a, $b" && [ "$a" = "$b" ] && [ "${a%% *}" -gt 3 ]
}
t "truncated JPEGs are bad samples as on local disk" bad_alike
# alike COMMAND...: prints the same of $archive here and there, but for its place and times
alike() {
    "$NNPIPE" "$@" "$LOCAL/$archive" 2>&1 |
        sed "s|$LOCAL/||g; s/in [0-9.]* s.*//; s/[0-9.]* MB\/s//" >here.txt
    "$NNPIPE" "$@" "$S3/$archive" 2>&1 |
        sed "s|$S3/||g; s/in [0-9.]* s.*//; s/[0-9.]* MB\/s//" >there.txt
    [ -s here.txt ] && diff here.txt there.txt
}
archive=jpegs.tar
t "data verify names the same ones" eval 'alike data verify && grep -q short-3 there.txt'
t "data ls is the same" alike data ls
t "and data stats" alike data stats
archive=half.tar
t "a truncated archive is listed as far as it goes, as on local disk" eval \
    'alike data ls && grep -q truncated there.txt'
packed() {
    "$NNPIPE" data pack "$LOCAL/$shards" --out here --shard-size 50K >/dev/null &&
        "$NNPIPE" data pack "$S3/$shards" --out there --shard-size 50K >/dev/null &&
        diff -r -x '*.npidx' here there && [ -e there/train-00003.tar ]
}
t "data pack makes the same shards" packed
indexed() { rm -rf cache && "$NNPIPE" data index "$S3/$shards" && : >log && "$NNPIPE" data ls "$S3/$shards" &&
    [ "$(grep -c 'bytes=0-0$' log)" -eq "$(wc -l <log)" ]; }
t "data index lists it ahead of time" indexed
t "data view shows its rows" eval 'SET=$S3 "$NNPIPE" data view net.yaml --out rows.png && [ -s rows.png ]'

# missing shards
missing() { says "$1" exits 1 "$NNPIPE" data ls "$2"; }
t "one missing shard is named" missing "s3://bucket/train-00009.tar: the server answers HTTP 404" \
    "$S3/train-{00000,00009,00001}.tar"
t "several are named together" missing "3 of 5 files are missing: s3://bucket/a.tar, s3://bucket/b.tar and \
s3://bucket/c.tar (s3://bucket/a.tar: the server answers HTTP 404: NoSuchKey" "$S3/{a,train-00000,b,train-00001,c}.tar"
t "of many the first five" missing "7 of 8 files are missing: s3://bucket/none-1.tar, s3://bucket/none-2.tar, \
s3://bucket/none-3.tar, s3://bucket/none-4.tar, s3://bucket/none-5.tar and others" \
    "$S3/{train-00000,none-1,none-2,none-3,none-4,none-5,none-6,none-7}.tar"
many() {
    : >log
    missing "at least 16 of 1000 files are missing" "$S3/none-{000..999}.tar" && [ "$(wc -l <log)" -lt 100 ]
}
t "of a thousand no more than needed are asked for" many
t "local shards, too" missing "3 of $((last + 4)) files are missing: $LOCAL/train-0000$((last + 1)).tar" \
    "$LOCAL/train-{00000..0000$((last + 3))}.tar"
[ "$failed" -eq 0 ]
