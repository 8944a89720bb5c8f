#!/bin/sh
# `nnpipe runs`: the facts in folders of runs, in any state, and with files that belong to no run.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1
"$NNPIPE" data synth --out s --samples 160 --test 40 >/dev/null || exit 1
cat >net.yaml <<Y
name: net
device: cpu
precision: f32
data: {train: {source: tar, path: "s/train-*.tar.zst"}, test: {source: tar, path: "s/test-*.tar.zst"}}
loader: {batch: 16, readers: 1, augment: [{center_crop: {size: 16}}], test_augment: [{center_crop: {size: 16}}]}
model: [{conv: {out: 4, kernel: 3}}, relu, global_avgpool, flatten, {linear: {out: classes}}]
train: {epochs: 2, threads: 1}
Y
field() { sed -n "s/.*\"$1\": \"\{0,1\}\([^,\"}]*\).*/\1/p" "$2"; }
for lr in 0.1 0.01 0.5; do "$NNPIPE" train net.yaml -o optimizer.sgd.lr=$lr -o name=lr-$lr >/dev/null || exit 1; done
"$NNPIPE" train net.yaml -o name=split -o data.split=20% --json >split.json 2>/dev/null || exit 1
"$NNPIPE" train net.yaml -o name=other -o "model=[global_avgpool, flatten, {linear: {out: classes}}]" >/dev/null ||
    exit 1

# --- output
all() { "$NNPIPE" runs --json >all.json && [ "$(wc -l <all.json)" -eq 5 ]; }
t "every run is listed" all
of() { grep "\"run\": \"$1-" all.json >one.json; }
agrees() {
    result=$(echo runs/split-*)/result.json
    of split && [ "$(field state one.json)" = "done" ] && [ "$(field step one.json)" = 16 ] &&
        [ "$(field best_accuracy one.json)" = "$(field best_accuracy "$result")" ] &&
        [ "$(field accuracy one.json)" = "$(field test_accuracy "$result")" ] && [ "$(field set one.json)" = val ] || {
            cat one.json "$result"
            return 1
        }
}
t "with the facts of its result" agrees
result_fields() {
    r=$(echo runs/lr-0.5-*/result.json)
    grep -q '"best_set": "test", "best_step": [0-9]*, "best_epoch": [0-9.]*, "best_accuracy": ' "$r" &&
        grep -q '"name": "lr-0.5", "data": "[^"]*train-\*.tar.zst", "lr": 0.5, "last_lr": 0.5, "overrides": ' "$r" &&
        grep -q ' "overrides": \["optimizer.sgd.lr=0.5", "name=lr-0.5"\]' "$r" || {
            cat "$r"
            return 1
        }
}
t "a result has the best, the rate and the overrides" result_fields
differs() {
    of lr-0.01 && grep -q '"differs": {[^}]*"optimizer.sgd.lr": "0.01"[^}]*}' one.json && ! grep -q '"model' one.json &&
        of other && grep -q '"differs": null' one.json
}
t "the table shows keys that differ between runs of one network only" differs
table() {
    "$NNPIPE" runs >table && grep -q "^lr-0.5-.* done .* 20/20 .*lr=0.5" table &&
        grep -q "^split-.* split=0.2 .*" table && tail -n 1 table | grep -q "^5 runs, "
}
t "the table has a line per run and the sum" table
sorted() {
    "$NNPIPE" runs --sort accuracy --json >sorted.json && field best_accuracy sorted.json >best && sort -rn best |
        cmp - best && "$NNPIPE" runs --sort loss --json >sorted.json && field loss sorted.json >loss && sort -n loss |
        cmp - loss &&
        "$NNPIPE" runs --sort name -n 2 --json >sorted.json &&
            [ "$(field run sorted.json | cut -d- -f1-2 | tr '\n' ' ')" = "lr-0.01 lr-0.1 " ] || {
                cat sorted.json
                return 1
            }
}
t "--sort and -n" sorted
sizes() {
    of split && dir=$(field run_dir one.json) && [ "$(field bytes one.json)" -eq \
        "$(($(du -sk "$dir" | cut -f1) * 1024 - $(stat -c '%b * 512' "$dir")))" ] || {
            field bytes one.json
            du -sk "$dir"
            return 1
        }
}
t "its size is its space on the disk" sizes
one() { "$NNPIPE" runs runs/split-* --json >one.json && [ "$(wc -l <one.json)" -eq 1 ]; }
t "a run's own folder is one run" one
usage() {
    exits 2 "$NNPIPE" runs --sort speed 2>err && grep -q "when, accuracy, loss, size or name, not speed" err &&
        exits 2 "$NNPIPE" runs -n 0 && exits 1 "$NNPIPE" runs nowhere
}
t "mistakes are reported" usage

# --- runs that are not done
"$NNPIPE" train net.yaml -o name=stopped -o train.epochs=4 -o runs=states -o checkpoint.every="10 steps" --json \
    >stopped.json 2>&1
stopped=$(field run_dir stopped.json | head -n 1)
rm "$stopped/result.json" # as a run that was killed at its end
ln -sfn step-20 "$stopped/checkpoints/best"
mkdir pictures && tar --zstd -C pictures -xf s/train-00000.tar.zst && for f in pictures/*/*; do
    head -c 200 "$f" >cut && cp cut "$f"
    break
done
"$NNPIPE" train net.yaml -o name=bad -o runs=states -o loader.bad_samples.policy=fail -o \
    "data.train={source: folder, path: $TMP/pictures}" >bad.txt 2>&1
states() {
    "$NNPIPE" runs states --json >all.json && of stopped && [ "$(field state one.json)" = stopped ] &&
        [ "$(field step one.json)" = 40 ] && [ -n "$(field best_accuracy one.json)" ]
}
t "a run that was cut off is stopped, and its last step is shown" states
failed() {
    of bad && [ "$(field state one.json)" = failed ] && grep -q '"message": "[^"]*pictures/' one.json || {
        cat all.json bad.txt
        return 1
    }
}
t "a failed run has its reason" failed
resumed() {
    "$NNPIPE" train --resume "$stopped" >/dev/null 2>&1 && "$NNPIPE" runs "$stopped" --json |
        grep -q '"state": "done"' && ! grep -q '"event": "error"' "$stopped/metrics.jsonl"
}
t "a resumed run is done at the end" resumed
running() {
    "$NNPIPE" train net.yaml -o name=long -o runs=states -o train.epochs=100000 >/dev/null 2>&1 &
    pid=$!
    for i in $(tries 50); do
        "$NNPIPE" runs states --json | grep '"run": "long-' | grep -q '"state": "running", .*"step": [0-9]' && break
        sleep 0.1
    done
    "$NNPIPE" runs states --json | grep '"run": "long-' | grep -q '"state": "running"'
    code=$?
    kill -9 $pid
    wait $pid 2>/dev/null
    [ $code -eq 0 ] && "$NNPIPE" runs states --json | grep '"run": "long-' | grep -q '"state": "stopped"'
}
t "a run is running while it lives, and stopped once it was killed" running

# --- one run's config
shown() {
    "$NNPIPE" show runs/lr-0.5-* >show.txt && grep -q "lr: 0.5" show.txt &&
        "$NNPIPE" show runs/lr-0.5-*/checkpoints/best | grep -q "lr: 0.5" && exits 2 "$NNPIPE" show runs
}
t "show prints the config of a run" shown

# --- what checkpoints take
"$NNPIPE" train net.yaml -o name=lean -o runs=lean -o "optimizer={sgd: {lr: 0.1, momentum: 0.9}}" -o \
    checkpoint.optimizer=newest -o checkpoint.every="5 steps" -o checkpoint.keep=3 --json >lean.json 2>&1
"$NNPIPE" train net.yaml -o name=whole -o runs=whole -o "optimizer={sgd: {lr: 0.1, momentum: 0.9}}" -o \
    checkpoint.every="5 steps" -o checkpoint.keep=3 --json >whole.json 2>&1
lean=$(echo lean/lean-*)
states_of() {
    for c in "$1"/checkpoints/step-*; do
        [ -e "$c/weights.safetensors" ] && echo "${c##*-} $([ -e "$c/optimizer.safetensors" ] && echo both)"
    done | sort -n
}
only_newest() {
    [ "$(states_of "$lean" | grep -c both)" -eq 1 ] && [ "$(states_of "$lean" | tail -n 1)" = "20 both" ] &&
        [ "$(states_of "$lean" | wc -l)" -ge 3 ] && ! states_of "$(echo whole/whole-*)" | grep -v both || {
            states_of "$lean"
            return 1
        }
}
t "checkpoint.optimizer: newest keeps only the newest optimizer's state" only_newest
weights_id() { sed -n 's/.*"weights_sha256": "\([^"]*\)".*/\1/p' "$1"; }
same() {
    [ -n "$(weights_id lean.json)" ] && [ "$(weights_id lean.json)" = "$(weights_id whole.json)" ] &&
        for c in best last step-15; do
            "$NNPIPE" eval --weights "$lean:$c" || return 1
        done
}
t "the weights are the same, and those of older checkpoints can be used" same
resumes() {
    cp -r "$lean" lean-again && rm lean-again/result.json && rm -r lean-again/checkpoints/step-20 &&
        exits 1 "$NNPIPE" train --resume lean-again >again.txt 2>&1
    grep -q "step-15: its optimizer's state was removed" again.txt &&
        grep -q "no checkpoint to continue from" again.txt ||
        {
            cat again.txt
            return 1
        }
    "$NNPIPE" train --resume "$lean" -o train.epochs=3 >again.txt 2>&1 &&
        [ "$(states_of "$lean" | tail -n 1)" = "30 both" ] || {
            cat again.txt
            return 1
        }
}
t "a run resumes from the newest, and gives the reason why not from an older one" resumes
cost() {
    says "up to 10001 kept, including the best" \
        "$NNPIPE" train net.yaml -o runs=cost -o checkpoint.keep=10000 -o train.epochs=1 &&
        ! "$NNPIPE" train net.yaml -o runs=cost -o train.epochs=1 | grep "^checkpoints:"
}
t "a run prints the size of its checkpoints if it is large" cost
total() {
    "$NNPIPE" prune lean/* whole/* --dry-run >total.txt && tail -n 1 total.txt |
        grep -q "^2 runs: .* would be freed, .* kept$" && "$NNPIPE" prune lean/* whole/* --dry-run --json | tail -n 1 |
        grep -q '"event": "done", "runs": 2, "freed_bytes": [1-9]' || {
            cat total.txt
            return 1
        }
}
t "prune ends with the sum" total

# --- folders that no run has left
mkdir -p odd/empty odd/fifo odd/garbage odd/link/checkpoints odd/folder/config.yaml
: >odd/empty/config.yaml
echo "name: fifo" >odd/fifo/config.yaml
for f in metrics.jsonl result.json lock; do mkfifo odd/fifo/$f; done
head -c 100000 /dev/urandom >odd/garbage/config.yaml
head -c 400000 /dev/urandom >odd/garbage/metrics.jsonl
echo '[1, {"event": "done"}' >odd/garbage/result.json
echo '{"event": "done", "steps": "x", "best_set": [1], "overrides": {"a": 1}}' >odd/link/result.json
printf '{"event": "eval", "set": 5, "val_accuracy": "x"}\n[]\n7\n{"event": ["step"]}\n' >odd/link/metrics.jsonl
echo "model: [1]" >odd/link/config.yaml
ln -s . odd/link/checkpoints/best
ln -s loop odd/loop
odd() {
    timeout 300 "$NNPIPE" runs odd --json >odd.json && [ "$(wc -l < odd.json)" -eq 4 ] &&
        timeout 300 "$NNPIPE" runs odd |
        tail -n 1 | grep -q "^4 runs"
}
t "folders that no run has written are listed with the known facts" odd
mkdir -p empty
nowhere() {
    ( cd empty && says "no run was started here" exits 1 "$NNPIPE" runs ) &&
        says "prunes the runs in it" exits 1 "$NNPIPE" prune odd
}
t "a folder without runs, and a folder of runs where one run is expected, are named with what to type" nowhere
[ "$failed" -eq 0 ]
