# A table of bad inputs: the message and the exit code for each. None may crash, hang, or
# lose a checkpoint. Every row: exit code, words the message must hold, what to run.
. "$(dirname "$0")/../lib.sh"
if ! /usr/bin/python3 -c 'import PIL' 2>/dev/null; then
    skip "bad inputs" "python3-pil is not installed"
    exit 0
fi
/usr/bin/python3 "$ROOT/tests/fault/make_bad.py" "$TMP/bad" || exit 1
export RUNS="$TMP/runs" SET="$TMP/bad/good"
CONFIG=$ROOT/tests/fault/tiny.yaml
BAD=$TMP/bad

# row SENTENCE EXIT WORDS command...: WORDS must be in the output; no signal, at most 60 s
row() {
    sentence=$1 want=$2 words=$3
    shift 3
    timeout -k 5 300 "$@" >"$OUT" 2>&1 </dev/null
    got=$?
    if [ "$got" -ne "$want" ]; then
        not_ok "$sentence" "exit $got, not $want: $(tail -n 2 "$OUT" | tr '\n' ' ')"
    elif ! grep -qF -- "$words" "$OUT"; then
        not_ok "$sentence" "does not say '$words': $(tail -n 2 "$OUT" | tr '\n' ' ')"
    else
        ok "$sentence"
    fi
}
# `row` starts programs, so functions go through a shell that has them.
cat >"$TMP/words.sh" <<W
NNPIPE=\${NNPIPE_COPY:-$NNPIPE} CONFIG=\${CONFIG_COPY:-$CONFIG} BAD=$BAD
train() { "\$NNPIPE" train "\$CONFIG" -o train.epochs=1 "\$@"; }
on_set() { SET=\$BAD/\$1; export SET; shift; train "\$@"; }
tar_of() { train -o "data.train={source: tar, path: \$BAD/\$1}"; }
"\$@"
W
w() { s=$1 c=$2 t=$3; shift 3; row "$s" "$c" "$t" sh "$TMP/words.sh" "$@"; }

# --- images: decoded where possible, else replaced, counted and named
w "a good set trains" 0 "done in" on_set good
w "a truncated JPEG is replaced and named" 0 "disc/bad.jpg: bad JPEG: the file ends too early" on_set truncated
w "an empty file is replaced and named" 0 "disc/bad.jpg: is empty" on_set empty_file
w "garbage is replaced and named" 0 "disc/bad.jpg: neither JPEG, PNG nor PNM" on_set garbage
w "text named .jpg is replaced and named" 0 "disc/readme.jpg: neither JPEG, PNG nor PNM" on_set text
w "a CMYK JPEG is decoded" 0 "done in" on_set cmyk
w "a PNG named .jpg is decoded" 0 "done in" on_set png_named_jpg
w "a JPEG of absurd size is replaced and named" 0 "disc/bad.jpg: bad JPEG" on_set absurd_jpeg
w "a PNG of absurd size is replaced and named" 0 "disc/bad.jpg: bad PNG" on_set absurd_png
w "a PNG with a flipped byte is replaced and named" 0 "disc/bad.png: bad PNG" on_set broken_png
w "a short PPM is replaced and named" 0 "disc/bad.ppm: bad PNM: the file ends too early" on_set ppm_short
w "a JPEG with a damaged scan is replaced and named" 0 "disc/bad.jpg: bad JPEG" on_set wrong_huffman
w "past the budget the run fails" 1 "more than loader.bad_samples.budget allows" on_set all_bad
w "policy fail ends at the first bad sample" 1 "disc/bad.jpg" on_set truncated -o 'loader.bad_samples={policy: fail}'
w "an empty folder is refused" 2 "no samples: no file in it is named .jpg" on_set empty_dir
w "a missing folder is named" 2 "missing: no such file or folder" on_set missing
w "pictures in no class folder are refused" 2 "are in no class, the first is 'a.jpg'" on_set one_file_no_class

# --- archives
w "a good tar trains" 0 "done in" tar_of good.tar
w "a truncated tar is reported, and its whole members are used" 0 "is truncated" tar_of torn.tar
w "a tar with a wrong checksum is refused" 2 "wrong checksum at offset 0" tar_of bad_checksum.tar
w "a file that is not a tar archive is refused" 2 "not a tar archive" tar_of not_a.tar
w "an empty tar is refused" 2 "no samples" tar_of empty.tar
w "a truncated tar.gz is reported, and its whole members are used" 0 "torn" tar_of torn.tar.gz
w "damaged zstd is refused" 2 "damaged zstd data" tar_of garbage.tar.zst
w "a member longer than its archive is refused" 2 "huge_member.tar" tar_of huge_member.tar
w "two .cls of one sample are refused" 2 "two members with the extension 'cls'" tar_of duplicate.tar
w "a .cls that is no number is refused" 2 "is not a class number" tar_of bad_cls.tar
w "a glob without a match is reported" 2 "no file matches" tar_of 'none-*.tar'
w "a truncated CIFAR file is reported" 0 "is truncated" train -o \
    "data.train={source: cifar10, path: $BAD/cifar_torn/*.bin}" -o \
    'loader.bad_samples.budget=50%'
w "a CIFAR label past 9 is refused" 2 "has label 200" train -o \
    "data.train={source: cifar10, path: $BAD/cifar_label/*.bin}"
w "an IDX file with a wrong magic is refused" 2 "not an IDX file" train -o \
    "data.train={source: idx, path: $BAD/idx/bad_magic, labels: $BAD/idx/labels}"
w "an IDX file with fewer labels than images is refused" 2 "has 19 labels" train -o \
    "data.train={source: idx, path: $BAD/idx/images, labels: $BAD/idx/labels_short}"

# --- configs and command lines (tests/golden has more)
row "no command" 2 "nnpipe" "$NNPIPE"
row "an unknown command gets the nearest" 2 "train" "$NNPIPE" trian x.yaml
row "an unknown flag gets the nearest" 2 "--resume" "$NNPIPE" train "$CONFIG" --resum
row "a missing config" 2 "no.yaml" "$NNPIPE" train "$TMP/no.yaml"
cat >"$TMP/typo.yaml" <<'Y'
name: x
data: {train: {source: synth, samples: 10, size: 32}}
loader: {augment: [{random_crop: {size: 32}}]}
model: [conv: {out: 3, kernle: 3}]
Y
row "a misspelt key, with its place" 2 "typo.yaml:4:" "$NNPIPE" check "$TMP/typo.yaml"
head -c 3000000 /dev/zero | tr '\0' 'a' >"$TMP/big.yaml"
row "a config of 3 MB" 2 "big.yaml" "$NNPIPE" check "$TMP/big.yaml"
awk 'BEGIN { for (i = 0; i < 3000; i++) printf "["; print "" }' >"$TMP/deep.yaml"
row "a config nested 3,000 deep" 2 "deep.yaml:1:" "$NNPIPE" check "$TMP/deep.yaml"
head -c 2000 /dev/urandom >"$TMP/random.yaml"
row "random bytes as a config" 2 "random.yaml" "$NNPIPE" check "$TMP/random.yaml"
row "a folder as a config" 2 "$TMP" "$NNPIPE" check "$TMP"

# --- checkpoints
w "a run with checkpoints" 0 "done in" on_set good -o train.epochs=3 -o "runs=$TMP/kept"
run=$(echo "$TMP"/kept/tiny-*)
last=$(ls -d "$run"/checkpoints/step-* | sort -t- -k 99 -V | tail -n 1)
copy() { rm -rf "$TMP/copy" && cp -r "$run" "$TMP/copy"; }
flip() { python3 - "$1" <<'P'
import sys
b = bytearray(open(sys.argv[1], "rb").read())
b[len(b) // 2] ^= 0x40
open(sys.argv[1], "wb").write(b)
P
}
copy; for f in "$TMP"/copy/checkpoints/step-*/weights.safetensors; do flip "$f"; done
row "all checkpoints damaged: each is named" 1 "weights.safetensors" \
    "$NNPIPE" eval "$CONFIG" --weights "$TMP/copy" -o "data.test={source: folder, path: $BAD/good}"
copy; flip "$TMP/copy/checkpoints/$(basename "$last")/weights.safetensors"
row "the newest checkpoint damaged: the previous one is used" 0 "$(basename "$last")" \
    "$NNPIPE" eval "$CONFIG" --weights "$TMP/copy" -o "data.test={source: folder, path: $BAD/good}"
copy; rm "$TMP/copy/checkpoints/$(basename "$last")/manifest.json"
row "a checkpoint without its manifest is skipped" 0 "" \
    "$NNPIPE" eval "$CONFIG" --weights "$TMP/copy" -o "data.test={source: folder, path: $BAD/good}"
printf 'garbage' >"$TMP/w.safetensors"
row "weights that are not safetensors" 1 "w.safetensors" "$NNPIPE" train "$CONFIG" --weights "$TMP/w.safetensors"
row "missing weights" 1 "none.safetensors" "$NNPIPE" train "$CONFIG" --weights "$TMP/none.safetensors"
row "predict on a file that is not an image" 1 "readme.jpg" \
    "$NNPIPE" predict "$CONFIG" --weights "$run" "$BAD/text/disc/readme.jpg"

# --- disks, pipes and rights
row "a run folder that cannot be made" 1 "/dev/null/runs" sh "$TMP/words.sh" on_set good -o runs=/dev/null/runs
if [ "$(id -u)" -eq 0 ] && mkdir -p "$TMP/small" && mount -t tmpfs -o size=200k none "$TMP/small" 2>/dev/null; then
    w "a full disk is named, and nothing is lost" 74 "the disk is full" on_set good -o "runs=$TMP/small/runs" -o \
        train.epochs=40 -o checkpoint.keep=50 -o 'checkpoint.every=1 steps'
    torn=$(find "$TMP/small" -name 'step-*' -type d | while read -r d; do [ -s "$d/manifest.json" ] || echo "$d"; done)
    if [ -z "$torn" ]; then
        ok "no incomplete checkpoint is left on a full disk"
    else
        not_ok "no incomplete checkpoint is left on a full disk" "$torn"
    fi
    umount "$TMP/small"
else
    skip "a full disk" "needs root and mount"
fi
closed_pipe() {
    SET=$BAD/good "$NNPIPE" train "$CONFIG" --json 2>"$TMP/err.txt" | head -n 1 >/dev/null
    r=$(ls -td "$RUNS"/tiny-* | head -n 1)
    [ -s "$r/result.json" ]
}
t "a closed pipe does not lose the run" closed_pipe
if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null; then
    chmod 755 "$TMP" "$BAD"
    cp "$NNPIPE" "$CONFIG" "$TMP" # where the other user can get at them
    cp -r "$BAD/good" "$BAD/locked" && chmod 0 "$BAD/locked/square/058.jpg" && chmod 777 "$RUNS"
    w "a file that may not be read is replaced and named" 0 "square/058.jpg: cannot be opened: Permission denied" env \
        HOME="$TMP" NNPIPE_COPY="$TMP/nnpipe" CONFIG_COPY="$TMP/tiny.yaml" setpriv --reuid=65534 --clear-groups sh \
        "$TMP/words.sh" on_set locked -o "runs=$RUNS" -o loader.shuffle=none
else
    skip "an unreadable file" "needs root and setpriv"
fi
