# Jobs that share their batches, or their decoded pictures. Each has the weights and the history of a job alone, also
# the one beside which others are killed (SIGKILL) and stopped (SIGSTOP, later SIGCONT) at random moments; a killed job
# leaves nothing that a later one stumbles over. KILLS of these moments (50).
. "$(dirname "$0")/../lib.sh"
kills=${KILLS:-50}
export XDG_RUNTIME_DIR="$TMP/runtime"
mkdir -m 700 "$XDG_RUNTIME_DIR"

cat >"$TMP/share.yaml" <<Y
name: share
seed: 11
device: cpu
precision: f32
data:
  train: {source: tar, path: "$TMP/data/train-*.tar*"}
  test: {source: tar, path: "$TMP/data/test-*.tar*"}
loader: {batch: 16, readers: 2, augment: [{random_crop: {size: 32, pad: 4}}, flip]}
model: [{conv: {out: 8, kernel: 3, pad: 1}}, relu, {maxpool: {kernel: 4}}, flatten, {linear: {out: classes}}]
optimizer: {sgd: {lr: 0.02, momentum: 0.9}}
train: {epochs: 10, eval_every: 1 epoch, history: true, threads: 1}
Y

# field NAME FILE: the value of a field in the last line that has it
# job NAME [ARGS]: starts a job of $config in the background; $! is the process
config="$TMP/share.yaml"
job() {
    job_name=$1
    shift
    "$NNPIPE" train "$config" --json -o "runs=$TMP/runs-$job_name" "$@" \
        >"$TMP/$job_name" 2>"$TMP/$job_name.err" &
}
# is_whole NAME: the job's weights and history are those of the lone one
is_whole() {
    [ "$(field weights_sha256 "$TMP/$1")" = "$lone" ] || { echo "$1: other weights: $(cat "$TMP/$1.err")"; return 1; }
    cmp "$(field run_dir "$TMP/$1")/history.bin" "$TMP/lone.history"
}

"$NNPIPE" data synth --out "$TMP/data" --samples 600 --test 100 --size 32 >"$OUT" 2>&1 || {
    not_ok "a sample set" "$(tail -n 2 "$OUT")"
    exit 1
}
alone() {
    job lone -o loader.share=off
    wait $! || { cat "$TMP/lone.err"; return 1; }
    lone=$(field weights_sha256 "$TMP/lone")
    cp "$(field run_dir "$TMP/lone")/history.bin" "$TMP/lone.history"
    [ ${#lone} -eq 64 ] && [ "$(field made_batches "$TMP/lone")" -eq 0 ] && [ ! -e "$XDG_RUNTIME_DIR/nnpipe-share" ]
}
t "a job with share: off has no part in it" alone
[ $failed -eq 0 ] || exit 1

# A slow step keeps the jobs together, however late one of them starts.
four() {
    pids=
    for i in 1 2 3 4; do
        job "$1-$i" -o 'device={sim: {h2d_gbps: 25, step_ms: 30}}' -o 'loader.share={wait: 10s}'
        pids="$pids $!"
    done
    for pid in $pids; do wait "$pid" || { cat "$TMP/$1"-*.err; return 1; }; done
    taken=0 made=0
    for i in 1 2 3 4; do
        taken=$((taken + $(field taken_batches "$TMP/$1-$i"))) made=$((made + $(field made_batches "$TMP/$1-$i")))
        cmp "$(field run_dir "$TMP/$1-$i")/history.bin" "$TMP/lone.history" || return 1
    done
    echo "taken $taken, made $made"
    [ "$taken" -gt "$made" ]
}
most_are_taken() { # on a busy machine the first jobs may end before the last one starts
    for try in 1 2 3 4 5; do
        ! four "four-$try" || return 0
    done
    return 1
}
t "four jobs on the sim device take more batches than they make, with the history of a lone one" most_are_taken

together() {
    pids=
    for i in 1 2 3; do
        job "together-$i"
        pids="$pids $!"
    done
    for pid in $pids; do wait "$pid" || { cat "$TMP"/together-*.err; return 1; }; done
    for i in 1 2 3; do is_whole "together-$i" || return 1; done
}
t "three jobs that train together have the weights and the history of a lone one" together

random() { od -An -N2 -t u2 /dev/urandom | tr -d ' '; }
# hit MS: kills or stops each of $others, at most MS apart; the stopped ones are in $stopped
hit() {
    for one in $others; do
        sleep "0.$(printf %03d $(($(random) % $1)))"
        if [ $(($(random) % 2)) -eq 0 ]; then
            kill -KILL "${one%%:*}" 2>/dev/null
            wait "${one%%:*}" 2>/dev/null
        else
            kill -STOP "${one%%:*}" 2>/dev/null
            stopped="$stopped $one"
        fi
    done
}
# round NUMBER KILLS: beside an undisturbed job others are killed or stopped; the stopped ones go on, and are whole
round() {
    others= stopped=
    for i in $(seq "$2"); do
        job "hit-$1-$i"
        others="$others $!:hit-$1-$i"
    done
    job "calm-$1"
    calm=$!
    hit 300
    wait $calm || { cat "$TMP/calm-$1.err"; return 1; }
    is_whole "calm-$1" || return 1
    calm_taken=$((calm_taken + $(field taken_batches "$TMP/calm-$1")))
    for one in $stopped; do kill -CONT "${one%%:*}" 2>/dev/null; done
    for one in $stopped; do
        wait "${one%%:*}" || { cat "$TMP/${one#*:}.err"; return 1; }
        is_whole "${one#*:}" || return 1
    done
}
number=0 left=$kills calm_taken=0
while [ "$left" -gt 0 ] && [ $failed -eq 0 ]; do
    n=$((left < 4 ? left : 4)) number=$((number + 1)) left=$((left - n))
    t "beside $n jobs killed or stopped, and after their stop, jobs have the weights of a lone one ($number)" \
        round $number $n
done

took() { echo "$calm_taken batches"; [ "$calm_taken" -gt 0 ]; }
[ "$kills" -lt 20 ] || t "the undisturbed jobs took batches from those that were hit" took

# --- four augmentations over one decoded cache; the pictures are large enough to be shared ---
sed -e 's/name: share/name: pictures/' -e "s|$TMP/data|$TMP/pictures|" \
    -e 's/batch: 16,/batch: 16, cache: decoded,/' "$TMP/share.yaml" >"$TMP/pictures.yaml"
# picture_job NAME CHAIN [ARGS]: CHAIN is 1 to 4
picture_job() {
    picture_name=$1
    case $2 in
    1) chain='[{random_crop: {size: 32, pad: 4}}, flip]' ;;
    2) chain='[{random_resized_crop: {size: [32]}}]' ;;
    3) chain='[{center_crop: {size: [32]}}, flip]' ;;
    4) chain='[{resize: {size: [32, 32]}}]' ;;
    esac
    shift 2
    job "$picture_name" -o "loader.augment=$chain" -o 'loader.test_augment=[{resize: {size: [32, 32]}}]' "$@"
}
picture_is_whole() { # NAME CHAIN
    [ "$(field weights_sha256 "$TMP/$1")" = "$(field weights_sha256 "$TMP/picture-$2")" ] ||
        { echo "$1: other weights: $(cat "$TMP/$1.err")"; return 1; }
    cmp "$(field run_dir "$TMP/$1")/history.bin" "$(field run_dir "$TMP/picture-$2")/history.bin"
}
pictures_alone() {
    "$NNPIPE" data synth --out "$TMP/pictures" --samples 150 --test 40 --size 112 || return 1
    for i in 1 2 3 4; do
        picture_job "picture-$i" $i -o loader.share=off
        wait $! || { cat "$TMP/picture-$i.err"; return 1; }
        [ "$(field found_pictures "$TMP/picture-$i")" -eq 0 ] || return 1
    done
    [ "$(field weights_sha256 "$TMP/picture-1")" != "$(field weights_sha256 "$TMP/picture-2")" ]
}
# All pictures are 190; a slow step keeps the jobs together.
pictures_four() {
    pids=
    for i in 1 2 3 4; do
        picture_job "$1-$i" $i -o 'device={sim: {h2d_gbps: 25, step_ms: 30}}' -o 'loader.share={wait: 10s}'
        pids="$pids $!"
    done
    for pid in $pids; do wait "$pid" || { cat "$TMP/$1"-*.err; return 1; }; done
    found=0 decoded=0
    for i in 1 2 3 4; do
        found=$((found + $(field found_pictures "$TMP/$1-$i")))
        decoded=$((decoded + $(field decoded_pictures "$TMP/$1-$i")))
        cmp "$(field run_dir "$TMP/$1-$i")/history.bin" "$(field run_dir "$TMP/sim-$i")/history.bin" || return 1
    done
    echo "decoded $decoded, found $found"
    [ "$decoded" -lt 285 ] && [ "$found" -gt "$decoded" ]
}
decoded_once() { # on a busy machine the first jobs may end before the last one starts
    for i in 1 2 3 4; do
        picture_job "sim-$i" $i -o 'device={sim: {h2d_gbps: 25}}' -o loader.share=off
        wait $! || { cat "$TMP/sim-$i.err"; return 1; }
    done
    for try in 1 2 3 4 5; do
        ! pictures_four "pictures-$try" || return 0
    done
    return 1
}
# The first job is undisturbed, each of the three others is killed or stopped.
picture_round() {
    others= stopped=
    for i in 2 3 4; do
        picture_job "pictures-$1-$i" $i
        others="$others $!:$i"
    done
    picture_job "pictures-$1-1" 1
    calm=$!
    hit 200
    wait $calm || { cat "$TMP/pictures-$1-1.err"; return 1; }
    picture_is_whole "pictures-$1-1" 1 || return 1
    for one in $stopped; do kill -CONT "${one%%:*}" 2>/dev/null; done
    for one in $stopped; do
        wait "${one%%:*}" || { cat "$TMP/pictures-$1-${one#*:}.err"; return 1; }
        picture_is_whole "pictures-$1-${one#*:}" "${one#*:}" || return 1
    done
}
config="$TMP/pictures.yaml"
t "jobs that share nothing, with four augmentations of larger pictures" pictures_alone
t "four jobs with different augmentations decode the pictures once, and have the history of lone ones" decoded_once
for number in $(seq $(((kills + 2) / 3))); do
    [ $failed -ne 0 ] || t "beside jobs that are hit, jobs over one cache have the weights of lone ones ($number)" \
        picture_round "$number"
done
config="$TMP/share.yaml"

later_job() { # removes the names of dead ones, and its own at the end
    job last
    wait $! || { cat "$TMP/last.err"; return 1; }
    is_whole last || { echo "its weights or its history differ"; return 1; }
    [ -z "$(ls -A "$XDG_RUNTIME_DIR/nnpipe-share")" ] || { ls -A "$XDG_RUNTIME_DIR/nnpipe-share"; return 1; }
}
nothing_left() { # on a busy machine a job that was killed may take a while to die
    later_job || { sleep 2; later_job; }
}
t "a later job is alone, and leaves no socket" nothing_left
[ $failed -eq 0 ]
