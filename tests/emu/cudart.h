/* A CUDA runtime on the CPU, for tests: the functions of cuda_runtime_api.h that the plugin calls,
 * over one made-up GPU, "Emulated H200". An operation queued on a stream does not run then but when the
 * host must see it, or asks for an event, or frees memory; and then in an order among the streams
 * that is drawn from a seed, with waits for events honoured. So a wait that was left out shows as
 * wrong bytes with some seed, and the same seed gives the same run. One thread at a time: a lock is
 * held through every call.
 *
 * New device memory holds 0xff (no number in any float type) and has 0xff around it that must stay.
 * What a GPU would leave undefined ends the program with a message: a handle that is none, memory
 * that is none of the device's, an API call from inside a stream, pinned memory that is freed or
 * unregistered while queued work uses it. Not a mistake, because CUDA says what happens: cudaFree()
 * waits for all that is queued; a stream, an event or a graph in use may be destroyed, and what is
 * queued runs on. What an emulated library queues is taken to use the device's memory alone.
 *
 * Environment: NNPIPE_EMU_SEED (at first 1), NNPIPE_EMU_MEMORY (bytes of the GPU, 2 GiB),
 * NNPIPE_EMU_DEVICES (1; 0: cudaErrorNoDevice), NNPIPE_EMU_FAIL (N: the Nth call that can fail
 * does; 0: none), NNPIPE_EMU_DIES (a file; once it holds a number N, the GPU dies at a process's Nth call, or at
 * the next one, and each call fails from then on), NNPIPE_EMU_DROP (N: a stream's Nth wait for an event is left
 * out: what a bug would be),
 * NNPIPE_EMU_CLOCK (1: events' times are modelled: queueing takes the host a microsecond, each operation the
 * device one, unless np_emu_spend() says else; a stream works while the host goes on),
 * NNPIPE_EMU_STEADY (1: behind the first graph of a batch, device or pinned memory that is taken, or a copy
 * from pageable memory, for which a GPU's host would wait, ends the program),
 * NNPIPE_EMU_BYTES (a file: the bytes of device memory in use at that graph). */
#ifndef NP_EMU_CUDART_H
#define NP_EMU_CUDART_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* --- for the emulated libraries and for tests ------------------------------------------------- */

/* Queues run(job), to be run as often as it is wanted (a captured graph runs it at each launch);
 * then drop(job), once. drop may be NULL. */
void np_emu_queue(void *stream, void (*run)(void *job), void (*drop)(void *job), void *job);
/* What the next operation queued takes in the modelled clock, from inside a library: more of the host's time
 * before it is queued, and the device's own. */
void np_emu_spend(uint64_t host_ns, uint64_t device_ns);
/* As a call that a capture forbids, from inside a library: is the stream capturing? Then the capture is
 * broken. */
bool np_emu_break_capture(void *stream);
/* Does the device reach all of these bytes: device memory, or host memory registered with it? */
bool np_emu_holds(const void *memory, size_t bytes);
/* Ends the program: "cudart: WHO: TEXT". */
_Noreturn void np_emu_die(const char *who, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Counts a call that can fail; true where NNPIPE_EMU_FAIL says that this one does. */
bool np_emu_fails(const char *call);
/* Sets what the environment sets otherwise: seed, bytes of the GPU, the call that fails (the count restarts). */
void np_emu_set(uint64_t seed, uint64_t memory_bytes, uint64_t fail);
uint64_t np_emu_draw(void); /* the next random number */
/* What the process did so far: operations run, bytes of device memory in use, the most there were,
 * calls counted by np_emu_fails(). */
struct np_emu_counts {
    uint64_t ran, bytes, max_bytes, calls;
};
void np_emu_count(struct np_emu_counts *ret_counts);

#ifdef __cplusplus
}
#endif

#endif
