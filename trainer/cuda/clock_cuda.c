/* Converts GPU events to the host's time. cudaEventElapsedTime() gives float milliseconds,
 * precise for seconds but not for hours, and the two clocks drift. So the anchor is renewed: an
 * event on an idle stream passes as soon as it is recorded. Trainer thread. */
#include "trainer/cuda/clock_cuda.h"

#include "loader/base/clock.h"

#define RENEW_NS   1000000000u
#define DELAYED_NS 1000000u /* an anchor that passed this late waited: its time is unknown */

int np_cuda_clock_start(struct np_cuda_clock *clock)
{
    cudaError_t status = cudaStreamCreateWithFlags(&clock->stream, cudaStreamNonBlocking);

    for (int i = 0; i < 2 && status == cudaSuccess; i++)
        status = cudaEventCreateWithFlags(&clock->anchors[i], cudaEventBlockingSync);
    if (status == cudaSuccess)
        status = cudaEventRecord(clock->anchors[0], clock->stream);
    if (status == cudaSuccess)
        status = cudaEventSynchronize(clock->anchors[0]);
    clock->anchor_ns[0] = np_now_ns();
    return (int)status;
}

void np_cuda_clock_stop(struct np_cuda_clock *clock)
{
    for (int i = 0; i < 2; i++)
        if (clock->anchors[i])
            cudaEventDestroy(clock->anchors[i]);
    if (clock->stream)
        cudaStreamDestroy(clock->stream);
}

static uint64_t since_anchor(
    const struct np_cuda_clock *clock, cudaEvent_t event, uint64_t at_most_ns)
{
    uint64_t anchor_ns = clock->anchor_ns[clock->current];
    float ms = 0;

    if (cudaEventElapsedTime(&ms, clock->anchors[clock->current], event) != cudaSuccess) {
        cudaGetLastError();
        return at_most_ns;
    }
    double ns = (double)anchor_ns + (double)ms * 1e6;
    return ns > (double)at_most_ns ? at_most_ns : ns > 0 ? (uint64_t)ns : 0;
}

/* The runtime may keep "not ready" as the last error. Any other last error belongs to a launch and
 * stays. */
static bool has_passed(cudaEvent_t event)
{
    cudaError_t status = cudaEventQuery(event);

    if (status == cudaErrorNotReady && cudaPeekAtLastError() == cudaErrorNotReady)
        cudaGetLastError();
    return status == cudaSuccess;
}

static void renew(struct np_cuda_clock *clock, uint64_t now_ns)
{
    int next = !clock->current;

    if (!clock->renewing && now_ns - clock->anchor_ns[clock->current] > RENEW_NS) {
        clock->anchor_ns[next] = np_now_ns();
        clock->renewing = cudaEventRecord(clock->anchors[next], clock->stream) == cudaSuccess;
    } else if (clock->renewing && has_passed(clock->anchors[next])) {
        uint64_t passed_ns = since_anchor(clock, clock->anchors[next], now_ns);

        if (passed_ns > clock->anchor_ns[next] + DELAYED_NS)
            clock->anchor_ns[next] = passed_ns;
        clock->current = next;
        clock->renewing = false;
    }
}

uint64_t np_cuda_clock_passed_ns(struct np_cuda_clock *clock, cudaEvent_t event)
{
    uint64_t now_ns = np_now_ns(), passed_ns = since_anchor(clock, event, now_ns);

    renew(clock, now_ns);
    return passed_ns;
}
