# A shared box on a bad day: one member and one stranger abuse the service while the others work.
. "$(dirname "$0")/../lib.sh"
what="nothing of others is read, written, stopped or delayed by 500 abusive requests"
command -v python3 >/dev/null || { skip "$what" "python3 is not here"; exit 0; }
[ "$(id -u)" -eq 0 ] || { skip "$what" "only root can be other users"; exit 0; }
unshare -m true 2>/dev/null || { skip "$what" "no mount namespace here, in which the box has its users"; exit 0; }
mkdir "$TMP/behind" && chown 64353 "$TMP/behind"
if mount_faulty "$TMP/behind" "$TMP/hung"; then
    export HUNG="$TMP/hung"
else
    skip "folders that hang, among the abuse" "no FUSE here"
fi
chmod 755 "$TMP"
export NNPIPE
python3 "$ROOT/tests/flow/service_box.py"
