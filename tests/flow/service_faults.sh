# The service over what fails: a bad sector, a quota that is used up, a mount that hangs, a GPU that dies. Each
# run comes to a state, a reason and a number of tries that its owner can act on, and none is started without a pause.
. "$(dirname "$0")/../lib.sh"
export NNPIPE_SOCKET="$TMP/socket" XDG_STATE_HOME="$TMP/state" XDG_CONFIG_HOME="$TMP/config"
daemon=
trap 'kill -9 $daemon 2>/dev/null; unmount_faulty; kill -9 $(cat "$TMP"/*runs/*/lock 2>/dev/null) 2>/dev/null; rm -rf "$TMP"' EXIT
mkdir -p "$TMP/config/nnpipe"
settings() { # settings DEVICES LINE...
    printf 'devices: %s\nretry: {first: 0.3, cap: 1}\nspare_bytes: 1M\n' "$1" >"$TMP/config/nnpipe/service.yaml"
    shift
    for line in "$@"; do echo "$line" >>"$TMP/config/nnpipe/service.yaml"; done
}
net() { # net NAME SOURCE RUNS STEPS
    cat >"$TMP/$1.yaml" <<Y
name: $1
seed: 1
device: cpu
data: {train: $2}
loader: {batch: 8, cache: none, readers: 1, io: pread}
model: [{conv: {out: 4, kernel: 3, pad: 1}}, relu, global_avgpool, {linear: {out: classes}}]
train: {steps: $4, eval_every: never, threads: 1}
checkpoint: {every: 10 steps, keep: 2}
runs: $3
Y
}
start() {
    "$NNPIPE" daemon 2>>"$TMP/daemon.log" &
    daemon=$!
    for _ in $(tries 100); do "$NNPIPE" status >/dev/null 2>&1 && return; sleep 0.1; done
    tail -n 3 "$TMP/daemon.log"
    return 1
}
field() { # field ID NAME
    "$NNPIPE" status "$1" --json | python3 -c 'import json, sys; print(json.loads(sys.stdin.readline())[sys.argv[1]])' \
        "$2"
}
becomes() { # becomes ID STATE [SECONDS]
    for _ in $(tries $((10 * ${3:-30}))); do [ "$(field "$1" state)" = "$2" ] && return; sleep 0.1; done
    echo "run $1 is $(field "$1" state), not $2: $(field "$1" reason)"
    return 1
}
says_why() { # says_why ID TEXT: its reason comes to hold that
    for _ in $(tries 300); do field "$1" reason | grep -q "$2" && return; sleep 0.1; done
    echo "run $1 is $(field "$1" state) and says: $(field "$1" reason)"
    return 1
}
submitted() { "$NNPIPE" submit "$@" --json | sed -n 's/.*"id": *\([0-9]*\).*/\1/p'; }
trained() { # trained ID RUNS: it has written a checkpoint
    for _ in $(tries 300); do ls "$2"/*-"$1"/checkpoints/step-* >/dev/null 2>&1 && return; sleep 0.1; done
    return 1
}
starts() { sed 's/.*"attempt": *\([0-9]*\).*/\1/' "$2"/*-"$1"/exit.json; } # starts ID RUNS: so often it was
# shown ID RUNS: what its owner sees
shown() {
    echo "# run $1: $(field "$1" state), $(field "$1" retries) tries, $(starts "$1" "$2") starts, $(field "$1" reason)" | tee -a "$TMP/table"
}

steps() { # steps ID: done so far, as its owner sees them
    "$NNPIPE" status "$1" --json |
        python3 -c 'import json, sys; print(int(json.loads(sys.stdin.readline())["step"] or 0))'
}

works_on() { # works_on ID: it makes steps again; then it is stopped
    at=$(steps "$1")
    for _ in $(tries 300); do [ "$(steps "$1")" -gt $((at + 20)) ] && break; sleep 0.1; done
    [ "$(steps "$1")" -gt $((at + 20)) ] && "$NNPIPE" stop "$1" && becomes "$1" stopped
}

settings "[cpu]" "runs_per_device: 2"
start
net other "{source: synth, samples: 100, size: 16}" "$TMP/runs" 20
"$NNPIPE" data synth --out "$TMP/shards" --size 16 --samples 400 --test 10 >/dev/null 2>&1
mkdir -p "$TMP/disk/data" "$TMP/disk/runs" && for f in "$TMP"/shards/train-*.tar*; do
    case $f in
        *.npidx)
            continue
        ;;
    esac
    tar -xf "$f" -C "$TMP/disk/data"
done
if mount_faulty "$TMP/disk" "$TMP/mount"; then
    chmod 755 "$TMP" "$TMP/disk"
    net folder "{source: folder, path: $TMP/mount/data}" "$TMP/runs" 1000000
    net quota "{source: synth, samples: 400, size: 16}" "$TMP/mount/runs" 1000000
    bad=$(cd "$TMP/disk" && find data -name '*.[jp][pn]g' | sort | tail -n 1)
    sector() { # the picture is read in each epoch of 50 steps, so no start gets past it
        "$NNPIPE" submit "$TMP/folder.yaml" --max-retries 2 --wait >"$TMP/waited" 2>&1 &
        waiter=$! id=1
        trained "$id" "$TMP/runs" && echo "fail 5 $bad" >"$TMP/mount/.control" && becomes "$id" failed 60
        code=$?
        echo clear >"$TMP/mount/.control"
        shown "$id" "$TMP/runs"
        [ $code -eq 0 ] && exits 74 wait "$waiter" && says_why "$id" "${bad##*/}.*Input/output error" &&
            [ "$(field "$id" exit_code)" -eq 74 ] && [ "$(field "$id" retries)" -eq 3 ] &&
            [ "$(starts "$id" "$TMP/runs")" -le 6 ]
    }
    t "a bad sector ends a run after its tries, each later than the last, the file is named, and submit --wait ends with 74" sector
    full() { # statvfs shows room, as it does where a user's quota is used up
        id=$(submitted "$TMP/quota.yaml") && [ -n "$id" ] && trained "$id" "$TMP/disk/runs" &&
            echo "quota 0" >"$TMP/mount/.control" && says_why "$id" "quota" && sleep 3 && says_why "$id" "quota"
        code=$?
        shown "$id" "$TMP/disk/runs"
        begun=$(starts "$id" "$TMP/disk/runs") tries=$(field "$id" retries)
        echo clear >"$TMP/mount/.control"
        [ $code -eq 0 ] && [ "$begun" -le 7 ] && [ "$tries" -eq 0 ] && works_on "$id"
    }
    t "a quota that is used up is waited for with longer and longer pauses, and the run continues with room" full
    unmade() { # before the run has a folder
        echo "fail 122 *runs/*" >"$TMP/mount/.control"
        id=$(submitted "$TMP/quota.yaml" -o train.steps=20) && [ -n "$id" ] &&
            says_why "$id" "quota there is used up" && sleep 1 && tries=$(field "$id" retries)
        code=$?
        echo clear >"$TMP/mount/.control"
        [ $code -eq 0 ] && [ "$tries" -eq 0 ] && becomes "$id" done 60
    }
    t "so it is waited for where not even the run's folder can be made" unmade
    hung() { # the runs of others go on, and so does this one once the mount answers
        id=$(submitted "$TMP/folder.yaml") && [ -n "$id" ] && trained "$id" "$TMP/runs" &&
            echo "hang data/*" >"$TMP/mount/.control" && sleep 1 && at=$(steps "$id") &&
            other=$("$NNPIPE" submit "$TMP/other.yaml" --wait | tail -n 1) && [ "$(field "$id" state)" = running ] &&
            shown "$id" "$TMP/runs" && echo "$other"
        code=$?
        echo clear >"$TMP/mount/.control"
        [ $code -eq 0 ] && for _ in $(tries 300); do [ "$(steps "$id")" -gt $((at + 100)) ] && break; sleep 0.1; done
        [ "$(steps "$id")" -gt $((at + 100)) ] && [ "$(field "$id" retries)" -eq 0 ] &&
            [ "$(starts "$id" "$TMP/runs")" -eq 1 ] && "$NNPIPE" stop "$id" && becomes "$id" stopped
    }
    t "a mount that hangs for a while holds up its run alone, which goes on afterwards" hung
else
    skip "a bad sector, a full quota and a hung mount" "no FUSE can be mounted here"
fi

no_inodes() { # bytes are left, inodes are not
    id=$(submitted "$TMP/inodes.yaml") && [ -n "$id" ] && trained "$id" "$TMP/inodes" || return 1
    n=0
    while touch "$TMP/inodes/$n" 2>/dev/null; do n=$((n + 1)); done
    says_why "$id" "its disk has no room for more files" && begun=$(starts "$id" "$TMP/inodes") &&
        tries=$(field "$id" retries) && shown "$id" "$TMP/inodes"
    code=$?
    "$NNPIPE" submit "$TMP/inodes.yaml" >"$TMP/refused" 2>&1 && code=1
    grep -q "inodes has no room for more files" "$TMP/refused" || { cat "$TMP/refused"; code=1; }
    rm -f "$TMP"/inodes/[0-9]*
    [ $code -eq 0 ] && [ "$begun" -le 3 ] && [ "$tries" -eq 0 ] && works_on "$id"
}
if mkdir "$TMP/inodes" && mount -t tmpfs -o size=50m,nr_inodes=100 none "$TMP/inodes" 2>/dev/null; then
    echo "$TMP/inodes" >>"$TMP/faulty_mounts"
    net inodes "{source: synth, samples: 400, size: 16}" "$TMP/inodes" 1000000
    t "a disk without inodes is waited for, and named" no_inodes
else
    skip "a disk without inodes" "no tmpfs can be mounted here"
fi

# --- a GPU that dies: the plugin over the emulated runtime
EMU=${NNPIPE_BUILD:-$ROOT/build}/tests/emu
asked() { curl -s --unix-socket "$NNPIPE_SOCKET" "http://localhost$1"; }
device() {
    asked /v1/devices | python3 -c 'import json, sys; print(*[d["state"] + ": " + d["reason"] for d in json.load(sys.stdin)["devices"] if d["name"] == "cuda:0"])'
}
set_aside() { # set_aside ID STARTS: the run waits for the device, was started that often, and is not any more
    says_why "$1" "waits for cuda:0, which is set aside: 3 starts in a row died there" || return 1
    sleep 2 # six times the first pause
    shown "$1" "$TMP/gpu-runs"
    [ "$(field "$1" state)" = queued ] && [ "$(starts "$1" "$TMP/gpu-runs")" -eq "$2" ] || return 1
    device | grep -q 'suspect: .' && asked /healthz | grep -q 'cuda:0 is set aside, starts die there: .' || {
        device
        asked /healthz
        return 1
    }
    asked /metrics >"$TMP/metrics" && grep -q '^nnpipe_device_suspect{device="cuda:0"} 1' "$TMP/metrics" &&
        grep -q '^nnpipe_device_suspect{device="cpu"} 0' "$TMP/metrics"
}
works_again() { # works_again ID: once somebody has looked after the device
    rm "$TMP/dies" && "$NNPIPE" undrain cuda:0 && [ "$(device)" = "ok: " ] && becomes "$1" running || return 1
    at=$(steps "$1") && for _ in $(tries 300); do [ "$(steps "$1")" -gt $((at + 20)) ] && return; sleep 0.1; done
    return 1
}
dying() { # in the middle of its work, then so that it cannot even be opened
    id=$(submitted "$TMP/gpu.yaml" --max-retries 9) && [ -n "$id" ] && trained "$id" "$TMP/gpu-runs" || return 1
    echo 1500 >"$TMP/dies" && set_aside "$id" 3 && "$NNPIPE" submit "$TMP/other.yaml" --wait && works_again "$id" ||
        return 1
    echo 0 >"$TMP/dies" && set_aside "$id" 6 && works_again "$id" && "$NNPIPE" stop "$id" && becomes "$id" stopped
}
if [ -e "$EMU/libnnpipe-cuda.so" ]; then
    kill $daemon
    wait $daemon
    NNPIPE=$EMU/nnpipe # the plugin is beside it
    export NNPIPE_CUDA_LIBS="$EMU" NNPIPE_CUDA_LIBS_ONLY=1 NNPIPE_EMU_DIES="$TMP/dies"
    settings "[cpu, cuda:0]"
    start
    net gpu "{source: synth, samples: 400, size: 16}" "$TMP/gpu-runs" 1000000
    sed -i 's/^device: cpu/device: cuda:0/' "$TMP/gpu.yaml"
    t "a GPU that dies under start after start is set aside after three, and works again once it is mended" dying
else
    skip "a GPU that dies" "this build has no headers of CUDA and cuDNN"
fi
[ ! -s "$TMP/table" ] || cat "$TMP/table"
[ "$failed" -eq 0 ]
