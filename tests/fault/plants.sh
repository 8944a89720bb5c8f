# A planted leak, overflow and race each make a sanitizer run fail; without the plant it passes.
. "$(dirname "$0")/../lib.sh"
cd "$ROOT" || exit 1

build() { # build SANITIZER PLANT -> $TMP/plants
    gcc -std=c11 -D_GNU_SOURCE -g -O1 -pthread -I. -DNP_SAN "-fsanitize=$1" "-D$2" \
        -o "$TMP/plants" tests/fault/plants.c tests/unit/runner.c -lm
}
clean() { build "$1" PLANT_NOTHING && "$TMP/plants"; }
found() { # found SANITIZER PLANT WORDS
    build "$1" "$2" || return 1
    if "$TMP/plants" >"$TMP/found.txt" 2>&1; then
        echo "the run passed with $2"
        return 1
    fi
    grep -q "$3" "$TMP/found.txt" || { head -n 3 "$TMP/found.txt"; return 1; }
}
t "a clean test passes under address and undefined" clean address,undefined
t "a clean test passes under thread" clean thread
t "a planted leak makes the run fail" found address,undefined PLANT_LEAK "LeakSanitizer"
t "a planted overflow makes the run fail" found address,undefined PLANT_OVERFLOW "heap-buffer-overflow"
t "a planted race makes the run fail" found thread PLANT_RACE "data race"
