# docs/RECIPES.md from the comments of tests/golden/recipes/*.yaml: a line of the table for each file. The file's first
# lines are `# Recipe:`, `# Source:` and `# Not said:`; a comment line without a key continues the one before it.
# usage: LC_ALL=C awk -f recipes_table.awk recipes/*.yaml
function row() {
    if (file == "") return
    gsub(/\|/, "\\|", text["Recipe"])
    printf "| %s | [%s](../tests/golden/recipes/%s) | %s | %s |\n", text["Recipe"], file, file, text["Source"], \
        text["Not said"]
}
BEGIN {
    print "# Published recipes as configs\n"
    print "Each recipe is written as a config with its publisher's numbers, as near as nnpipe can say it; the last"
    print "column is what it cannot say. `sh tests/golden/recipes.sh` checks all of them and runs some;"
    print "`sh tests/golden/recipes_campaign.sh` runs each for two steps on small pictures. None was trained to"
    print "its end. A batch for several GPUs is one batch; where it does not fit the memory, `train.accumulate` divides it."
    print "This page is made from the configs by `tests/golden/recipes_table.awk`.\n"
    print "| recipe | config | source | what it does not say |"
    print "|---|---|---|---|"
}
FNR == 1 { row(); split("", text); file = FILENAME; sub(/.*\//, "", file); on = 1; key = "" }
on && !/^# / { on = 0 }
on {
    line = substr($0, 3)
    if (match(line, /^(Recipe|Source|Not said): /)) {
        key = substr(line, 1, RLENGTH - 2)
        line = substr(line, RLENGTH + 1)
        text[key] = line
    } else text[key] = text[key] " " line
}
END { row() }
