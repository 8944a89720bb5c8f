# The units: their scores, their syntax, and both installs under a real systemd where this machine lets one boot.
. "$(dirname "$0")/../lib.sh"
export ROOT
case ${NNPIPE_BUILD:-build} in
*build-*)
    skip "the units" "a build with sanitizers is not for other machines"
    exit 0
    ;;
esac
make -s -C "$ROOT" install DESTDIR="$TMP/made" PREFIX=/usr >"$OUT" 2>&1 || {
    not_ok "make install" "$(tail -n 3 "$OUT")"
    exit 1
}
user=$TMP/made/usr/lib/systemd/user system=$TMP/made/usr/lib/systemd/system
export XDG_RUNTIME_DIR="$TMP/run"
mkdir -p "$XDG_RUNTIME_DIR"

score() { # score MOST UNIT: in tenths
    systemd-analyze security --offline=true --threshold="$1" --no-pager "$2" | tail -n 1
    systemd-analyze security --offline=true --threshold="$1" --no-pager "$2" >/dev/null
}
if command -v systemd-analyze >/dev/null; then
    t "the user's service is exposed to 1.0 at most" score 10 "$user/nnpipe.service"
    t "a run is exposed to 0.6 at most" score 6 "$user/nnpipe-worker@.service"
    t "the box's service is exposed to 2.7 at most" score 27 "$system/nnpipe-box.service"
else
    skip "the units' scores" "there is no systemd-analyze"
fi
for unit in "$user/nnpipe.service" "$system/nnpipe-box.service"; do
    t "$(basename "$unit"): processes that hang leave room for others" grep -qx TasksMax=infinity "$unit"
done
valid() { # as installed below /usr, all of them: complaints only about things that this machine lacks
    mkdir -p "$TMP/units" && for unit in "$user"/* "$system"/*; do
        sed "s|/usr/bin/nnpipe|$NNPIPE|; /^Documentation=/d; s|^SocketUser=.*||; s|^SocketGroup=.*||
            s|^User=nnpipe|User=root|; s|^Group=nnpipe|Group=root|" "$unit" >"$TMP/units/$(basename "$unit")"
    done
    for scope in user system; do
        names=$(cd "$TMP/made/usr/lib/systemd/$scope" && ls)
        # shellcheck disable=SC2086 # words are files
        ( cd "$TMP/units" && systemd-analyze --$scope --man=no verify $(for n in $names; do
        echo "./$n"
        done) ) 2>&1 | grep -E 'nnpipe' && return 1
    done
    return 0
}
t "no unit has a word that systemd does not know" valid

inside() { # inside SCRIPT: its lines are ours
    mkdir -p "$TMP/$1" && cp -a "$TMP/made" "$TMP/$1/"
    sh "$ROOT/tests/systemd/boot.sh" "$TMP/$1" "$ROOT/tests/systemd/$1.sh" >"$OUT" 2>&1
    code=$?
    [ $code -ne 125 ] || { skip "units under a real systemd ($1)" "$(tail -n 1 "$OUT")"; return; }
    grep -E '^(ok|not ok|skip) - ' "$TMP/$1/out"
    failed=$((failed + $(grep -c '^not ok - ' "$TMP/$1/out")))
    [ $code -eq 0 ] || grep -q '^not ok - ' "$TMP/$1/out" ||
        not_ok "$1.sh runs under systemd" "$(tail -n 2 "$OUT" "$TMP/$1/out" | tr '\n' ' ')"
}
# The box's service: units_campaign.sh.
for script in ${UNITS:-user}; do inside "$script"; done
[ "$failed" -eq 0 ]
