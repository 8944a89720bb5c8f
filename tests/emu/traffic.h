/* Counts what launches of the emulated GPU read and write in its memory. Own kernels are compiled with
 * gcc's -fsanitize=thread, whose calls at each access of memory come here, not to a sanitizer
 * (build/tests/emu/fma/libnnpipe-cuda.so is); calls of the emulated libraries add the bytes of their
 * operands, and copies and fills theirs. A launch's bytes are counted twice: each access (the caches' load), and
 * each sector of 32 bytes once (the memory's, if the caches keep what the launch reads again).
 *
 * Environment: NNPIPE_EMU_TRAFFIC (a file, written when the process ends). Counting begins at the first set_step(),
 * which begins a batch. Emulated libraries then write numbers of a real size instead of results.
 *     steps N; graph NODES      batches, and nodes of graphs that ran
 *     KERNEL in LAUNCHER; LAUNCHES READ READ_ONCE WRITTEN WRITTEN_ONCE PASSES LEAST     a line for each kernel, of all
 *                               batches
 * PASSES: of shared memory, by the accesses of a launch's first block. A warp's access takes as many passes as it
 * wants different words of one of the 32 banks, 8 bytes at a time by half a warp, 16 by a quarter; LEAST: without
 * conflicts. Accesses are as wide as this compiler makes them: nvcc may join some. */
#ifndef NP_EMU_TRAFFIC_H
#define NP_EMU_TRAFFIC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

bool np_emu_traffic(void); /* is anything counted? */
/* The device's memory lies within these addresses. */
void np_emu_traffic_region(const void *region, size_t bytes);
/* Accesses between the two are those of a launch of this name. */
void np_emu_traffic_begin(const char *name);
void np_emu_traffic_end(void);
/* Shared memory of the block that runs; thread: the one that goes on in it. */
void np_emu_traffic_share(const void *memory, size_t bytes);
void np_emu_traffic_thread(unsigned thread);
void np_emu_traffic_block_end(void);
/* A library's call, a copy or a fill. */
void np_emu_traffic_add(const char *name, uint64_t read, uint64_t written);
void np_emu_traffic_node(void); /* of a graph */
/* Numbers between -scale and scale. bytes: of an element, 4 (f32) or 2 (bf16). */
void np_emu_traffic_fill(void *to, int64_t elements, int bytes, float scale);

#ifdef __cplusplus
}
#endif

#endif
