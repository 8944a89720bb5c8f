#!/bin/sh
# Sets in buckets of OpenStack Swift, whose s3api checks signatures with code of its own: a second judge beside
# remote_s3_campaign.sh. Root, and Debian's swift-proxy, swift-account, swift-container, swift-object, memcached; puts
# /etc/swift/swift.conf there while it runs. NNPIPE_S3_PYTHON: a Python with boto3 (default: python3).
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1
PYTHON=${NNPIPE_S3_PYTHON:-python3}
for program in swift-ring-builder swift-proxy-server swift-object-server memcached; do
    command -v $program >/dev/null || { skip "sets in Swift" "$program is not installed"; exit 0; }
done
"$PYTHON" -c 'import boto3' 2>/dev/null || { skip "sets in Swift" "this Python has no boto3"; exit 0; }
[ "$(id -u)" -eq 0 ] && [ ! -e /etc/swift/swift.conf ] || { skip "sets in Swift" "not root, or there is a Swift"; \
    exit 0; }
unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY AWS_PROFILE AWS_SESSION_TOKEN
export no_proxy=127.0.0.1 HOME=$TMP AWS_EC2_METADATA_DISABLED=true AWS_DEFAULT_REGION=eu-west-1
trap 'kill $(cat pids) 2>/dev/null; rm -f /etc/swift/swift.conf; rm -rf "$TMP"' EXIT
"$NNPIPE" data synth --out made --samples 120 --test 24 --size 12 >/dev/null || exit 1
"$NNPIPE" data pack 'made/train-*.tar.zst' --out served --shard-size 60K >/dev/null || exit 1
rm -f served/*.npidx
local=$("$NNPIPE" data ls 'served/train-*.tar' | md5sum)

mkdir -p etc disk/sdb1 recon /etc/swift
tee etc/swift.conf >/etc/swift/swift.conf <<C
[swift-hash]
swift_hash_path_prefix = a
swift_hash_path_suffix = b
[storage-policy:0]
name = gold
default = yes
C
port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
cache=$(port) proxy=$(port)
for name in object container account; do
    own=$(port)
    swift-ring-builder etc/$name.builder create 4 1 1 >/dev/null
    swift-ring-builder etc/$name.builder add "r1z1-127.0.0.1:$own/sdb1" 1 >/dev/null
    swift-ring-builder etc/$name.builder rebalance >/dev/null
    cat >etc/$name.conf <<C
[DEFAULT]
devices = $TMP/disk
mount_check = false
disable_fallocate = true
bind_ip = 127.0.0.1
bind_port = $own
workers = 0
user = root
swift_dir = $TMP/etc
recon_cache_path = $TMP/recon
[pipeline:main]
pipeline = $name-server
[app:$name-server]
use = egg:swift#$name
C
done
cat >etc/proxy.conf <<C
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = $proxy
workers = 0
user = root
swift_dir = $TMP/etc
[pipeline:main]
pipeline = catch_errors cache s3api tempauth copy slo dlo proxy-server
[app:proxy-server]
use = egg:swift#proxy
account_autocreate = true
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:$cache
[filter:s3api]
use = egg:swift#s3api
location = eu-west-1
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testing .admin
[filter:copy]
use = egg:swift#copy
[filter:slo]
use = egg:swift#slo
[filter:dlo]
use = egg:swift#dlo
C
memcached -u root -l 127.0.0.1 -p "$cache" >memcached.log 2>&1 &
echo $! >pids
for name in object container account proxy; do
    "swift-$name-server" etc/$name.conf -v >$name.log 2>&1 &
    echo $! >>pids
done
export AWS_ENDPOINT_URL_S3=http://127.0.0.1:$proxy AWS_ACCESS_KEY_ID=test:tester AWS_SECRET_ACCESS_KEY=testing
cat >put.py <<'P'
import glob, os, sys, boto3
from botocore.config import Config
s3 = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL_S3"], region_name="eu-west-1", config=Config(
    s3={"addressing_style": "path"},
    request_checksum_calculation="when_required", response_checksum_validation="when_required"))
if sys.argv[1:]:
    s3.put_object(Bucket="photos", Key="train-00001.tar", Body=open("served/train-00001.tar", "rb").read()[:-1] + b"x")
    sys.exit()
s3.create_bucket(Bucket="photos", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
for name in sorted(glob.glob("served/*.tar")):
    for prefix in ("", "a b+c%20/ä漢/", "%s&=:,;!()'$@/"):
        s3.put_object(Bucket="photos", Key=prefix + os.path.basename(name), Body=open(name, "rb").read())
P
for _ in $(tries 60); do "$PYTHON" put.py >put.log 2>&1 && break; sleep 1; done
shards="train-{00000..00001}.tar"
lists() { rm -rf cache; got=$("$NNPIPE" data ls "s3://photos/$1$shards" 2>ls.err | md5sum); [ "$got" = "$local" ] \
    || { cat ls.err; tail -n 1 put.log; return 1; }; }
t "signatures are good" lists ""
t "with spaces, +, %, UTF-8" lists "a b+c%20/ä漢/"
t "and with reserved characters" lists "%s&=:,;!()'\$@/"
t "the whole set is read and verified" says "0 bad" "$NNPIPE" data verify "s3://photos/$shards"
t "a wrong secret is refused and named" env AWS_SECRET_ACCESS_KEY=x bash -c \
    "$(declare -f says exits); TMP=$TMP; \
    says 'HTTP 403: SignatureDoesNotMatch' exits 1 $NNPIPE data ls s3://photos/train-00000.tar"
t "an object that is not there is named" says "HTTP 404: NoSuchKey" exits 1 "$NNPIPE" data ls s3://photos/none.tar
cat >net.yaml <<Y
name: net
device: {sim: {step_ms: 300}}
data: {train: {source: tar, path: "\${SET}/$shards"}}
loader: {batch: 16, cache: none, disk_cache: none}
model: [flatten, {linear: {out: classes}}]
train: {epochs: 20}
Y
digest() { SET=$1 "$NNPIPE" bench loader net.yaml --epochs 2 --json >bench.json && field digest bench.json; }
t "the batches are those of local files" eval 'a=$(digest served) && [ -n "$a" ] && [ "$a" = "$(digest s3://photos)" ]'
changed() {
    { sleep 2; "$PYTHON" put.py changed; } &
    SET=s3://photos says "has changed since it was listed" exits 74 "$NNPIPE" train net.yaml
}
t "an object that is overwritten during a run ends it with 74" changed
[ "$failed" -eq 0 ]
