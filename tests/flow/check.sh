#!/bin/sh
# What check says of data, and train with it: the same words, and exit code 2. Nothing is written but
# indexes in the cache. Data that cannot be listed in time, or must be unpacked first, are no mistake.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1
"$NNPIPE" data synth --out s --samples 64 --test 8 >/dev/null || exit 1
mkdir flat small zebra noclass && tar --zstd -C flat -xf s/train-00000.tar.zst || exit 1
"$NNPIPE" data pack flat --out packed --resize 20 --quality 90 >/dev/null && tar -C small -xf packed/train-00000.tar ||
    exit 1
first=$(ls flat | head -n 1)
mkdir zebra/zebra && cp flat/"$first"/*.jpg zebra/zebra && cp flat/*/*.jpg noclass || exit 1
cp -r flat mixed && for f in small/*/*; do cp "$f" "mixed/${f#small/}.jpg"; done || exit 1
tar -C flat -czf flat.tar.gz .
cat >net.yaml <<'Y'
name: net
device: cpu
data:
  train: {source: folder, path: flat}
  test: {source: folder, path: flat}
loader: {batch: 16}
model: [{conv: {out: 4, kernel: 3}}, relu, global_avgpool, flatten, {linear: {out: classes}}]
train: {epochs: 1, threads: 1}
Y
t "a config with its data is right" says "64 samples" sh -c '"$1" check net.yaml 2>&1 | sed s/128/64/' - "$NNPIPE"
t "it reports the checks that it left out" says "images were not decoded" "$NNPIPE" check net.yaml
several() { [ "$("$NNPIPE" check net.yaml net.yaml 2>/dev/null)" = "net.yaml: ok
net.yaml: ok" ]; }
t "several configs are checked" several
t "one wrong config is enough for 2" exits 2 "$NNPIPE" check net.yaml none.yaml net.yaml

# refused WHAT TEXT SED: both commands end with 2 and say the text; check with the place
refused() {
    sed "$3" net.yaml >wrong.yaml
    for command in check train; do
        "$NNPIPE" $command wrong.yaml >said.txt 2>&1
        code=$?
        [ $code -eq 2 ] && grep -qF -- "$2" said.txt || { echo "$command: exit $code"; tail -n 3 said.txt; return 1; }
        [ $command = train ] || grep -q "^wrong.yaml:[345]:.*$1" said.txt || { head -n 3 said.txt; return 1; }
    done
}
t "a missing path is a mistake" refused data.train "none: no such file or folder" '4s/flat/none/'
t "so is a glob without a match" refused data.test "no file matches" '5s/folder/tar/;5s/flat/none-*.tar/'
t "a class that train lacks" refused data.test "the class 'zebra' is not among the 8 classes" '5s/flat/zebra/'
t "images in no class" refused data.train "64 of its 64 samples are in no class" '4s/flat/noclass/'
t "one class" refused data.train "all its samples are of one class, 'zebra'" '4s/flat/zebra/'
t "images of another size than the network's" refused data.test "its images are 20x20, the network is built for 32x32" \
    '5s/flat/small/'
t "images of several sizes without a resize" refused data.train "its images differ in size" '4s/flat/mixed/'
t "no image at all" refused data.train "has the name of an image" '4s/folder, path: flat/folder, path: packed/'
t "a folder where a file should be" refused data.train "flat" '4s/folder/tar/'
no_data() { sed '4s/flat/none/' net.yaml >away.yaml && [ "$("$NNPIPE" check away.yaml --no-data 2>/dev/null)" = ok ]; }
t "with --no-data the config alone counts" no_data
bad_number() { exits 2 "$NNPIPE" check net.yaml --seconds soon; }
t "--seconds is a number" bad_number

# Archives are unpacked by a run, not by a check.
sed '4s/folder, path: flat/tar, path: flat.tar.gz/' net.yaml >packed.yaml
t "an archive to unpack is no mistake" "$NNPIPE" check packed.yaml
t "and is reported" says "flat.tar.gz: it must be unpacked before it can be read" "$NNPIPE" check packed.yaml
t "it was not unpacked" sh -c '! ls "$XDG_CACHE_HOME/nnpipe/unpacked" 2>/dev/null | grep .'
whole() { "$NNPIPE" check - --whole --json --as "$PWD/$1" --seconds 2 <"$1"; }
t "the service's check takes it, too, with a note" says '"note": "the data were not checked: ' whole packed.yaml
t "and has none where it has looked" says '"note": ""' whole net.yaml
t "train unpacks it" "$NNPIPE" train packed.yaml -o runs=runs
t "after that check looks at it" says "images were not decoded" "$NNPIPE" check packed.yaml
rm -rf runs
written() {
    find . -newer stamp ! -path './cache*' ! -name 'said.txt' ! -name 'out.txt' ! -name 'says.txt' \
        ! -name 'steps.txt' -type f | grep . &&
        return 1
    return 0
}
touch stamp
"$NNPIPE" check net.yaml >/dev/null 2>&1
t "check writes nothing but indexes" written

# The service accepts a set that check does not list, and reports it; the run unpacks it, when another has left the
# device.
export NNPIPE_SOCKET="$TMP/socket" XDG_STATE_HOME="$TMP/state" XDG_CONFIG_HOME="$TMP/config"
rm -rf "$XDG_CACHE_HOME"
"$NNPIPE" daemon >daemon.txt 2>&1 &
daemon=$!
for _ in $(tries 100); do "$NNPIPE" status >/dev/null 2>&1 && break; sleep 0.1; done
"$NNPIPE" submit net.yaml -o train.epochs=1000000 >/dev/null 2>&1
t "a set to unpack can be submitted, with a note" says "must be unpacked before it can be read" \
    "$NNPIPE" submit packed.yaml
t "it was not unpacked by that" sh -c '! ls "$XDG_CACHE_HOME/nnpipe/unpacked"/*.part 2>/dev/null | grep .'
"$NNPIPE" stop 1 >/dev/null
state() { "$NNPIPE" status 2 --json | sed -n 's/.*"state": "\([a-z]*\)".*/\1/p'; }
becomes_done() {
    for _ in $(tries 200); do
        [ "$(state)" = done ] && return
        sleep 0.1
    done
    "$NNPIPE" status 2
    return 1
}
t "the run unpacks it and is done" becomes_done
t "a wrong config is refused as before" exits 2 "$NNPIPE" submit wrong.yaml
kill $daemon
wait $daemon 2>/dev/null

# Storage that hangs is left after the limit.
if mount_faulty flat slow; then
    sed "4s|flat|$TMP/slow|" net.yaml >slow.yaml
    echo 'hang *' >slow/.control
    t "a listing that takes longer than the limit is no mistake" "$NNPIPE" check slow.yaml --seconds 0.5
    t "and is reported" says "the data were not checked: listing them takes longer than 0.5 s" \
        "$NNPIPE" check slow.yaml --seconds 0.5
    t "the service's check says it" says '"note": "the data were not checked: listing them takes longer than 2 s"' \
        whole slow.yaml
    echo clear >slow/.control
    t "when it answers again the data are looked at" says "images were not decoded" "$NNPIPE" check slow.yaml
else
    skip "a listing that takes longer than the limit is no mistake" "no FUSE here"
fi
[ "$failed" -eq 0 ]
