# Lines of real.sh -> a table; with -v line=1 a line for the terminal, with summary=1 the sums alone, with judge=1 exit
# code 1 where they are not good enough. NAME=VALUE fields, `-`: not known.
function mark(good) { return good ? "" : " **x**" }
function plain(text) { gsub(/_/, " ", text); return text }
{
    delete v
    for (i = 1; i <= NF; i++) { at = index($i, "="); v[substr($i, 1, at - 1)] = substr($i, at + 1) }
    said = v["verdict"] == "limited" ? v["limiter"] : v["verdict"]
    key = v["setting"] == "-" ? "none" : v["setting"]
    right = index("|" v["wanted"] "|", "|" said "|") > 0
    key_right = index("|" v["keys"] "|", "|" key "|") > 0
    sound = v["contradiction"] == "none"
    promised = applied = "-"
    kept = 1
    if (v["applied"] != "-" && v["before"] != "-" && v["before"] > 0) {
        p = v["predicted_images_per_second"] / v["images_per_second"] - 1
        a = v["applied"] / v["before"] - 1
        promised = sprintf("%+.0f %%", 100 * p)
        applied = sprintf("%+.0f %%", 100 * a)
        kept = a >= 0.8 * p
        tried++
    } else if (key != "none") {
        kept = 0
        applied = "could not be run"
        tried++
    }
    n++; named += right; keys += key_right; consistent += sound; held += kept && key != "none"
    value = key == "none" ? "none" : key ": " plain(v["value"])
    if (line)
        printf "%s: %s%s, %s%s, promised %s, applied %s%s, %s; %.4g img/s, noise %.1f %%, others %.2f cores, %.0f s%s\n", v["case"], said, right ? "" : " (MISSED: " v["wanted"] ")",
            value, key_right ? "" : " (NOT ONE OF " v["keys"] ")", promised, applied, kept ? "" : " (NOT KEPT)",
            sound ? "consistent" : "CONTRADICTS: " plain(v["contradiction"]), v["images_per_second"], 100 * v["noise"], v["others"], v["seconds"],
            v["reason"] == "-" ? "" : "; " plain(v["reason"])
    rows = rows sprintf("| %s | %s | %s%s | %s%s | %.4g | %s | %s | %s%s | %s | %.1f %% | %.2f |\n", plain(v["case"]), v["wanted"], said, mark(right), value, mark(key_right),
        v["images_per_second"], v["next_limiter"], promised, applied, mark(kept), sound ? "none" : plain(v["contradiction"]) mark(0), 100 * v["noise"], v["others"])
}
END {
    if (line) exit
    sums = sprintf("%d cases: the stage is named in %d, a useful key (or none, if no key helps) in %d, no figures contradict each other in %d; the printed setting reached at least 80 %% of its predicted gain in %d of %d.\n",
        n, named, keys, consistent, held, tried)
    if (judge) { print sums; exit !(n > 0 && named >= n - n / 24 && held >= tried - n / 24 && consistent == n) }
    printf "%s", sums
    if (summary) exit
    print "\n| case | should be named | named | key: value | img/s | next | promised | applied | contradiction | noise | others |\n|---|---|---|---|---|---|---|---|---|---|---|"
    printf "%s", rows
}
