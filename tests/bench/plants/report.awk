# Lines of run.sh -> tables: what was named, how far off the numbers are, every case. NAME=VALUE fields,
# `-`: not known. With -v judge=1 lines of a test instead. Uses neither gawk's sorting nor its arrays of arrays.
function abs(a) { return a < 0 ? -a : a }
function percent(a) { return sprintf("%.1f %%", 100 * a) }
function share(n, of) { return of ? sprintf("%d of %d", n, of) : "none to judge" }

# Sorts list[1..n] in place.
function sort(list, n,    i, j, a) {
    for (i = 2; i <= n; i++) {
        a = list[i]
        for (j = i - 1; j > 0 && list[j] > a; j--) list[j + 1] = list[j]
        list[j + 1] = a
    }
}
function quantiles(list, n) {
    if (!n) return "nothing to judge"
    sort(list, n)
    return sprintf("median %s, nine in ten below %s, at most %s (%d cases)", percent(list[int((n + 1) / 2)]),
        percent(list[int(0.9 * n + 0.999)]), percent(list[n]), n)
}
function mark(good) { return good ? "" : " **x**" }

{
    delete v
    for (i = 1; i <= NF; i++) { at = index($i, "="); v[substr($i, 1, at - 1)] = substr($i, at + 1) }
    nr[v["tenant"]]++
    if (v["class"] == "control") control(v["tenant"])
    else plant(v["tenant"])
}

# One planted case: judges it, counts it, keeps its row.
function plant(t,    said, real, right, key, gain, e, next_right, promised, got, row) {
    real = v["clean"] / v["slow"]
    said = v["verdict"] == "limited" ? v["limiter"] : v["verdict"]
    if (said == "-") said = "nothing"
    matrix[t, v["class"], said]++
    planted[t]++
    right = said == v["want_stage"]
    named[t] += right
    key = v["verdict"] != "-" && v["setting"] == v["want_key"]
    keys[t] += key
    row = sprintf("| %s | %.2f | %s%s | %s%s | ", v["case"], real, said, mark(right), v["setting"] == "-" ? "none" : v["setting"] ": " v["value"], mark(key))
    e = "-"
    if (v["next_images_per_second"] + 0 > 0) {
        e = (v["next_images_per_second"] / v["images_per_second"]) / real - 1
        errors[t, ++nr_errors[t]] = abs(e)
        next_right = v["next_limiter"] == v["want_next"]
        nexts[t] += next_right
        row = row sprintf("%.2f | %+.1f %%%s | %s%s | ", v["next_images_per_second"] / v["images_per_second"], 100 * e, mark(abs(e) <= 0.1), v["next_limiter"], mark(next_right))
    } else
        row = row "- | - | - | "
    if (v["applied"] + 0 > 0) {
        promised = v["predicted_images_per_second"] / v["images_per_second"] - 1
        got = v["applied"] / v["slow"] - 1
        fixable[t]++
        kept[t] += got >= 0.8 * promised
        lost[t] += got < -0.01
        row = row sprintf("%+.0f %% | %+.0f %%%s | ", 100 * promised, 100 * got, mark(got >= 0.8 * promised && got >= -0.01))
    } else
        row = row "- | - | "
    rows[t, ++nr_rows[t]] = row sprintf("%.1f %% | %.2f |", 100 * v["spread"], v["others"])
}

# The other side of a control has a step of half the time, and no rate is above the step's (limit). One in which
# that gains 5 % is not balanced, and not a control: its verdict is in the table, but does not count.
function control(t,    gain, alarm) {
    gain = (v["clean"] > v["limit"] ? v["clean"] : v["limit"]) / v["slow"] - 1
    alarm = gain < 0.05 && v["verdict"] != "balanced"
    if (gain < 0.05) controls[t]++
    else no_controls[t]++
    alarms[t] += alarm
    control_rows[t, ++nr_control_rows[t]] = sprintf("| %s | %s%s | %s%s | %s | %.2f |", v["case"], percent(gain), mark(gain < 0.05),
        v["verdict"] == "-" ? "nothing" : v["verdict"], mark(!alarm), alarm ? v["limiter"] : "", v["others"])
}

function table_of(t,    i, j, n, names, columns, line, list) {
    n = split("read decompress decode augment batch copy step checkpoint", names, " ")
    split("read decompress decode augment batch copy step checkpoint balanced inconclusive nothing", columns, " ")
    print "\n| planted \\ named | read | decompress | decode | augment | batch | copy | step | checkpoint | balanced | inconclusive | nothing |"
    print "|---|---|---|---|---|---|---|---|---|---|---|---|"
    for (i = 1; i <= n; i++) {
        line = "| " names[i]
        for (j = 1; j <= 11; j++) line = line " | " ((t, names[i], columns[j]) in matrix ? matrix[t, names[i], columns[j]] : "")
        print line " |"
    }
    for (i = 1; i <= nr_errors[t]; i++) list[i] = errors[t, i]
    print ""
    print "- Planted stage named: " share(named[t], planted[t]) "; false alarms on controls: " share(alarms[t] + 0, controls[t]) (no_controls[t] ? " (" no_controls[t] " more: not balanced)" : "") "."
    print "- Advised key as stated beforehand: " share(keys[t], planted[t]) "."
    print "- Predicted against real speed-up when the plant is removed, relative error: " quantiles(list, nr_errors[t]) "."
    print "- Next limit correct: " share(nexts[t] + 0, nr_errors[t]) "."
    print "- Printed setting applied: at least 80 % of the promised gain in " share(kept[t] + 0, fixable[t]) "; a loss over 1 %: " share(lost[t] + 0, fixable[t]) "."
}

# The goals, as lines of a test.
function ask(good, what, got) { print good ? "ok - " what : "not ok - " what ": " got }
function judge_half(t, where,    i, n, list) {
    n = nr_errors[t] + 0
    for (i = 1; i <= n; i++) list[i] = errors[t, i]
    sort(list, n)
    ask(planted[t] == 64 && named[t] == 64, "every planted stage is named " where, share(named[t] + 0, planted[t]))
    ask(controls[t] == 8 && !alarms[t], "no control raises an alarm " where, share(alarms[t] + 0, controls[t]))
    ask(keys[t] == 64, "every key is the one stated beforehand " where, share(keys[t] + 0, planted[t]))
    ask(n && list[int((n + 1) / 2)] <= 0.03 && list[n] <= 0.1, "predicted speed-ups are right within 3 % (median) and 10 % (at most) " where, quantiles(list, n))
    ask(n && nexts[t] >= 0.95 * n, "the next limit is right in 95 % " where, share(nexts[t] + 0, n))
    ask(fixable[t] && kept[t] >= 0.9 * fixable[t] && !lost[t], "printed settings keep 80 % of their promise in 90 %, and never lose 1 % " where, share(kept[t] + 0, fixable[t]) ", " lost[t] + 0 " lost")
}

END {
    if (judge) {
        judge_half(0, "on a quiet box")
        judge_half(1, "beside a tenant")
        exit
    }
    title[0] = "On a quiet box"
    title[1] = "Beside a tenant that burns half a core"
    for (t = 0; t < 2; t++)
        if (nr[t]) { print "## " title[t]; table_of(t); print "" }
    print "## Every case"
    for (t = 0; t < 2; t++) {
        if (!nr[t]) continue
        print "\n### " title[t] "\n"
        print "Real: rate without the plant / rate with it. Predicted: the same, from the profile. Promised, applied: the gain of the printed setting, predicted and measured. Spread: of two equal runs. Others: cores used by other processes. **x**: a miss.\n"
        print "| case | real | named | key: value | predicted | error | next | promised | applied | spread | others |"
        print "|---|---|---|---|---|---|---|---|---|---|---|"
        for (i = 1; i <= nr_rows[t]; i++) print rows[t, i]
        print "\n| control | largest gain of removing a stage | verdict | limiter | others |"
        print "|---|---|---|---|---|"
        for (i = 1; i <= nr_control_rows[t]; i++) print control_rows[t, i]
    }
}
