#!/bin/sh
# Sets in buckets of servers that check signatures: moto's server with its authentication on, and Swift's s3api if
# it is there. Keys of the environment, of files, of a container and of an instance; session tokens; names with
# spaces, +, % and UTF-8; wrong keys; a web identity.
#   NNPIPE_S3_PYTHON  a Python with moto[server] and botocore (default: python3)
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1
PYTHON=${NNPIPE_S3_PYTHON:-python3}
"$PYTHON" -c 'import moto.server, botocore' 2>/dev/null || { skip "sets in buckets" \
    "this Python has no moto and botocore"; exit 0; }
unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY AWS_PROFILE AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY \
    AWS_SESSION_TOKEN AWS_WEB_IDENTITY_TOKEN_FILE AWS_ROLE_ARN AWS_ROLE_SESSION_NAME AWS_ENDPOINT_URL
export no_proxy=127.0.0.1 HOME=$TMP/home AWS_EC2_METADATA_DISABLED=true AWS_DEFAULT_REGION=eu-west-1
mkdir -p "$HOME/.aws"
"$NNPIPE" data synth --out made --samples 120 --test 24 --size 12 >/dev/null || exit 1
"$NNPIPE" data pack 'made/train-*.tar.zst' --out served --shard-size 60K >/dev/null || exit 1
rm -f served/*.npidx
local=$("$NNPIPE" data ls 'served/train-*.tar' | md5sum)

cat >bucket.py <<'P'
"""A bucket in moto's server, which checks keys and signatures; writes its port, keys and a session token."""
import json, sys, threading, time, os, glob
os.environ["AWS_ACCESS_KEY_ID"] = "first"
os.environ["AWS_SECRET_ACCESS_KEY"] = "first"
os.environ["INITIAL_NO_AUTH_ACTION_COUNT"] = "1000000"
from moto.server import ThreadedMotoServer
from moto.sts.responses import TokenResponse
import boto3
# AWS takes this request unsigned, as the token is the proof; moto would refuse it (and looks at no token)
check = TokenResponse._authenticate_and_authorize_normal_action
TokenResponse._authenticate_and_authorize_normal_action = lambda self, resource: \
    None if self._get_action() == "AssumeRoleWithWebIdentity" else check(self, resource)
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
server.start()
port = server.get_host_and_port()[1]
end = "http://127.0.0.1:%d" % port
iam = boto3.client("iam", endpoint_url=end, region_name="us-east-1")
iam.create_user(UserName="user")
key = iam.create_access_key(UserName="user")["AccessKey"]
allow = json.dumps({"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]})
iam.put_user_policy(UserName="user", PolicyName="policy", PolicyDocument=allow)
trust = json.dumps({"Version": "2012-10-17", "Statement": [
    {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}]})
role = iam.create_role(RoleName="role", AssumeRolePolicyDocument=trust)["Role"]["Arn"]
iam.put_role_policy(RoleName="role", PolicyName="policy", PolicyDocument=allow)
session = boto3.client("sts", endpoint_url=end, region_name="us-east-1").assume_role(
    RoleArn=role, RoleSessionName="session")["Credentials"]
s3 = boto3.client("s3", endpoint_url=end, region_name="eu-west-1")
s3.create_bucket(Bucket="photos", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
for name in sorted(glob.glob("served/*.tar")):
    base = os.path.basename(name)
    for prefix in ("", "a b+c%20/ä漢/", "%s&=:,;!()'$@/"):
        s3.upload_file(name, "photos", prefix + base)
import http.client
http.client.HTTPConnection("127.0.0.1", int(port)).request("POST", "/moto-api/reset-auth", body=b"0")  # without a type
json.dump({"port": port, "id": key["AccessKeyId"], "secret": key["SecretAccessKey"], "sid": session["AccessKeyId"],
           "ssecret": session["SecretAccessKey"], "token": session["SessionToken"], "role": role},
          open("moto.new", "w"))
os.rename("moto.new", "moto.json")
time.sleep(3600)
P
"$PYTHON" bucket.py >bucket.log 2>&1 &
moto=$!
trap 'kill $moto $role 2>/dev/null; rm -rf "$TMP"' EXIT
role=
for _ in $(tries 300); do [ -s moto.json ] && break; kill -0 $moto 2>/dev/null || break; sleep 0.1; done
[ -s moto.json ] || { not_ok "moto's server starts" "$(tail -n 1 bucket.log)"; exit 1; }
get() { "$PYTHON" -c "import json; print(json.load(open('moto.json'))['$1'])"; }
AWS_ENDPOINT_URL_S3=http://127.0.0.1:$(get port)
export AWS_ENDPOINT_URL_S3
last=$(ls served/train-*.tar | tail -n 1 | sed 's/.*-0*\([0-9][0-9]*\).tar/\1/')
shards="train-{00000..$(printf %05d "${last:-0}")}.tar"
key() { export AWS_ACCESS_KEY_ID="$1" AWS_SECRET_ACCESS_KEY="$2"; [ -n "${3:-}" ] && export AWS_SESSION_TOKEN="$3" \
    || unset AWS_SESSION_TOKEN; }
# lists PREFIX: the set has the samples of the local files
lists() { rm -rf cache; got=$("$NNPIPE" data ls "s3://photos/$1$shards" 2>ls.err | md5sum); [ "$got" = "$local" ] \
    || { cat ls.err; return 1; }; }
refuses() { rm -rf cache; says "$1" exits 1 "$NNPIPE" data ls "s3://photos/$shards"; }

key "$(get id)" "$(get secret)"
t "keys of the environment are good" lists ""
t "names with spaces, +, %, UTF-8" lists "a b+c%20/ä漢/"
t "and with reserved characters" lists "%s&=:,;!()'\$@/"
t "the whole set is read and verified" says "0 bad" "$NNPIPE" data verify "s3://photos/$shards"
t "an object that is not there is named" says "NoSuchKey" exits 1 "$NNPIPE" data ls s3://photos/none.tar
t "a bucket that is not there is named" says "NoSuchBucket" exits 1 "$NNPIPE" data ls s3://none/none.tar
key "$(get id)" "wrong"
t "a wrong secret is refused and named" refuses "HTTP 403: SignatureDoesNotMatch"
key "unknown" "wrong"
t "an unknown key is refused and named" refuses "HTTP 403: InvalidAccessKeyId"
key "$(get sid)" "$(get ssecret)" "$(get token)"
t "a role's keys with their token are good" lists ""
key "$(get sid)" "$(get ssecret)" "wrong"
t "a wrong token is refused" refuses "HTTP 40"
unset AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_SESSION_TOKEN
t "without keys the bucket is closed, and says what to set" refuses "there are no keys: set AWS_ACCESS_KEY_ID"

cat >"$HOME/.aws/credentials" <<C
[default]
aws_access_key_id = nobody
aws_secret_access_key = x
[ml]
aws_access_key_id=$(get id)
aws_secret_access_key = $(get secret)
C
t "the default profile counts" refuses "InvalidAccessKeyId"
export AWS_PROFILE=ml
t "keys of a profile are good" lists ""
printf '[profile ml]\nregion = eu-west-1\nendpoint_url = %s\n' "$AWS_ENDPOINT_URL_S3" >"$HOME/.aws/config"
t "a profile has its endpoint and region" env -u AWS_ENDPOINT_URL_S3 -u AWS_DEFAULT_REGION \
    bash -c "rm -rf cache; [ \"\$('$NNPIPE' data ls 's3://photos/$shards' | md5sum)\" = '$local' ]"
export AWS_PROFILE=none
t "a profile that is not there is named" refuses "AWS_PROFILE is 'none'"
unset AWS_PROFILE
rm -r "$HOME/.aws"

printf 'a.web.token\n' >token
export AWS_WEB_IDENTITY_TOKEN_FILE=$TMP/token AWS_ENDPOINT_URL_STS=$AWS_ENDPOINT_URL_S3
AWS_ROLE_ARN=$(get role)
export AWS_ROLE_ARN
t "a web identity is exchanged for keys" lists ""
unset AWS_WEB_IDENTITY_TOKEN_FILE AWS_ENDPOINT_URL_STS AWS_ROLE_ARN

# an instance and a container that have a role
cat >role.py <<'P'
import http.server, json, sys, time
keys = json.load(open("moto.json"))
class Role(http.server.BaseHTTPRequestHandler):
    def log_message(self, *a): open("role.log", "a").write(self.command + " " + self.path + "\n")
    def say(self, text, status=200):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())
    def do_PUT(self):
        self.say("T" if self.headers.get("X-aws-ec2-metadata-token-ttl-seconds") else "", 200)
    def do_GET(self):
        good = self.headers.get("X-aws-ec2-metadata-token") == "T" or self.headers.get("Authorization") == "container"
        if not good: return self.say("", 401)
        if self.path.endswith("security-credentials/"): return self.say("r")
        expires = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 301.5))
        self.say(json.dumps({"AccessKeyId": keys["sid"], "SecretAccessKey": keys["ssecret"], 
                             "Token": keys["token"], "Expiration": expires}))
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Role)
open("role.port", "w").write(str(server.server_address[1]))
server.serve_forever()
P
"$PYTHON" role.py >role.txt 2>&1 &
role=$!
for _ in $(tries 100); do [ -s role.port ] && break; sleep 0.1; done
instance=http://127.0.0.1:$(cat role.port)
t "an instance's role (IMDSv2)" env -u AWS_EC2_METADATA_DISABLED AWS_EC2_METADATA_SERVICE_ENDPOINT="$instance/" \
    bash -c "rm -rf cache; [ \"\$('$NNPIPE' data ls 's3://photos/$shards' | md5sum)\" = '$local' ]"
export AWS_CONTAINER_CREDENTIALS_FULL_URI=$instance/keys AWS_CONTAINER_AUTHORIZATION_TOKEN=container
t "a container's role" lists ""
cat >net.yaml <<Y
name: net
device: {sim: {step_ms: 100}}
data: {train: {source: tar, path: "s3://photos/$shards"}}
loader: {batch: 4, cache: none, disk_cache: none}
model: [flatten, {linear: {out: classes}}]
train: {epochs: 5} # keys are kept for 10 s at least
Y
t "its keys are asked for again before they expire" eval ': >role.log; "$NNPIPE" train net.yaml && [ "$(grep -c GET \
    role.log)" -ge 2 ]'
t "only this machine is asked without TLS" env AWS_CONTAINER_CREDENTIALS_FULL_URI=http://example.org/x \
    bash -c "$(declare -f says exits); TMP=$TMP; \
    says 'keys are asked for by https' exits 1 $NNPIPE data ls s3://photos/x.tar"
[ "$failed" -eq 0 ]
