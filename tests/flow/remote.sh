#!/bin/sh
# Sets on servers, against a small server of ours that can fail: the same batches and weights as from local files,
# with errors, resets and truncated bodies, after kills and resumes, with and without the cache on disk; objects that
# change, refusals and dead servers are named, and end a run as they should.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1
unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY all_proxy AWS_PROFILE AWS_SESSION_TOKEN
export no_proxy=127.0.0.1 HOME=$TMP/home AWS_EC2_METADATA_DISABLED=true AWS_ACCESS_KEY_ID=id \
    AWS_SECRET_ACCESS_KEY=secret
mkdir -p "$HOME" served
"$NNPIPE" data synth --out made --samples 240 --test 48 --size 12 >/dev/null || exit 1
"$NNPIPE" data pack 'made/train-*.tar.zst' --out served --shard-size 100K >/dev/null || exit 1
"$NNPIPE" data pack 'made/train-*.tar.zst' --out served/z --zstd 1 --shard-size 30K >/dev/null || exit 1
"$NNPIPE" data pack 'made/test-*.tar.zst' --out served --split test >/dev/null || exit 1
mkdir served/i && cp served/train-* served/i && rm -f served/*.npidx served/z/*.npidx
gzip -k served/test-00000.tar
last=$(ls served/train-*.tar | tail -n 1 | sed 's/.*-0*\([0-9][0-9]*\).tar/\1/')
last_z=$(ls served/z/train-*.tar.zst | tail -n 1 | sed 's/.*-0*\([0-9][0-9]*\).tar.zst/\1/')
shards="train-{00000..$(printf %05d "$last")}.tar"

trap 'kill $server 2>/dev/null; unmount_faulty; rm -rf "$TMP"' EXIT
serve
BASE=http://127.0.0.1:$PORT
export AWS_ENDPOINT_URL_S3=$BASE
cat >net.yaml <<Y
name: net
device: cpu
precision: f32
data:
  train: {source: tar, path: "\${SET}/$shards"}
  test: {source: tar, path: "\${SET}/test-00000.tar"}
loader: {batch: 16, readers: 2, disk_cache: none, read_timeout: 20, augment: [{random_crop: {size: 12, pad: 2}}, flip]}
model: [{conv: {out: 4, kernel: 3}}, batchnorm, relu, global_avgpool, {linear: {out: classes}}]
optimizer: {sgd: {lr: 0.05, momentum: 0.9}}
train: {epochs: 3, threads: 1}
checkpoint: {every: 4 steps, keep: 50}
Y
LOCAL=$TMP/served S3=s3://bucket

# digest SET ARGS...: of two epochs of batches
digest() {
    SET=$1 && shift
    SET=$SET "$NNPIPE" bench loader net.yaml --epochs 2 --json "$@" >bench.json 2>bench.err || { cat bench.err; \
        return 1; }
    field digest bench.json
}
local_digest=$(digest "$LOCAL")
same_digest() { got=$(digest "$@") && [ -n "$got" ] && [ "$got" = "$local_digest" ] || { echo \
    "$got, not $local_digest"; return 1; }; }
# run SET NAME ARGS...: a training run; its folder is runs-NAME
run() {
    run_set=$1 run_name=$2
    shift 2
    SET=$run_set "$NNPIPE" train net.yaml --json -o "runs=runs-$run_name" "$@" >"$run_name.json" 2>"$run_name.err"
}
same_run() { run "$@" && same_weights local "$2" || { tail -n 3 "$2.err"; return 1; }; }
run "$LOCAL" local || { cat local.err; exit 1; }
until_true() { for _ in $(tries 200); do "$@" && return 0; sleep 0.05; done; echo "never: $*"; return 1; }
asked() { grep -c "$1" log; }

t "https and s3 give the batches of the local files" eval 'same_digest $BASE && same_digest $S3'
t "the index is kept: a second start asks for each object once" \
    eval ': >log; digest $BASE -o loader.batch=8; [ "$(asked "bytes=0-0$")" -eq $((last + 1)) ] && [ "$(asked \
        "00001.tar bytes=0-")" -eq 1 ]'
t "frames of zstd are read in place" eval 'same_z() {
    a=$(digest "$LOCAL" -o "data.train.path=$LOCAL/z/train-{00000..$(printf %05d $last_z)}.tar.zst") &&
    b=$(digest "$BASE" -o "data.train.path=$BASE/z/train-{00000..$(printf %05d $last_z)}.tar.zst") && [ -n "$a" ] \
        && [ "$a" = "$b" ]; }; same_z'
t "a .tar.gz is unpacked into the cache folder" \
    says "48 samples" "$NNPIPE" data ls "$BASE/test-00000.tar.gz"
# lists_as_it_is COUNT: the samples of served/i, with so many requests
lists_with() { : >log; rm -rf cache; says "240 samples" "$NNPIPE" data ls "$S3/i/$shards" && [ "$(wc -l <log)" -eq \
    "$1" ] || { cat log; return 1; }; }
t "an index beside the archives saves the listing" lists_with $((last + 3))
t "and gives the same batches" same_digest "$BASE/i"
t "one that is not of these archives is named, and not used" eval 'cp -r served/i kept-i && tar -C made -rf \
    served/i/train-00001.tar . &&
    rm -rf cache && says "not of these archives" "$NNPIPE" data ls "$BASE/i/$shards" && rm -r served/i'
t "data verify reads a remote set" says "0 bad" "$NNPIPE" data verify "$S3/$shards"
t "bench io reads a remote set" eval 'SET=$BASE says "http, depth" "$NNPIPE" bench io net.yaml --epochs 1'
t "profile knows a remote set" eval 'SET=$BASE "$NNPIPE" profile net.yaml --seconds 0.3 \
    -o "device={sim: {h2d_gbps: 10, step_ms: 5}}"'
t "check lists a remote set" eval 'SET=$S3 says "288 samples" "$NNPIPE" check net.yaml'

t "the weights are those of local files" same_run "$S3" plain
t "in order, neighbours are read with few requests" eval ': >log; SET=$BASE digest $BASE -o loader.shuffle=none \
    -o loader.augment=[] >/dev/null; [ "$(field requests bench.json)" -lt 200 ]'
printf 'error=0.05\nreset=0.05\nshort=0.05\nslow=0.02\nslow_s=1\n' >faults
hedged() {
    same_digest "$S3" -o loader.depth=8 -o loader.cache=none && cat bench.json && [ "$(field retries bench.json)" \
        -gt 0 ] &&
        [ "$(field second_requests bench.json)" -gt 0 ] && [ $(($(field second_requests bench.json) * 20)) -le \
            "$(field requests bench.json)" ]
}
t "the batches are the same with errors, resets and truncated bodies; at most 5 % of the requests are second ones" \
    hedged
t "and the weights" same_run "$BASE" faults
rm faults
t "the cache on disk gives the same batches, and the second run asks for no byte" eval 'same_digest $S3 -o \
    loader.disk_cache=auto &&
    same_digest $S3 -o loader.disk_cache=64M && [ "$(field disk_hits bench.json)" -gt 0 ] &&
    [ "$(field requests bench.json)" -eq $((last + 2)) ]'
# two processes fill one cache at once, one of them is killed; the third takes what is there
share() {
    rm -rf cache/nnpipe/objects
    for i in 1 2; do
        SET=$S3 "$NNPIPE" bench loader net.yaml --epochs 2 --json -o loader.disk_cache=64M >"share.$i" 2>&1 &
        eval "share_$i=$!"
    done
    SET=$S3 "$NNPIPE" bench loader net.yaml --epochs 2000 -o loader.disk_cache=64M >/dev/null 2>&1 &
    share_3=$!
    sleep 0.2
    kill -9 $share_3
    wait $share_1 && wait $share_2 || { cat share.1 share.2; return 1; }
    wait $share_3 2>/dev/null
    [ "$(field digest share.1)" = "$local_digest" ] && [ "$(field digest share.2)" = "$local_digest" ] &&
        same_digest "$S3" -o loader.disk_cache=64M && [ "$(field requests bench.json)" -eq $((last + 2)) ]
}
t "two processes share it, while a third is killed" share
damage() {
    for file in $(find cache/nnpipe/objects -type f -size +60k); do
        dd if=/dev/urandom of="$file" bs=1k seek=30 count=4 conv=notrunc 2>/dev/null
    done
    same_digest "$S3" -o loader.disk_cache=64M && [ "$(field requests bench.json)" -gt $((last + 2)) ]
}
t "damaged bytes in it are fetched again" damage
t "with cache: decoded the weights are the same" same_run "$BASE" decoded -o loader.cache=decoded
t "several processes of one run read one set" eval 'run "$LOCAL" two_local --processes 2 -o train.lanes=2 -o \
    loader.readers=1 &&
    run "$S3" two --processes 2 -o train.lanes=2 -o loader.readers=1 -o loader.disk_cache=64M && same_weights \
        two_local two'

# bad members: the same ones, named alike
mkdir -p served/bad
for i in 1 2 3 4 5 6 7 8; do mkdir -p members/$((i % 2)); { printf 'P6 4 4 255\n'; seq 100 200 | head -c 48; } \
    >members/$((i % 2))/$i.ppm; done
echo no picture >members/1/5.ppm
tar -C members -cf served/bad/a.tar 0 1
bad() { SET=$2 "$NNPIPE" bench loader net.yaml --epochs 2 --json -o "data.train.path=$2/bad/a.tar" -o loader.batch=2 \
    -o "loader.bad_samples={policy: replace, budget: 50%}" -o "data.test={source: tar, path: $2/bad/a.tar}" \
        >"$1.bad" 2>&1; field bad_samples "$1.bad"; field digest "$1.bad"; }
t "a bad member is replaced as in a local archive" eval '[ "$(bad a $LOCAL)" = "$(bad b $BASE)" ] && [ "$(field \
    bad_samples b.bad)" -gt 0 ]'

# the second shard is held back: a run waits for it at the same step each time
hold() { printf 'only=train-00001.tar\nhang=1\n' >faults; }
stepped() { grep -q '"event": *"step".*"step": *3,' "$1"; }
# start NAME SET ARGS...: a run that waits for the second shard, in the background
start() {
    start_name=$1 start_set=$2
    shift 2
    hold
    SET=$start_set "$NNPIPE" train net.yaml --json -o "runs=runs-$start_name" -o loader.shuffle=none -o \
        loader.depth=4 "$@" \
        >"$start_name.json" 2>"$start_name.err" &
    pid=$!
    until_true stepped "$start_name.json" || { tail -n 3 "$start_name.err"; return 1; }
}
ended() { wait $pid; got=$?; [ $got -eq "$1" ] || { echo "exit $got"; tail -n 3 "$start_name.err"; return 1; }; }
# goes_on NAME: resumed, it ends with the weights of an undisturbed run
goes_on() {
    rm -f faults
    SET=${2:-$S3} "$NNPIPE" train net.yaml --json -o "runs=runs-$1" -o loader.shuffle=none -o loader.depth=4 \
        --resume >"$1.2.json" \
        2>"$1.err" && same_weights in_order "$1.2" || { tail -n 3 "$1.err"; return 1; }
}
run "$LOCAL" in_order -o loader.shuffle=none || cat in_order.err
warm() { SET=$1 "$NNPIPE" bench loader net.yaml --epochs 1 --json >/dev/null 2>&1; } # makes the index
warm "$S3"
warm "$BASE"

stops() { start stop "$S3" && sleep 0.3 && since=$(date +%s%N) && kill -TERM $pid && ended 75 &&
    took=$((($(date +%s%N) - since) / 1000000)) && echo "$took ms" && [ $took -lt 5000 ]; }
t "SIGTERM while a request hangs: 75 at once" stops
t "resumed, it ends with the same weights" goes_on stop
saved() { ls runs-"$1"/*/checkpoints/step-*/manifest.json >/dev/null 2>&1; }
killed() { start kill "$BASE" && until_true saved kill && kill -9 $pid; wait $pid 2>/dev/null; goes_on kill "$LOCAL"; }
t "killed with -9 and resumed from local files, it ends with the same weights" killed
refused() {
    start keys "$S3" -o loader.read_timeout=6 || return 1
    printf 'only=train-00001.tar\nstatus=403\ncode=ExpiredToken\n' >faults.new && mv faults.new faults
    ended 74 && grep -q "given up after.*s3://bucket/train-00001.tar.*HTTP 403: ExpiredToken" keys.err || { tail -n \
        3 keys.err; return 1; }
}
t "expired keys are named, and end the run with 74 after read_timeout" refused
t "with good keys it goes on to the same weights" goes_on keys
dead() {
    start dead "$BASE" -o loader.read_timeout=2 && unserve && ended 74 || return 1
    serve
    grep -q "given up after 2 s.*$BASE/train-0000" dead.err || { tail -n 3 dead.err; return 1; }
}
t "a dead server is named, and ends the run with 74 after read_timeout" dead
t "when it is back the run goes on to the same weights" goes_on dead "$BASE"
changed() {
    start changed "$S3" && cp -p served/train-00001.tar kept.tar && touch served/train-00001.tar && rm faults && \
        unserve && serve &&
        ended 74 &&
        grep -q "s3://bucket/train-00001.tar has changed since.*restore the old object and resume" changed.err ||
        { tail -n 3 changed.err; return 1; }
}
t "an object that changes ends the run with 74, without a retry" changed
cp -p kept.tar served/train-00001.tar
t "restored, the run goes on to the same weights" goes_on changed
longer() {
    start longer "$S3" && tar -C members -rf served/train-00001.tar 0/2.ppm && rm -f faults && unserve && serve && \
        ended 74 &&
        SET=$S3 says "had 240 when the run began" exits 2 "$NNPIPE" train net.yaml -o runs=runs-longer \
            -o loader.shuffle=none -o loader.depth=4 --resume >longer.txt 2>&1 || { tail -n 3 longer.txt; return 1; }
}
t "a run is not resumed on another set" longer
cp -p kept.tar served/train-00001.tar
warm "$S3"
for fault in whole=1 other_range=1 'etag="x"'; do
    one() { start one "$S3" || return 1; printf 'only=train-00001.tar\n%s\n' "$fault" >faults; unserve; serve; \
        ended 74 && grep -q "has changed since it was listed" one.err; }
    t "an answer with $fault counts as a change" one
done
rm -f faults
unserve
serve --no-etag
t "without an ETag size and Last-Modified are compared" eval 'same_digest $BASE && start modified $BASE && touch -d \
    2001-01-01 \
    served/train-00001.tar && rm faults && unserve && serve --no-etag && ended 74 && 
    grep -q "another Last-Modified" modified.err'
cp -p kept.tar served/train-00001.tar
unserve
serve --no-etag --no-modified
# twice: an index or bytes that were kept would count the second time
no_version() {
    for _ in 1 2; do
        : >log
        same_digest "$BASE" -o loader.disk_cache=64M && says "the server names no version" cat bench.err || return 1
        [ "$(asked '00001.tar bytes=0-[1-9]')" -ge 1 ] && [ "$(field disk_hits bench.json)" -eq 0 ] || return 1
    done
}
no_version_processes() {
    run "$BASE" two_none --processes 2 -o train.lanes=2 -o loader.readers=1 && same_weights two_local two_none || {
        tail -n 3 two_none.err; return 1; }
}
t "several processes read such a set, too" no_version_processes
t "with neither a note says so; the set is listed at each start, and not kept on disk" no_version
unserve
serve

# TLS and proxies
openssl req -x509 -newkey rsa:2048 -nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=localhost \
    -addext subjectAltName=DNS:localhost >openssl.log 2>&1 && cat cert.pem key.pem >both.pem
first_port=$PORT PORT=
unserve
if [ -s both.pem ]; then
serve --tls both.pem
t "a certificate that nobody knows is refused" says "certificate" exits 1 "$NNPIPE" data ls \
    "https://localhost:$PORT/test-00000.tar"
t "one of AWS_CA_BUNDLE is good" env AWS_CA_BUNDLE="$TMP/cert.pem" no_proxy=localhost \
    bash -c "$(declare -f says exits); TMP=$TMP; \
    says '48 samples' $NNPIPE data ls https://localhost:$PORT/test-00000.tar"
t "for another host it is not" env AWS_CA_BUNDLE="$TMP/cert.pem" \
    bash -c "$(declare -f says exits); TMP=$TMP; \
    says 'certificate' exits 1 $NNPIPE data ls https://127.0.0.1:$PORT/test-00000.tar"
else
    skip "TLS" "openssl makes no certificate here"
    serve
fi
unserve
PORT=$first_port
serve
proxied() { : >log; http_proxy=$BASE no_proxy= says "48 samples" "$NNPIPE" data ls \
    http://data.invalid/test-00000.tar && grep -q proxied log; }
t "http_proxy is obeyed" proxied

# what cannot work says so
cat >bad.yaml <<Y
name: bad
data:
  train: {source: folder, path: "s3://bucket/pictures"}
  test: {source: tar, path: "s3://bucket/*.tar", labels: "https://h/labels.csv"}
model: [flatten, {linear: {out: classes}}]
Y
t "a folder at a URL is refused with its line" eval 'says "bad.yaml:3:33: path: a URL is for the source" exits 2 \
    "$NNPIPE" check bad.yaml'
t "so are globs, and tables at URLs" eval 'says "bad.yaml:4:" exits 2 "$NNPIPE" check bad.yaml &&
    says "a URL has no" exits 2 "$NNPIPE" check bad.yaml && says "must lie on this machine" exits 2 "$NNPIPE" check \
        bad.yaml'
t "a missing object is named" says "s3://bucket/none.tar: the server answers HTTP 404: NoSuchKey" \
    exits 1 "$NNPIPE" data ls s3://bucket/none.tar
t "a server that sends no ranges is named" eval 'echo whole=1 >faults; says "the server sends no parts of files" \
    exits 1 \
    "$NNPIPE" data ls $BASE/test-00000.tar.gz'
printf 'status=403\ncode=AccessDenied\n' >faults
t "no keys: what to set" env -u AWS_ACCESS_KEY_ID -u AWS_SECRET_ACCESS_KEY bash -c \
    "$(declare -f says exits); TMP=$TMP; \
    says 'there are no keys: set AWS_ACCESS_KEY_ID' exits 1 $NNPIPE data ls s3://bucket/none.tar"
rm -f faults
printf '[default]\naws_access_key_id=a\naws_secret_access_key=b\nrole_arn=arn:x\n' >profile
t "a profile with a role is refused, though it has keys" env -u AWS_ACCESS_KEY_ID -u AWS_SECRET_ACCESS_KEY \
    AWS_SHARED_CREDENTIALS_FILE="$TMP/profile" bash -c "$(declare -f says exits); TMP=$TMP; \
    says 'has its keys by role_arn' exits 1 $NNPIPE data ls s3://bucket/none.tar"
[ "$failed" -eq 0 ]
