# Every command of README and docs/USING.md as it is printed there, in order, by a user who has run the demo: in a
# folder with the tree's configs, a small sample set and a folder of pictures. Trials of the profiler are shorter, and
# on a simulated device.
. "$(dirname "$0")/../lib.sh"
command -v python3 >/dev/null || { skip "README's commands" "python3 is not here"; exit 0; }
export NNPIPE_SOCKET="$TMP/socket" HOME="$TMP/home" XDG_STATE_HOME="$TMP/home/state"
daemon=
trap 'kill $daemon 2>/dev/null; wait; rm -rf "$TMP"' EXIT
mkdir -p "$TMP/tree" "$TMP/home" "$TMP/bin" && cp -r "$ROOT/configs" "$TMP/tree/" && cd "$TMP/tree" || exit 1
ln -s "$NNPIPE" "$TMP/bin/nnpipe"
PATH=$TMP/bin:$PATH

python3 - "$ROOT/README.md" "$ROOT/docs/USING.md" "$TMP" <<'P'
"""Into commands: each line of README's blocks that is a command, as it stands. Into data.yaml: the block of `base:`."""
import re, sys
text = "".join(open(path).read() for path in sys.argv[1:-1])
blocks = re.findall(r"^```\w*\n(.*?)^```$", text, re.M | re.S)
with open(sys.argv[-1] + "/commands", "w") as out:
    for block in blocks:
        session = block.startswith("$ ")
        if block.startswith("base:"):
            open(sys.argv[-1] + "/data.yaml", "w").write(block)
        elif session or re.match(r"(nnpipe|sh) ", block):
            for line in block.splitlines():
                if session and not line.startswith("$ "):
                    continue
                out.write(re.sub(r"  +#.*", "", line.removeprefix("$ ")).rstrip() + "\n")
P

# What README takes for granted: the demo's sample set, pictures in class folders, a config with their paths, a picture.
nnpipe data synth --out data/shapes --samples 800 --test 200 >/dev/null
for set in train test; do
    mkdir -p "$TMP/cats/$set"
    for shard in data/shapes/$set-*.tar.zst; do zstd -dc "$shard" | tar x -C "$TMP/cats/$set"; done
done
sed "s|/data/cats|$TMP/cats|" "$TMP/data.yaml" >my.yaml
cp "$(find "$TMP/cats/test" -name '*.jpg' | head -n 1)" cat.jpg

as_printed() { # as_printed COMMAND: as README has it; NAME-ID is the newest run
    run=$(ls -td runs/*/result.json 2>/dev/null | head -n 1) run=${run%/*}
    eval "$(echo "$1" | sed "s|runs/NAME-ID|$run|g") $2"
}
answers() { for _ in $(tries 100); do nnpipe status >/dev/null 2>&1 && return; sleep 0.1; done; return 1; }
ran=0
while read -r command <&3; do
    ran=$((ran + 1))
    case $command in
    "sh scripts/"* | systemctl* | sudo*) ran=$((ran - 1)) ;; # of a machine, not of a folder
    "nnpipe daemon"*)
        port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
        $(echo "$command" | sed "s|:7411|:$port|") 2>"$TMP/daemon.log" &
        daemon=$!
        t "$command" answers
        ;;
    *cuda:0 | *"--gpus 0-3") # without such a GPU there is a message
        needed=cuda:0
        [ "${command#*--gpus}" = "$command" ] || needed=cuda:3
        if nnpipe devices --json | grep "\"$needed\"" | grep -q '"usable": *true'; then
            t "$command" as_printed "$command" ""
        else
            t "$command: says that there is no GPU" says "cuda:0" as_printed "$command" ""
        fi
        ;;
    "nnpipe profile"*) # on a device that leaves the cores to the loader
        t "$command" as_printed "$command" "--seconds 0.2 -o 'device={sim: {h2d_gbps: 10, step_ms: 10}}'"
        ;;
    "nnpipe bench"*) t "$command" as_printed "$command" "--seconds 0.2" ;;
    "nnpipe top") t "$command" as_printed "$command" "--once" ;;
    "nnpipe "*) t "$command" as_printed "$command" "" ;;
    *) not_ok "README holds commands that this test knows" "$command" ;;
    esac
done 3<"$TMP/commands"
t "README has at least 20 commands" [ "$ran" -ge 20 ]
[ "$failed" -eq 0 ]
