#!/bin/sh
# picture.sh PICTURES: makes docs/profile.png, README's picture, with Chromium. Profiles a small network on a folder of
# photographs, CLASS/NAME.jpg, in front of a simulated device of 15 ms per step, and takes the page as it is drawn.
# On a quiet machine: elsewhere the profile says that it is inconclusive, and no picture is taken.
set -eu
cd "$(dirname "$0")/.."
[ -d "${1:?the folder of photographs is missing}" ] || { echo "$1: no such folder" >&2; exit 2; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/photos.yaml" <<Y
name: photos
device: {sim: {step_ms: 15}}
data: {train: {source: folder, path: "$(cd "$1" && pwd)"}}
loader: {batch: 64, readers: 2, augment: [{random_resized_crop: {size: 224}}, flip]}
model: [global_avgpool, flatten, {linear: {out: classes}}]
train: {epochs: 100}
runs: $work/runs
Y
nnpipe=$PWD/nnpipe
(cd "$work" && "$nnpipe" profile photos.yaml --html profile.html) | tee "$work/screen"
grep -q '^ LIMIT:' "$work/screen" || exit 1
chromium --headless=new --no-sandbox --disable-gpu --hide-scrollbars --window-size="${SIZE:-1000,760}" \
    --screenshot=docs/profile.png "file://$work/profile.html" 2>/dev/null
ls -l docs/profile.png
