# README's section "The service" as a new user follows it: in a terminal (tmux) and a browser, with its own commands.
# What they had before them is left in /host/screens, a file a step.
. "$ROOT/tests/systemd/inside.sh"
useradd -m -s /bin/bash ann && useradd -m -s /bin/bash ben && manager ann && ip link set lo up || {
    journalctl --no-pager | tail -40
    exit 1
}
mkdir -p /host/screens && rm -f /usr/sbin/policy-rc.d # of containers, where no package may start or stop a thing
for who in ann ben; do # a copy of the tree, and an editor; the prompt shows the exit code of the last command
    cp -r /host/checkout "/home/$who/nnpipe" && cat >>"/home/$who/.bashrc" <<'R' && chown -R "$who:" "/home/$who"
PS1='$ '
export EDITOR=~/editor
PROMPT_COMMAND='echo "$? $((++asked))" >~/.asked'
cd ~/nnpipe
R
done
printf '#!/bin/sh\nfor file; do :; done\ncat ~/lines >"$file"\n' >/home/ann/editor && chmod +x /home/ann/editor
session() { # session USER: a terminal of theirs
    as "$1" TERM=xterm-256color LANG=C.UTF-8 SHELL=/bin/bash tmux -u new-session -d -s t -x 110 -y 34 &&
        soon test -s "/home/$1/.asked"
}
mux() { who=$1; shift; as "$who" LANG=C.UTF-8 tmux -u "$@"; }
screen() { mux "$1" capture-pane -p -t t | sed -e :a -e '/^\n*$/{$d;N;ba' -e '}' | tee "/host/screens/$2"; }
keys() { mux "$1" send-keys -t t -l -- "$2"; }
# types USER FILE LINE: types at the prompt, waits for the next one (a minute at most), saves the screen, and returns
# the exit code
types() {
    before=$(cut -d' ' -f2 "/home/$1/.asked")
    mux "$1" send-keys -t t C-l && keys "$1" "$3" && mux "$1" send-keys -t t Enter
    for _ in $(seq 300); do [ "$(cut -d' ' -f2 "/home/$1/.asked")" -gt "$before" ] 2>/dev/null && break; sleep 0.1; done
    sleep 0.2
    screen "$1" "$2"
    [ "$(cut -d' ' -f2 "/home/$1/.asked")" -gt "$before" ] && return "$(cut -d' ' -f1 "/home/$1/.asked")"
}
sees() { # sees USER FILE PATTERN...: on the screen, within ten seconds
    who=$1 file=$2
    shift 2
    for _ in $(seq 100); do
        screen "$who" "$file" >"$TMP/screen"
        missing=
        for pattern; do grep -qE -- "$pattern" "$TMP/screen" || missing=$pattern; done
        [ -n "$missing" ] || return 0
        sleep 0.1
    done
    echo "no $missing on the screen:"
    cat "$TMP/screen"
    return 1
}
installs() { cd /home/ann/nnpipe && apt-get install -y ./dist/nnpipe_*.deb >/host/screens/00-apt 2>&1; }
t "make deb && apt install" installs
session ann && session ben || { journalctl --no-pager | tail -40; exit 1; }
sample() { types ann 01-data 'nnpipe data synth --out data/shapes --samples 3000 --test 400'; }
t "a sample set" sample

enables() {
    types ann 10-enable 'systemctl --user enable --now nnpipe' &&
        types ann 11-status 'systemctl --user --no-pager status nnpipe'
}
t "the service of one user is enabled" enables
submits() {
    types ann 12-submit 'nnpipe submit configs/cnn.yaml' && sees ann 12-submit '^run 1: cnn, queued' &&
        types ann 13-submit 'nnpipe submit configs/cnn.yaml --name long -o train.epochs=500 --priority -1' &&
        sees ann 13-submit '^run 2: long, queued'
}
t "two runs are submitted" submits
lists() {
    types ann 14-ls 'nnpipe ls' && sees ann 14-ls '^id +name +state' '^ 1 +cnn +(running|queued) +ann' \
        '^ 2 +long +queued'
}
t "ls lists them" lists
follows() { types ann 15-logs 'nnpipe logs 1 -f' && sees ann 15-logs '^done in .*accuracy'; }
t "logs -f follows a run to its end" follows
live() {
    watch_top || { mux ann send-keys -t t C-c; nnpipe_says; return 1; }
}
nnpipe_says() { journalctl --no-pager -o short-monotonic >/host/screens/journal 2>&1; false; }
watch_top() {
    becomes ann 2 running && keys ann 'nnpipe top' && mux ann send-keys -t t Enter && sleep 4 &&
        sees ann 20-top 'long +running' && mux ann send-keys -t t Enter &&
        sees ann 21-top-run 'long' 'LIMIT' 'STEP' && mux ann send-keys -t t Escape && sleep 1 && keys ann p &&
        sees ann 22-top-sure 'pause run 2, long\?' && keys ann y && becomes ann 2 paused &&
        sees ann 22-top-paused 'long +paused' && keys ann r && sees ann 22-top-sure 'resume run 2, long\?' &&
        keys ann y && becomes ann 2 running && sees ann 23-top-resumed 'long +running' && keys ann q
}
t "top shows them live; Enter, p, r, q" live
pauses() {
    types ann 24-pause 'nnpipe pause 2' && becomes ann 2 paused && types ann 25-resume 'nnpipe resume 2' &&
        becomes ann 2 running
}

pauses() {
    types ann 24-pause 'nnpipe pause 2' && becomes ann 2 paused && types ann 25-resume 'nnpipe resume 2' &&
        becomes ann 2 running
}
t "pause and resume" pauses

page() { # the words of docs/SYSTEMD.md
    printf '[Socket]\nListenStream=127.0.0.1:7411\n' >/home/ann/lines
    types ann 30-edit 'systemctl --user edit nnpipe.socket' &&
        types ann 31-stop 'systemctl --user stop nnpipe.service nnpipe.socket' &&
        types ann 32-start 'systemctl --user start nnpipe' && becomes ann 2 running &&
            types ann 33-curl 'curl -s http://127.0.0.1:7411/healthz; echo' && sees ann 33-curl '"ok": *true'
}
t "the page's address, by the socket unit" page
looks() {
    cp /host/browser.py /host/trial.py /home/ann/ &&
        as ann sh -c 'cd && PYTHONDONTWRITEBYTECODE=1 python3 trial.py "$@"' - "$(command -v chromium)" \
        http://127.0.0.1:7411/ /home/ann/.local/state/nnpipe/token
    code=$?
    cp /home/ann/*.png /host/screens/
    return $code
}
t "the page in a browser: looked at, token, Pause, Resume, Stop" looks
t "all runs are listed" types ann 40-ls 'nnpipe ls --all'
finished() { types ann 41-run 'ls configs/runs/cnn-1; nnpipe status 1' && sees ann 41-run 'result.json' 'curves.svg'; }
t "the finished run has its folder" finished
leaves() {
    types ann 50-disable 'systemctl --user disable --now nnpipe.service nnpipe.socket' &&
        ! types ann 51-ls 'nnpipe ls' && sees ann 51-ls 'nnpipe daemon|systemctl'
}
t "it is disabled" leaves

box() {
    systemctl enable --now nnpipe-box >/host/screens/60-box 2>&1 && usermod -aG nnpipe ben && mux ben kill-server
    rm -f /home/ben/.asked
    session ben && types ben 61-data 'nnpipe data synth --out data/shapes --samples 1000 --test 200' &&
        types ben 62-submit 'nnpipe submit configs/cnn.yaml --wait' && types ben 63-ls 'nnpipe ls --all' &&
        sees ben 63-ls '^ 1 +cnn +done +ben'
}
t "the service of a box: enabled, a member of its group, a run is done" box
box_page() {
    echo 'listen: 127.0.0.1:7411' >>/etc/nnpipe/service.yaml && systemctl restart nnpipe-box &&
        soon curl -sf http://127.0.0.1:7411/ >/dev/null
}
t "its page, by service.yaml" box_page
uses_box() { usermod -aG nnpipe ann && as ann nnpipe ls --all | grep -E '^ 1 +cnn +done +ben'; }
t "a user without a service of their own uses the box's" uses_box
[ "$failed" -eq 0 ]
