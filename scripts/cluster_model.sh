#!/bin/sh
# cluster_model.sh [KEY=VALUE...]: how many images a second 1 to N boxes of GPUs train, from bytes and rates, and what
# limits them. docs/CLUSTER.md has the formulas and the table. Nothing is measured here: all figures follow from the
# inputs, which it prints first.
#   gpus=8 boxes=64       of a box; the largest number
#   rate=5500             images a second of one GPU alone, with its batch
#   batch=256             images of a GPU in a step
#   gradients=102.2e6     bytes that a step sums
#   row=150528            bytes of a decoded image on its way to the GPU
#   file=110e3            bytes of an image on the disk
#   decode=426e-6         core-seconds to decode and augment an image
#   cores=96 bus=50e9     of a box, for the readers; bytes a second from host to one GPU
#   link=450e9            bytes a second between two GPUs of a box, each way
#   network=400e9         bytes a second between boxes, each way, of one box
#   disk=6e9 store=0      bytes a second of a box's own disk; of storage that all share (0: none)
#   overlap=1             share of the backward pass behind which sums may hide
#   sum=exact             exact: the tree of lanes; fast: rings
set -eu
gpus=8 boxes=64 rate=5500 batch=256 gradients=102.2e6 row=150528 file=110e3 decode=426e-6 cores=96 bus=50e9 link=450e9
network=400e9 disk=6e9 store=0 overlap=1 sum=exact
for word in "$@"; do
    case $word in
    gpus=* | boxes=* | rate=* | batch=* | gradients=* | row=* | file=* | decode=* | cores=* | bus=* | link=* | \
        network=* | disk=* | store=* | overlap=*)
        echo "${word#*=}" | grep -Eq '^[0-9]+(\.[0-9]+)?(e-?[0-9]+)?$' || { echo "$word: not a number" >&2; exit 2; }
        eval "${word%%=*}=\${word#*=}" ;;
    sum=exact | sum=fast) sum=${word#*=} ;;
    *) echo "cluster_model.sh: $word: no such input" >&2; exit 2 ;;
    esac
done
awk -v p="$gpus" -v most="$boxes" -v r="$rate" -v B="$batch" -v G="$gradients" -v w="$row" -v j="$file" -v d="$decode" \
    -v c="$cores" -v b="$bus" -v l="$link" -v m="$network" -v k="$disk" -v K="$store" -v h="$overlap" -v sum="$sum" '
function log2(x) { return int(log(x) / log(2) + 1e-9) }
# Messages of a sum over x: log2(x), or, of no power of two, one more, and one for each doubling of those that have the
# result until they are half of the next power (trainer/comm_hops.h).
function rounds(x,   k) {
    k = log2(x)
    return x == 2 ^ k ? k : k + 1 + k - log2(x - 2 ^ k)
}
function sums(p, n) { # seconds of the sums of a step
    if (sum == "exact")
        return rounds(p) * G / l + rounds(n) * p * G / m
    return 2 * (p - 1) / p * G / l + 2 * (n - 1) / n * G / m
}
function hidden() { return h * 2 / 3 * B / r } # the backward pass is two thirds of a step
function least(name, value) { if (value < rate) { rate = value; limit = name } }
function line(p, n,   s, left) {
    s = sums(p, n)
    left = s > hidden() ? s - hidden() : 0
    rate = p * B / (B / r + left)
    limit = "step"
    if (left > 0.01 * B / r)
        limit = n > 1 && sums(p, n) > 2 * sums(p, 1) ? "network" : "link"
    least("decoding", c / d)
    least("bus", p * b / w)
    least("disk", k / j)
    if (K > 0) least("storage", K / n / j)
    printf "| %d | %d | %d | %.3g | %.3g | %s | %.0f %% |\n", n, n * p, n * rate, 1e3 * s, 1e3 * left, limit,
        100 * rate / (p * r)
}
BEGIN {
    printf "inputs: gpus=%d rate=%g batch=%g gradients=%g row=%g file=%g decode=%g cores=%g bus=%g link=%g " \
        "network=%g disk=%g store=%g overlap=%g sum=%s\n\n", p, r, B, G, w, j, d, c, b, l, m, k, K, h, sum
    print "| boxes | GPUs | images/s | sums, ms | not hidden, ms | limit | of GPUs alone |"
    print "|---|---|---|---|---|---|---|"
    for (g = 1; g < p; g *= 2) line(g, 1)
    for (n = 1; n <= most; n *= 2) line(p, n)
    need = p * r
    printf "\nA box of %d GPUs needs %.1f cores for decoding, %.3g GB/s to each GPU, %.3g GB/s of its disk%s\n", p,
        need * d, r * w / 1e9, need * j / 1e9, \
        (K > 0) ? "; " most " boxes need " most * need * j / 1e9 " GB/s of the storage" : ""
    if (most > 1) {
        left = hidden() - (sum == "exact" ? rounds(p) : 2 * (p - 1) / p) * G / l
        each = sum == "exact" ? rounds(most) * p * G : 2 * (most - 1) / most * G
        if (left > 0)
            printf "The network limits %d boxes below %.3g GB/s a box, each way\n", most, each / left / 1e9
        else
            printf "The sums of a box alone exceed the backward pass: no network hides the rest\n"
    }
}'
