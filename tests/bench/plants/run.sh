#!/bin/sh
# Plants bottlenecks in real runs and judges `nnpipe profile` by them: 64 cases and 8 balanced controls
# (cases.txt), on a quiet box and again beside a tenant that burns half a core. Writes docs/PLANTS.md.
#   SAMPLE=1      one severity a class, no tenant, in under four minutes; the table goes to $STATE
#   TENANT=0|1    only the quiet half, or only the other
#   ONLY=WORDS    cases whose name has one of these words ("decode-small read")
#   PROFILE_FLAGS more flags for the profiler, as --deep
#   PROFILER=WORDS another command in place of `nnpipe profile`
#   NO_PROFILE=1  only checks that the plants slow the runs down as stated
#   REPORT=1      runs nothing: the page from the lines that are there
#   JUDGE=1       says of each thing that is asked for whether it holds, as a test does
#   TRIES=N       at most so many repetitions of a case if the machine is not quiet (3); QUIET_WAIT=N: the
#                 seconds that are waited before each for others to rest (30)
# Resumable: each case leaves a line in $STATE (build/plants/COMMIT); remove it to run a case again.
cd "$(dirname "$0")/../../.." || exit 1
here=tests/bench/plants
bin=${NNPIPE_BUILD:-$PWD/build}/tests/plants
planted=$bin/nnpipe
data=${PLANTS_DATA:-$PWD/build/plants/data}
state=${STATE:-$PWD/build/plants/$(git rev-parse --short HEAD)${SAMPLE:+-sample}}
cores=$(nproc)
seconds=${SECONDS_EACH:-3}
tries=${TRIES:-3}
[ -z "${SAMPLE:-}" ] || { seconds=1.5 TENANT=0 tries=1; }
work=$(mktemp -d "${TMPDIR:-/tmp}/nnpipe-plants.XXXXXX")
tenant=
# Run folders lie in memory: how long a checkpoint takes is then the plant's doing alone.
runs=$work/runs
[ -w /dev/shm ] && runs=$(mktemp -d /dev/shm/nnpipe-plants.XXXXXX)
trap '[ -z "$tenant" ] || kill "$tenant"; rm -rf "$work" "$runs"' EXIT
trap 'exit 130' INT TERM
export XDG_CACHE_HOME="$data/cache"
. "$here/make_case.sh"
mkdir -p "$state" "$data"
[ -x "$planted" ] || { echo "make plants first"; exit 1; }
# What the profiler says of the planted run, into $dir/said.
profile() {
    as_planted timeout 180 ${PROFILER:-$planted profile} "$dir/config.yaml" --json ${PROFILE_FLAGS:-} \
        >"$dir/profile.json" 2>"$dir/profile.err" || return 1
    grep '"event": *"done"' "$dir/profile.json" >"$dir/said"
}

# The planted run with the printed setting: images a second, or - without a setting.
apply() {
    key=$(json setting <"$dir/said") value=$(json value <"$dir/said")
    case $key in '' | null | -) echo - ;;
    *)
        # A cache pays from the second epoch on.
        [ "$key" != loader.cache ] || warmup=epochs
        run_rate planted -o "$key=$value" | cut -d ' ' -f 1
        ;;
    esac
    warmup=
}

# Core-seconds that the box has used so far, and the time.
box_seconds() {
    awk 'NR == FNR { if ($1 == "cpu") used = ($2 + $3 + $4 + $7 + $8 + $9) / 100; next } { print used, $1 }' \
        /proc/stat /proc/uptime
}

# Waits, at most half a minute, until other processes use less than a quarter of a core.
await_calm() {
    for second in $(seq "${QUIET_WAIT:-30}"); do
        before=$(box_seconds)
        sleep 1
        printf '%s\n%s\n' "$before" "$(box_seconds)" |
            awk -v mine="$tenant_on" 'NR == 1 { used = $1; at = $2 }
                END { exit !(($1 - used) / ($2 - at) <= 0.25 + 0.5 * mine) }' && return
    done
}

# Was the box quiet enough to judge by? (the tenant is ours)
calm() { awk "BEGIN { exit !($spread <= 0.03 && $others <= 0.25 + 0.5 * $tenant_on) }"; }

word() { [ -n "${1:-}" ] && [ "$1" != null ] && echo "$1" | tr ' ' '_' || echo -; }

# One case: planted, clean, clean, planted; then the profiler; then its setting. One line of NAME=VALUE.
one_case() {
    make_case || return 1
    p1=$(run_rate planted) && c1=$(run_rate clean) && c2=$(run_rate clean) && p2=$(run_rate planted) || {
        cat "$dir/rate.err"
        return 1
    }
    others=$(printf '%s\n' "$p1" "$c1" "$c2" "$p2" | awk '{ s += $2 } END { printf "%.2f", s / NR }')
    slow=$(calc "(${p1% *} + ${p2% *}) / 2") clean=$(calc "(${c1% *} + ${c2% *}) / 2")
    spread=$(awk "BEGIN {
        a = ${p1% *} / ${p2% *}; a = a < 1 ? 1 - a : a - 1
        b = ${c1% *} / ${c2% *}; b = b < 1 ? 1 - b : b - 1
        printf \"%.4f\", (a > b ? a : b)
    }")
    [ "$try" -ge "$tries" ] || calm || return 2
    : >"$dir/said"
    applied=-
    if [ -z "${NO_PROFILE:-}" ]; then
        profile || { tail -n 3 "$dir/profile.err" | tr '\n' ' '; echo "(the profiler failed)"; }
        applied=$(apply)
    fi
    printf '%s' "case=$name class=$class net=$net kind=$kind severity=$severity tenant=$tenant_on"
    printf '%s' " want_stage=$stage want_key=$key_wanted want_next=$next"
    printf '%s' " loader=$loader limit=$x slow=$slow clean=$clean spread=$spread others=$others applied=${applied:--}"
    for field in verdict limiter setting value images_per_second predicted_images_per_second next_limiter \
        next_images_per_second noise overhead; do
        printf ' %s=%s' "$field" "$(word "$(json "$field" <"$dir/said")")"
    done
    echo
}

# In SAMPLE the second severity of the first line of a class, the nets in turn.
chosen() {
    [ -z "${ONLY:-}" ] || { for word in $ONLY; do case $name in *"$word"*) return 0 ;; esac; done; return 1; }
    [ -n "${SAMPLE:-}" ] || return 0
    case $name in
    read-small-bandwidth-2 | decompress-photos-repeat-1.6 | decode-photos-files-1.6 | augment-small-repeat-2.5 | \
        batch-small-pauses-1.75 | copy-photos-slow-1.6 | step-small-slow-1.6 | checkpoint-small-slow-1.6 | \
        control-small-copy-1) return 0 ;;
    esac
    return 1
}

all_cases() {
    grep -v '^#' "$here/cases.txt" | while read -r class net kind stage key_wanted next severities; do
        for severity in $severities; do
            name=$class-$net-$kind-$severity
            line=$state/$name${1:+.tenant}
            chosen && [ ! -s "$line" ] || continue
            tenant_on=${1:-0} dir=$work/$name
            for try in $(seq "$tries"); do
                [ -n "${SAMPLE:-}" ] || await_calm
                one_case >"$dir.line" 2>"$dir.err" </dev/null
                [ $? = 2 ] || break
            done
            if [ "$(grep -c ^case= "$dir.line")" = 1 ]; then
                grep ^case= "$dir.line" >"$line"
                awk -f "$here/line.awk" "$line"
            else
                echo "$name: no result: $(tail -n 2 "$dir.line" "$dir.err" | tr '\n' ' ')"
            fi
            rm -rf "$dir"
        done
    done
}

all_lines() {
    grep -v '^#' "$here/cases.txt" | while read -r class net kind stage key next severities; do
        for severity in $severities; do
            cat "$state/$class-$net-$kind-$severity" "$state/$class-$net-$kind-$severity.tenant" 2>/dev/null
        done
    done
}

# Read whole before anything runs: the file may change meanwhile.
main() {
    [ -n "${REPORT:-}" ] || make_data >"$state/data.log" 2>&1 || { tail -n 3 "$state/data.log"; exit 1; }
    [ "${TENANT:-0}" = 1 ] || [ -n "${REPORT:-}" ] || all_cases
    if [ "${TENANT:-1}" = 1 ] && [ -z "${REPORT:-}" ]; then
        "$bin/tenant" 0.5 &
        tenant=$!
        all_cases 1
    fi
    page=docs/PLANTS.md
    [ -z "${SAMPLE:-}${ONLY:-}${NO_PROFILE:-}" ] || page=$state/PLANTS.md
    all_lines >"$work/all"
    cat "$here/about.md" >"$page.new" &&
        {
            echo
            cpu=$(sed -n 's/^model name[^:]*: //p' /proc/cpuinfo | head -n 1)
            echo "Measured $(date -u +%Y-%m-%d), commit $(git rev-parse --short HEAD), $cores cores of $cpu."
            echo
            awk -f "$here/report.awk" "$work/all"
            echo
            sed -n '/^## On real things/,$p' docs/PLANTS.md # real.sh's
        } >>"$page.new" && mv "$page.new" "$page"
    awk -f "$here/report.awk" "$work/all" | sed -n '1,/^## Every case/p'
    echo "the whole table: $page"
    [ -z "${JUDGE:-}" ] || awk -v judge=1 -f "$here/report.awk" "$work/all"
}
main
exit
