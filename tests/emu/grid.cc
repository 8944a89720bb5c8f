/* The emulated grid's inside: fibers, barriers, warps. A thread that launches owns a set of fibers.
 * A fiber runs one thread of the block after another to its end; only a thread that waits at a
 * barrier or a shuffle keeps its fiber, and another one continues with the threads not yet begun. So
 * kernels without barriers cost a function call a thread. */
#include "tests/emu/grid.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <sys/mman.h>
#include <vector>
#ifndef __x86_64__
#include <ucontext.h>
#endif
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

NP_EMU_THREAD uint3 threadIdx, blockIdx, blockDim, gridDim;
void (*np_emu_enqueue)(void *, void (*)(void *), void (*)(void *), void *);
void (*np_emu_argument)(const char *, uint64_t, int);
void (*np_emu_load)(void *, const void *);

namespace
{

const size_t STACK_BYTES = 256 << 10, GUARD_BYTES = 4096; /* touched pages alone are memory */
const unsigned MAX_THREADS = 1024;

/* --- switching stacks ------------------------------------------------------------------------ */

#ifdef __x86_64__
extern "C" void np_emu_switch(void **ret_from, void *to);
/* Saves what a call must keep, changes the stack, returns there. */
asm(R"(
    .text
    .type np_emu_switch, @function
np_emu_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size np_emu_switch, . - np_emu_switch
)");
#endif

struct fiber { /* the launching thread itself is one, without a stack of its own */
    char *stack = nullptr;
#ifdef __x86_64__
    void *at = nullptr;
#else
    ucontext_t at;
#endif
    void *fake_stack = nullptr; /* the address sanitizer's */
    const void *bottom = nullptr;
    size_t bytes = 0;
    void *tsan = nullptr;
};

void begin(fiber *f, void (*entry)())
{
    f->stack = (char *)mmap(nullptr, STACK_BYTES, PROT_READ | PROT_WRITE,
        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (f->stack == MAP_FAILED || mprotect(f->stack, GUARD_BYTES, PROT_NONE) != 0) {
        fprintf(stderr, "grid: no memory for a fiber's stack\n");
        abort();
    }
    f->bottom = f->stack;
    f->bytes = STACK_BYTES;
#ifdef __x86_64__
    void **top = (void **)(f->stack + STACK_BYTES);

    *--top = nullptr; /* where entry would return to: aligns the stack as a call does */
    *--top = (void *)entry;
    f->at = top - 6;
#else
    getcontext(&f->at);
    f->at.uc_stack.ss_sp = f->stack + GUARD_BYTES;
    f->at.uc_stack.ss_size = STACK_BYTES - GUARD_BYTES;
    makecontext(&f->at, entry, 0);
#endif
#ifdef __SANITIZE_THREAD__
    f->tsan = __tsan_create_fiber(0);
#endif
}

void end(fiber *f)
{
#ifdef __SANITIZE_ADDRESS__
    __asan_unpoison_memory_region(f->stack + GUARD_BYTES, STACK_BYTES - GUARD_BYTES);
#endif
#ifdef __SANITIZE_THREAD__
    __tsan_destroy_fiber(f->tsan);
#endif
    munmap(f->stack, STACK_BYTES);
}

/* --- a block --------------------------------------------------------------------------------- */

enum state : unsigned char { UNBORN, READY, AT_BARRIER, AT_WARP, DONE };

struct lane_set {           /* a warp */
    unsigned arrived, gone; /* lanes that wait; lanes that a short block lacks, or that are done */
    unsigned masks[32];     /* that they wait with */
    uint64_t given[32], taken[32];
};

struct runner {
    fiber home;
    std::vector<std::unique_ptr<fiber>> fibers;
    std::vector<fiber *> idle;
    fiber *fresh = nullptr;      /* the fiber that home has just switched to for new threads */
    const fiber *left = nullptr; /* the one that ran before the current one */
    const std::function<void()> *body = nullptr;
    unsigned nr = 0, begun = 0, nr_done = 0, nr_waiting = 0; /* threads of the block */
    unsigned current = 0;
    int line = 0; /* of the barrier that some wait at */
    state states[MAX_THREADS];
    fiber *on[MAX_THREADS];
    uint3 places[MAX_THREADS]; /* of the threads in the block */
    unsigned order[MAX_THREADS];
    unsigned ready[MAX_THREADS], nr_ready = 0,
                                 next_ready = 0; /* whom a waiting thread gives way to */
    lane_set warps[MAX_THREADS / 32];
    std::vector<void *> shared; /* what the block has by now */
    uint64_t draws = 0;         /* 0: no shuffling */

    ~runner()
    {
        for (auto &f : fibers)
            end(f.get());
    }
};
NP_EMU_THREAD runner *me;
thread_local std::unique_ptr<runner> own; /* frees what `me` points at */
uint64_t seed = 1, nr_launches;

/* The first words of a fiber, or of home, that has just been switched to. */
void arrived(fiber *f)
{
#ifdef __SANITIZE_ADDRESS__
    fiber *home = &me->home; /* who comes from home is told its stack for the way back */
    bool told = me->left == home;

    __sanitizer_finish_switch_fiber(
        f->fake_stack, told ? &home->bottom : nullptr, told ? &home->bytes : nullptr);
#else
    (void)f;
#endif
}

void change(fiber *from, fiber *to)
{
    me->left = from;
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(&from->fake_stack, to->bottom, to->bytes);
#endif
#ifdef __SANITIZE_THREAD__
    from->tsan = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(to->tsan, 0);
#endif
#ifdef __x86_64__
    np_emu_switch(&from->at, to->at);
#else
    swapcontext(&from->at, &to->at);
#endif
    arrived(from);
}

[[noreturn]] void die(const char *what)
{
    fprintf(stderr, "grid: block (%u, %u, %u), thread %u of %u: %s\n", blockIdx.x, blockIdx.y,
        blockIdx.z, me ? me->current : 0, me ? me->nr : 0, what);
    abort();
}

uint64_t draw(uint64_t *at) /* splitmix64 */
{
    uint64_t z = (*at += 0x9e3779b97f4a7c15ull);

    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
    return z ^ (z >> 31);
}

void shuffle(unsigned *items, size_t n)
{
    for (size_t i = n; me->draws && i > 1; i--)
        std::swap(items[i - 1], items[draw(&me->draws) % i]);
}

void enter(unsigned thread)
{
    me->current = thread;
    np_emu_traffic_thread(thread);
    threadIdx = me->places[thread];
}

void leave(unsigned thread)
{
    lane_set *warp = &me->warps[thread / 32];

    if (me->nr_waiting || warp->arrived)
        die("it ends while others wait at a barrier or a shuffle");
    me->states[thread] = DONE;
    me->nr_done++;
    warp->gone |= 1u << thread % 32;
}

/* What a fiber does all its life: threads not yet begun, one after another. */
void live()
{
    fiber *self = me->fresh;

    arrived(self);
    for (;;) {
        while (me->begun < me->nr) {
            unsigned thread = me->order[me->begun++];

            me->on[thread] = self;
            me->states[thread] = READY;
            enter(thread);
            (*me->body)();
            leave(me->current);
        }
        me->idle.push_back(self);
        change(self, &me->home);
    }
}

/* The next thread of go_on()'s; NULL: home chooses. */
fiber *next_ready()
{
    if (me->next_ready == me->nr_ready)
        return nullptr;
    enter(me->ready[me->next_ready++]);
    return me->on[me->current];
}

void wait_as(state why)
{
    fiber *self = me->on[me->current], *next;

    me->states[me->current] = why;
    next = next_ready();
    change(self, next ? next : &me->home);
}

void begin_more()
{
    if (me->idle.empty()) {
        me->fibers.push_back(std::make_unique<fiber>());
        begin(me->fibers.back().get(), live);
        me->idle.push_back(me->fibers.back().get());
    }
    me->fresh = me->idle.back();
    me->idle.pop_back();
    change(&me->home, me->fresh);
}

void go_on()
{
    me->nr_ready = me->next_ready = 0;
    for (unsigned t = 0; t < me->nr; t++)
        if (me->states[t] == READY)
            me->ready[me->nr_ready++] = t;
    if (me->nr_ready == 0)
        die("every thread waits: for a lane or a barrier that no other thread reaches");
    shuffle(me->ready, me->nr_ready);
    while (fiber *next = next_ready())
        change(&me->home, next);
}

void run_block()
{
    me->begun = me->nr_done = me->nr_waiting = 0;
    me->shared.clear();
    for (unsigned t = 0; t < me->nr; t++) {
        me->states[t] = UNBORN;
        me->order[t] = t;
    }
    for (unsigned w = 0; w * 32 < me->nr; w++) {
        me->warps[w].arrived = 0;
        me->warps[w].gone = me->nr - w * 32 < 32 ? ~0u << (me->nr - w * 32) : 0;
    }
    shuffle(me->order, me->nr);
    while (me->nr_done < me->nr)
        if (me->begun < me->nr)
            begin_more();
        else
            go_on();
    np_emu_traffic_block_end();
}

struct job {
    dim3 blocks, threads;
    np_emu_arguments arguments;
    std::function<void()> body;
};

void check_arguments(const np_emu_arguments &arguments)
{
    if (!np_emu_argument)
        return;
    for (uint64_t word : arguments.pointers)
        np_emu_argument(arguments.kernel, word, 1);
    for (uint64_t word : arguments.words)
        np_emu_argument(arguments.kernel, word, 0);
}

void check_limits(dim3 blocks, dim3 threads, size_t shared)
{
    if (blocks.x == 0 || blocks.x > 0x7fffffff || blocks.y - 1 > 65534 || blocks.z - 1 > 65534)
        die("a launch with no block or more than the hardware takes");
    if (threads.x == 0 || threads.x > 1024 || threads.y - 1 > 1023 || threads.z - 1 > 63 ||
        (uint64_t)threads.x * threads.y * threads.z > MAX_THREADS)
        die("a launch with no thread or more than 1024 a block");
    if (shared)
        die("a launch with dynamic shared memory, which the emulation lacks");
}

void run_job(void *context)
{
    const job *j = (const job *)context;
    std::vector<unsigned> order((size_t)j->blocks.x * j->blocks.y * j->blocks.z);

    check_arguments(j->arguments); /* a captured launch comes by again */
    if (!own)
        own = std::make_unique<runner>();
    me = own.get();
    me->body = &j->body;
    me->nr = j->threads.x * j->threads.y * j->threads.z;
    me->draws = seed ? seed + __atomic_fetch_add(&nr_launches, 1, __ATOMIC_RELAXED) * 977 : 0;
    blockDim = uint3{j->threads.x, j->threads.y, j->threads.z};
    gridDim = uint3{j->blocks.x, j->blocks.y, j->blocks.z};
    for (unsigned t = 0; t < me->nr; t++)
        me->places[t] =
            uint3{t % blockDim.x, t / blockDim.x % blockDim.y, t / blockDim.x / blockDim.y};
    for (size_t i = 0; i < order.size(); i++)
        order[i] = (unsigned)i;
    shuffle(order.data(), order.size());
    np_emu_traffic_begin(j->arguments.what.c_str());
    for (unsigned block : order) {
        blockIdx.x = block % gridDim.x;
        blockIdx.y = block / gridDim.x % gridDim.y;
        blockIdx.z = block / gridDim.x / gridDim.y;
        run_block();
    }
    np_emu_traffic_end();
}

void drop_job(void *context)
{
    delete (job *)context;
}
} // namespace

void np_emu_launch(void *stream, dim3 blocks, dim3 threads, size_t shared,
    np_emu_arguments arguments, std::function<void()> body)
{
    check_limits(blocks, threads, shared);
    check_arguments(arguments);
    job *j = new job{blocks, threads, std::move(arguments), std::move(body)};

    if (np_emu_enqueue) {
        np_emu_enqueue(stream, run_job, drop_job, j);
        return;
    }
    run_job(j);
    drop_job(j);
}

bool np_emu_job_uses(const void *job_, const void *memory, size_t bytes)
{
    const np_emu_arguments &arguments = ((const job *)job_)->arguments;

    for (const std::vector<uint64_t> *words : {&arguments.pointers, &arguments.words})
        for (uint64_t word : *words)
            if (word - (uint64_t)memory < bytes)
                return true;
    return false;
}

void np_emu_seed(uint64_t seed_)
{
    seed = seed_;
    nr_launches = 0;
}

void np_emu_share(void *memory, size_t bytes)
{
    for (void *known : me->shared)
        if (known == memory)
            return;
    me->shared.push_back(memory);
    memset(memory, 0xff, bytes);
    np_emu_traffic_share(memory, bytes);
}

void np_emu_barrier(int line)
{
    if (me->nr_waiting && me->line != line)
        die("it comes to another barrier than the one others wait at");
    if (me->nr_done)
        die("it waits at a barrier that others have left out");
    me->line = line;
    if (++me->nr_waiting < me->nr) {
        wait_as(AT_BARRIER);
        return;
    }
    me->nr_waiting = 0;
    for (unsigned t = 0; t < me->nr; t++)
        me->states[t] = READY;
}

uint64_t np_emu_exchange(unsigned mask, uint64_t value, int source)
{
    unsigned lane = me->current % 32, first = me->current - lane;
    lane_set *warp = &me->warps[me->current / 32];

    if (!(mask >> lane & 1) || !(mask >> source & 1) || (mask & warp->gone))
        die("a shuffle whose mask lacks the lane itself or its source, or names a finished lane");
    warp->given[lane] = value;
    warp->masks[lane] = mask;
    warp->arrived |= 1u << lane;
    if ((warp->arrived & mask) != mask) {
        wait_as(AT_WARP);
        return warp->taken[source];
    }
    warp->arrived &= ~mask;
    for (unsigned l = 0; l < 32; l++)
        if (mask >> l & 1) {
            if (warp->masks[l] != mask)
                die("a shuffle whose lanes disagree about its mask");
            warp->taken[l] = warp->given[l];
            me->states[first + l] = READY;
        }
    return warp->taken[source];
}

int np_emu_lane(void)
{
    return (int)(me->current % 32);
}
