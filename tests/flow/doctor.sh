# `nnpipe doctor` and `nnpipe devices`: every finding counted, advice with warnings, a line for each check that was
# left out, and exit codes that follow.
. "$(dirname "$0")/../lib.sh"

doctor() { "$NNPIPE" doctor --json --device cpu "$@" >"$TMP/found.json"; }
counted() { # the last line has the counts of the lines; exit 1 exactly if there is a warning
    doctor "$TMP"
    code=$?
    ok=$(grep -c '"verdict": "ok"' "$TMP/found.json") warn=$(grep -c '"verdict": "warn"' "$TMP/found.json") \
        not=$(grep -c '"verdict": "not checked"' "$TMP/found.json")
    tail -n 1 "$TMP/found.json" | grep -qF "\"ok\": $ok, \"warn\": $warn, \"not_checked\": $not}" || {
        tail -n 1 "$TMP/found.json"
        return 1
    }
    [ $code -eq $((warn > 0)) ] || { echo "exit $code with $warn warnings"; return 1; }
    [ $((ok + warn + not)) -eq 6 ] || { echo "$((ok + warn + not)) findings"; return 1; }
}
advised() {
    ! grep '"verdict": "warn"' "$TMP/found.json" | grep '"advice": null' && ! grep '"verdict": "ok"' "$TMP/found.json" |
        grep -v '"advice": null'
}
disk() { # disk PATH TEXT: the finding about the disk
    doctor "$1"
    grep '"what": "disk"' "$TMP/found.json" | grep -F -- "$2" || { grep disk "$TMP/found.json"; return 1; }
}
t "the counts at the end are those of the findings, and the exit code follows" counted
t "warnings come with advice, good results without" advised
t "a folder's disk is written and read back" disk "$TMP" "MB/s read from $TMP"
t "no file is left there" [ -z "$(find "$TMP" -size +1M)" ]
head -c 3000000 /dev/zero >"$TMP/file"
t "a file's disk is read" disk "$TMP/file" "MB/s read from $TMP/file"
t "a missing path is not checked, but reported" disk "$TMP/none" \
    '"verdict": "not checked", "text": "'"$TMP/none: No such file"
t "a small file is not checked, but reported" disk "$ROOT/Makefile" "neither a folder nor a file of 1 MiB or more"
t "an unknown device is a mistake of the command line" exits 2 "$NNPIPE" doctor --device tpu
t "so are two paths" exits 2 "$NNPIPE" doctor . .
t "the text has a line for each finding, and the sum" says "not checked" "$NNPIPE" doctor --device cpu "$TMP"
[ "$failed" -eq 0 ]
