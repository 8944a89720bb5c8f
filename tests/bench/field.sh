# field NAME: prints the number behind "NAME" in the last JSON line of standard input.
field() { tail -n 1 | sed -n 's/.*"'"$1"'": *\(-\{0,1\}[0-9.e+-]*\).*/\1/p'; }
# median: of the numbers on standard input, one a line.
median() { sort -g | awk '{ v[NR] = $1 } END { print NR % 2 ? v[(NR + 1) / 2] : (v[NR / 2] + v[NR / 2 + 1]) / 2 }'; }
