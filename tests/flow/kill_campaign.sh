# Kills with SIGKILL at random moments, some twice in an epoch, some while a checkpoint is being
# written; each time the run resumes with other readers and another I/O backend. Then: the same
# weights as the run without kills, every sample exactly once an epoch in history.bin, and
# each attempt resumes from the last checkpoint that was in place.
# KILLS of them (50), in chains of up to 5; STATE keeps which chains have passed.
. "$(dirname "$0")/../lib.sh"
kills=${KILLS:-50}
state=${STATE:-$TMP}/kill-$kills
mkdir -p "$state"
batch=32 epochs=4

cat >"$TMP/kill.yaml" <<Y
name: kill
seed: 11
device: cpu
precision: f32
data:
  train: {source: tar, path: "$TMP/data/train-*.tar*"}
  test: {source: tar, path: "$TMP/data/test-*.tar*"}
loader: {batch: $batch, augment: [{random_crop: {size: 32, pad: 4}}, flip]}
model:
  - conv: {out: 16, kernel: 3, pad: 1, bias: false}
  - batchnorm
  - relu
  - maxpool: {kernel: 2}
  - conv: {out: 32, kernel: 3, pad: 1}
  - relu
  - dropout: {rate: 0.2}
  - flatten
  - linear: {out: 128}
  - relu
  - linear: {out: classes}
optimizer: {sgd: {lr: 0.02, momentum: 0.9, nesterov: true, weight_decay: 5e-4}}
schedule: {one_cycle: {warmup: 20%}}
train: {epochs: $epochs, eval_every: 1 epoch, history: true, threads: 1}
checkpoint: {every: 5 steps, keep: 2}
Y

# field NAME FILE: the value of a field in the last line that has it

# newest RUNS: the step of the newest checkpoint in place below RUNS; 0: none
newest() { ls -d "$1"/*/checkpoints/step-* 2>/dev/null | sed 's/.*step-//' | sort -n | tail -n 1 | grep . || echo 0; }

# every_sample_once FILE SAMPLES: records of step (u64), rows (u32) and sample numbers (u32) follow
# each other from step 0, and a whole epoch has each sample once
every_sample_once() {
    od -An -v -w4 -t u4 "$1" | awk -v n="$2" -v batch="$batch" '
        part == 0 { step = $1; part = 1; next }
        part == 1 { step += $1 * 4294967296; part = 2; next }
        part == 2 { rows = left = $1; part = 3
            if (step != wanted || rows != batch) {
                print "step " step " with " rows " rows, not " wanted
                bad = 1
                exit
            }
            wanted++; next }
        { p = step * batch + rows - left; epoch = int(p / n)
          if ($1 >= n || seen[epoch, $1]++) { print "sample " $1 " twice in epoch " epoch; bad = 1; exit }
          count[epoch]++; if (--left == 0) part = 0 }
        END { if (bad) exit 1
            if (part != 0) { print "the last record is torn"; exit 1 }
            if (wanted == 0) { print "no history"; exit 1 }
            whole = int(wanted * batch / n)
            for (e = 0; e < whole; e++)
                if (count[e] != n) { print count[e] " samples in epoch " e ", not " n; exit 1 } }'
}

# life RUNS READERS IO: starts or resumes a run in the background; $! is the process
life() {
    : >"$TMP/life" # not left to the child, which may come late
    resume=
    for checkpoint in "$1"/*/checkpoints/step-* "$1"/*/checkpoints/.step-*.old; do
        [ ! -e "$checkpoint" ] || resume=--resume
    done
    "$NNPIPE" train "$TMP/kill.yaml" $resume --json -o "runs=$1" -o "loader.readers=$2" -o "loader.io=$3" >"$TMP/life" \
        2>"$TMP/life.err" &
}

# starts_after STEP: the first step of this attempt is the step after STEP
starts_after() {
    first=$(sed -n '/"event": *"step"/{s/.*"step": *\([0-9]*\).*/\1/p;q}' "$TMP/life")
    [ -n "$first" ] || return 0 # killed, or at its end, before it did one
    [ "$1" -eq 0 ] || nr_resumed=$((nr_resumed + 1))
    [ "$first" -eq $(($1 + 1)) ] || { echo "resumed with step $first after the checkpoint of step $1"; return 1; }
}

# ended RUNS: the run is finished: is everything as without kills?
ended() {
    hash=$(field weights_sha256 "$TMP/life") dir=$(field run_dir "$TMP/life")
    [ "$hash" = "$whole_hash" ] || { echo "weights $hash, not $whole_hash"; return 1; }
    every_sample_once "$dir/history.bin" "$samples" && cmp "$dir/history.bin" "$TMP/whole.history"
}

# Three kinds of moments. random: 0..65535.
anywhere() { sleep "$(awk "BEGIN { print $whole_seconds * 0.9 * $random / 65536 }")"; }
after_some_steps() { # soon after the previous kill: twice in an epoch
    while kill -0 $pid 2>/dev/null && [ "$(grep -c '"event": *"step"' "$TMP/life")" -le $((random % 9)) ]; do
        sleep 0.01
    done
}
in_a_checkpoint() { # not always during the first checkpoint; of a few kills never, so that one of them is resumed from
    complete=$((kills > 4 ? random % 4 : 1 + random % 3))
    while kill -0 $pid 2>/dev/null && [ "$(grep -c '"event": *"checkpoint"' "$TMP/life")" -lt $complete ]; do
        sleep 0.01
    done
    tries=0
    while [ $((tries % 100)) -ne 0 ] || kill -0 $pid 2>/dev/null; do
        set -- "$runs"/*/checkpoints/.step-*.tmp
        if [ -e "$1" ]; then
            nr_in_checkpoints=$((nr_in_checkpoints + 1))
            return
        fi
        tries=$((tries + 1))
    done
}

# chain NUMBER KILLS: a run, killed so often and then left to its end; a run that ends too early starts again
chain() {
    number=$1 left=$2 nr_lives=0 runs=$TMP/chain-$1
    while [ $nr_lives -lt 100 ]; do
        nr_lives=$((nr_lives + 1))
        set -- 1 2 4
        shift $(((number + nr_lives) % 3))
        io=$(echo "$backends" | cut -d ' ' -f $((1 + (number + nr_lives / 3) % 2)))
        before=$(newest "$runs")
        life "$runs" "$1" "$io"
        pid=$! random=$(od -An -N2 -t u2 /dev/urandom | tr -d ' ')
        if [ "$left" -gt 0 ]; then
            case $(((number + nr_lives) % 3)) in
            0) after_some_steps ;;
            1) anywhere ;;
            2) in_a_checkpoint ;;
            esac
            kill -KILL $pid 2>/dev/null
        fi
        wait $pid 2>/dev/null
        code=$?
        starts_after "$before" || return 1
        case $code in
        137)
            left=$((left - 1))
            if ls "$runs"/*/result.json >/dev/null 2>&1; then # killed behind its end
                ended || return 1
                runs=$runs+
            fi ;;
        0)
            ended || return 1
            [ "$left" -gt 0 ] || return 0
            runs=$runs+ ;;
        *)
            echo "exit $code: $(cat "$TMP/life.err")"
            return 1 ;;
        esac
    done
    echo "no end in 100 lives"
    return 1
}

"$NNPIPE" data synth --out "$TMP/data" --samples 600 --test 200 --size 32 >"$OUT" 2>&1 || {
    not_ok "a sample set" "$(tail -n 2 "$OUT")"
    exit 1
}

unkilled() {
    life "$TMP/runs-whole" 2 pread
    wait $! || { cat "$TMP/life.err"; return 1; }
    samples=$(sed -n 's/.*"train_images": *\([0-9]*\).*/\1/p' "$TMP/life" | head -n 1)
    whole_hash=$(field weights_sha256 "$TMP/life") whole_seconds=$(field seconds "$TMP/life")
    cp "$(field run_dir "$TMP/life")/history.bin" "$TMP/whole.history"
    [ ${#whole_hash} -eq 64 ] && every_sample_once "$TMP/whole.history" "$samples"
}
t "a run without kills has every sample once an epoch in its history" unkilled
[ $failed -eq 0 ] || exit 1

backends="uring pread"
life "$TMP/runs-uring" 1 uring
if ! wait $!; then
    backends="pread pread"
    skip "resuming with io_uring" "$(tail -n 1 "$TMP/life.err")"
fi

nr_resumed=0 nr_in_checkpoints=0 nr_done=0 number=0
while [ $nr_done -lt "$kills" ]; do
    n=$((kills - nr_done < 5 ? kills - nr_done : 5)) number=$((number + 1)) nr_done=$((nr_done + n))
    [ ! -e "$state/chain-$number" ] || { ok "chain $number had passed before"; continue; }
    t "killed $n times, a run ends with the same weights and history (chain $number)" chain $number $n
    [ $failed -eq 0 ] || exit 1
    echo "$nr_resumed $nr_in_checkpoints" >"$state/chain-$number"
    nr_resumed=0 nr_in_checkpoints=0
done
enough() { # over all chains: attempts that resumed from a checkpoint, and kills while one was written
    cat "$state"/chain-* | awk -v kills="$kills" '{ resumed += $1; inside += $2 }
        END { print resumed " resumed, " inside " killed in a checkpoint"; exit !(resumed >= kills / 4 && inside > 0) }'
}
t "attempts resumed from a checkpoint, and some were killed while they wrote one" enough
[ $failed -eq 0 ]
