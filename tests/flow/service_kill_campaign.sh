# Daemon, worker, or both, killed with SIGKILL at random moments, while runs are submitted, paused and
# resumed by others who know nothing of it. Then: each run whose submission was acknowledged is there,
# once, and done; no run is there that nobody submitted; no two workers were ever in one folder; and
# every run has the weights of one that nobody disturbed.
# KILLS of them (1000), in rounds of up to 25; STATE keeps which rounds have passed. SEED names the moments.
. "$(dirname "$0")/../lib.sh"
kills=${KILLS:-1000}
seed=${SEED:-$(date +%s)}
state=${STATE:-$TMP}/service-kill-$kills
mkdir -p "$state"
daemon= submitter=
dir=$TMP
trap 'kill -9 $daemon $submitter $(workers) 2>/dev/null; rm -rf "$TMP"' EXIT

net() { # net NAME STEPS: four kinds, of one to four seconds
    cat >"$TMP/$1.yaml" <<Y
name: $1
device: cpu
data: {train: {source: synth, samples: 1000, size: 16}}
loader: {batch: 16, cache: none, readers: 1}
model: [{conv: {out: 8, kernel: 3, pad: 1}}, batchnorm, relu, global_avgpool, {linear: {out: classes}}]
train: {steps: $2, eval_every: never, history: true, threads: 1}
checkpoint: {every: 40 steps, keep: 2}
runs: $TMP/alone
Y
}
weights() { sha256sum "$1"/checkpoints/step-*"$2"/weights.safetensors | cut -d ' ' -f 1; }
for steps in 300 600 900 1200; do
    net "n$steps" "$steps"
    "$NNPIPE" train "$TMP/n$steps.yaml" >"$TMP/alone.txt" 2>&1 || {
        not_ok "a run alone" "$(tail -n 1 "$TMP/alone.txt")"
        exit 1
    }
    weights "$TMP/alone/n$steps-"* "$steps" >"$TMP/n$steps.weights"
done

start() {
    "$NNPIPE" daemon 2>>"$TMP/daemon.log" &
    daemon=$!
}
answers() {
    for _ in $(seq 300); do
        "$NNPIPE" status >/dev/null 2>&1 && return
        sleep 0.1
    done
    echo "the daemon does not come up"
    tail -n 3 "$TMP/daemon.log"
    return 1
}
# field FILE NAME: of each object of a line
field() { sed -n "s/.*\"$2\": *\"\{0,1\}\([^\",}]*\).*/\1/p" "$1"; }

# Submits, pauses and resumes as long as there is $TMP/go; what was acknowledged: id, name, steps.
submit_all() {
    n=0
    while [ -e "$TMP/go" ]; do
        n=$((n + 1))
        steps=$((300 * (n % 4 + 1)))
        "$NNPIPE" submit "$TMP/n$steps.yaml" -o "runs=$dir/runs" --name "s$n-$steps" --priority $((n % 3)) \
            --max-retries 1000 --json \
            >"$dir/answer.json" 2>/dev/null && echo "$(field "$dir/answer.json" id) s$n-$steps $steps" \
            >>"$dir/acknowledged"
        last=$(tail -n 1 "$dir/acknowledged" 2>/dev/null | cut -d ' ' -f 1)
        [ $((n % 3)) -ne 0 ] || {
            "$NNPIPE" pause "${last:-1}"
            sleep 0.2
            "$NNPIPE" resume "${last:-1}"
        } >/dev/null 2>&1
        while [ "$(pending)" -gt 4 ] && [ -e "$TMP/go" ]; do sleep 0.1; done
    done
}
pending() { "$NNPIPE" ls --json 2>/dev/null >"$dir/pending.json"; grep -c '"id"' "$dir/pending.json"; }

workers() {
    for lock in "$dir"/runs/*/lock; do
        pid=$(cat "$lock" 2> /dev/null) && [ -n "$pid" ] && kill -0 "$pid" 2>/dev/null && echo "$pid"
    done
}
a_worker() { workers | shuf -n 1 --random-source="$TMP/random"; }
kill_one() { # kill_one KIND
    victim=$(a_worker)
    case $1 in
    0) kill -9 $daemon ;;
    1) [ -z "$victim" ] || { kill -9 "$victim" && echo 1 >>"$state/workers"; } ;;
    2) kill -9 $daemon $victim ;;
    esac 2>/dev/null
    [ "$1" -eq 1 ] || { wait $daemon 2>/dev/null; start; }
}

check_all() {
    "$NNPIPE" ls --all --json >"$dir/all.json" || return 1
    [ -s "$dir/acknowledged" ] || { echo "nothing was acknowledged"; return 1; }
    while read -r id name steps; do
        [ "$(grep -c "\"name\": *\"$name\"" "$dir/all.json")" -eq 1 ] || {
            echo "run $id, $name, is there $(grep -c "\"name\": *\"$name\"" "$dir/all.json") times"
            return 1
        }
    done <"$dir/acknowledged"
    field "$dir/all.json" name >"$dir/names"
    while read -r name; do
        run=$(ls -d "$dir/runs/$name"-*) && [ "$(echo "$run" | wc -l)" -eq 1 ] || {
            echo "$name has folders $run"
            return 1
        }
        grep "\"name\": *\"$name\"" "$dir/all.json" | grep -q '"state": *"done"' || {
            echo "$name: $(grep "\"name\": *\"$name\"" "$dir/all.json")"
            return 1
        }
        [ "$(weights "$run" "${name#*-}")" = "$(cat "$TMP/n${name#*-}.weights")" ] || {
            echo "$run has other weights"
            return 1
        }
        if grep -l 'this run is running' "$run"/output/* ; then echo "a second worker came to $run"; return 1; fi
    done <"$dir/names"
}

settle() { # until nothing is left to do; who paused a run may have been cut off before it resumed it
    : >"$dir/pending.json"
    for _ in $(seq 600); do
        for id in $(grep '"state": *"paus' "$dir/pending.json" | sed 's/.*"id": *\([0-9]*\).*/\1/'); do
            "$NNPIPE" resume "$id" >/dev/null 2>&1
        done
        [ "$(pending)" -eq 0 ] && "$NNPIPE" status >/dev/null 2>&1 && return
        sleep 0.2
    done
    echo "not all is over: $(head -c 300 "$dir/pending.json")"
    return 1
}

round() { # round NUMBER KILLS
    dir=$TMP/round-$1
    mkdir -p "$dir/config/nnpipe"
    export NNPIPE_SOCKET="$dir/socket" XDG_STATE_HOME="$dir/state" XDG_CONFIG_HOME="$dir/config"
    printf 'devices: [cpu]\nruns_per_device: 2\nretry: {first: 0.05, cap: 0.2}\nspare_bytes: 1M\n' \
        >"$dir/config/nnpipe/service.yaml"
    awk -v seed="$seed$1" -v n="$2" \
        'BEGIN { srand(seed); for (i = 0; i < n; i++) printf "%.3f %d\n", rand() * 1.2, int(rand() * 3) }' \
        >"$dir/moments"
    awk -v seed="$seed$1" 'BEGIN { srand(seed); for (i = 0; i < 9999; i++) printf "%c", 33 + int(rand() * 90) }' \
        >"$TMP/random"
    : >"$TMP/go"
    start
    answers || return 1
    submit_all &
    submitter=$!
    while read -r moment kind; do
        sleep "$moment"
        kill_one "$kind"
    done <"$dir/moments"
    rm -f "$TMP/go"
    wait $submitter
    answers && settle && check_all
    code=$?
    [ $code -eq 0 ] || { echo "round $1 of seed $seed"; cat "$dir/acknowledged"; tail -n 20 "$TMP/daemon.log"; }
    kill -TERM $daemon 2>/dev/null
    wait $daemon 2>/dev/null
    [ $code -ne 0 ] || { wc -l <"$dir/names" >>"$state/runs"; rm -rf "$dir"; }
    return $code
}

number=0 left=$kills
while [ "$left" -gt 0 ]; do
    number=$((number + 1)) these=$((left < 25 ? left : 25))
    left=$((left - these))
    if [ ! -e "$state/$number" ]; then
        t "$these kills of daemon and workers: no run is lost, none is done twice, all have their weights (round $number)" round "$number" "$these"
        [ "$failed" -eq 0 ] && : >"$state/$number"
    else
        ok "round $number has passed already"
    fi
done
echo "# $kills kills, $(wc -l <"$state/workers") of a worker alone, $(awk '{ n += $1 } END { print n + 0 }' "$state/runs") runs"
[ "$failed" -eq 0 ]
