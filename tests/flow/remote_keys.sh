#!/bin/sh
# Keys for sets in buckets that are a role's: for a web identity, from the environment or a profile, and of EKS Pod
# Identity; against a small server that gives them out, and accepts nothing else.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1
unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY all_proxy AWS_PROFILE AWS_SESSION_TOKEN \
    AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY AWS_ROLE_ARN AWS_WEB_IDENTITY_TOKEN_FILE AWS_ROLE_SESSION_NAME \
    AWS_ENDPOINT_URL
export no_proxy=127.0.0.1 HOME=$TMP/home AWS_EC2_METADATA_DISABLED=true
mkdir -p "$HOME/.aws" served
"$NNPIPE" data synth --out made --samples 120 --test 24 --size 12 >/dev/null || exit 1
"$NNPIPE" data pack 'made/train-*.tar.zst' --out served --shard-size 20K >/dev/null || exit 1
rm -f served/*.npidx
last=$(ls served/train-*.tar | tail -n 1 | sed 's/.*-0*\([0-9][0-9]*\).tar/\1/')
set="s3://bucket/train-{00000..$(printf %05d "$last")}.tar"
trap 'kill $server 2>/dev/null; rm -rf "$TMP"' EXIT
serve
export AWS_ENDPOINT_URL_S3=http://127.0.0.1:$PORT
role=arn:aws:iam::123456789012:role/reader
printf 'web-token\n' >token

# lists: the set, with a role's keys only
lists() { echo keys=1000 >faults; : >log; rm -rf cache; says "120 samples" "$NNPIPE" data ls "$set"; }
# refuses TEXT
refuses() { rm -rf cache; says "$1" exits 1 "$NNPIPE" data ls "$set"; }
# exchanged TEXT: once, by this role and session
exchanged() {
    [ "$(grep -c ^STS log)" -eq 1 ] && grep -q "^STS AssumeRoleWithWebIdentity $1\$" log || { cat log; return 1; }
}

# EKS Pod Identity
export AWS_CONTAINER_CREDENTIALS_FULL_URI=http://127.0.0.1:$PORT/keys AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE=$TMP/pod
printf 'pod\n' >pod
t "EKS Pod Identity: keys for the token of a file" lists
rm pod
t "its token is missing: named" refuses "the container's credentials: its token: cannot read $TMP/pod: No such file"
printf 'pod\n' >pod

# a web identity, which comes before the container
export AWS_ENDPOINT_URL_STS=http://127.0.0.1:$PORT AWS_WEB_IDENTITY_TOKEN_FILE=$TMP/token AWS_ROLE_ARN=$role \
    AWS_ROLE_SESSION_NAME=night+run
t "a web identity of the environment is exchanged for keys" eval 'lists && exchanged "$role night+run web-token"'
unset AWS_ROLE_SESSION_NAME
t "its session has a name, although none is set" eval 'lists && exchanged "$role nnpipe-[0-9]* web-token"'
printf '[default]\naws_access_key_id=nobody\naws_secret_access_key=x\n' >"$HOME/.aws/credentials"
t "it comes before keys of files" eval 'lists && exchanged "$role nnpipe-[0-9]* web-token"'
plain() { echo keys=1000 >faults; AWS_ACCESS_KEY_ID=a AWS_SECRET_ACCESS_KEY=b refuses "HTTP 403: ExpiredToken"; }
t "and after keys of the environment" plain
t "without AWS_ROLE_ARN: what is missing" env -u AWS_ROLE_ARN bash -c "$(declare -f says exits refuses); \
    TMP=$TMP NNPIPE=$NNPIPE set='$set'; refuses 'neither AWS_ROLE_ARN nor'"
printf 'sts=AccessDenied\n' >faults
t "what STS refuses is named" refuses "the web identity: http://127.0.0.1:$PORT answers HTTP 400: AccessDenied"
rm faults
: >token
t "an empty token is named" refuses "the web identity: its token: $TMP/token is empty"
rm token
t "so is a missing one" refuses "the web identity: its token: cannot read $TMP/token: No such file"
printf 'web-token\n' >token
t "the token is sent by https only, but for this machine" env AWS_ENDPOINT_URL_STS=http://sts.example.org bash -c \
    "$(declare -f says exits refuses); TMP=$TMP NNPIPE=$NNPIPE set='$set'; refuses 'set AWS_ENDPOINT_URL_STS'"

cat >net.yaml <<Y
name: net
device: cpu
data: {train: {source: tar, path: "$set"}}
loader: {batch: 8, cache: none, disk_cache: none, shuffle: none, depth: 4, readers: 1}
model: [flatten, {linear: {out: classes}}]
train: {epochs: 3, threads: 1}
Y
# each pair of keys is good for so many requests: enough to list, but not for three epochs
renewed() {
    echo keys=$((last + 12)) >faults
    printf 'second-token\n' >token
    : >log
    "$NNPIPE" train net.yaml --json >train.json 2>train.err || { tail -n 3 train.err; return 1; }
    [ "$(grep -c '^STS.*second-token$' log)" -ge 2 ] || { grep -c . log; grep STS log; return 1; }
}
t "refused in the middle of a run, it is exchanged again, and the run ends well" renewed

# the same in a profile
unset AWS_WEB_IDENTITY_TOKEN_FILE AWS_ROLE_ARN
printf 'web-token\n' >token
cat >"$HOME/.aws/config" <<C
[profile eks]
role_arn = $role
web_identity_token_file = $TMP/token
role_session_name = profile
[profile half]
web_identity_token_file = $TMP/token
[profile other]
role_arn = $role
source_profile = default
C
export AWS_PROFILE=eks
t "a web identity of a profile" eval 'lists && exchanged "$role profile web-token"'
AWS_PROFILE=half
t "one without a role: what is missing" refuses "nor the profile's role_arn"
AWS_PROFILE=other
t "a role of another profile is refused by name" refuses "has its keys by role_arn"
[ "$failed" -eq 0 ]
