#!/bin/sh
# A run from files to weights: it learns; the same weights with any readers, I/O backend and
# way of stopping; what stands in its folder; eval and predict agree with it.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1
"$NNPIPE" data synth --out "$TMP/data" --samples 1500 --test 300 >/dev/null || exit 1

cat >"$TMP/net.yaml" <<Y
name: net
device: cpu
precision: f32
data:
  train: {source: tar, path: "$TMP/data/train-*.tar*"}
  test: {source: tar, path: "$TMP/data/test-*.tar*"}
loader: {batch: 32, augment: [{random_crop: {size: 32, pad: 2}}, flip]}
model:
  - conv: {out: 16, kernel: 3, pad: 1, bias: false}
  - batchnorm
  - relu
  - maxpool: {kernel: 4}
  - conv: {out: 32, kernel: 3, pad: 1, bias: false}
  - batchnorm
  - relu
  - maxpool: {kernel: 2}
  - flatten
  - linear: {out: classes}
optimizer: {sgd: {lr: 0.05, momentum: 0.9, nesterov: true, weight_decay: 5e-4}}
schedule: {one_cycle: {warmup: 20%}}
train: {epochs: 4, threads: 2}
checkpoint: {every: 10 steps, keep: 2}
Y

# field NAME FILE: a field of the last line that has it
above() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a > b) }'; }
same_field() {
    [ -n "$(field "$1" "$2")" ] && [ "$(field "$1" "$2")" = "$(field "$1" "$3")" ] || {
        echo "$(field "$1" "$2") and $(field "$1" "$3")"
        return 1
    }
}
# train OUT ARGS...: a run below its own folder, its JSON lines in OUT
train() {
    out=$1
    shift
    "$NNPIPE" train "$TMP/net.yaml" --json -o runs="$TMP/runs-$(basename "$out" .json)" "$@" >"$out" 2>"$out.err"
}

t "a run ends with exit 0" train "$TMP/a.json"
run=$(field run_dir "$TMP/a.json")
learns() {
    first=$(head -n 2 "$TMP/a.json" | tail -n 1 | sed 's/.*"loss": \([0-9.]*\).*/\1/')
    above "$first" "$(field train_loss "$TMP/a.json")" && above "$(field test_accuracy "$TMP/a.json")" 0.4 || {
        field test_accuracy "$TMP/a.json"
        return 1
    }
}
t "the loss falls and the test accuracy is above 40 % of eight classes" learns
fields() {
    for f in $2; do
        grep -q "^{\"event\": \"$1\".*\"$f\": " "$TMP/a.json" || {
            echo "$1 has no $f"
            return 1
        }
    done
}
t "start has its fields" fields start "run_dir device precision parameters train_images test_images readers io"
t "step has its fields" fields step "step epoch loss lr images_per_second stall_ratio"
t "epoch has its fields" fields epoch "epoch train_loss test_loss test_accuracy seconds"
t "checkpoint has its fields" fields checkpoint "step path seconds"
t "done has its fields" fields done \
    "steps epochs images seconds train_seconds images_per_second stall_ratio
        test_loss test_accuracy weights_sha256 run_dir"
count() { [ "$(grep -c "\"event\": \"$1\"" "$2")" -eq "$3" ] || { grep -c "\"event\": \"$1\"" "$2"; return 1; }; }
t "there is a line for each of the 188 steps" count step "$TMP/a.json" 188
t "there is a line for each of the 4 epochs" count epoch "$TMP/a.json" 4
folder() {
    for f in config.yaml log metrics.jsonl bad_samples.jsonl result.json curves.svg lock; do
        [ -e "$run/$f" ] || {
            echo "no $f"
            return 1
        }
    done
}
t "the run's folder holds its files" folder
keeps() {
    n=$(ls -d "$run"/checkpoints/step-* | wc -l)
    [ "$n" -ge 2 ] && [ "$n" -le 3 ] && [ -d "$run/checkpoints/step-188" ] || {
        ls "$run/checkpoints"
        return 1
    }
}
t "the newest two checkpoints and the best one are kept" keeps
t "curves.svg is one picture with both curves" sh -c \
    'grep -q "</svg>" "$0" && grep -q "class=\"line test\"" "$0" && ! grep -q nan "$0"' "$run/curves.svg"
t "result.json is the done object" sh -c '[ "$(tail -n 1 "$1")" = "$(cat "$0")" ]' "$run/result.json" "$TMP/a.json"
t "the run's own config is right" "$NNPIPE" check "$run/config.yaml"

# --- the same weights
t "with 4 readers and pread" train "$TMP/b.json" -o loader.readers=4 -o loader.io=pread
t "4 readers and pread give the same weights" same_field weights_sha256 "$TMP/a.json" "$TMP/b.json"
t "with 1 reader, 2 slots, 1 read in flight" train "$TMP/c.json" -o loader.readers=1 -o loader.prefetch=2 -o \
    loader.depth=1
t "1 reader, 2 slots and 1 read in flight give the same weights" same_field weights_sha256 "$TMP/a.json" "$TMP/c.json"
t "with evaluations elsewhere" train "$TMP/d.json" -o "train.eval_every=17 steps" -o train.history=true
t "evaluation changes no weight" same_field weights_sha256 "$TMP/a.json" "$TMP/d.json"
t "with another seed" train "$TMP/e.json" -o seed=2 -o train.epochs=1
differs() { ! same_field weights_sha256 "$TMP/a.json" "$TMP/e.json" >/dev/null; }
t "another seed gives other weights" differs
t "decoded rows in memory" train "$TMP/f.json" -o loader.cache=decoded
t "a cache of decoded rows changes no weight" same_field weights_sha256 "$TMP/a.json" "$TMP/f.json"

of_itself() {
    grep -q "cache decoded" "$TMP/a.json.err" && grep -q '"event": "start".*"cache": "decoded"' "$TMP/a.json" &&
        grep -q "cache none" "$TMP/e.json.err"
}
t "small pictures that fit are cached for later epochs, with a message" of_itself
t "with no cache" train "$TMP/n.json" -o loader.cache=none
t "no cache changes no weight" same_field weights_sha256 "$TMP/a.json" "$TMP/n.json"
t "cache: device on a device without a cache is reported" says "has no memory for samples; using cache: decoded" \
    "$NNPIPE" train "$TMP/net.yaml" -o runs="$TMP/runs-dev" -o loader.cache=device -o train.epochs=0.1

# --- stopped and resumed: a signal as soon as 20 steps are done, until the run is
stop_and_resume() {
    rm -rf "$TMP/runs-stop"
    lives=0 code=75 resume=
    while [ $code -eq 75 ] && [ $lives -lt 100 ]; do
        # Emptied here, not by the child, which may come late: the steps of the life before must not
        # draw a signal upon a run that has not begun.
        : >"$TMP/stop.json" >"$TMP/stop.err"
        "$NNPIPE" train "$TMP/net.yaml" $resume --json -o runs="$TMP/runs-stop" -o train.history=true \
            -o loader.readers=$((1 + lives % 3)) >>"$TMP/stop.json" 2>>"$TMP/stop.err" &
        pid=$!
        for i in $(tries 600); do # a busy machine is slow: each life must get somewhere
            [ "$(grep -c '"event": "step"' "$TMP/stop.json")" -ge 20 ] && break
            kill -0 $pid 2>/dev/null || break
            sleep 0.1
        done
        kill -"$1" $pid 2>/dev/null
        wait $pid
        code=$?
        lives=$((lives + 1)) resume=--resume
    done
    [ $code -eq 0 ] && [ $lives -ge 2 ] || {
        tail -n 2 "$TMP/stop.err"
        echo "exit $code after $lives lives"
        return 1
    }
}
t "SIGTERM ends with 75 and --resume continues to the end" stop_and_resume TERM
t "stopped and resumed, the weights are the same" same_field weights_sha256 "$TMP/a.json" "$TMP/stop.json"
one_run() { [ "$(ls "$TMP/runs-stop" | wc -l)" -eq 1 ]; }
t "all lives share one folder" one_run
stop_dir=$(ls -d "$TMP"/runs-stop/*)
ordered() {
    sed -n 's/.*"event": "step", "step": \([0-9]*\).*/\1/p' "$stop_dir/metrics.jsonl" |
        awk '$1 != NR { exit 1 } END { exit NR != 188 }'
}
t "metrics.jsonl has each step once, in order" ordered
t "metrics.jsonl has each evaluation once" count eval "$stop_dir/metrics.jsonl" 4
t "its history is that of a run that was not stopped" cmp \
    "$stop_dir/history.bin" "$(field run_dir "$TMP/d.json")/history.bin"
t "SIGINT stops too" stop_and_resume INT
# as timeout(1) does: its signal to the process and to its group; both are one wish
by_timeout() {
    setsid "$NNPIPE" train "$TMP/net.yaml" -o runs="$TMP/runs-echo" -o train.epochs=1000 >"$OUT" 2>&1 &
    pid=$!
    for i in $(tries 100); do
        grep -q "^training" "$OUT" && break
        sleep 0.1
    done
    kill -INT "$pid" "-$pid"
    wait $pid
    code=$?
    [ $code -eq 75 ] && grep -q "stopped at step" "$OUT" && ! grep -q "again" "$OUT" || { echo "exit $code"; return 1; }
}
t "a signal that comes twice at once is one" by_timeout
# steps of seconds: the second signal comes before the first has had its way
in_a_hurry() {
    "$NNPIPE" train "$TMP/net.yaml" -o runs="$TMP/runs-hurry" -o 'device={sim: {step_ms: 5000}}' >"$OUT" 2>&1 &
    pid=$!
    for i in $(tries 100); do
        grep -q "^training" "$OUT" && break
        sleep 0.1
    done
    sleep 0.3
    kill -TERM $pid
    sleep 0.8
    kill -TERM $pid
    wait $pid
    code=$?
    [ $code -eq 143 ] && grep -q "SIGTERM again: ended at once" "$OUT" || {
        tail -n 3 "$OUT"
        echo "exit $code"
        return 1
    }
}
t "a second signal later ends a run at once" in_a_hurry
# the signal comes while the test set is read at the end of a run that evaluates something else
stop_in_test() {
    out=$TMP/late.json
    mkdir -p "$TMP/many" && for i in $(seq 40); do
        for f in "$TMP"/data/test-*.tar.zst; do
            cp "$f" "$TMP/many/test-$i.tar.zst"
        done
    done
    set -- "$NNPIPE" train "$TMP/net.yaml" --json -o runs="$TMP/runs-late" -o data.split=20% -o train.epochs=0.1 -o \
        loader.readers=1 -o "data.test.path=$TMP/many/test-*.tar.zst" -o loader.io=pread
    "$@" >"$out" 2>"$out.err" &
    pid=$!
    for i in $(tries 600); do
        grep -q '"event": "checkpoint"' "$out" && break
        sleep 0.01
    done
    kill -TERM $pid
    wait $pid
    code=$?
    [ $code -eq 75 ] || { tail -n 2 "$out.err"; echo "exit $code"; return 1; }
    "$@" --resume >"$out" 2>"$out.err" && grep -q '"event": "done"' "$out" || { tail -n 2 "$out.err"; return 1; }
}
t "SIGTERM during the last test ends with 75 and --resume does the test" stop_in_test
stop_dir=$(ls -d "$TMP"/runs-stop/*)
no_run_left() { # and nothing is written
    before=$(find "$TMP/runs-stop" | sort)
    exits 2 train "$TMP/left.json" --resume -o runs="$TMP/runs-stop" &&
        grep -q "no unfinished run of 'net' with this config below .*$(basename "$stop_dir"): finished" \
        "$TMP/left.json.err" &&
        [ "$(find "$TMP/runs-stop" | sort)" = "$before" ] || { cat "$TMP/left.json.err"; return 1; }
}
t "if all runs are finished --resume reports it and ends with 2" no_run_left
none_below() {
    exits 2 train "$TMP/left.json" --resume -o runs="$TMP/no-runs" &&
        grep -q "no unfinished run of 'net' with this config below $TMP/no-runs" "$TMP/left.json.err" &&
        [ ! -e "$TMP/no-runs" ]
}
t "if there is no run --resume reports it and ends with 2" none_below
finished() { # by its folder alone: its result is printed again, nothing is written
    before=$(cd "$stop_dir" && md5sum result.json log metrics.jsonl config.yaml | md5sum)
    "$NNPIPE" train --resume "$stop_dir" --json >"$OUT" 2>"$OUT.err" &&
        grep -q "is finished: all of its 188 steps" "$OUT.err" &&
        cmp "$OUT" "$stop_dir/result.json" &&
        [ "$(cd "$stop_dir" && md5sum result.json log metrics.jsonl config.yaml | md5sum)" = "$before" ]
}
t "a finished run that is named is left as it is, and its result printed" finished
as_config() {
    exits 2 "$NNPIPE" train "$stop_dir" --resume >"$OUT" 2>&1 && grep -q -- "train --resume $stop_dir" "$OUT"
}
t "a run in CONFIG's place gets advice how to resume it" as_config
other() {
    exits 2 "$NNPIPE" train "$TMP/net.yaml" --resume "$stop_dir" -o loader.batch=16 >"$OUT" 2>&1
    grep -q "loader.batch was 32 and is 16" "$OUT"
}
t "a config of other weights is refused, with the key" other
locked() {
    flock "$stop_dir/lock" "$NNPIPE" train "$TMP/net.yaml" --resume "$stop_dir" >"$OUT" 2>&1
    [ $? -eq 2 ] && grep -q "this run is running" "$OUT"
}
t "a run that is running is not resumed: exit 2" locked
# --- the data are others than those the run began with
changed() {
    cp -r "$TMP/data" "$TMP/changed"
    set -- "$NNPIPE" train "$TMP/net.yaml" -o runs="$TMP/runs-changed" -o train.epochs=20 -o schedule=constant -o \
        "data.train.path=$TMP/changed/train-*"
    "$@" >"$OUT" 2>&1 &
    pid=$!
    for i in $(tries 600); do ls "$TMP"/runs-changed/*/checkpoints/step-10 >/dev/null 2>&1 && break; sleep 0.02; done
    kill -TERM $pid
    wait $pid
    "$NNPIPE" data synth --out "$TMP/other" --samples 1400 --test 0 >/dev/null &&
        cp "$TMP"/other/train-* "$TMP/changed" || return 1
    exits 2 "$@" --resume >"$OUT" 2>&1 &&
        grep -q "data.train has 1400 samples and had 1500 when the run began; without" "$OUT" || return 1
    "$NNPIPE" data synth --out "$TMP/other2" --samples 1500 --test 0 --seed 9 >/dev/null &&
        cp "$TMP"/other2/train-* "$TMP/changed" || return 1
    exits 2 "$@" --resume >"$OUT" 2>&1 && grep -q "have other names or labels" "$OUT" || return 1
    cp "$TMP"/data/train-* "$TMP/changed" && touch "$TMP"/changed/train-* &&
        "$@" --resume -o train.epochs=21 >"$OUT" 2>&1
}
t "a run does not resume with other data, but with a copy of its own" changed
resume_nothing() {
    exits 2 "$NNPIPE" train "$TMP/net.yaml" --resume "$TMP/nowhere" >"$OUT" 2>&1 &&
        grep -q "nowhere is not a folder" "$OUT"
}
t "a missing run is named by --resume" resume_nothing
longer() {
    "$NNPIPE" train "$TMP/net.yaml" --json -o runs="$TMP/runs-long" -o schedule=constant -o train.epochs=1 \
        >"$TMP/l1.json" 2>/dev/null &&
        "$NNPIPE" train "$TMP/net.yaml" --json --resume -o runs="$TMP/runs-long" -o schedule=constant -o \
        train.epochs=2 >"$TMP/l2.json" 2>/dev/null &&
        "$NNPIPE" train "$TMP/net.yaml" --json -o runs="$TMP/runs-long2" -o schedule=constant -o train.epochs=2 \
        >"$TMP/l3.json" 2>/dev/null &&
        [ "$(ls "$TMP/runs-long" | wc -l)" -eq 1 ] && same_field weights_sha256 "$TMP/l2.json" "$TMP/l3.json"
}
t "a constant schedule lets a finished run grow, to the same weights" longer

# --- eval and predict
t "eval of the run" sh -c '"$0" eval "$1" --weights "$2" --json >"$3" 2>/dev/null' \
    "$NNPIPE" "$TMP/net.yaml" "$run" "$TMP/eval.json"
agrees() {
    [ "$(field accuracy "$TMP/eval.json")" = "$(field test_accuracy "$TMP/a.json")" ] &&
        [ "$(field loss "$TMP/eval.json")" = "$(field test_loss "$TMP/a.json")" ] || {
            cat "$TMP/eval.json"
            return 1
        }
}
t "eval gives the run's test loss and accuracy" agrees
t "eval of a bare safetensors file" says "accuracy" \
    "$NNPIPE" eval "$TMP/net.yaml" --weights "$run/checkpoints/step-188/weights.safetensors"
misfit() {
    exits 1 "$NNPIPE" eval "$TMP/net.yaml" --weights "$run" -o model.0.conv.out=8 >"$OUT" 2>&1
    grep -q "does not fit this model" "$OUT"
}
t "weights of another network are refused by name" misfit
mkdir -p "$TMP/pictures" && for f in "$TMP"/data/test-*.tar.zst; do tar -xf "$f" -C "$TMP/pictures"; done
predict() {
    find "$TMP/pictures" -type f \( -name '*.jpg' -o -name '*.png' \) | sort >"$TMP/list.txt"
    xargs "$NNPIPE" predict "$TMP/net.yaml" --weights "$run" --json <"$TMP/list.txt" >"$TMP/predict.json" \
        2>"$TMP/predict.err" || {
            cat "$TMP/predict.err"
            return 1
        }
    right=$(sed 's/.*"path": "\([^"]*\)".*"class": "\([^"]*\)", "probability.*top.*/\1 \2/' "$TMP/predict.json" |
        awk '{ n = split($1, a, "/"); if (a[n-1] == $2) right++ } END { print right / NR }')
    want=$(field test_accuracy "$TMP/a.json")
    awk -v a="$right" -v b="$want" 'BEGIN { exit !(a - b < 0.011 && b - a < 0.011) }' || {
        echo "$right of predictions, $want in the run"
        return 1
    }
}
t "predict is right as often as the run's test" predict
some_bad() {
    echo no >"$TMP/bad.jpg"
    exits 1 "$NNPIPE" predict "$TMP/net.yaml" --weights "$run" "$TMP/bad.jpg" "$(head -n 1 "$TMP/list.txt")" >"$OUT" \
        2>&1
    grep -q "bad.jpg" "$OUT" && grep -q "%" "$OUT"
}
t "predict names a bad image, does the others, and ends with 1" some_bad

# --- variants
t "gradients of two batches make an update" train "$TMP/g.json" -o train.accumulate=2 -o train.epochs=1
t "a split of the training set is evaluated, test at the end" train "$TMP/h.json" -o data.split=20% -o train.epochs=1
split() {
    [ "$(field train_images "$TMP/h.json")" = 1200 ] && grep -q '"event": "eval".*"images": 300' "$TMP/h.json" &&
        [ -n "$(field test_accuracy "$TMP/h.json")" ]
}
t "the split has 1200 and 300 images" split
t "AdamW trains" train "$TMP/i.json" -o 'optimizer={adamw: {lr: 0.002}}' -o train.epochs=1 -o train.clip_norm=1
tuned() {
    train "$TMP/j.json" --weights "$run" -o train.epochs=1 -o optimizer.sgd.lr=0.001 &&
        grep -q "weights from" "$TMP/j.json.err" && above "$(field test_accuracy "$TMP/j.json")" 0.4
}
t "--weights begins with trained weights" tuned
nan() {
    exits 1 "$NNPIPE" train "$TMP/net.yaml" -o runs="$TMP/runs-nan" -o optimizer.sgd.lr=1e6 -o schedule=constant \
        >"$OUT" 2>&1
    grep -qE "step [0-9]+: the (loss|norm of the gradients) is (not a number|infinite) at a learning rate of" "$OUT"
}
t "a NaN loss ends the run with step and rate" nan
t "no evaluation set at all" sh -c \
    'grep -v "^  test:" "$1" >"$2" && "$0" train "$2" -o runs="$3" -o train.epochs=1 >/dev/null' \
    "$NNPIPE" "$TMP/net.yaml" "$TMP/notest.yaml" "$TMP/runs-notest"
closed() {
    ( exec 3>&1
    {
        "$NNPIPE" train "$TMP/net.yaml" -o runs="$TMP/runs-pipe" -o train.epochs=1
        echo $? >"$TMP/pipe.code"
    } | head -n 1 ) >/dev/null
    [ "$(cat "$TMP/pipe.code")" -eq 0 ] && [ -s "$(echo "$TMP"/runs-pipe/*)/result.json" ]
}
t "a closed standard output does not end a run" closed
closed_streams() {
    for streams in 0 1 2 012; do
        (
            case $streams in 0) exec <&- ;; 1) exec >&- ;; 2) exec 2>&- ;; 012) exec <&- >&- 2>&- ;; esac
            exec "$NNPIPE" train "$TMP/net.yaml" -o runs="$TMP/runs-closed" -o train.epochs=400 -o schedule=constant
        ) >/dev/null 2>&1 &
        pid=$!
        for i in $(tries 600); do ls "$TMP"/runs-closed/*/checkpoints/step-* >/dev/null 2>&1 && break; sleep 0.02; done
        for fd in 0 1 2; do
            case $(readlink /proc/$pid/fd/$fd) in
            /dev/null) ;;
            *) [ $fd = 0 ] && [ $streams != 0 ] && continue
               kill -KILL $pid; echo "with $streams closed, $fd is $(readlink /proc/$pid/fd/$fd)"; return 1 ;;
            esac
        done
        kill -TERM $pid
        wait $pid
        code=$?
        [ $code -eq 75 ] || { echo "exit $code with $streams closed"; return 1; }
        rm -rf "$TMP/runs-closed"
    done
}
t "no file of a run becomes a standard stream that was closed" closed_streams
few_files() {
    ( ulimit -n 24
    "$NNPIPE" train "$TMP/net.yaml" -o runs="$TMP/runs-few" -o train.epochs=0.2 -o loader.readers=32 )
}
t "auto reads without io_uring if no descriptor is left for a ring" few_files
odd_names() { # newlines and escapes in names reach neither screen nor log
    odd=$(printf 'a\nb\033[31m')
    mkdir -p "$TMP/names/$odd" "$TMP/names/other" && cp $(head -n 40 "$TMP/list.txt") "$TMP/names/$odd/" &&
        cp $(head -n 1 "$TMP/list.txt") "$TMP/names/other/" && echo no >"$TMP/names/$odd/$odd.jpg" || return 1
    "$NNPIPE" train "$TMP/net.yaml" -o runs="$TMP/runs-names" -o train.epochs=1 -o \
        "data={train: {source: folder, path: $TMP/names}}" -o loader.bad_samples.budget=50% >"$TMP/names.txt" 2>&1 ||
        return 1
    "$NNPIPE" data ls "$TMP/names" >>"$TMP/names.txt" 2>&1
    cat "$TMP"/runs-names/*/log >>"$TMP/names.txt"
    grep -q 'bad sample replaced: .*a?b?\[31m' "$TMP/names.txt" && ! grep -q "$(printf '\033')" "$TMP/names.txt" &&
        ! grep -q '^b?\[31m' "$TMP/names.txt"
}
t "control characters in names do not reach the terminal" odd_names
unknown_class() {
    mkdir -p "$TMP/odd/weird" && cp "$(head -n 1 "$TMP/list.txt")" "$TMP/odd/weird/"
    exits 1 "$NNPIPE" train "$TMP/net.yaml" -o runs="$TMP/runs-odd" -o "data.test={source: folder, path: $TMP/odd}" \
        >"$OUT" 2>&1
    grep -q "the class 'weird' is not among the 8 classes" "$OUT" && [ ! -e "$TMP/runs-odd" ]
}
t "a test class unknown to training is named, nothing is written" unknown_class

# --- files that cannot be read for a while: a checkpoint, 74, and on from there
mkdir -p "$TMP/folder" && for f in "$TMP"/data/train-*.tar.zst; do tar -xf "$f" -C "$TMP/folder"; done
on_folder() {
    "$NNPIPE" train "$TMP/net.yaml" --json -o "data.train={source: folder, path: $TMP/folder}" -o loader.cache=none -o \
        checkpoint.every=never "$@"
}
unreadable() {
    on_folder -o runs="$TMP/runs-fold" >"$TMP/m.json" 2>/dev/null || return 1
    on_folder -o runs="$TMP/runs-gone" >"$TMP/gone.json" 2>"$TMP/gone.err" &
    pid=$!
    for i in $(tries 100); do
        [ "$(grep -c '"event": "step"' "$TMP/gone.json")" -ge 30 ] && break
        sleep 0.1
    done
    mv "$TMP/folder" "$TMP/away"
    wait $pid
    [ $? -eq 74 ] && grep -q "cannot" "$TMP/gone.err" &&
        grep -q "given up; the checkpoint of step [0-9]* is kept: resume with --resume" "$TMP/gone.err" || {
            tail -n 2 "$TMP/gone.err"
            return 1
        }
    mv "$TMP/away" "$TMP/folder"
    on_folder --resume -o runs="$TMP/runs-gone" >"$TMP/gone.json" 2>"$TMP/gone.err" &&
        grep -q "resuming from the checkpoint" "$TMP/gone.err" &&
        same_field weights_sha256 "$TMP/m.json" "$TMP/gone.json"
}
t "files that vanish end a run with 74, and it resumes when they are back" unreadable

# --- a rate far too large: the last good checkpoint stays the newest
cat >"$TMP/far.yaml" <<Y
name: far
seed: 1
device: cpu
precision: f32
data: {train: {source: synth, samples: 100, size: 8}}
loader: {batch: 8}
model:
  - conv: {name: a, out: 12, kernel: 3}
  - conv: {out: 12, kernel: 3, groups: 12, stride: 2, pad: 1}
  - batchnorm
  - relu
  - conv: {out: 24, kernel: 3, groups: 12, dilation: 2, pad: 2}
  - global_avgpool
  - linear: {out: classes}
optimizer: {sgd: {lr: 1000, momentum: 0.9}}
schedule: constant
train: {steps: 40, threads: 1}
checkpoint: {every: 1 steps, keep: 100}
runs: $TMP/runs-far
Y
far() {
    exits 1 "$NNPIPE" train "$TMP/far.yaml" || return 1
    for file in "$TMP"/runs-far/*/checkpoints/step-*/weights.safetensors; do
        finite "$file" || { echo "$file is not finite"; return 1; }
    done
}
# finite FILE: no f32 among all 4-byte words behind the header has an exponent of ones
finite() {
    header=$(od -An -N8 -tu8 "$1" | tr -d ' ')
    ! od -An -v -j$((8 + header)) -tf4 "$1" | grep -q -E 'inf|nan'
}
t "NaN weights end a run with 1 and are not saved" far

# --- a full disk: the checkpoint before it is kept
mkdir "$TMP/small"
if mount -t tmpfs -o size=700k none "$TMP/small" 2>/dev/null; then
    full() {
        head -c 330000 /dev/zero >"$TMP/small/filler"
        exits 74 "$NNPIPE" train "$TMP/net.yaml" -o runs="$TMP/small/runs" -o checkpoint.keep=100 >"$OUT" 2>&1 ||
            return 1
        grep -q "the disk is full" "$OUT" && grep -q "MB are free below" "$OUT" &&
            grep -q "last good checkpoint is step" "$OUT" || {
                tail -n 3 "$OUT"
                return 1
            }
        rm "$TMP/small/filler"
        mount -o remount,size=50M "$TMP/small"
        "$NNPIPE" train "$TMP/net.yaml" --json --resume -o runs="$TMP/small/runs" -o checkpoint.keep=100 \
            >"$TMP/full.json" 2>"$TMP/full.err" &&
            grep -q "resuming from the checkpoint" "$TMP/full.err" &&
            same_field weights_sha256 "$TMP/a.json" "$TMP/full.json"
    }
    t "a full disk ends with 74 and the run resumes when there is space" full
    umount "$TMP/small"
else
    skip "a full disk ends with 74" "no tmpfs can be mounted here"
fi
open_runs() { # open_runs MODE: is a folder of runs with these rights warned of?
    mkdir -p open && chmod "$1" open && "$NNPIPE" train net.yaml -o runs=open -o train.epochs=1 >open.txt 2>&1 || {
        tail -n 2 open.txt
        return 2
    }
    grep -q "every user can rename or replace the folders in .*open; .chmod +t" open.txt
}
t "a folder of runs that every user may write to is warned of" open_runs 0777
t "one with the sticky bit is not" exits 1 open_runs 1777
t "nor one of a group" exits 1 open_runs 0775
[ "$failed" -eq 0 ]
