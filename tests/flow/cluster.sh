#!/bin/sh
# What docs/CLUSTER.md says to launchers: the Kubernetes job passes a schema checker, and its command and environment
# train in four processes, which go on after one was killed; mpirun knows its parameter; the model of a cluster.
#   KUBERNETES_VALIDATE   kubernetes-validate of PyPI, if it is not in PATH
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1
job=$ROOT/docs/kubernetes.yaml

checker=${KUBERNETES_VALIDATE:-kubernetes-validate}
if command -v "$checker" >/dev/null; then
    schema() {
        "$checker" --strict "$job" && sed 's/completionMode/completionMood/' "$job" >wrong.yaml &&
            ! "$checker" --strict wrong.yaml
    }
    t "the Kubernetes job passes a schema checker" schema
else
    skip "the Kubernetes job and a schema checker" "no kubernetes-validate here (PyPI)"
fi

"$NNPIPE" data synth --out "$TMP/data" --samples 200 --test 40 --size 12 >/dev/null || exit 1
cat >"$TMP/net.yaml" <<Y
name: net
device: cpu
precision: f32
data: {train: {source: tar, path: "$TMP/data/train-*.tar*"}}
loader: {batch: 32, readers: 1}
model: [{conv: {out: 8, kernel: 3}}, relu, global_avgpool, {linear: {out: classes}}]
train: {epochs: 60, threads: 2, lanes: 4, eval_every: never}
checkpoint: {every: 5 steps}
Y
# The job's command and variables, with paths and an address of this machine.
command=$(sed -n 's/.*command: \[\(.*\)\].*/\1/p' "$job" | tr -d ',' |
    sed "s|^nnpipe|$NNPIPE|; s|/config|$TMP|; s|=/runs|=$TMP/runs|")
variables=$(sed -n 's/.*{name: \([A-Z_]*\), value: "\{0,1\}\([^"}]*\)"\{0,1\}}.*/\1=\2/p' "$job" |
    sed "s|nnpipe-0.nnpipe|127.0.0.1|; s|/cache|$TMP/cache|; s|29500|$((20000 + $$ % 10000))|")
pods() { # starts four; their processes are in $pids
    pids=
    for rank in 0 1 2 3; do
        # shellcheck disable=SC2086 # words
        env $variables RANK=$rank timeout 300 $command "$@" >"pod$rank.txt" 2>&1 &
        pids="$pids $!"
    done
}
ended() { for pid in $pids; do exits "$1" wait "$pid" || { cat pod?.txt; return 1; }; done; }
alone() { "$NNPIPE" train net.yaml -o runs="$TMP/alone" >alone.txt; }
hash_of() { sed -n 's/.*weights \([0-9a-f]\{16\}\).*/\1/p' "$1"; }
trains() {
    [ "$(sed -n 's/.*completions: //p; s/.*parallelism: //p' "$job" | sort -u)" = 4 ] ||
        { echo "not four pods"; return 1; }
    alone && pods && ended 0 && [ -n "$(hash_of alone.txt)" ] && [ "$(hash_of alone.txt)" = "$(hash_of pod0.txt)" ]
}
t "its command trains in four processes, to the weights of one" trains
again() {
    rm -rf runs && pods -o train.epochs=400 || return 1
    for _ in $(tries 100); do ls runs/*/checkpoints/step-10 >/dev/null 2>&1 && break; sleep 0.05; done
    kill -9 "$(pgrep -P "${pids##* }")" && for pid in $pids; do wait "$pid"; done
    grep -q "rank 3 .* has ended" pod0.txt && pods -o train.epochs=400 && ended 0 && grep -q "^resuming" pod0.txt &&
        [ "$(ls -d runs/net-* | wc -l)" -eq 1 ]
}
t "after one was killed the same command goes on" again

if command -v ompi_info >/dev/null; then
    parameter() { ompi_info --param odls all --level 9 | grep -q '"odls_base_sigkill_timeout"'; }
    t "mpirun has odls_base_sigkill_timeout" parameter
else
    skip "mpirun's odls_base_sigkill_timeout" "no ompi_info here"
fi

model() { sh "$ROOT/scripts/cluster_model.sh" "$@"; }
row() { grep "^| $1 | $2 |" model.txt; }
table() { # the page has the model's figures
    model >model.txt && row 64 512 | grep -q '| 2816000 | .* | step | 100 % |' && row 1 8 | grep -q '| 44000 |' &&
        grep -q "| 64, 512 | 2,816,000 | step | 320,748 | network |" "$ROOT/docs/CLUSTER.md" &&
        model network=12.5e9 >model.txt && row 64 512 | grep -q '| 320748 | .* | network |' &&
        grep -q "below 162 GB/s" model.txt
}
t "the model of a cluster gives the figures of docs/CLUSTER.md" table
limits() {
    model cores=8 >model.txt && row 1 8 | grep -q '| 18779 | .* | decoding |' && model disk=1e9 >model.txt &&
        row 1 8 | grep -q '| 9090 | .* | disk |' && model store=4e9 >model.txt &&
        row 8 64 | grep -q '| 36363 | .* | storage |' &&
        model bus=5e8 >model.txt && row 1 8 | grep -q '| 26573 | .* | bus |' && model link=2e9 >model.txt &&
        row 1 8 | grep -q '| link |' && exits 2 model cores=many && exits 2 model what=1
}
t "decoding, disk, storage, bus and links limit it where they should" limits
[ "$failed" -eq 0 ]
