# Two things at a time for one run: it is stopped, tried again or killed while the service asks its folder, tells of its
# end
# or prunes its checkpoints.
. "$(dirname "$0")/../lib.sh"
what="a run is changed while something is asked about it"
command -v python3 >/dev/null || { skip "$what" "python3 is not here"; exit 0; }
mkdir "$TMP/disk"
mount_faulty "$TMP/disk" "$TMP/mount" || { skip "$what" "no FUSE file system can be mounted here"; exit 0; }
export NNPIPE TMP
python3 "$ROOT/tests/flow/service_crossed.py"
