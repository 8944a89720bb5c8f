# What tests/emu/traffic.h counted, of one step, by the parts of tests/cuda/traffic.c.
#     PART; LAUNCHES READ WRITTEN ISSUED     bytes; issued: of each access, not of each sector once
#     banks; KERNEL PASSES LEAST              shared memory: tests/emu/traffic.h
#     launches; OWN LIBRARIES GRAPH          own kernels, calls of cuDNN and cuBLASLt; nodes of the step's graph
BEGIN { FS = "; " }
function part(name) {
    if (name ~ /^cudnn forward/) return "conv"
    if (name ~ /^cudnn dgrad/) return "dgrad"
    if (name ~ /^cudnn wgrad/) return "wgrad"
    if (name ~ /^cublaslt/) return "linear"
    if (name ~ /moments<|bn_stats/) return "bn_stats"
    if (name ~ /bn_apply/) return "bn_apply"
    if (name ~ /bn_sums<|bn_reduce/) return "bn_reduce"
    if (name ~ /bn_dgrad/) return "bn_dgrad"
    if (name ~ /F = sum_of|F = relu_sum/) return "add"
    if (name ~ /pool/) return "pool"
    if (name ~ /cross_entropy|numbers_of/) return "loss"
    if (name ~ /np_cuda_cast|run_norm|np_cuda_update|run_update/) return "update"
    return "rest"
}
NR == 1 { split($1, words, " "); steps = words[2]; split($2, words, " "); nodes = words[2]; next }
{
    line = $0
    sub(/.*; /, "", line) # a kernel's name has semicolons, too
    split(line, n, " ")
    p = part($0)
    launches[p] += n[1]; issued[p] += n[2] + n[4]; read[p] += n[3]; written[p] += n[5]
    if (n[7] > 0) {
        kernel = $0
        sub(/ in .*/, "", kernel)
        if (match($0, /S = [^;]*/)) kernel = kernel " of " substr($0, RSTART + 4, RLENGTH - 4)
        gsub(/ /, "_", kernel)
        passes[kernel] += n[6]; least[kernel] += n[7]
    }
    if (/^cu(dnn|blaslt)/) libraries += n[1]; else own += n[1]
}
END {
    for (p in launches)
        printf "%s; %d %d %d %d\n", p, launches[p] / steps, read[p] / steps, written[p] / steps, issued[p] / steps
    for (kernel in passes) printf "banks; %s %d %d\n", kernel, passes[kernel], least[kernel]
    printf "launches; %d %d %d\n", own / steps, libraries / steps, nodes / (steps - 1)
}
