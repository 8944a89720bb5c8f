# Machine code of own kernels (cuobjdump -sass), one line a kernel:
#     ARCH NAME LOADS16 LOADS STORES16 STORES LOCAL AHEAD SURE SHARED128 SHARED BYTES
# LOADS16 of LOADS instructions that load from global memory move 16 bytes, and so for stores; LOCAL accesses of local
# memory; AHEAD: the largest number of 16-byte loads that are issued before an instruction needs one of them, in the
# code's order, SURE: without those that a predicate may leave out, BYTES: of loads of any width; SHARED accesses of
# shared memory, SHARED128 of 16 bytes.
function flush_loads() { delete waits; ahead = sure = bytes = 0 }
function begin(name_) {
    name = name_; loads = loads16 = stores = stores16 = local = max_ahead = max_sure = max_bytes = shared = shared16 = 0
    flush_loads()
}
function print_kernel() {
    if (name != "")
        print arch, name, loads16, loads, stores16, stores, local, max_ahead, max_sure, shared16, shared, max_bytes
    name = ""
}
# The number of a register, -1: none
function number_of(word) { return match(word, /R[0-9]+/) ? substr(word, RSTART + 1, RLENGTH - 1) + 0 : -1 }
# Does the text name a register that a load has yet to bring?
function needs(text,    n, end) {
    while (match(text, /(^|[^U])R[0-9]+/)) {
        end = RSTART + RLENGTH
        n = number_of(substr(text, RSTART, RLENGTH))
        text = substr(text, end)
        if (n in waits || (text ~ /^\.64\]/ && (n + 1) in waits)) return 1
    }
    return 0
}
/arch = sm_/ { print_kernel(); arch = $3 }
/Function : / { print_kernel(); begin($3); next }
/^ *\/\*[0-9a-f]+\*\/ / && name != "" {
    text = $0
    sub(/^ *\/\*[0-9a-f]+\*\/ */, "", text); sub(/;.*/, "", text)
    guarded = text ~ /^@/
    sub(/^@!?U?P[0-9T]+ */, "", text)
    op = text; sub(/ .*/, "", op)
    rest = substr(text, length(op) + 1)
    is_load = op ~ /^LDG|^LD\.E/ # the latter by a pointer that was itself loaded
    wide = op ~ /\.128/
    # a load's first operand is what it brings; any other instruction waits for what it reads or overwrites
    if (is_load) { brings = rest; sub(/,.*/, "", brings); rest = substr(rest, length(brings) + 1) }
    if (needs(rest)) flush_loads()
    if (is_load) {
        loads++
        width = wide ? 16 : op ~ /\.64(\.|$)/ ? 8 : op ~ /\.[US]16/ ? 2 : op ~ /\.[US]8/ ? 1 : 4
        first = number_of(brings)
        for (i = 0; i < width; i += 4) waits[first + i / 4] = 1
        bytes += width
        if (bytes > max_bytes) max_bytes = bytes
        if (wide) {
            loads16++
            ahead++
            if (!guarded) sure++
            if (ahead > max_ahead) max_ahead = ahead
            if (sure > max_sure) max_sure = sure
        }
    }
    if (op ~ /^STG/) { stores++; if (wide) stores16++ }
    if (op ~ /^(LDL|STL)/) local++
    if (op ~ /^(LDS|STS)/) { shared++; if (wide) shared16++ }
}
END { print_kernel() }
