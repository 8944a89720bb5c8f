/* A CUDA runtime on the CPU, for tests: the functions of cuda_runtime_api.h that the plugin calls,
 * over one made-up GPU, "Emulated H200". An operation queued on a stream does not run then but when the
 * host must see it, or asks for an event, or frees memory; and then in an order among the streams
 * that is drawn from a seed, with waits for events honoured. So a missing wait shows as
 * wrong bytes with some seed, and the same seed gives the same run. One thread at a time: a lock is
 * held through every call.
 *
 * New device memory holds 0xff (no number in any float type) and has guard bytes 0xff around it that must not change.
 * Behaviour that a GPU leaves undefined ends the program with a message: a wrong handle, memory that
 * is not the device's, an API call from inside a stream, pinned memory that is freed or
 * unregistered while queued work uses it. Allowed, because CUDA defines it: cudaFree()
 * waits for all that is queued; a stream, an event or a graph in use may be destroyed, and its
 * queued work still runs. Work queued by an emulated library is assumed to use only the device's memory.
 *
 * Environment: NNPIPE_EMU_SEED (at first 1), NNPIPE_EMU_MEMORY (bytes of the GPU, 2 GiB),
 * NNPIPE_EMU_DEVICES (1; 0: cudaErrorNoDevice), NNPIPE_EMU_FAIL (N: the Nth call that can fail
 * does; 0: none; with NNPIPE_EMU_FAIL_RANK=R only in the process whose NNPIPE_RANK that is),
 * NNPIPE_EMU_DIES (a file; once it holds a number N, the GPU dies at a process's Nth call, or at
 * the next one, and each call fails from then on), NNPIPE_EMU_DROP (N: a stream's Nth wait for an event is left
 * out, as by a bug),
 * NNPIPE_EMU_CLOCK (1: events' times are modelled: queueing takes the host a microsecond, each operation the
 * device one, unless np_emu_spend() sets another time; a stream works beside the host),
 * NNPIPE_EMU_STEADY (1: after the first graph of a batch, an allocation of device or pinned memory, or a copy
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

/* Queues run(job), which may run several times (a captured graph runs it at each launch);
 * then drop(job), once. drop may be NULL. */
void np_emu_queue(void *stream, void (*run)(void *job), void (*drop)(void *job), void *job);
/* The same for work that waits for another process: before run(job), ready(job) moves what it can without a
 * wait, and returns true when all has been moved; until then other streams go on. Other processes must not
 * depend on this one's host, so whoever queues such work calls np_emu_progress() from a thread, which runs
 * one queued operation; false: none can run now. */
void np_emu_queue_waiting(void *stream, bool (*ready)(void *job), void (*run)(void *job),
    void (*drop)(void *job), void *job);
bool np_emu_progress(void);
/* Sets the times of the next queued operation in the modelled clock, from inside a library: extra time of the
 * host before it is queued, and the device's time. */
void np_emu_spend(uint64_t host_ns, uint64_t device_ns);
/* From inside a library, at a call that a capture forbids: is the stream capturing? Then this breaks the
 * capture. */
bool np_emu_break_capture(void *stream);
/* Can the device access all of these bytes: device memory, or host memory registered with it? */
bool np_emu_holds(const void *memory, size_t bytes);
/* Ends the program: "cudart: WHO: TEXT". */
_Noreturn void np_emu_die(const char *who, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Counts a call that can fail; true if NNPIPE_EMU_FAIL selects this one. */
bool np_emu_fails(const char *call);
/* Sets what the environment sets otherwise: seed, bytes of the GPU, the call that fails (the count restarts). */
void np_emu_set(uint64_t seed, uint64_t memory_bytes, uint64_t fail);
/* The process exits, as its runtime sees it: each call fails with cudaErrorCudartUnloading until np_emu_set(). */
void np_emu_unload(void);
uint64_t np_emu_draw(void); /* the next random number */
/* Counts of the process so far: operations run, bytes of device memory in use, their maximum,
 * calls counted by np_emu_fails(). */
struct np_emu_counts {
    uint64_t ran, bytes, max_bytes, calls;
};
void np_emu_count(struct np_emu_counts *ret_counts);

#ifdef __cplusplus
}
#endif

#endif
