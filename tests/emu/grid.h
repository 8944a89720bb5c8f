/* A GPU's grid on the CPU: the definitions for a .cu file to compile as plain C++ and run here. Each thread
 * of a block is a fiber, switched at barriers and shuffles; threads of a block and blocks of a grid
 * run in an order drawn from a seed, so that a missing barrier gives other numbers with another
 * seed. Behaviour that a GPU leaves undefined ends the program with a message: a barrier that only some
 * threads reach, a shuffle from a lane that takes no part, a launch beyond the limits. Shared memory
 * holds 0xff (no number in any float type) until a block writes it.
 *
 * Any thread may launch; shared memory is a thread's own. CUDA's cuda_bf16.h and cuda_fp16.h do the
 * arithmetic of halves on the host. Dynamic shared memory is not here: no kernel of ours has any. */
#ifndef NP_GRID_H
#define NP_GRID_H

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "tests/emu/traffic.h"

#undef __global__
#undef __device__
#undef __host__
#undef __launch_bounds__
#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
#undef __shared__ /* NP_SHARED says which bytes they are */
#define NP_SHARED(type, name, dims)                                                                \
    static thread_local type name dims;                                                            \
    np_emu_share(&name, sizeof(name))

/* Without a call at each access, also from a library. */
#define NP_EMU_THREAD __thread __attribute__((tls_model("initial-exec")))
extern NP_EMU_THREAD uint3 threadIdx, blockIdx, blockDim, gridDim;

/* The parts of a kernel's arguments that may be addresses. */
struct np_emu_arguments {
    const char *kernel;
    std::string what; /* for traffic.h: the kernel, and the function that launches it */
    std::vector<uint64_t> pointers, words; /* arguments themselves; words of structures */
};
/* Runs body once for each thread of each block: at once, or when the owner of np_emu_enqueue runs it. */
void np_emu_launch(void *stream, dim3 blocks, dim3 threads, size_t shared,
    np_emu_arguments arguments, std::function<void()> body);

extern "C" {
/* NULL: launches run at once. Otherwise it gets every launch: it calls run(job) any number of times, on any
 * thread (a captured graph runs it again and again), then drop(job) once. */
extern void (*np_emu_enqueue)(
    void *stream, void (*run)(void *job), void (*drop)(void *job), void *job);
/* NULL, or called for each of np_emu_arguments, at the launch and when it runs; ends the program if a GPU
 * could not access the address. */
extern void (*np_emu_argument)(const char *kernel, uint64_t word, int is_pointer);
/* NULL, or called before each launch is queued: a kernel is loaded at its first launch. */
extern void (*np_emu_load)(void *stream, const void *kernel);
/* Has a job, as np_emu_enqueue gets it, an argument that is an address in these bytes? */
bool np_emu_job_uses(const void *job, const void *memory, size_t bytes);
/* The seed of later orders; 0: threads and blocks run in the order of their numbers. At first 1. */
void np_emu_seed(uint64_t seed);
/* Gives the block this shared memory, filled with 0xff before its first thread gets here. */
void np_emu_share(void *memory, size_t bytes);
void np_emu_barrier(int line);
/* All lanes of mask meet; each gives its value and takes that of lane `source`. */
uint64_t np_emu_exchange(unsigned mask, uint64_t value, int source);
int np_emu_lane(void);
}

template <typename T> void np_emu_note(np_emu_arguments *noted, const T &value)
{
    if constexpr (std::is_pointer_v<T>) {
        noted->pointers.push_back((uint64_t)value);
    } else if constexpr (std::is_class_v<T>) {
        T copy = value;

        __builtin_clear_padding(&copy); /* of whatever lay there before */
        for (size_t at = 0; at + sizeof(uint64_t) <= sizeof(T); at += sizeof(uint64_t)) {
            uint64_t word;

            memcpy(&word, (const char *)&copy + at, sizeof(word));
            noted->words.push_back(word);
        }
    }
}

/* Arguments are worked out at the launch, as a GPU does. */
template <typename... P, typename... A>
void np_emu_start(const char *name, const char *launcher, void (*kernel)(P...), dim3 blocks,
    dim3 threads, size_t shared, void *stream, A &&...arguments)
{
    std::tuple<P...> values(std::forward<A>(arguments)...);
    np_emu_arguments noted = {name, name, {}, {}};

    if (np_emu_traffic())
        noted.what += std::string(" in ") + launcher;
    if (np_emu_load)
        np_emu_load(stream, (const void *)kernel);
    std::apply([&noted](const P &...value) { (np_emu_note(&noted, value), ...); }, values);
    np_emu_launch(stream, blocks, threads, shared, std::move(noted),
        [kernel, values] { std::apply(kernel, values); });
}
#define NP_LAUNCH(kernel, blocks, threads, shared, stream, ...)                                    \
    np_emu_start(#kernel, __PRETTY_FUNCTION__, kernel, (blocks), (threads), (shared),              \
        (void *)(stream), __VA_ARGS__)

#define __syncthreads() np_emu_barrier(__LINE__)

static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    np_emu_exchange(mask, 0, np_emu_lane());
}

template <typename T> T np_emu_shuffle(unsigned mask, T value, int source)
{
    uint64_t word = 0;

    static_assert(sizeof(T) <= sizeof(word), "a shuffle moves 8 bytes at most");
    memcpy(&word, &value, sizeof(T));
    word = np_emu_exchange(mask, word, source);
    memcpy(&value, &word, sizeof(T));
    return value;
}
template <typename T> T __shfl_sync(unsigned mask, T value, int source)
{
    return np_emu_shuffle(mask, value, source & 31);
}
template <typename T> T __shfl_xor_sync(unsigned mask, T value, int bits)
{
    return np_emu_shuffle(mask, value, np_emu_lane() ^ bits);
}
template <typename T> T __shfl_down_sync(unsigned mask, T value, int by)
{
    int lane = np_emu_lane();

    return np_emu_shuffle(mask, value, lane + by < 32 ? lane + by : lane);
}

template <typename T> T __ldg(const T *from)
{
    return *from;
}
/* Hints for caches, which are not here. */
template <typename T> T __ldcs(const T *from)
{
    unsigned __int128 whole; /* one access, also if T is a structure */
    T value;

    if constexpr (sizeof(T) != sizeof(whole))
        return *from;
    memcpy(&whole, from, sizeof(whole));
    memcpy(&value, &whole, sizeof(whole));
    return value;
}
template <typename T> T __ldcg(const T *from)
{
    return __ldcs(from);
}
template <typename T> void __stcs(T *to, T value)
{
    *to = value;
}
/* Blocks run one after another. */
static inline unsigned atomicAdd(unsigned *at, unsigned by)
{
    unsigned before = *at;

    *at += by;
    return before;
}
#define __threadfence() ((void)0)

/* gcc counts no store of what a call returns (traffic.h): so the bits of a half are stored. */
template <typename T> inline __attribute__((always_inline)) T np_emu_bits(T half)
{
    uint16_t bits;

    memcpy(&bits, &half, sizeof(bits));
    memcpy((void *)&half, &bits, sizeof(bits));
    return half;
}
#define __float2bfloat16_rn(x) np_emu_bits(__float2bfloat16_rn(x))
#define __float2half_rn(x)     np_emu_bits(__float2half_rn(x))

#endif
