# Whole, what other scripts run as a sample: more seeds of the self-test and of the CUDA device, the box's units under
# a real systemd, each power cut of a long life of the queue, more pipelines for the profiler's model, and the nets'
# slopes without AVX2.
. "$(dirname "$0")/../lib.sh"
[ "${NNPIPE_BUILD:-build}" = build ] || [ "${NNPIPE_BUILD##*/}" = build ] || {
    skip "the samples of other scripts, whole" "a build with sanitizers takes hours"
    exit 0
}
unit=${NNPIPE_BUILD:-$ROOT/build}/tests/unit_tests
t "the queue after any power cut" env NNPIPE_LONG=1 "$unit" --filter 'queue/keeps_acknowledged_changes*'
t "the model's plants" env NNPIPE_LONG=1 "$unit" --filter 'model/a_planted*'
t "slopes without AVX2" env NNPIPE_CPU=sse2 ONEDNN_MAX_CPU_ISA=SSE41 "$unit" --filter '@(gradients|values)/*'
for script in flow/selftest cuda/device flow/units; do
    NNPIPE_SEEDS=8 UNITS=box sh "$ROOT/tests/$script.sh" >"$OUT" 2>&1
    code=$?
    grep -E '^(ok|not ok|skip) - ' "$OUT"
    [ $code -eq 0 ] || failed=$((failed + 1))
done
[ "$failed" -eq 0 ]
