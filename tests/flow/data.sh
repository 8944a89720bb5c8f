# The data commands on archives made by the system's own tar and zstd, and read back by them.
. "$(dirname "$0")/../lib.sh"
cd "$TMP" || exit 1

t "synth writes a set" "$NNPIPE" data synth --out shapes --samples 300 --test 50
plain_shards() (
    mkdir x && tar --zstd -C x -xf shapes/train-00000.tar.zst && [ "$(find x -name "*.jpg" | wc -l)" -eq 300 ]
)
t "its shards are ordinary .tar.zst" plain_shards
t "verify finds nothing bad" says '"samples": 300, "bytes"' "$NNPIPE" data verify 'shapes/train-*.tar.zst' --json
t "synth does not mix sets" exits 1 "$NNPIPE" data synth --out shapes --samples 3
same_seed() (
    "$NNPIPE" data synth --out again --samples 300 --test 50 >/dev/null &&
        cmp shapes/train-00000.tar.zst again/train-00000.tar.zst
)
t "the same seed gives the same bytes" same_seed

"$NNPIPE" data ls x --source folder 2>/dev/null | sort >folder.txt
lists_as_folder() { "$NNPIPE" data ls "$1" 2>/dev/null | sort | cmp - folder.txt; }
for format in gnu pax ustar v7; do
    tar --format=$format -C x -cf "$format.tar" .
    t "a $format archive lists as its folder" lists_as_folder $format.tar
done
gzip -k gnu.tar
zstd -q gnu.tar
t "a .tar.gz lists as its folder" lists_as_folder gnu.tar.gz
t "a one-frame .tar.zst is unpacked, with a message" says "unpacking" "$NNPIPE" data ls gnu.tar.zst
unpacked_once() { ! "$NNPIPE" data ls gnu.tar.zst 2>&1 | grep -q unpacking; }
t "and only once" unpacked_once

packed_jpegs_equal() (
    "$NNPIPE" data pack x --out plain --shard-size 100K && mkdir y && for s in plain/*.tar; do
        tar -C y -xf $s
    done && diff -r x y && [ "$(ls plain/*.tar | wc -l)" -gt 2 ]
)
t "pack copies JPEGs byte for byte" packed_jpegs_equal
shuffled() {
    for seed in 1 1b 2; do
        "$NNPIPE" data pack x --out "shuffled-$seed" --shuffle "${seed%b}" >/dev/null || return 1
    done
    cmp shuffled-1/train-00000.tar shuffled-1b/train-00000.tar &&
        ! cmp -s shuffled-1/train-00000.tar shuffled-2/train-00000.tar || return 1
    tar -tf shuffled-1/train-00000.tar >order.txt
    [ "$(cut -d / -f 1 order.txt | uniq | wc -l)" -gt 100 ] && sort order.txt >sorted.txt && (cd x && find . -type f |
        cut -c 3- | sort) | cmp - sorted.txt
}
t "pack --shuffle mixes the classes, in an order that depends only on the seed" shuffled
rm -r shuffled-*
pack_zstd() (
    "$NNPIPE" data pack x --out packed --zstd 3 && mkdir z && tar --zstd -C z -xf packed/train-00000.tar.zst &&
        diff -r x z && zstd -tq packed/*.zst
)
t "pack to zstd, too" pack_zstd
finds_changed_record() (
    cp -r plain broken && f=broken/train-00000.tar && touch -r $f stamp && printf X |
        dd of=$f bs=1 seek=900 conv=notrunc 2>/dev/null && touch -r plain/train-00000.tar $f &&
        for s in broken/*.tar; do
            touch -r plain/${s#broken/} $s
        done && ! "$NNPIPE" data verify "broken/train-*.tar" --json >v.txt 2>&1 && grep -q "wrong checksum" v.txt &&
            grep -q "\"bad\": 1," v.txt
)
t "a record that changed is found by its CRC" finds_changed_record
packs_without_bad() (
    mkdir -p cut/a cut/b && cp x/*/00000000.jpg cut/b && head -c 300 x/*/00000000.jpg >cut/a/cut.jpg &&
        "$NNPIPE" data pack cut --out cutp >p.txt 2>&1 && grep -q "left out: .*cut.jpg: bad JPEG" p.txt &&
        "$NNPIPE" data verify "cutp/*" >/dev/null
)
t "pack leaves out pictures that cannot be decoded" packs_without_bad
t "a second packing into the same folder is refused with advice for another name" says "another set with --split" \
    "$NNPIPE" data pack x --out plain
ls_to_head() (
    "$NNPIPE" data ls --json x x x x x x 2>ls.txt | head -n 1 >/dev/null
    ! grep -q samples ls.txt
)
t "ls into head prints no total of a part" ls_to_head
list_to_full() (
    ! "$NNPIPE" data ls x >/dev/full 2>ls.txt && grep -q "cannot be written: No space" ls.txt &&
        ! grep -q samples ls.txt
)
t "and a write error of the list is an error" list_to_full
cp -r x loose && cp x/*/00000000.jpg loose
printf 'data: {train: {source: folder, path: loose, unlabelled: skip}}\nmodel: [flatten, {linear: {out: classes}}]\n' \
    >skip.yaml
t "verify reports how training treats samples in no class" says "1 samples are in no class: training leaves them out" \
    "$NNPIPE" data verify skip.yaml
t "so does stats" says "in no class: training leaves them out" "$NNPIPE" data stats skip.yaml
names_truncated() (
    mkdir -p bad/a && for p in x/*/00000000.jpg; do
        head -c 300 $p >bad/a/cut.jpg
    done && ! "$NNPIPE" data verify bad >v.txt 2>&1 && grep -q "bad/a/cut.jpg" v.txt
)
t "verify names a truncated picture" names_truncated
head -c 200000 gnu.tar >torn.tar
t "a truncated archive names its last whole member" says \
    "torn.tar is truncated; the last whole member is" "$NNPIPE" data ls torn.tar
t "and its cut member is bad" exits 1 "$NNPIPE" data verify torn.tar
t "stats prints mean and std" says '"std": [0.' "$NNPIPE" data stats 'shapes/train-*.tar.zst' --json
t "a missing path is named" says "none/a.tar: no such file or folder" "$NNPIPE" data ls none/a.tar
t "an unknown command suggests the nearest" says "did you mean 'verify'" "$NNPIPE" data verfy x
t "a wrong number is named" says "--quality: '101' is not a number from 1 to 100" \
    "$NNPIPE" data pack x --out q --quality 101

kept() { find . -name '*.npidx' ! -path './cache/*' | sort | tr '\n' ' '; }
has_indexes() (
    expected="./cutp/train-_.tar.npidx ./packed/train-_.tar.zst.npidx ./plain/train-_.tar.npidx"
    [ "$1" = "$expected ./shapes/test-_.tar.zst.npidx ./shapes/train-_.tar.zst.npidx " ] || {
        echo "$1"
        false
    }
)
no_cache() {
    mkdir plain-folder && "$NNPIPE" data cache plain-folder >c.txt && grep -q "plain-folder: 0.0 MiB in 0 sets" c.txt &&
        "$NNPIPE" data cache --clear --json none >c.txt && grep -q '"removed": 0' c.txt &&
        [ -z "$(ls plain-folder)" ] && [ ! -e none ] && ! "$NNPIPE" data cache a b 2>c.txt && grep -q "one folder" c.txt
}
t "data cache of a folder that is no cache finds nothing and makes nothing" no_cache
t "nothing is written beside data that are read" has_indexes \
    "$(kept | sed 's|./again/[^ ]* ||g;s|./broken/[^ ]* ||g')"
t "data index --beside puts one there" says "/x.npidx" "$NNPIPE" data index x --beside
entries_taken() { # while another process has the store's lock
    mkdir entries && XDG_CACHE_HOME=$PWD/entries "$NNPIPE" data index x --entries || return 1
    XDG_CACHE_HOME=$PWD/entries says "another process is writing the entries" flock "$(find entries -name lock)" \
        "$NNPIPE" data index x --entries
}
t "data index --entries says that another process writes them" entries_taken
t "and that they cannot be kept" says "the entries are not kept: cannot create the folder" \
    env XDG_CACHE_HOME=/proc/1 "$NNPIPE" data index x --entries
with_other_cache() (
    XDG_CACHE_HOME=$PWD/cache2 "$NNPIPE" data ls x 2>/dev/null | sort | cmp - folder.txt && [ ! -e cache2 ]
)
t "and another user's cache then stays empty" with_other_cache
rm x.npidx

cat >view.yaml <<'EOF'
data: {train: {source: tar, path: "shapes/train-*.tar.zst"}}
loader: {batch: 8, augment: [{random_crop: {size: 32, pad: 4}}, flip]}
model: [flatten, {linear: {out: classes}}]
EOF
writes_rows() (
    "$NNPIPE" data view view.yaml --step 3 --out v --json >rows.txt &&
        [ "$(grep -c "\"event\": \"row\"" rows.txt)" -eq 8 ] && [ "$(ls v/*.png | wc -l)" -eq 8 ]
)
t "view writes the rows of a step" writes_rows
view_again() (
    "$NNPIPE" data view view.yaml --step 3 --out w --json >/dev/null && diff -r v w
)
t "the same step has the same rows" view_again

cat >view-val.yaml <<'EOF'
data:
  train: {source: tar, path: "shapes/train-*.tar.zst"}
  split: 20%
  test: {source: tar, path: "shapes/test-*.tar.zst"}
loader: {batch: 8, augment: [{random_crop: {size: 32, pad: 4}}, flip]}
model: [flatten, {linear: {out: classes}}]
EOF
size_of() { od -An -tu1 -j16 -N8 "$1" | awk '{ print $4 + 256 * $3, $8 + 256 * $7 }'; }
sheet() {
    "$NNPIPE" data view view.yaml --sheet sheet.png >rows.txt && [ "$(size_of sheet.png)" = "100 100" ] &&
        grep -q "sheet: 3 columns" rows.txt
}
t "a sheet has all rows in one picture" sheet
view_rows() { "$NNPIPE" data view view-val.yaml --split "$1" | sed -n 's/^row [0-9]*: \([^ ]*\) .*/\1/p'; }
listed() { "$NNPIPE" data ls view-val.yaml --split "$1" 2>/dev/null | cut -f 1 | head -n 8; }
same_rows() { [ "$(view_rows "$1" | wc -l)" -eq 8 ] && [ "$(view_rows "$1")" = "$(listed "$1")" ]; }
t "view --split val shows the samples that data.split sets apart" same_rows val
t "view --split test shows the test set in its order" same_rows test
t "a missing set is reported" says "the config has no data.val" "$NNPIPE" data view view.yaml --split val

# Pictures rewritten in place: the folder's mtime does not change.
cat >changed.yaml <<'EOF'
data: {train: {source: folder, path: x}}
device: cpu
loader: {batch: 30, augment: [{center_crop: {size: 16}}]}
model: [global_avgpool, flatten, {linear: {out: classes}}]
train: {epochs: 1, threads: 1}
EOF
ln -s nowhere.jpg "$(ls -d x/* | head -n 1)/broken.jpg"
"$NNPIPE" data ls changed.yaml >/dev/null 2>&1
for f in x/*/0000002*.jpg; do printf more >>"$f"; done
"$NNPIPE" train changed.yaml --json -o loader.bad_samples.budget=1% >changed.json 2>changed.txt
t "a run takes files as they are now, and reports the change" \
    grep -q "x/.*.jpg has changed since it was listed" changed.txt
t "with their number" grep -q "10 files have changed since they were listed" changed.txt
t "the run is done" grep -q '"event": "done"' changed.json
t "a dangling link is a bad sample" grep -q \
    "bad sample replaced: .*broken.jpg.*cannot be opened: No such file" changed.txt
listed_again() (
    "$NNPIPE" train changed.yaml -o loader.bad_samples.budget=1% >again.txt 2>&1 && ! grep -q "changed since" again.txt
)
t "the next run has listed them again" listed_again
rm x/*/broken.jpg

mkdir small
if mount -t tmpfs -o size=64k none small 2>/dev/null; then
    pack_to_full_disk() (
        ! "$NNPIPE" data pack x --out small >full.txt 2>&1 && grep -q "full" full.txt && [ -z "$(ls small)" ]
    )
    t "a full disk is reported, and leaves no shard" pack_to_full_disk
    umount small
else
    skip "a full disk is reported, and leaves no shard" "no tmpfs can be mounted here"
fi

if [ -n "${NNPIPE_DATA:-}" ]; then
    D=$NNPIPE_DATA
    t "CIFAR-10's JPEGs: 50,000 to train on" says '"samples": 50000, "classes": 10' \
        "$NNPIPE" data ls "$D/cifar10-jpeg.tar.zst" --match 'train/*' --json
    t "WebDataset's own sample: 90 in 10 classes" says '"samples": 90, "classes": 10' \
        "$NNPIPE" data ls "$D/conformance/webdataset/sample.tgz" --json
    t "MNIST's test part verifies" says '"samples": 10000, "bytes": 7840000, "bad": 0' \
        "$NNPIPE" data verify "$D/conformance/mnist/t10k-images-idx3-ubyte.gz" --json
    t "photographs are packed at multiples of 4096" says '"aligned": true' \
        "$NNPIPE" data pack "$D/imagenet-sample-500.tar" --out photos --json
else
    skip "real data" "NNPIPE_DATA is not set"
fi
[ "$failed" -eq 0 ]
