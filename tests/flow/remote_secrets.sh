#!/bin/sh
# Secrets in URLs: after runs whose data have a signed URL, with bad members, refusals, trackers and the cache on disk,
# the signature stands in files that only their owner reads, and in nothing else; nor is it printed.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1
unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY all_proxy NNPIPE_SOCKET
export no_proxy=127.0.0.1 HOME=$TMP/home
mkdir -p "$HOME" served members/0 members/1
umask 022
for i in 1 2 3 4 5 6 7 8; do
    { printf 'P6 4 4 255\n'; seq 100 200 | head -c 48; } >members/$((i % 2))/$i.ppm
done
echo no picture >members/1/5.ppm
tar -C members -cf served/a.tar 0 1
gzip -k served/a.tar
trap 'kill $daemon 2>/dev/null; kill $server 2>/dev/null; rm -rf "$TMP"' EXIT
daemon=
serve
url=http://127.0.0.1:$PORT/a.tar?X-Amz-Credential=id/day\&X-Amz-Signature=
cat >net.yaml <<Y
name: net
device: cpu
data: {train: {source: tar, path: "${url}SECRET1"}, test: {source: tar, path: "${url}SECRET2"}}
loader: {batch: 2, readers: 1, disk_cache: 64M, bad_samples: {policy: replace, budget: 50%}}
model: [flatten, {linear: {out: classes}}]
train: {epochs: 3, threads: 1}
checkpoint: {every: 4 steps, keep: 50}
track: [tensorboard, mlflow, wandb]
runs: $TMP/runs
Y

# silent COMMAND...: it ends well, and prints no secret
silent() {
    "$@" >said.txt 2>&1 || { tail -n 3 said.txt; return 1; }
    ! grep SECRET said.txt
}
# only_in PATTERN FOLDER...: no name has the secret, the files that have it are of these names, and only their owner
# reads them
only_in() {
    pattern=$1
    shift
    find "$@" -name '*SECRET*' | grep . && return 1
    grep -rl SECRET "$@" >found.txt
    grep -vE "$pattern" found.txt && return 1
    while read -r file; do [ "$(stat -c %a "$file")" = 600 ] || { ls -l "$file"; return 1; }; done <found.txt
}
t "a run with a signed URL prints no signature" silent "$NNPIPE" train net.yaml -o "data.test.path=${url}SECRET3"
run=$(ls -d runs/net-*)
t "it names the bad member, and no signature" grep -q 'a.tar?...:1/5.ppm' "$run/bad_samples.jsonl"
t "its folder has the signature in config.yaml, which only its owner reads" eval \
    'only_in "/config.yaml$" runs && grep -q SECRET1 found.txt $run/config.yaml'
t "the cache folder has it in indexes, which only their owner reads" eval \
    'only_in "/index/[^/]*.npidx$" cache && grep -q . found.txt'
signed_again() {
    weights=$(field weights_sha256 "$run/result.json") && cut_behind 4 runs cut && sed -i 's/SECRET1/OLD/' \
        cut/net-*/config.yaml && silent "$NNPIPE" train --resume "$TMP"/cut/net-* -o "data.train.path=${url}SECRET4" &&
        [ "$weights" = "$(field weights_sha256 cut/net-*/result.json)" ] && only_in "/config.yaml$" cut
}
t "it is resumed with a new signature" signed_again
t "lists, comparisons and the resolved config's file show none" eval 'silent "$NNPIPE" runs runs --json && silent \
    "$NNPIPE" runs runs'
unpacked() { silent "$NNPIPE" data ls "${url%%[?]*}.gz?s=SECRET5" && only_in "/index/[^/]*.npidx$" cache; }
t "a compressed archive is unpacked under a name without it" unpacked
# hidden TEXT COMMAND...: it fails with this text, and without the secret
hidden() { text=$1; shift; says "$text" exits 1 "$@" && ! grep SECRET says.txt; }
echo 'status=403' >faults
t "a refusal shows none" hidden 'a.tar?...: the server answers HTTP 403' "$NNPIPE" data verify "${url}SECRET"
rm faults
unserve
t "a dead server shows none" hidden 'a.tar?...: ' "$NNPIPE" data verify "${url}SECRET"
serve
password() { says 'nnpipe: path: http://...@127.0.0.1/a.tar: a user or password' exits 2 "$NNPIPE" data ls \
    "http://me:SECRET@127.0.0.1/a.tar" && ! grep SECRET says.txt; }
t "a password in a URL is refused, and not shown" password

# the service
export NNPIPE_SOCKET=$TMP/socket
"$NNPIPE" daemon --state "$TMP/state" >daemon.log 2>&1 &
daemon=$!
for _ in $(tries 200); do [ -S "$NNPIPE_SOCKET" ] && break; sleep 0.05; done
t "a run of the service prints none, and its client" silent "$NNPIPE" submit net.yaml --wait \
    -o "data.test.path=${url}SECRET6" -o "runs=$TMP/served_runs"
lists() { for words in "status 1" "status 1 --json" ls "ls --json"; do silent "$NNPIPE" $words || return 1; done; }
t "nor do its lists" lists
get() { curl -sS --unix-socket "$NNPIPE_SOCKET" "http://localhost$1"; }
t "nor do /metrics and the page" eval 'silent get /metrics && grep -q nnpipe said.txt && silent get / && silent get \
    /v1/runs && silent get /v1/runs/1'
t "the run's owner is told the config" eval 'get /v1/runs/1/config | grep -q SECRET6'
t "the service's folder has it in files of its user alone" only_in . state
t "and so has the run's" only_in '/config.yaml$' served_runs daemon.log
kill $daemon && wait $daemon
daemon=
[ "$failed" -eq 0 ]
