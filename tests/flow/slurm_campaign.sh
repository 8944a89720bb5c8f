#!/bin/sh
# One run in several processes under Slurm: a slurmctld, two slurmd (two nodes) and a munged of this test's own, on
# loopback. srun gives the weights of one process, on one node and on both; a job on both nodes at its time limit saves,
# is requeued, and ends with the same weights. As root, where slurmctld, slurmd, srun and munged are installed; in some
# minutes, since Slurm waits before it requeues.
if [ "$(id -u)" = 0 ] && [ -z "${NNPIPE_OWN_HOSTS-}" ] && unshare -m true 2>/dev/null; then
    NNPIPE_OWN_HOSTS=1 exec unshare -m sh "$0" # the nodes' names are in this process's /etc/hosts alone
fi
. "$(dirname "$0")/../lib.sh"
for program in slurmctld slurmd srun munged; do
    command -v $program >/dev/null 2>&1 || { skip "runs under Slurm" "$program is not here"; exit 0; }
done
[ "$(id -u)" = 0 ] || { skip "runs under Slurm" "only root can start slurmd"; exit 0; }
cd "$TMP" || exit 1
chmod 755 "$TMP"
here=$(hostname -s) port=$((20000 + $$ % 10000))
mkdir -p munge state
{ cat /etc/hosts && echo "127.0.0.1 nodea nodeb"; } >hosts
mount --bind hosts /etc/hosts || { skip "runs under Slurm" "/etc/hosts cannot be replaced for it"; exit 0; }
head -c 1024 /dev/urandom >munge/key
chown -R munge: munge && chmod 400 munge/key && chmod 755 munge
cat >slurm.conf <<C
ClusterName=test
SlurmctldHost=$here(127.0.0.1)
SlurmctldPort=$port
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$TMP/munge/socket
CredType=cred/munge
StateSaveLocation=$TMP/state
SlurmdSpoolDir=$TMP/spool-%n
SlurmctldPidFile=$TMP/ctld.pid
SlurmdPidFile=$TMP/%n.pid
SlurmctldLogFile=$TMP/ctld.log
SlurmdLogFile=$TMP/%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SlurmdParameters=config_overrides
ReturnToService=2
MpiDefault=none
NodeName=nodea NodeHostname=$here NodeAddr=127.0.0.1 Port=$((port + 1)) CPUs=4 RealMemory=4000 State=UNKNOWN
NodeName=nodeb NodeHostname=$here NodeAddr=127.0.0.1 Port=$((port + 2)) CPUs=4 RealMemory=4000 State=UNKNOWN
PartitionName=all Nodes=nodea,nodeb Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE
C
export SLURM_CONF="$TMP/slurm.conf"
over() {
    scancel --user=root 2>/dev/null
    for file in nodea.pid nodeb.pid ctld.pid munge/pid; do [ ! -e "$TMP/$file" ] || kill "$(cat "$TMP/$file")"; done
    sleep 2
    rm -rf "$TMP"
}
trap over EXIT
up() {
    runuser -u munge -- munged --force --key-file="$TMP/munge/key" --socket="$TMP/munge/socket" \
        --pid-file="$TMP/munge/pid" --log-file="$TMP/munge/log" --seed-file="$TMP/munge/seed" &&
        slurmctld && slurmd -N nodea && slurmd -N nodeb || return 1
    for _ in $(tries 30); do [ "$(sinfo -h -N -t idle 2>/dev/null | wc -l)" -eq 2 ] && return 0; sleep 0.5; done
    tail -n 3 ctld.log nodea.log nodeb.log
    return 1
}
t "slurmctld, two slurmd and munged are up" up
[ "$failed" -eq 0 ] || exit 1

"$NNPIPE" data synth --out "$TMP/data" --samples 2000 --test 500 >/dev/null || exit 1
cat >net.yaml <<Y
name: net
device: cpu
precision: f32
data:
  train: {source: tar, path: "$TMP/data/train-*.tar*"}
  test: {source: tar, path: "$TMP/data/test-*.tar*"}
loader: {batch: 64, augment: [{random_crop: {size: 32, pad: 4}}, flip]}
model:
  - {conv: {out: 32, kernel: 3, pad: 1}}
  - batchnorm
  - relu
  - {maxpool: {kernel: 4}}
  - {conv: {out: 64, kernel: 3, pad: 1}}
  - batchnorm
  - relu
  - global_avgpool
  - {linear: {out: classes}}
train: {epochs: 2, threads: 2, lanes: 8}
checkpoint: {every: 20 steps, keep: 50}
Y
hash_of() { sed -n 's/.*weights \([0-9a-f]\{16\}\),.*/\1/p' "$1" | tail -n 1; }
one() { "$NNPIPE" train net.yaml -o runs="$TMP/one" >one.out 2>&1; }
t "one process" one
by_srun() { # NODES TASKS
    timeout 300 srun --overcommit --kill-on-bad-exit=1 -N "$1" -n "$2" "$NNPIPE" train net.yaml -o runs="$TMP/of$1-$2" \
        >srun.out 2>&1 && [ -n "$(hash_of one.out)" ] && [ "$(hash_of one.out)" = "$(hash_of srun.out)" ] ||
        { tail -n 3 srun.out; return 1; }
}
for n in 1 2 4; do t "srun -n $n: the same weights" by_srun 1 "$n"; done
for n in 2 4 8; do t "srun -N 2 -n $n: the same weights" by_srun 2 "$n"; done
# killed_by_srun: a task of node b is killed; srun ends, and the same command goes on
killed_by_srun() {
    run="train net.yaml -o runs=$TMP/killed -o train.epochs=6 --resume auto"
    srun --overcommit --kill-on-bad-exit=1 -N 2 -n 4 "$NNPIPE" $run >killed.out 2>&1 &
    job=$!
    for _ in $(tries 300); do ls killed/*/checkpoints/step-20 >/dev/null 2>&1 && break; sleep 0.1; done
    for pid in $(pgrep -f "runs=$TMP/killed "); do
        tr '\0' '\n' <"/proc/$pid/environ" 2>/dev/null | grep -qx SLURM_PROCID=3 && kill -9 "$pid"
    done
    wait "$job" && { echo "srun ended with 0"; return 1; }
    srun --overcommit --kill-on-bad-exit=1 -N 2 -n 2 "$NNPIPE" $run >>killed.out 2>&1 &&
        "$NNPIPE" train net.yaml -o runs="$TMP/six" -o train.epochs=6 >six.out 2>&1 &&
        [ -n "$(hash_of six.out)" ] && [ "$(hash_of killed.out)" = "$(hash_of six.out)" ] ||
        { tail -n 3 killed.out; return 1; }
}
t "a task of the second node is killed: srun ends, and the same command goes on with two tasks" killed_by_srun

# A job may run for a minute, and is told half of one before, or sooner, as Slurm looks at its clock; it is requeued
# after two minutes. So these epochs take two or three times.
"$NNPIPE" bench step net.yaml --json >step.json
epochs=$(awk "BEGIN { printf \"%d\", 35 * $(field images_per_second step.json) / 2000 + 1 }")
long() { "$NNPIPE" train net.yaml -o runs="$TMP/long" -o "train.epochs=$epochs" >long.out 2>&1; }
t "a run of $epochs epochs, undisturbed" long
cat >job.sh <<J
#!/bin/sh
#SBATCH --nodes=2 --ntasks=2 --overcommit --time=1 --signal=TERM@30 --requeue --open-mode=append
srun --overcommit --kill-on-bad-exit=1 "$NNPIPE" train "$TMP/net.yaml" -o runs="$TMP/job" \\
    -o train.epochs=$epochs --resume auto
code=\$?
echo "ended with \$code"
[ \$code -ne 75 ] || scontrol requeue "\$SLURM_JOB_ID"
J
job() {
    sbatch -o "$TMP/job.out" job.sh || return 1
    for _ in $(seq 1500); do grep -q "ended with [^7]" job.out 2>/dev/null && break; sleep 1; done
    grep -q "ended with 75" job.out && grep -q "ended with 0" job.out && [ -n "$(hash_of long.out)" ] &&
        [ "$(hash_of long.out)" = "$(hash_of job.out)" ] || { tail -n 5 job.out; return 1; }
    echo "# ended with 75 $(grep -c "ended with 75" job.out) times" >&3
}
exec 3>&1
t "a job at its time limit saves, is requeued, and ends with the weights of an undisturbed run" job
[ "$failed" -eq 0 ]
